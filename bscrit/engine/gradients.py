"""Gradients, gradients of groups and Hessian-vector products of a summed loss, by ordinary backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.measure.nested import map_tensors, tensors_of

Reduce = Callable[[list[Tensor]], list[Tensor]]
MOST_EXPANDED = 2**20  # elements of parameters copied for groups


class Call(nn.Module):
    """A workload's method on a model as a module's forward, which is what functional_call can call."""

    def __init__(self, function: Callable[..., Tensor], model: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.model = model

    def forward(self, *arguments: Any) -> Tensor:
        return self.function(self.model, *arguments)


def gradients_of(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    if not parameters:
        return []
    return list(torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True))


def fits_in_groups(parameters: Iterable[Tensor], batch: Any) -> bool:
    """Whether copies of the parameters for every group cost less than a pass for each group.

    Args:
        parameters: [K, ...].
        batch: leading dimensions K, groups.
    """
    groups = tensors_of(batch)[0].shape[1]
    return groups * sum(tensor.numel() for tensor in parameters) <= MOST_EXPANDED


def grouped_gradients(
    forward: Callable[..., Tensor],
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    batch: Any,
    examples: int,
) -> list[Tensor]:
    """Gradients of each group from copies of the parameters, [K, G, ...]."""
    lanes, groups = tensors_of(batch)[0].shape[:2]

    def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: stack.detach().repeat_interleave(groups, 0) for name, stack in tensors.items()}

    leaves = {name: stack.requires_grad_() for name, stack in copies(parameters).items()}
    losses = forward(leaves, copies(buffers), map_tensors(lambda tensor: tensor.flatten(0, 1), batch))
    found = gradients_of(losses.sum() / examples, list(leaves.values()))
    return [gradient.reshape(lanes, groups, *gradient.shape[1:]) for gradient in found]


def hessian_of(total: Tensor, parameters: Sequence[Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    """Hessian-vector products by a second backward through the gradients."""
    first = torch.autograd.grad(
        total, parameters, create_graph=True, allow_unused=True, materialize_grads=True
    )
    slopes = [(place, slope) for place, slope in enumerate(first) if slope.requires_grad]

    def product(vector: list[Tensor]) -> list[Tensor]:
        if not slopes:  # a loss that is linear in every parameter
            return [torch.zeros_like(tensor) for tensor in vector]
        weights = [vector[place].to(slope.dtype) for place, slope in slopes]
        return list(
            torch.autograd.grad(
                [slope for _, slope in slopes],
                parameters,
                weights,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
        )

    return product
