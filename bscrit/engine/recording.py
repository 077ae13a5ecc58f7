"""The operations of a function of tensors as a flat list: what torch runs, without what decides on it.

A function runs once while every kernel call is noted: of modules, of vmap's and autograd's machinery only the
calls are left that they made. A recording makes the same calls in the same order on the same operands, so its
results have the same bits. `torch.fx.experimental.proxy_tensor.make_fx` notes them too, and takes ten times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakIdKeyDictionary

Function = Callable[..., list[Tensor]]
LARGEST_CONSTANT = 2**16  # elements that are kept from one call to the next
_aten = torch.ops.aten
_VIEWS = {_aten.detach.default, _aten.alias.default, _aten.view.default, _aten._unsafe_view.default}
_VIEWS |= {_aten.expand.default, _aten.transpose.int, _aten.t.default, _aten.unsqueeze.default}
_VIEWS |= {_aten.squeeze.dims, _aten.squeeze.dim, _aten.permute.default, _aten.select.int, _aten.slice.Tensor}
_SHAPE_ALONE = {_aten.ones_like.default, _aten.zeros_like.default, _aten.full_like.default}
_SHAPE_ALONE |= {_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default}
_HANDED_OVER = ("numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage")


class NotRecorded(Exception):
    """A function that has no fixed list of operations."""


@dataclass(frozen=True)
class Recording:
    """The operations of a function.

    Attributes:
        module: called with the function's arguments, it returns the list of its results.
        draws: whether random numbers are among the operations.
    """

    module: GraphModule
    draws: bool


def record(function: Function, tensors: Sequence[Tensor]) -> Recording:
    """The operations of `function` on tensors of these shapes and strides; it runs once, on these.

    Raises:
        NotRecorded: what it does next may depend on the value of a tensor.
    """
    tape = _Tape(tensors)
    with tape, _no_values():
        results = function(*tensors)
    tape.graph.output([tape.known[result] for result in results])
    calls = [node for node in tape.graph.nodes if node.op == "call_function"]
    draws = any(map(_draws, calls))
    if not draws and not any(map(_writes, calls)):
        _fold(tape)
        _leave_out(tape.graph)
    return Recording(GraphModule(tape.constants, tape.graph), draws)


@dataclass(frozen=True)
class _Layout:
    """What of a tensor decides whether a view of it is another tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Layout:
        return cls(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)


@contextmanager
def _no_values() -> Iterator[None]:
    """Refuse, inside, what hands the values of a tensor to other libraries, past every kernel.

    By methods in their place: a mode that sees all functions makes torch take other paths than it would without.
    """
    here = threading.get_ident()

    def refusing(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == here:
                raise NotRecorded("the value of a tensor is asked for")
            return method(*args, **kwargs)

        return call

    own = {name: vars(Tensor)[name] for name in _HANDED_OVER if name in vars(Tensor)}
    for name in _HANDED_OVER:
        setattr(Tensor, name, refusing(getattr(Tensor, name)))
    try:
        yield
    finally:
        for name in _HANDED_OVER:
            delattr(Tensor, name)
        for name, method in own.items():
            setattr(Tensor, name, method)


class _Tape(TorchDispatchMode):
    """Notes each kernel call, and what operands it had: arguments, earlier results, or tensors from elsewhere."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = Graph()
        self.constants = torch.nn.Module()
        self.known = WeakIdKeyDictionary()
        self.kept: dict[Node, Tensor] = {}
        for number, tensor in enumerate(tensors):
            self.known[tensor] = self.graph.placeholder(f"argument_{number}")
            self.known[tensor].meta["layout"] = _Layout.of(tensor)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's own way to say that no import of its compiler, which takes a second, is needed here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            raise NotRecorded("the value of a tensor is asked for")
        if torch.Tag.dynamic_output_shape in func.tags and not _has_fixed_shape(func, args):
            raise NotRecorded("the shape of a tensor depends on values")
        operands, named = tree_map(self._node, args), tree_map(self._node, kwargs or {})
        node = self.graph.call_function(func, operands, named)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self._note(node, result)
            return result
        found = [(place, one) for place, one in enumerate(tree_flatten(result)[0]) if isinstance(one, Tensor)]
        node.meta["checks"] = not found  # it may raise, and nothing else
        for place, one in found:
            self._note(self.graph.call_function(_item, (node, place)), one)
        return result

    def _node(self, operand: Any) -> Any:
        if not isinstance(operand, Tensor):
            return operand
        if operand not in self.known:
            self.known[operand] = self.constant(operand)
        return self.known[operand]

    def _note(self, node: Node, tensor: Tensor) -> None:
        node.meta["layout"] = _Layout.of(tensor)
        self.known[tensor] = node
        if _made_of_constants(node) and tensor.numel() <= LARGEST_CONSTANT:
            node.meta["constant"] = True
            self.kept[node] = tensor

    def constant(self, tensor: Tensor) -> Node:
        name = f"constant_{len(vars(self.constants))}"
        object.__setattr__(self.constants, name, tensor)
        node = self.graph.create_node("get_attr", name)
        node.meta = {"layout": _Layout.of(tensor), "constant": True}
        return node


def _has_fixed_shape(func: Any, args: Sequence[Any]) -> bool:
    """Picking by positions gives as many as there are positions; picking by a mask may give any number."""
    if func is not _aten.index.Tensor:
        return False
    return all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1])


def _item(values: Sequence[Any], place: int) -> Any:
    return values[place]


def _made_of_constants(node: Node) -> bool:
    depends = [] if node.target in _SHAPE_ALONE else node.all_input_nodes
    return all(other.meta.get("constant") for other in depends)


def _draws(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _fold(tape: _Tape) -> None:
    """Compute once what depends on shapes and constants alone."""
    for node, tensor in tape.kept.items():
        with tape.graph.inserting_before(node):
            node.replace_all_uses_with(tape.constant(tensor))
    _remove_unused(tape.graph)


def _leave_out(graph: Graph) -> None:
    """Drop what returns its operand: views of its own shape, products with 1; and what nobody reads.

    Copies stay: a product of matrices may round otherwise where its operands are aligned otherwise.
    """
    for node in graph.nodes:
        if node.op == "call_function" and _returns_its_operand(node):
            node.replace_all_uses_with(node.args[0])
    output = graph.output_node()
    found: Any = output.args[0]
    returned: list[Node] = []
    for node in found:
        shared = _root(node).op != "call_function" or _root(node) in map(_root, returned)
        with graph.inserting_before(output):
            # Whoever gets a result may write into it.
            returned.append(graph.call_function(_aten.clone.default, (node,)) if shared else node)
    output.args = (returned,)
    _remove_unused(graph)


def _returns_its_operand(node: Node) -> bool:
    one = node.target in (_aten.mul.Scalar, _aten.mul.Tensor) and node.args[1] == 1
    if not one and node.target not in _VIEWS:
        return False
    operand = node.args[0]
    return isinstance(operand, Node) and operand.meta.get("layout") == node.meta.get("layout")


def _root(node: Node) -> Node:
    """What a chain of views looks at."""
    while node.op == "call_function" and node.target in _VIEWS:
        operand = node.args[0]
        assert isinstance(operand, Node)
        node = operand
    return node


def _remove_unused(graph: Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not node.meta.get("checks"):
            graph.erase_node(node)
