"""Functions of tensors and their calls: what of the arguments decides which operations they take."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.measure.nested import map_tensors, tensors_of

Function = Callable[..., list[Tensor]]
"""function(module, tensors by name, batch, *settings): new tensors; it may write into those that it gets."""
Seeding = Callable[[], AbstractContextManager[None]]


class Inputs:
    """The tensors of a function by name, and what of them decides which operations it takes."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        self.flat = list(tensors.values())
        self.layout = layout(self.flat)


@dataclass(frozen=True)
class Call:
    """A function and its arguments, as one that takes tensors alone."""

    function: Function
    module: nn.Module
    inputs: Inputs
    batch: Any
    settings: tuple[Hashable, ...]
    seeding: Seeding

    def flat(self) -> list[Tensor]:
        return [*self.inputs.flat, *tensors_of(self.batch)]

    def ordinary(self) -> list[Tensor]:
        with self.seeding():
            return self.function(self.module, self.inputs.tensors, self.batch, *self.settings)

    def of_tensors(self, *tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        named = {name: next(rest) for name in self.inputs.tensors}
        return self.function(
            self.module, named, map_tensors(lambda _: next(rest), self.batch), *self.settings
        )


def layout(tensors: Iterable[Tensor]) -> tuple[Hashable, ...]:
    """The properties of tensors that decide which operations they take."""
    return tuple((t.shape, t.dtype, _strides(t), t.is_conj(), t.is_neg()) for t in tensors)


def form(batch: Any) -> Hashable:
    """The properties of a batch that decide which operations it takes: which tensors it has where, and their layout."""
    if isinstance(batch, Tensor):
        return layout([batch])
    if is_dataclass(batch) and not isinstance(batch, type):
        return type(batch), form(vars(batch))
    if isinstance(batch, Mapping):
        return type(batch), *((key, form(part)) for key, part in batch.items())
    return type(batch), *map(form, batch)


def _strides(tensor: Tensor) -> Hashable:
    return tensor.stride() if tensor.layout is torch.strided else tensor.layout
