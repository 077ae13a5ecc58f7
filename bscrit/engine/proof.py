"""Whether a recording does what an ordinary call does: results, tensors that are written into, and all around them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.measure.random_states import other_states


def surroundings(workload: object, module: nn.Module) -> list[Any]:
    """State that a call could change besides its tensors, as far as it can be seen."""
    seen: list[Any] = other_states()
    for owner in (workload, *module.modules()):
        seen += [(name, identity(value)) for name, value in getattr(owner, "__dict__", {}).items()]
    return seen


def attributes(workload: object) -> list[Any]:
    """Their values: another one may mean other operations."""
    return list(getattr(workload, "__dict__", {}).values())


def unchanged(before: Sequence[Any], after: Sequence[Any]) -> bool:
    if len(before) != len(after):
        return False
    return all(map(is_, before, after)) or all(
        old is new or (isinstance(old, int | float | str) and type(old) is type(new) and old == new)
        for old, new in zip(before, after, strict=True)
    )


def same(results: Sequence[Tensor], expected: Sequence[Tensor], allowed: float) -> bool:
    """Whether all tensors are the same, in the same memory order where nothing is allowed.

    Args:
        allowed: how much an entry may differ as a share of itself, or of a hundredth of its tensor's largest one: what
            cancels is rounded as its terms are.
    """
    if len(results) != len(expected):
        return False
    for result, other in zip(results, expected, strict=True):
        if result.shape != other.shape or result.dtype != other.dtype or result.device != other.device:
            return False
        if not allowed and result.stride() != other.stride():
            return False
        scale = float(other.detach().abs().nan_to_num(posinf=0.0).max()) if allowed and other.numel() else 0.0
        if not torch.allclose(result, other, rtol=allowed, atol=allowed * scale / 100, equal_nan=True):
            return False
    return True


def copied(tensor: Tensor) -> Tensor:
    """A copy in the same memory order; what lanes share is not copied, as nothing can be written into it."""
    tensor = tensor.detach()
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
        tensor
    )


def identity(value: Any) -> Hashable:
    """Changes when another value takes its place, or that of an element, or a tensor is written into."""
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, dict):
        return tuple(map(id, value.values()))
    return tuple(map(id, value)) if isinstance(value, list | tuple | set) else id(value)
