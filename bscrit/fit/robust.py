"""Runs that do not belong: one bad run, or a typo in a batch size, must not move the answer.

Clean data are left alone: a run is set aside only when it is off by a quarter or more *and* a t-test against
the others, at LEVEL over all of them together, says that it does not belong. What is a candidate is decided
with medians and least absolute deviations, so that two bad runs do not hide each other. First runs are
held against others at their batch size, then batch sizes against the curve through the others.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from bscrit.fit.frontier import Rows
from bscrit.fit.likelihood import Floats

LEVEL = 0.005
LEAST = log(1.25)
GRID = 161


def belongs(rows: Rows) -> NDArray[np.bool_]:
    """Whether each run takes part in the fit, shape (r,)."""
    keep = np.ones(len(rows.y), bool)
    keep[_strangers_within(rows)] = False
    known = np.unique(rows.point[keep])
    y = np.array([_center(rows, keep, point) for point in known])
    only_bound = np.array([(rows.side[keep & (rows.point == point)] > 0).all() for point in known])
    strangers = known[_strangers_between(rows.x[known], y, only_bound)]
    return keep & ~np.isin(rows.point, strangers)


def _center(rows: Rows, keep: NDArray[np.bool_], point: int) -> float:
    here = keep & (rows.point == point)
    known = here & (rows.side <= 0)
    return float(rows.y[known].mean() if known.any() else rows.y[here].max())


def _strangers_within(rows: Rows) -> list[int]:
    """Runs far from the others at their batch size, measured by how those scatter at all batch sizes."""
    from scipy.special import stdtrit

    count = np.bincount(rows.point, minlength=len(rows.x))
    if count.max() < 2:
        return []
    order = np.lexsort((rows.y, rows.point))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    lower, upper = rows.y[order[first + (count - 1) // 2]], rows.y[order[first + count // 2]]
    center = (lower + upper) / 2
    pairs = np.flatnonzero((count == 2) & (upper - lower > LEAST))
    if len(pairs):
        a, beta = least_absolute(rows.x, center)
        model = a + np.logaddexp(0.0, beta - rows.x)
        nearer = np.abs(lower - model) <= np.abs(upper - model)
        center[pairs] = np.where(nearer, lower, upper)[pairs]
    off = rows.y - center[rows.point]
    off[rows.side * off < 0] = 0.0  # a bound on the near side of the others contradicts nothing
    repeated = count[rows.point] > 1
    spread = 1.4826 * float(np.median(np.abs(off[repeated]))) * np.sqrt(2)
    suspect = repeated & (np.abs(off) > max(LEAST, 4 * spread))
    strangers = []
    for run in sorted(np.flatnonzero(suspect), key=lambda run: abs(off[run])):
        sound = ~suspect & (rows.side == 0)
        sums = np.bincount(rows.point[sound], rows.y[sound], len(rows.x))
        n = np.bincount(rows.point[sound], minlength=len(rows.x))
        mean = sums / np.maximum(n, 1)
        freedom = float(np.maximum(n - 1, 0).sum())
        here = rows.point[run]
        if freedom < 1 or n[here] < 1:
            suspect[run] = False
            continue
        deviation = float(((rows.y[sound] - mean[rows.point[sound]]) ** 2).sum())
        error = np.sqrt(deviation / freedom * (1 + 1 / n[here]))
        if abs(rows.y[run] - mean[here]) > stdtrit(freedom, 1 - LEVEL / 2 / len(rows.y)) * error:
            strangers.append(int(run))
        else:
            suspect[run] = False
    return strangers


def _strangers_between(x: Floats, y: Floats, only_bound: NDArray[np.bool_]) -> list[int]:
    """Batch sizes far from the curve through the others."""
    from scipy.special import stdtrit

    if len(x) < 5:
        return []
    a, beta = least_absolute(x[~only_bound], y[~only_bound]) if (~only_bound).sum() > 3 else (0.0, 0.0)
    off = y - a - np.logaddexp(0.0, beta - x)
    off[only_bound & (off < 0)] = 0.0
    spread = 1.4826 * float(np.sort(np.abs(off))[(len(x) + 1) // 2])
    suspect = np.abs(off) > max(LEAST, 3 * spread)
    most = (len(x) - 1) // 4
    strangers = []
    for point in sorted(np.flatnonzero(suspect), key=lambda point: abs(off[point])):
        sound = ~suspect & ~only_bound
        if sound.sum() < 4:
            return []
        expected, error = _predict(x[sound], y[sound], float(x[point]))
        limit = float(stdtrit(sound.sum() - 2, 1 - LEVEL / 2 / len(x)))
        if abs(y[point] - expected) > max(limit * error, LEAST):
            strangers.append(int(point))
        else:
            suspect[point] = False
    return strangers if len(strangers) <= most else []


def least_absolute(x: Floats, y: Floats) -> tuple[float, float]:
    """(ln s_min, ln b_crit) of least absolute deviations in ln(steps), on a grid."""
    beta = np.linspace(x.min() - 3, x.max() + 3, GRID)
    rest = y - np.logaddexp(0.0, beta[:, None] - x)
    a = np.median(rest, axis=1)
    best = int(np.argmin(np.abs(rest - a[:, None]).sum(axis=1)))
    return float(a[best]), float(beta[best])


def _predict(x: Floats, y: Floats, at: float) -> tuple[float, float]:
    """ln(steps) that the least-squares curve through (x, y) expects at `at`, and a new value's error."""
    beta = np.linspace(x.min() - 3, x.max() + 3, GRID)
    rest = y - np.logaddexp(0.0, beta[:, None] - x)
    a = rest.mean(axis=1)
    squares = ((rest - a[:, None]) ** 2).sum(axis=1)
    best = int(np.argmin(squares))
    p = 1 / (1 + np.exp(x - beta[best]))
    here = 1 / (1 + np.exp(at - beta[best]))
    lever = 1 / len(x) + (here - p.mean()) ** 2 / max(float(((p - p.mean()) ** 2).sum()), 1e-12)
    error = np.sqrt(squares[best] / (len(x) - 2) * (1 + lever))
    return float(a[best] + np.logaddexp(0.0, beta[best] - at)), float(error)
