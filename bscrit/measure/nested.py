"""Batches as tensors in nested tuples, lists, dicts and dataclasses, and parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[..., Any], *batches: Any, keep_others: bool = False) -> Any:
    """Apply `function` to the tensors of batches that are nested alike.

    Args:
        keep_others: leave what is no tensor as it is.

    Raises:
        TypeError: something is no tensor.

    >>> import torch
    >>> map_tensors(len, {"x": torch.zeros(3, 2), "y": (torch.zeros(3),)})
    {'x': 3, 'y': (3,)}
    """
    first = batches[0]
    if isinstance(first, Tensor):
        return function(*batches)
    if isinstance(first, tuple | list):
        items = [map_tensors(function, *each, keep_others=keep_others) for each in zip(*batches, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if isinstance(first, Mapping):
        parts = {
            key: map_tensors(function, *(batch[key] for batch in batches), keep_others=keep_others)
            for key in first
        }
        return parts if type(first) is dict else type(first)(parts)  # type: ignore[call-arg]
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first) if field.init]
        values = map_tensors(
            function, *({n: getattr(batch, n) for n in names} for batch in batches), keep_others=keep_others
        )
        return replace(first, **values)
    if keep_others:
        return first
    raise TypeError(f"a batch holds tensors in tuples, lists and dicts, not {type(first).__name__}")


def tensors_of(batch: Any, keep_others: bool = False) -> list[Tensor]:
    """The tensors of a batch, in order."""
    if type(batch) is tuple and all(isinstance(part, Tensor) for part in batch):
        return list(batch)  # the commonest nesting, at every step
    tensors: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(note, batch, keep_others=keep_others)
    return tensors


def narrowed(batch: Any, first: int, length: int, axis: int = 0) -> Any:
    """`length` examples from `first` on, along `axis`."""
    return map_tensors(lambda tensor: tensor.narrow(axis, first, length), batch)


def parts_of(batch: Any, size: int, axis: int = 0) -> Iterator[Any]:
    """Consecutive parts of `size` examples along `axis`, the last one shorter if it doesn't divide."""
    total = tensors_of(batch)[0].shape[axis]
    for first in range(0, total, size):
        yield narrowed(batch, first, min(size, total - first), axis)
