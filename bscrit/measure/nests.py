"""Batches as nests of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[..., Any], *batches: Any) -> Any:
    """Apply `function` to the tensors of nests of tuples, lists and dicts of one shape.

    >>> map_tensors(len, {"x": torch.zeros(3, 2), "y": (torch.zeros(3),)})
    {'x': 3, 'y': (3,)}
    """
    first = batches[0]
    if isinstance(first, Tensor):
        return function(*batches)
    if isinstance(first, dict):
        return {key: map_tensors(function, *(batch[key] for batch in batches)) for key in first}
    if isinstance(first, tuple | list):
        parts = [map_tensors(function, *items) for items in zip(*batches, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*parts)
        return tuple(parts) if isinstance(first, tuple) else parts
    raise TypeError(f"a batch holds tensors in tuples, lists and dicts, not {type(first).__name__}")
