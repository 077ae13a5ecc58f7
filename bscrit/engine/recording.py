"""The kernel calls of a function of tensors as a flat list, without what decides on them.

A recording makes the same calls in the same order on the same operands, so its results have the same bits, as replay.py
proves. While the function is recorded it works on tensors without memory, each of which stands for a real one: whatever
reads a value is refused, be it a kernel that returns a number, or code that asks where the numbers lie.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[..., list[Tensor]]
LARGEST_CONSTANT = 2**16  # elements that are kept from one call to the next
_aten = torch.ops.aten
_VIEWS = {_aten.detach.default, _aten.alias.default, _aten.view.default, _aten._unsafe_view.default}
_VIEWS |= {_aten.expand.default, _aten.transpose.int, _aten.t.default, _aten.unsqueeze.default}
_VIEWS |= {_aten.squeeze.dims, _aten.squeeze.dim, _aten.permute.default, _aten.select.int, _aten.slice.Tensor}
_OF_SHAPES = {_aten.ones_like.default, _aten.zeros_like.default, _aten.full_like.default}
_OF_SHAPES |= {_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default}
_OF_SHAPES |= {_aten.lift_fresh_copy.default}  # of a number in the code


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
    """The operations of `function`, which is called once, on these tensors; it may write into them.

    Raises:
        NotRecorded: what it does next may depend on the value of a tensor.
    """
    tape = _Tape()
    try:
        arguments = [_StandIn(tensor, tape.graph.placeholder(f"x{n}")) for n, tensor in enumerate(tensors)]
        with _as_it_is_written(), tape:
            results = function(*arguments)
        tape.graph.output([tape.node(result) for result in results])
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise NotRecorded(f"{type(error).__name__}: {lines[0] if lines else ''}") from error
    if not tape.draws and not tape.writes:
        tape.fold()
        _leave_out(tape.graph)
    return Recording(GraphModule(tape.tensors, tape.graph), tape.draws)


def _as_it_is_written() -> AbstractContextManager[Any]:
    """Nothing is compiled inside: torch's compiler, once it has met a stand-in, fails at later calls, too.

    Where it was never imported, the function has had no use for it.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


class _StandIn(Tensor):
    """A tensor without memory that stands for a real one, and the node that makes it."""

    original: Tensor
    node: Node
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, original: Tensor, node: Node) -> _StandIn:
        made: _StandIn = Tensor._make_wrapper_subclass(
            cls,
            original.shape,
            strides=original.stride(),
            storage_offset=original.storage_offset(),
            dtype=original.dtype,
            device=original.device,
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        made.original, made.node = original, node
        node.meta["layout"] = _layout(original)
        return made

    @classmethod
    def __torch_dispatch__(cls, kernel: Any, *_: Any) -> Any:
        raise NotRecorded(f"{kernel} is called in another thread")


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls each kernel on the real tensors and writes it down.

    Attributes:
        graph: the calls.
        tensors: from elsewhere, and constants, by the names that they have in the graph. What the former hold may
            change, so that they are read at every call.
        draws, writes: whether a call draws random numbers, or writes into an operand.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = Graph()
        self.tensors: dict[str, Tensor] = {}
        self.draws = self.writes = False
        self._nodes: dict[int, Node] = {}
        self._constants: dict[Node, Tensor] = {}

    def node(self, tensor: Tensor) -> Node:
        """The node that makes a tensor; one from elsewhere becomes an attribute."""
        if isinstance(tensor, _StandIn):
            return tensor.node
        if id(tensor) not in self._nodes:
            self._nodes[id(tensor)] = self._attribute(f"tensor_{len(self.tensors)}", tensor)
        return self._nodes[id(tensor)]

    def __torch_dispatch__(
        self, kernel: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if kernel is _aten.lift_fresh.default:
            kernel = _aten.lift_fresh_copy.default  # it may be written into
        stand_ins: dict[int, _StandIn] = {}

        def real(value: Any) -> Any:
            if not isinstance(value, _StandIn):
                return value
            stand_ins[id(value.original)] = value
            return value.original

        def node(value: Any) -> Any:
            return self.node(value) if isinstance(value, Tensor) else value

        operands, keywords = map_aggregate((args, dict(kwargs or {})), real)
        self._check(kernel, operands, keywords, stand_ins)
        call = self.graph.call_function(kernel, *map_aggregate((args, dict(kwargs or {})), node))
        results = kernel(*operands, **keywords)

        def standing_in(result: Any, node: Node) -> Any:
            if result is None or id(result) in stand_ins:
                return stand_ins.get(id(result))
            if not isinstance(result, Tensor):
                raise NotRecorded(f"what follows {kernel} depends on the values of a tensor")
            return _StandIn(result, node)

        if isinstance(results, list | tuple):
            call.meta["layout"] = ()
            places = [self.graph.call_function(getitem, (call, place)) for place in range(len(results))]
            return type(results)(map(standing_in, results, places))
        constant = kernel in _OF_SHAPES or all(operand in self._constants for operand in call.all_input_nodes)
        if constant and isinstance(results, Tensor) and results.numel() <= LARGEST_CONSTANT:
            self._constants[call] = results
        return standing_in(results, call)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to say so, torch would import its compiler, which takes a second and a half

    def fold(self) -> None:
        """Compute once what depends on shapes, and on numbers that stand in the code, alone."""
        for node, constant in self._constants.items():
            with self.graph.inserting_before(node):
                node.replace_all_uses_with(self._attribute(f"constant_{len(self.tensors)}", constant))
        _remove_unused(self.graph)

    def _check(self, kernel: Any, args: Any, kwargs: Any, stand_ins: Mapping[int, _StandIn]) -> None:
        """Refuse a call that a recording can't hold; take down whether it draws or writes."""
        tags = kernel.tags
        if torch.Tag.data_dependent_output in tags or not _has_fixed_shape(kernel, args):
            raise NotRecorded(f"what follows {kernel} depends on the values of a tensor")
        self.draws |= torch.Tag.nondeterministic_seeded in tags
        if kernel._schema.is_mutable:
            self.writes = True
            if torch.Tag.inplace_view in tags:
                raise NotRecorded(f"{kernel} changes the shape of a tensor in place")
            if any(id(tensor) not in stand_ins for tensor in _written(kernel, args, kwargs)):
                raise NotRecorded(f"{kernel} writes into a tensor from elsewhere")

    def _attribute(self, name: str, tensor: Tensor) -> Node:
        self.tensors[name] = tensor
        node = self.graph.get_attr(name)
        node.meta["layout"] = _layout(tensor)
        return node


def _layout(tensor: Tensor) -> Hashable:
    """The properties that decide whether a view of a tensor is another tensor."""
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


def _has_fixed_shape(kernel: Any, args: Any) -> bool:
    """Picking by positions gives as many as there are positions; picking by a mask may give any number."""
    if torch.Tag.dynamic_output_shape not in kernel.tags:
        return True
    if kernel is not _aten.index.Tensor:
        return False
    return all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1])


def _written(kernel: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The operands that a call writes into."""
    for place, argument in enumerate(kernel._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            operand = args[place] if place < len(args) else kwargs[argument.name]
            yield from operand if isinstance(operand, list | tuple) else [operand]


def _leave_out(graph: Graph) -> None:
    """Drop what returns its operand: views of its own shape, products with 1; and what nobody reads.

    Copies stay: a product of matrices may round otherwise where its operands are aligned otherwise.
    """
    for node in graph.nodes:
        if node.op == "call_function" and _returns_its_operand(node):
            node.replace_all_uses_with(node.args[0])
    output = graph.output_node()
    results: Any = output.args[0]
    returned: list[Node] = []
    for node in results:
        shared = _root(node).op != "call_function" or _root(node) in map(_root, returned)
        with graph.inserting_before(output):
            # Whoever gets a result may write into it.
            returned.append(graph.call_function(_aten.clone.default, (node,)) if shared else node)
    output.args = (returned,)
    _remove_unused(graph)


def _returns_its_operand(node: Node) -> bool:
    unscaled = node.target in (_aten.mul.Scalar, _aten.mul.Tensor) and node.args[1] == 1
    if not unscaled and node.target not in _VIEWS:
        return False
    operand = node.args[0]
    return isinstance(operand, Node) and operand.meta["layout"] == node.meta["layout"]


def _root(node: Node) -> Node:
    """The tensor at which a chain of views looks."""
    while node.op == "call_function" and node.target in _VIEWS:
        operand = node.args[0]
        assert isinstance(operand, Node)
        node = operand
    return node


def _remove_unused(graph: Graph) -> None:
    for node in reversed(list(graph.nodes)):
        checks = node.op == "call_function" and "layout" not in node.meta  # it may raise, and nothing else
        if not node.users and node.op in ("call_function", "get_attr") and not checks:
            graph.erase_node(node)
