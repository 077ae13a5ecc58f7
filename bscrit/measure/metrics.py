"""Metrics: in which geometry gradients are squared.

identity   |g|^2         tr(Sigma)/|G|^2 = B_simple
hessian    g'Hg          tr(H Sigma)/(G'HG) = B_noise, by Hessian-vector products
adam       sum p g^2     p = 1/(sqrt(v) + eps): what B_simple is where updates are scaled by Adam's second moment v

A metric takes gradients as stacks, one float64 tensor per parameter of shape [lanes, groups, ...], and gives their
squares, (lanes, groups) in float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

Metric = Callable[[Sequence[Tensor]], Tensor]


def identity(stacks: Sequence[Tensor]) -> Tensor:
    """|g|^2."""
    return _products(stacks, stacks)


def diagonal(weights: Sequence[Tensor]) -> Metric:
    """sum p g^2 with one weight per parameter and lane, stacks of shape [lanes, ...]."""
    exact = [weight.double().unsqueeze(1) for weight in weights]
    return lambda stacks: _products(stacks, [w * stack for w, stack in zip(exact, stacks, strict=True)])


def adam(square_moments: Sequence[Tensor], updates: int, beta2: float, eps: float) -> Metric:
    """sum g^2/(sqrt(v) + eps), v the second moments after `updates` updates."""
    return diagonal([adam_weight(moment.double(), updates, beta2, eps) for moment in square_moments])


def adam_weight(square_moment: Tensor, updates: float, beta2: float, eps: float) -> Tensor:
    """1/(sqrt(v) + eps), v corrected for its start at 0.

    0 where v is 0: no update has moved such an element yet, and 1/eps would drown all others.
    """
    v = square_moment / (1 - beta2**updates)
    weight: Tensor = 1 / (v.sqrt() + eps)
    return weight.masked_fill(v == 0, 0)


def hessian(product: Callable[[list[Tensor]], list[Tensor]]) -> Metric:
    """g'Hg.

    Args:
        product: Hessian-vector product of stacks [lanes, ...]. The Hessian must come from other examples than the
            gradients: with the same ones E g'Hg is another number than tr(H Sigma)/m + G'HG.
    """

    def squares(stacks: Sequence[Tensor]) -> Tensor:
        groups = []
        for group in range(stacks[0].shape[1]):
            vector = [stack[:, group] for stack in stacks]
            image = product(vector)
            groups.append(
                _products([v.unsqueeze(1) for v in vector], [h.double().unsqueeze(1) for h in image])
            )
        return torch.cat(groups, dim=1)

    return squares


def hessian_product(total: Tensor, parameters: Sequence[Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    """v -> Hv of a loss, by a second backward through its gradients."""
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


def _products(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """(lanes, groups): inner products over all parameters."""
    total = torch.zeros((), dtype=torch.float64)
    for a, b in zip(left, right, strict=True):
        total = total + (a * b).flatten(2).sum(2).cpu() if a.dim() > 2 else total + (a * b).cpu()
    return total


IDENTITY: Mapping[str, Metric] = MappingProxyType({"identity": identity})
