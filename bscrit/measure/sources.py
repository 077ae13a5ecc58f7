"""Sources of noise samples: where squared gradient norms at two batch sizes come from."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

Sample = tuple[int, float, int, float]
"""n_small [examples], mean squared norm there, n_big [examples], squared norm there."""


def micro_batches(gradients: Iterable[list[Tensor]], size: int) -> list[Sample]:
    """One sample per lane from the mean gradients of equal parts of a batch.

    E|G_B|^2 = |G|^2 + tr(Sigma)/B at B = size and at B = parts * size (McCandlish et al. 2018, appendix A.1):
    sq_small is the mean of the parts' squared norms, sq_big the squared norm of their mean.

    Args:
        gradients: per part, the stacks [K, ...] of all parameters.
        size: examples per part.
    """
    total: list[Tensor] = []
    squares, parts = torch.zeros(()), 0
    for part in gradients:
        exact = [stack.double() for stack in part]
        squares = squares + _squared_norms(exact)
        total = exact if not total else [a + b for a, b in zip(total, exact, strict=True)]
        parts += 1
    small, big = squares / parts, _squared_norms(total) / parts**2
    return [(size, a, parts * size, b) for a, b in zip(small.tolist(), big.tolist(), strict=True)]


def _squared_norms(stacks: list[Tensor]) -> Tensor:
    """(K,) float64, over all parameters of a lane."""
    return sum((stack.square().reshape(len(stack), -1).sum(1) for stack in stacks), torch.zeros(())).cpu()
