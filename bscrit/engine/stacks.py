"""Stacks: one tensor of shape [K, ...] for the same tensor of K lanes, and the memory order within a lane.

A vectorised backward hands some gradients over with other strides than the parameters were made with, and
an update of tensors in unlike orders is several times slower. So parameters are laid out once in the order
of their gradients, and that order is kept by every copy: matrix products may round differently in another
one, and a resumed run would no longer be bitwise the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Stack:
    """The tensors of K lanes.

    Attributes:
        seeds: of each lane.
        parameters: trainable ones by name, [K, ...].
        buffers: buffers, and parameters that don't require a gradient, by name, [K, ...].
    """

    seeds: tuple[int, ...]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @classmethod
    def of_models(cls, seeds: Sequence[int], models: Sequence[nn.Module]) -> Stack:
        """Copies of the tensors of one model a lane."""
        lanes = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in models]
        stacks = {name: torch.stack([lane[name].detach() for lane in lanes]) for name in lanes[0]}
        trained = [name for name, tensor in lanes[0].items() if tensor.requires_grad]
        return cls._of(seeds, stacks, trained)

    @classmethod
    def joined(cls, stacks: Sequence[Stack], device: torch.device) -> Stack:
        """The lanes of several stacks in one, on this device."""
        seeds = [seed for stack in stacks for seed in stack.seeds]
        tensors = {
            name: joined([stack.tensors[name].to(device) for stack in stacks]) for name in stacks[0].tensors
        }
        return cls._of(seeds, tensors, stacks[0].parameters)

    @classmethod
    def _of(cls, seeds: Sequence[int], stacks: Mapping[str, Tensor], trained: Iterable[str]) -> Stack:
        parameters = {name: stacks[name].requires_grad_() for name in trained}
        buffers = {name: stack for name, stack in stacks.items() if name not in parameters}
        return cls(tuple(seeds), parameters, buffers)

    def selected(self, rows: Sequence[int]) -> Stack:
        """A copy of some lanes."""
        stacks = {name: rows_of(tensor, rows) for name, tensor in self.tensors.items()}
        return self._of([self.seeds[row] for row in rows], stacks, self.parameters)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.buffers}

    def lane(self, row: int) -> dict[str, Tensor]:
        """Views of one lane's tensors, without gradients."""
        return {name: tensor.detach()[row] for name, tensor in self.tensors.items()}

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters.values())).device


def rows_of(stack: Tensor, rows: Sequence[int]) -> Tensor:
    """A copy of some lanes, in the same memory order."""
    index = torch.tensor(list(rows), dtype=torch.int64, device=stack.device)
    with torch.no_grad():
        return _empty(stack, stack.stride(), len(rows)).copy_(stack.detach().index_select(0, index))


def joined(stacks: Sequence[Tensor]) -> Tensor:
    """Lanes of several stacks in one, in the memory order of the first."""
    first = stacks[0]
    return _empty(first, first.stride(), sum(map(len, stacks))).copy_(torch.cat(list(stacks)))


def laid_out_as(stack: Tensor, other: Tensor) -> Tensor:
    """The stack itself if its lanes have the memory order of `other`, else a copy that does."""
    if _lane_order(stack) == _lane_order(other):
        return stack
    return _empty(stack, other.stride(), len(stack)).copy_(stack.detach())


def zeros_like_strided(stack: Tensor) -> Tensor:
    """Zeros of the same shape and memory order."""
    return _empty(stack, stack.stride(), len(stack)).zero_()


def _empty(like: Tensor, strides: Sequence[int], lanes: int) -> Tensor:
    """Lane by lane in memory, each lane dense in the order that `strides` has."""
    shape = like.shape[1:]
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis + 1], -axis), reverse=True)
    inner, dense = [0] * len(shape), 1
    for axis in reversed(order):
        inner[axis] = dense
        dense *= shape[axis]
    return torch.empty_strided((lanes, *shape), (dense, *inner), dtype=like.dtype, device=like.device)


def _lane_order(stack: Tensor) -> list[int]:
    """Strides within a lane, of the axes whose stride means something."""
    return [stride for stride, size in zip(stack.stride()[1:], stack.shape[1:], strict=True) if size > 1]
