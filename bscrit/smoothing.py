"""A curve smoothed by a local line in ln(step), over the window [-0.2, +0.1] around each step, and where it meets 0.

Here x is ln(steps), ascending, and a gap is the distance of a loss from its target, which falls.
"""

from __future__ import annotations

from math import inf

import numpy as np

from bscrit.curve import Floats

BEFORE, AFTER = 0.2, 0.1


def first_below(x: Floats, gap: Floats) -> float:
    """The x at which the smoothed gap first is 0; inf if never."""
    smooth = _local_line(x, gap)
    below = np.flatnonzero(smooth <= 0)
    if not len(below):
        return inf
    index = int(below[0])
    if index == 0:
        return float(x[0])
    share = smooth[index - 1] / (smooth[index - 1] - smooth[index])
    return float(x[index - 1] + share * (x[index] - x[index - 1]))


def ahead(x: Floats, loss: Floats, target: float = 0.0) -> float:
    """The x at which the last line of a curve meets the target; inf if never."""
    if len(x) < 2:
        return inf
    last = x >= x[-1] - (BEFORE + AFTER)
    last[-2:] = True
    slope, value = np.polyfit(x[last] - x[-1], loss[last], 1)
    if slope >= 0:
        return inf
    return float(x[-1] + max((target - value) / slope, 0.0))


def _local_line(x: Floats, loss: Floats) -> Floats:
    """At each x the value there of the line fitted to the points in its window, shape (n,)."""
    index = np.arange(len(x))
    low = np.minimum(np.searchsorted(x, x - BEFORE, side="left"), np.maximum(index - 1, 0))
    high = np.maximum(np.searchsorted(x, x + AFTER, side="right"), np.minimum(index + 2, len(x)))
    x = x - x[-1]

    def total(values: Floats) -> Floats:
        sums: Floats = np.concatenate([[0.0], np.cumsum(values)])
        inside: Floats = sums[high] - sums[low]
        return inside

    n, sx, sy = (high - low).astype(float), total(x), total(loss)
    sxx, sxy = total(x * x) - sx * sx / n, total(x * loss) - sx * sy / n
    line: Floats = sy / n + sxy / sxx * (x - sx / n)
    return line


def error_of_crossing(x: Floats, gap: Floats, center: float) -> float:
    """Standard error of the x at which the line through a window meets 0; infinite where nothing falls.

    The scatter about the line is that of a window twice as far back, for its degrees of freedom.
    """
    wide = slice(*np.searchsorted(x, [center - 2 * BEFORE, center + AFTER]))
    inside = x[slice(*np.searchsorted(x, [center - BEFORE, center + AFTER]))]
    if len(x[wide]) < 3 or len(inside) < 2:
        return 0.0
    slope, level = np.polyfit(x[wide] - center, gap[wide], 1)
    residual = gap[wide] - level - slope * (x[wide] - center)
    scatter = np.sqrt((residual**2).sum() / (len(residual) - 2))
    if slope >= 0:
        return inf if scatter else 0.0
    away = (inside.mean() - center) ** 2 / ((inside - inside.mean()) ** 2).sum()
    return float(scatter / -slope * np.sqrt(1 / len(inside) + away))
