"""Ranks of a data-parallel group: what they add up, and whether they train the same model on different data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

from bscrit.meter.flat import squared_norm

ALIKE = 1e-5
"""Relative difference up to which two fingerprints are alike: rounding, and nothing that other data would make."""
Fingerprint = tuple[float, float]


def ranks(group: dist.ProcessGroup | None) -> int:
    return dist.get_world_size(group) if _distributed() else 1


def is_first_rank(group: dist.ProcessGroup | None) -> bool:
    return not _distributed() or dist.get_rank(group) == 0


def add_over_ranks(
    numbers: Sequence[float], device: torch.device, group: dist.ProcessGroup | None
) -> list[float]:
    """Each number added over the ranks of the group, which exchange them on this device."""
    if ranks(group) == 1:
        return list(numbers)
    packed = torch.tensor(list(numbers), dtype=torch.float64, device=device)
    dist.all_reduce(packed, group=group)
    added: list[float] = packed.tolist()
    return added


def fingerprint(squares: Sequence[float], parameters: Sequence[nn.Parameter]) -> Fingerprint:
    """Sums of squares and of mean squares per parameter: the small parameters decide the second, and scatter more."""
    return sum(squares), sum(s / p.numel() for s, p in zip(squares, parameters, strict=True) if s)


def of_all_ranks(
    mine: Fingerprint, device: torch.device, group: dist.ProcessGroup | None
) -> list[Fingerprint]:
    """The fingerprints of all ranks, in their order."""
    rank = dist.get_rank(group) if _distributed() else 0
    table = [number * (place == rank) for place in range(ranks(group)) for number in mine]
    numbers = add_over_ranks(table, device, group)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def twins(fingerprints: Sequence[Fingerprint]) -> int:
    """How many of these are like another one; those of nothing but zeros are like none."""
    ordered = sorted(mark for mark in fingerprints if mark[0])
    next_alike = [False, *(_alike(*pair) for pair in pairwise(ordered)), False]
    return sum(before or after for before, after in pairwise(next_alike))


def same_parameters(
    parameters: Sequence[nn.Parameter], device: torch.device, group: dist.ProcessGroup | None
) -> bool:
    """Whether all ranks hold the same ones, as data-parallel training has it, by a checksum."""
    if ranks(group) == 1:
        return True
    squares = [float(squared_norm(parameter.detach())) for parameter in parameters]
    first, *others = of_all_ranks(fingerprint(squares, parameters), device, group)
    return all(_alike(first, other) for other in others)


def _alike(a: Fingerprint, b: Fingerprint) -> bool:
    return not any(abs(x - y) > ALIKE * max(x, y) for x, y in zip(a, b, strict=True))


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
