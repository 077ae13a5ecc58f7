"""Runs -> the numbers per batch size that the likelihood needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bscrit.fit.frontier import Rows
from bscrit.fit.likelihood import Floats, Sample


def summarise(rows: Rows, keep: NDArray[np.bool_]) -> Sample:
    """Sum up the runs that take part; batch sizes without any are left out.

    A gap of width w between logged points adds w^2/12, the variance of a uniform distribution; it is not
    divided by the number of runs, since runs that are logged at the same steps share it. Where every run at
    a batch size is censored only the largest bound counts, with the runs that reached it.
    """
    points = np.unique(rows.point[keep])
    place = np.searchsorted(points, rows.point).astype(np.intp)
    k = len(points)
    known = keep & (rows.side == 0)
    n = np.bincount(place[known], minlength=k).astype(float)
    divisor = np.maximum(n, 1)
    mean = np.bincount(place[known], rows.y[known], k) / divisor
    ss = np.bincount(place[known], (rows.y[known] - mean[place[known]]) ** 2, k).astype(float)
    gap = np.bincount(place[known], rows.gap[known] ** 2 / 12, k) / divisor
    cells = list(_cells(rows, keep, place, n))
    cell, bound, side, count = (np.array([c[i] for c in cells], float) for i in range(4))
    return Sample(rows.x[points], n, mean, ss, gap, cell.astype(np.intp), bound, side, count)


def _cells(
    rows: Rows, keep: NDArray[np.bool_], place: NDArray[np.intp], known: Floats
) -> Iterator[tuple[float, float, float, float]]:
    """(point, bound, side, runs) of every censored group."""
    censored = keep & (rows.side != 0)
    for point in np.unique(place[censored]):
        for side in (1.0, -1.0):
            here = rows.y[censored & (place == point) & (rows.side == side)]
            bounds, counts = np.unique(here, return_counts=True)
            outermost = slice(-1, None) if side > 0 else slice(0, 1)
            chosen = slice(None) if known[point] else outermost
            for bound, count in zip(bounds[chosen], counts[chosen], strict=True):
                yield float(point), float(bound), side, float(count)
