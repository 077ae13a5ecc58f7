"""Logarithmic axes that can be read: plain numbers, as many as fit, at the batch sizes that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter

from bscrit.words import compact

MOST_TICKS = 8
MANTISSAS = ((1, 2, 5), (1, 3), (1,))
EDGE = 1e-9  # a batch size at the very end of an axis is on it, whatever the rounding of its limit


def limits(values: Iterable[float], pad: float = 0.07, least: float = 1.15) -> tuple[float, float]:
    """Limits of a log axis around the positive finite values, with `pad` of their range (in ln) as margin.

    The margin is at least a factor `least`. Without values: 1 to 10.
    """
    array = np.array([value for value in values if math.isfinite(value) and value > 0])
    if not len(array):
        return 1.0, 10.0
    low, high = math.log(array.min()), math.log(array.max())
    margin = max(pad * (high - low), math.log(least))
    return math.exp(low - margin), math.exp(high + margin)


def log_axis(axis: Axis, label: str, span: tuple[float, float]) -> None:
    """Make `axis` logarithmic over `span`, with readable ticks."""
    which = "x" if isinstance(axis, XAxis) else "y"
    axis.axes.set(**{f"{which}scale": "log", f"{which}lim": span, f"{which}label": label})
    _label_plainly(axis, Readable(), LogLocator(subs=range(2, 10), numticks=50))


def batch_axis(axis: Axis, sizes: Sequence[float], label: str, span: tuple[float, float]) -> None:
    """Make `axis` logarithmic over `span` with ticks at the batch sizes, labelled where there is room."""
    log_axis(axis, label, span)
    ticks_at(axis, sizes)


def ticks_at(axis: Axis, sizes: Iterable[float]) -> None:
    """Ticks at the batch sizes on an axis that is logarithmic already."""
    ascending = sorted(set(sizes))
    _label_plainly(axis, AtBatchSizes(ascending), FixedLocator(ascending))


class OnAxis(Locator):
    """Ticks that depend on how long the axis is."""

    def __call__(self) -> Sequence[float]:
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        return self.tick_values(low, high) if 0 < low < high else []


class AtBatchSizes(OnAxis):
    """Ticks at batch sizes, from the smallest on, each as far from the one before as the longest label wants."""

    def __init__(self, ascending: Sequence[float]) -> None:
        self.ascending = ascending

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        axis: Any = self.axis
        inside = [size for size in self.ascending if vmin * (1 - EDGE) <= size <= vmax * (1 + EDGE)]
        font = rcParams["xtick.labelsize"]
        box = axis.axes.bbox
        if isinstance(axis, XAxis):
            length, room = box.width, max((_width(compact(size)) for size in inside), default=0.0) + 0.7
        else:
            length, room = box.height, 1.35
        points = length * 72 / axis.axes.get_figure(root=True).dpi
        apart = (vmax / vmin) ** (room * font / points)
        kept = inside[:1]
        for size in inside:
            if size >= kept[-1] * apart:
                kept.append(size)
        return kept


class Readable(OnAxis):
    """At most MOST_TICKS ticks: at 1-2-5, 1-3 or whole decades, coarser on a long range, even on a short one."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        axis: Any = self.axis
        most = min(axis.get_tick_space(), MOST_TICKS)
        for mantissas in MANTISSAS:
            ticks = LogLocator(subs=mantissas, numticks=most).tick_values(vmin, vmax)
            inside = [tick for tick in ticks if vmin <= tick <= vmax]
            if 3 <= len(inside) <= most:
                return inside
        even = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(vmin, vmax)
        return [tick for tick in even if vmin <= tick <= vmax]


def _label_plainly(axis: Axis, major: Locator, minor: Locator) -> None:
    axis.set_major_locator(major)
    axis.set_minor_locator(minor)
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axis.set_minor_formatter(NullFormatter())


def _width(text: str) -> float:
    """Width of a label in em: DejaVu Sans has digits of 0.64 em and commas of half that."""
    return sum(0.32 if sign in ",.-" else 0.86 if sign == "M" else 0.64 for sign in text)
