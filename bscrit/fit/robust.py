"""Runs that do not belong: one bad run, or a typo in a batch size, must not move the answer.

Clean data are left alone: a run is set aside only when it is off by a quarter or more *and* a t-test against
the others, at LEVEL over all of them together, says that it does not belong. What is a candidate is decided
with medians and least absolute deviations, so that two bad runs do not hide each other. Runs are held against
the others at their batch size; single runs against the curve through the other batch sizes. Runs that were
repeated and agree stand, however far from the curve: it is then the curve that is in doubt. So it is where
many runs look bad: such seeds have heavy tails, and none is set aside.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from bscrit.fit.frontier import Rows
from bscrit.fit.likelihood import Floats

LEVEL = 0.005
LEAST = log(1.25)
AT_THE_END = log(3.0)  # of the smallest or largest batch size, where a curve of another form is off, too
FEW, MANY = 2, 0.1  # runs, and share of all, that may be bad by accident
GRID = 161


def belongs(rows: Rows) -> NDArray[np.bool_]:
    """Whether each run takes part in the fit, shape (r,)."""
    keep = ~far_off(rows)
    if are_many(~keep):
        keep[:] = True
    count = np.bincount(rows.point, minlength=len(rows.x))
    y, side = np.zeros(len(rows.x)), np.zeros(len(rows.x))
    np.maximum.at(side, rows.point[keep], rows.side[keep])
    kept = np.bincount(rows.point[keep], minlength=len(rows.x))
    y = np.bincount(rows.point[keep], rows.y[keep], len(rows.x)) / np.maximum(kept, 1)
    single = np.flatnonzero(count == 1)
    return keep & ~np.isin(rows.point, _strangers_between(rows.x, y, side > 0, single))


def are_many(bad: NDArray[np.bool_]) -> bool:
    """Whether so many runs are no accident."""
    return int(bad.sum()) > max(FEW, MANY * len(bad))


def far_off(rows: Rows) -> NDArray[np.bool_]:
    """Runs far from the others at their batch size, measured by how those scatter at all batch sizes, shape (r,).

    At least half of the runs of a batch size are none, and no run is whose curve is part of a mean that is measured:
    the mean without it would meet the target elsewhere than its shares do without this one.
    """
    from scipy.special import stdtrit

    bad = np.zeros(len(rows.y), bool)
    count = np.bincount(rows.point, minlength=len(rows.x))
    if count.max() < 2:
        return bad
    off = rows.y - _centers(rows, count)[rows.point]
    off[rows.side * off < 0] = 0.0  # a bound on the near side of the others contradicts nothing
    repeated = count[rows.point] > 1
    spread = 1.4826 * float(np.median(np.abs(off[repeated]))) * np.sqrt(2)
    suspect = repeated & (np.abs(off) > max(LEAST, 4 * spread))
    if rows.shared is not None:
        suspect &= ~rows.shared
    sound = ~suspect & (rows.side == 0)
    n = np.bincount(rows.point[sound], minlength=len(rows.x)).astype(float)
    total = np.bincount(rows.point[sound], off[sound], len(rows.x))
    squares = np.bincount(rows.point[sound], off[sound] ** 2, len(rows.x))
    deviation = float((squares - total**2 / np.maximum(n, 1)).sum())
    freedom = float(np.maximum(n - 1, 0).sum())
    suspects = np.flatnonzero(suspect)
    for run in suspects[np.argsort(np.abs(off[suspects]), kind="stable")].tolist():
        here = rows.point[run]
        away = off[run] - total[here] / max(n[here], 1)
        if freedom and n[here]:
            error = sqrt(max(deviation, 0.0) / freedom * (1 + 1 / n[here]))
            bad[run] = abs(away) > stdtrit(freedom, 1 - LEVEL / 2 / len(rows.y)) * error
        if not bad[run] and rows.side[run] == 0:
            deviation += away**2 * n[here] / (n[here] + 1)
            freedom += n[here] > 0
            total[here] += off[run]
            n[here] += 1
    most = np.bincount(rows.point[bad], minlength=len(rows.x)) > count / 2
    bad[most[rows.point]] = False
    return bad


def _centers(rows: Rows, count: NDArray[np.intp]) -> Floats:
    """Median of each batch size; of two runs that differ the one nearer to the curve."""
    order = np.lexsort((rows.y, rows.point))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    lower, upper = rows.y[order[first + (count - 1) // 2]], rows.y[order[first + count // 2]]
    center = (lower + upper) / 2
    pairs = (count == 2) & (upper - lower > LEAST)
    if pairs.any():
        a, beta = least_absolute(rows.x, center)
        model = a + np.logaddexp(0.0, beta - rows.x)
        center = np.where(
            pairs, np.where(np.abs(lower - model) <= np.abs(upper - model), lower, upper), center
        )
    return np.asarray(center)


def _strangers_between(
    x: Floats, y: Floats, only_bound: NDArray[np.bool_], single: NDArray[np.intp]
) -> list[int]:
    """Those of the `single` batch sizes that are far from the curve through the others."""
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
        least = AT_THE_END if point in (0, len(x) - 1) else LEAST
        if abs(y[point] - expected) > max(limit * error, least):
            strangers.append(int(point))
        else:
            suspect[point] = False
    strangers = [point for point in strangers if point in single]
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
