"""Logarithmic axes that can be read: plain numbers, as many as fit, at the batch sizes that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib import rcParams
from matplotlib.axis import Axis, XAxis
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter

from bscrit.curve import Floats
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
    _logarithmic(axis, label, span)
    axis.set_major_locator(Readable(axis))
    axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=50))


def batch_axis(axis: Axis, sizes: Sequence[float], label: str, span: tuple[float, float]) -> None:
    """Make `axis` logarithmic over `span` with ticks at the batch sizes, labelled where there is room."""
    _logarithmic(axis, label, span)
    ticks_at(axis, sizes)


def ticks_at(axis: Axis, sizes: Sequence[float]) -> None:
    """Ticks at the batch sizes on an axis that is logarithmic already."""
    axis.set_major_locator(AtBatchSizes(axis, sizes))
    axis.set_minor_locator(FixedLocator(sorted(set(sizes))))
    _plain_labels(axis)


class AtBatchSizes(Locator):
    """Ticks at those batch sizes whose labels have room, evenly skipping where they have not."""

    def __init__(self, host: Axis, sizes: Iterable[float]) -> None:
        self.host = host
        self.sizes = sorted(set(sizes))

    def __call__(self) -> Sequence[float]:
        return self.tick_values(*_interval(self.host))

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        seen = [size for size in self.sizes if vmin * (1 - EDGE) <= size <= vmax * (1 + EDGE)]
        greedy = _greedy(seen, self.host, vmin, vmax)
        for stride in range(1, len(seen)):
            even = seen[::stride]
            if _fits(even, self.host, vmin, vmax):
                filled = _filled(even, seen, self.host, vmin, vmax)
                return filled if len(filled) >= 0.6 * len(greedy) else greedy
        return greedy


class Readable(Locator):
    """At most MOST_TICKS ticks: at 1-2-5, 1-3 or whole decades, finer on a short range, coarser on a long."""

    def __init__(self, host: Axis) -> None:
        self.host = host

    def __call__(self) -> Sequence[float]:
        return self.tick_values(*_interval(self.host))

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        if not 0 < vmin < vmax:
            return []
        exponents = range(math.floor(math.log10(vmin)), math.ceil(math.log10(vmax)) + 1)
        steps = [(mantissas, 1) for mantissas in MANTISSAS] + [((1,), skip) for skip in range(2, 20)]
        for mantissas, skip in steps:
            ticks = [m * 10.0**e for e in exponents if e % skip == 0 for m in mantissas]
            ticks = [tick for tick in ticks if vmin <= tick <= vmax]
            if len(ticks) < 3:
                break
            if len(ticks) <= MOST_TICKS and _fits(ticks, self.host, vmin, vmax):
                return ticks
        return self._even(vmin, vmax)

    def _even(self, vmin: float, vmax: float) -> Sequence[float]:
        """Round numbers at even distances, for a range without enough 1-2-5 numbers."""
        for count in (6, 5, 4, 3, 2):
            ticks = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(vmin, vmax)
            inside = [float(tick) for tick in ticks if vmin <= tick <= vmax and tick > 0]
            if _fits(inside, self.host, vmin, vmax):
                break
        return inside


def _logarithmic(axis: Axis, label: str, span: tuple[float, float]) -> None:
    axes = axis.axes
    if isinstance(axis, XAxis):
        axes.set_xscale("log")
        axes.set_xlim(*span)
    else:
        axes.set_yscale("log")
        axes.set_ylim(*span)
    axis.set_label_text(label)
    _plain_labels(axis)


def _plain_labels(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axis.set_minor_formatter(NullFormatter())


def _interval(axis: Axis) -> tuple[float, float]:
    low, high = sorted(axis.get_view_interval())
    return low, high


def _greedy(ticks: Sequence[float], axis: Axis, vmin: float, vmax: float) -> list[float]:
    kept: list[float] = []
    for tick in ticks:
        if not kept or _fits([kept[-1], tick], axis, vmin, vmax):
            kept.append(tick)
    return kept


def _filled(
    kept: Sequence[float], ticks: Sequence[float], axis: Axis, vmin: float, vmax: float
) -> Sequence[float]:
    """`kept` and whichever of `ticks` have room between them."""
    for tick in ticks:
        more = sorted({*kept, tick})
        if _fits(more, axis, vmin, vmax):
            kept = more
    return kept


def _fits(ticks: Sequence[float], axis: Axis, vmin: float, vmax: float) -> bool:
    """Whether the labels of these ticks lie clear of each other on the axis as it is now."""
    if len(ticks) < 2:
        return True
    box, dpi = axis.axes.bbox, axis.axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    font = FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points()
    horizontal = isinstance(axis, XAxis)
    length = (box.width if horizontal else box.height) * 72 / dpi
    place = np.log(np.array(ticks) / vmin) / math.log(vmax / vmin) * length
    room: Floats = np.diff(place)
    if not horizontal:
        return bool((room >= 1.35 * font).all())
    width = np.array([_width(compact(tick), font) for tick in ticks])
    return bool((room >= (width[1:] + width[:-1]) / 2 + 0.7 * font).all())


def _width(text: str, font: float) -> float:
    """Width of a label in points: DejaVu Sans has digits of 0.64 em and commas of half that."""
    return font * sum(0.32 if sign in ",.-" else 0.86 if sign == "M" else 0.64 for sign in text)
