"""The batch size that would tell most about b_crit for what it costs: one rule, for advice and for `auto`.

SE(ln b_crit) = sigma / sqrt(sum_i (p_i - mean p)^2) with p_i = 1/(1 + B_i/b_crit), the share of its steps that
a batch size owes to noise, says what a further batch size is worth before it is trained; and a run at it takes
e_min (1 + B/b_crit) = e_min/p examples.

>>> next_batch_size([16, 64, 256], 256.0, "identified")
1024.0
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log

import numpy as np

from bscrit.fit.identify import KNEE
from bscrit.fit.likelihood import Floats
from bscrit.fit.result import Verdict

BEYOND = 4.0  # times beyond the tried batch sizes: farther out a knee is not believed to lie
REACH = 8.0  # times beyond the tried batch sizes: no farther in one leap
WORTH = 0.9  # of the best per example: among batch sizes as good as that, the largest takes fewest steps
OTHER = 0.5  # a batch size that is no power of two waits until it is worth so much more than every power


def next_batch_size(
    tried: Sequence[float], b_crit: float, verdict: Verdict, candidates: Iterable[float] | None = None
) -> float | None:
    """The candidate that adds most precision of ln b_crit per example; None where none would tell anything.

    Args:
        tried: batch sizes that met the target, ascending.
        b_crit: as estimated, however roughly.
        verdict: where only one side of b_crit was tried, candidates on the other side go first.
        candidates: by default between and beyond those that were tried, on their spacing.
    """
    first, last = tried[0], tried[-1]
    pool = _spaced(tried) if candidates is None else candidates
    pool = sorted(size for size in pool if first / REACH <= size <= last * REACH)
    if verdict == "lower bound":
        larger = [size for size in pool if size > last]
        pool = larger if larger or b_crit > last * exp(KNEE) else pool
    if verdict == "upper bound":
        smaller = [size for size in pool if size < first]
        pool = smaller if smaller or b_crit < first / exp(KNEE) else pool
    if not pool:
        return None
    believed = min(max(b_crit, first / BEYOND), last * BEYOND)
    worth = _gain_per_example(pool, tried, believed) * [1.0 if _is_power(size) else OTHER for size in pool]
    return max(size for size, value in zip(pool, worth, strict=True) if value >= WORTH * worth.max())


def narrowed(tried: Sequence[float], b_crit: float, added: float) -> float:
    """The factor on the interval's width in ln b_crit when one batch size is added."""
    before, after = (_share(sizes, b_crit) for sizes in (tried, [*tried, added]))
    return float(np.sqrt(before.var() * len(before) / (after.var() * len(after))))


def _gain_per_example(pool: Sequence[float], tried: Sequence[float], b_crit: float) -> Floats:
    """The share that each candidate adds to sum_i (p_i - mean p)^2, in units of 1/e_min examples."""
    p, new = _share(tried, b_crit), _share(pool, b_crit)
    return np.asarray(len(p) / (len(p) + 1) * (new - p.mean()) ** 2 * new)


def _share(sizes: Sequence[float], b_crit: float) -> Floats:
    """1/(1 + B/b_crit), the share of the steps that is owed to noise."""
    return np.asarray(1 / (1 + np.asarray(sizes, float) / b_crit))


def _spaced(tried: Sequence[float]) -> list[float]:
    """Batch sizes halfway between those that were tried, and beyond them on the same spacing, none of them tried."""
    x = np.log(tried)
    spacing = max(float(np.median(np.diff(x))), log(2.0)) if len(x) > 1 else log(2.0)
    outside = spacing * np.arange(1, int(log(REACH) / spacing) + 2)
    sizes = {
        _round(float(size)) for size in np.exp([*(x[1:] + x[:-1]) / 2, *(x[-1] + outside), *(x[0] - outside)])
    }
    return sorted(size for size in sizes - {*tried} if size >= min(1, *tried))


def _round(size: float) -> float:
    """Batch sizes are counts: two significant digits unless it is a power of two."""
    if size < 1:
        return float(f"{size:.2g}")
    power = 2.0 ** round(np.log2(size))
    return power if abs(size / power - 1) < 0.02 else float(f"{size:.2g}")


def _is_power(size: float) -> bool:
    """Whether a batch size is a power of two."""
    return float(np.log2(size)).is_integer()
