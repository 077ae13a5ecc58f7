"""Measured points: the steps to a target at each batch size, as fit, summary and progress all have them.

{point.batch_size: (point.lr, point.steps) for point in measured_points(results.asked_for, 0.2)}
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from bscrit.estimate import CONFIDENCE
from bscrit.fit.crossings import families, from_records
from bscrit.fit.frontier import Frontier, Rows, Tuned, choose, rows_of
from bscrit.fit.likelihood import Floats
from bscrit.fit.result import Point
from bscrit.fit.robust import belongs
from bscrit.record import Record


def measured_points(records: Sequence[Record], target: float) -> tuple[Point, ...]:
    """The point of each batch size at a target, ascending; none where no finished run bears on it.

    A batch size counts by its search runs only while no batch size among the records is measured.
    """
    every = families(from_records(records, [target]))
    if not every:
        return ()
    frontier = choose(every[0])
    rows = rows_of(frontier)
    return points_of(frontier, rows, belongs(rows))


def points_of(frontier: Frontier, rows: Rows, keep: NDArray[np.bool_]) -> tuple[Point, ...]:
    """One point per batch size: the geometric mean of the runs that take part.

    A censored run counts by its bound, or by the others' mean where that lies farther: the point is then a bound.
    """
    return tuple(
        _point(tuned, rows.y[here], rows.side[here], keep[here])
        for index, tuned in enumerate(frontier.points)
        for here in [rows.point == index]
    )


def _point(tuned: Tuned, y: Floats, side: Floats, keep: NDArray[np.bool_]) -> Point:
    from scipy.special import stdtrit

    taking_part = keep if keep.any() else np.ones(len(y), bool)
    exact = y[taking_part & (side <= 0)]
    bounds = y[taking_part & (side > 0)]
    n = len(exact)
    mean = float(exact.mean()) if n else float(bounds.max())
    if n and len(bounds):
        mean = float(np.concatenate([exact, np.maximum(bounds, mean)]).mean())
    low = high = None
    if n > 1 and not len(bounds):
        error = float(exact.std(ddof=1)) / sqrt(n) * float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
        low, high = exp(mean - error), exp(mean + error)
    per_step = sum(run.examples / run.steps for run in tuned.runs) / len(y)
    return Point(
        batch_size=tuned.batch_size,
        steps=float(f"{exp(mean):.12g}"),  # the exponential of a logarithm, without its last digits
        examples=float(f"{exp(mean) * per_step:.12g}"),
        lr=tuned.lr,
        runs=len(y),
        censored=int((side > 0).sum()),
        low=low,
        high=high,
        robust_weight=float(keep.mean()),
    )
