"""Which batch sizes to add: those that would narrow the interval of b_crit most.

SE(ln b_crit) = sigma / sqrt(sum_i (p_i - mean p)^2) with p_i = 1/(1 + B_i/b_crit), the share of its
steps that a batch size owes to noise: it says what a further batch size is worth before it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from bscrit.fit.likelihood import Floats

WORTH = 0.85  # of the best gain; the nearest batch size that is worth as much is the cheapest
STEPS_OUT = 5


def above(batch_sizes: Sequence[float], b_crit: float) -> list[float]:
    """Batch sizes beyond the largest, on the same spacing, until the plateau is seen (p <= 0.2)."""
    ratio = _spacing(batch_sizes)
    largest, last = max(batch_sizes), 4 * max(b_crit, max(batch_sizes) / 2)
    return [_round(largest * ratio**i) for i in range(1, STEPS_OUT) if largest * ratio ** (i - 1) < last]


def below(batch_sizes: Sequence[float], b_crit: float) -> list[float]:
    """Batch sizes below the smallest, on the same spacing, until scaling is perfect (p >= 0.8)."""
    ratio = _spacing(batch_sizes)
    smallest, last = min(batch_sizes), min(b_crit, 2 * min(batch_sizes)) / 4
    found = [_round(smallest / ratio**i) for i in range(1, STEPS_OUT) if smallest / ratio ** (i - 1) > last]
    return sorted({size for size in found if 1 <= size < smallest})


def best_addition(batch_sizes: Sequence[float], b_crit: float) -> tuple[float, float]:
    """The addition that is worth most, among equals the nearest, and the factor on the interval's width."""
    tried = np.sort(np.array(batch_sizes, float))
    ratio = _spacing(batch_sizes)
    inside = np.sqrt(tried[1:] * tried[:-1])
    outside = [tried[-1] * ratio**i for i in range(1, STEPS_OUT)] + [
        tried[0] / ratio**i for i in range(1, STEPS_OUT) if tried[0] / ratio**i >= 1
    ]
    candidates = np.array([_round(float(size)) for size in [*inside, *outside, *tried]])
    now = _information(tried, b_crit)
    gain = np.array([_information(np.append(tried, size), b_crit) for size in candidates]) - now
    worth = candidates[gain >= WORTH * gain.max()]
    distance = np.maximum(np.log(worth / tried[-1]), np.log(tried[0] / worth))
    chosen = float(worth[int(np.argmin(distance))])
    return chosen, float(np.sqrt(now / _information(np.append(tried, chosen), b_crit)))


def _information(batch_sizes: Floats, b_crit: float) -> float:
    p = 1 / (1 + batch_sizes / b_crit)
    return float(((p - p.mean()) ** 2).sum())


def _spacing(batch_sizes: Sequence[float]) -> float:
    """The usual ratio of neighbours, at least 2."""
    tried = np.sort(np.array(batch_sizes, float))
    if len(tried) < 2:
        return 2.0
    return max(exp(float(np.median(np.diff(np.log(tried))))), 2.0)


def _round(size: float) -> float:
    """Batch sizes are counts: two significant digits unless it is a power of two."""
    if size < 1:
        return float(f"{size:.2g}")
    power = 2.0 ** round(np.log2(size))
    return power if abs(size / power - 1) < 0.02 else float(f"{size:.2g}")
