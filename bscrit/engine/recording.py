"""The kernel calls of a function of tensors as a flat list, without what decides on them.

`torch.fx.experimental.proxy_tensor.make_fx` runs the function once on tensors without values, so that nothing can
depend on a value unnoticed, and writes down the calls that modules, vmap and autograd make. A recording makes the
same calls in the same order on the same operands, so its results have the same bits, as replay.py proves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[..., list[Tensor]]
LARGEST_CONSTANT = 2**16  # elements that are kept from one call to the next
_aten = torch.ops.aten
_VIEWS = {_aten.detach.default, _aten.alias.default, _aten.view.default, _aten._unsafe_view.default}
_VIEWS |= {_aten.expand.default, _aten.transpose.int, _aten.t.default, _aten.unsqueeze.default}
_VIEWS |= {_aten.squeeze.dims, _aten.squeeze.dim, _aten.permute.default, _aten.select.int, _aten.slice.Tensor}
_SHAPE_ALONE = {_aten.ones_like.default, _aten.zeros_like.default, _aten.full_like.default}
_SHAPE_ALONE |= {_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default}


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
    """The operations of `function` on tensors of these shapes and strides.

    Raises:
        NotRecorded: what it does next may depend on the value of a tensor.
    """
    try:
        module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise NotRecorded(f"{type(error).__name__}: {lines[0] if lines else ''}") from error
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    for call in calls:
        tags = getattr(call.target, "tags", ())
        if torch.Tag.data_dependent_output in tags or not _has_fixed_shape(call):
            raise NotRecorded(f"what follows {call.target} depends on the values of a tensor")
        if not isinstance(call.target, torch._ops.OpOverload) and call.target is not getitem:
            raise NotRecorded(f"{call.target} is no call of a kernel")
    draws = any(torch.Tag.nondeterministic_seeded in getattr(call.target, "tags", ()) for call in calls)
    if not draws and not any(map(_writes, calls)):
        _fold(module)
        _leave_out(module.graph)
    for node in module.graph.nodes:
        node.meta.clear()
    module.recompile()
    return Recording(module, draws)


def _has_fixed_shape(call: Node) -> bool:
    """Picking by positions gives as many as there are positions; picking by a mask may give any number."""
    if torch.Tag.dynamic_output_shape not in getattr(call.target, "tags", ()):
        return True
    if call.target is not _aten.index.Tensor:
        return False
    indices: Any = call.args[1]
    return all(index is None or index.meta["val"].dtype not in (torch.bool, torch.uint8) for index in indices)


def _writes(call: Node) -> bool:
    schema = getattr(call.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _fold(module: GraphModule) -> None:
    """Compute once what depends on shapes, and on numbers that stand in the code, alone.

    What a tensor from elsewhere holds may change, so that it is read at every call.
    """
    constants: dict[Node, Tensor] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, Tensor) or value.numel() > LARGEST_CONSTANT:
            continue
        if node.target in _SHAPE_ALONE:
            operands: dict[Node, Any] = {one: _like(one.meta["val"]) for one in node.all_input_nodes}
        elif node.target is _aten.lift_fresh_copy.default:
            operands = {one: getattr(module, str(one.target)) for one in node.all_input_nodes}
        elif all(one in constants for one in node.all_input_nodes):
            operands = constants
        else:
            continue
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), operands.__getitem__)
        constants[node] = node.target(*args, **kwargs)
    for node, constant in constants.items():
        name = f"constant_{node.name}"
        object.__setattr__(module, name, constant)
        with module.graph.inserting_before(node):
            folded = module.graph.create_node("get_attr", name)
        folded.meta = node.meta
        node.replace_all_uses_with(folded)
    _remove_unused(module.graph)


def _like(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


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
    one = node.target in (_aten.mul.Scalar, _aten.mul.Tensor) and node.args[1] == 1
    if not one and node.target not in _VIEWS:
        return False
    operand = node.args[0]
    return isinstance(operand, Node) and _layout(operand) == _layout(node)


def _layout(node: Node) -> tuple[Any, ...] | None:
    """The properties of a tensor that decide whether a view of it is another tensor."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return None
    return value.shape, value.stride(), value.storage_offset(), value.dtype


def _root(node: Node) -> Node:
    """The tensor at which a chain of views looks."""
    while node.op == "call_function" and node.target in _VIEWS:
        operand = node.args[0]
        assert isinstance(operand, Node)
        node = operand
    return node


def _remove_unused(graph: Graph) -> None:
    for node in reversed(list(graph.nodes)):
        checks = node.op == "call_function" and node.meta.get("val") is None  # it may raise, and nothing else
        if not node.users and node.op in ("call_function", "get_attr") and not checks:
            graph.erase_node(node)
