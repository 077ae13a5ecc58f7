"""Noise scales beside B_crit on an Axes: windows of the runs with intervals, and measurements at frozen parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bscrit.estimate import Estimate
from bscrit.fit.result import Fit, NoiseAlong, NoisePoint
from bscrit.plot import labels
from bscrit.plot.series import say_left_out, shown
from bscrit.plot.style import SERIES, UP_ARROW, batch_colours, sign
from bscrit.plot.ticks import limits, log_axis

NO_BOUND = 0.98  # height in the axes of the mark of a window of which nothing is known
FROZEN: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "white"}
MOST_INTERVALS = 12  # batch sizes; with more, intervals would hide the lines
Placed = tuple[float, Estimate]
"""Where on the horizontal axis, and the scale there."""


def draw_scales(
    ax: Axes,
    along: NoiseAlong,
    fits: Sequence[Fit],
    unit: str,
    x: Callable[[NoisePoint], float | None],
    frozen: Sequence[tuple[str | None, Placed]],
    b_crit: Callable[[Axes, Fit, tuple[str, str], str], None],
) -> list[float]:
    """Draw everything but the horizontal axis, and return the places on it that are taken.

    Args:
        x: where a window lies, None for nowhere.
        frozen: measurements at frozen parameters, with their colours.
        b_crit: draws that of a fit in its colour and with its marker, under a label for the legend.
    """
    drawn = shown(fits)
    windows = {
        size: [(at, point.scale) for point in points if (at := x(point)) is not None]
        for size, points in along.windows.items()
    }
    in_windows = [scale for placed in windows.values() for _, scale in placed]
    at_frozen = [scale for _, (_, scale) in frozen]
    tall = [*in_windows, *at_frozen, *(fit.b_crit for fit in drawn if fit.verdict != "not identified")]
    name = f"Noise scale {labels.scale(along.metric)} ({labels.plural(unit)})"
    log_axis(ax.yaxis, name, limits(_heights(tall), least=1.5))
    colours = batch_colours(list(windows))
    few = sum(map(bool, windows.values())) <= MOST_INTERVALS
    for size, placed in windows.items():
        for at, scale in placed if few else ():
            _interval(ax, at, scale, color=colours(size), lw=0.7, alpha=0.4, zorder=1.7)
        values = [np.nan if scale.value is None else scale.value for _, scale in placed]
        look: dict[str, Any] = {"ms": 2.5, "lw": 1, "color": colours(size), "label": "_noise scale"}
        ax.plot([at for at, _ in placed], values, "-o", **look)
        _marks(ax, placed, colours(size), "_unresolved")
    for colour, (at, scale) in frozen:
        _interval(ax, at, scale, color=colour, lw=1, zorder=3.4)
        if scale.value is not None:
            ax.plot([at], [scale.value], ls="", color=colour, zorder=6, label="_frozen", **FROZEN)
        else:
            _marks(ax, [(at, scale)], colour, "_frozen unresolved")
    for fit, look_of_fit in zip(drawn, SERIES, strict=False):
        b_crit(ax, fit, look_of_fit, f"{labels.name(fit, fits)}: {labels.b_crit(fit, unit)}")
    _explain(ax, in_windows, at_frozen, "; 95 % intervals" if few else "")
    say_left_out(ax, "fits", len(fits) - len(drawn))
    return [at for placed in windows.values() for at, _ in placed] + [at for _, (at, _) in frozen]


def _heights(estimates: Iterable[Estimate]) -> list[float]:
    """The numbers that the axis must hold: values, and bounds where there is no value."""
    every = [[end for end in (scale.value, scale.low, scale.high) if end is not None] for scale in estimates]
    return [ends[0] for ends in every if ends]


def _explain(ax: Axes, windows: Sequence[Estimate], frozen: Sequence[Estimate], intervals: str) -> None:
    """Legend lines for the signs that occur."""
    if windows:
        label = f"noise scale in windows of the runs{intervals}"
        sign(ax, label, marker="o", markersize=2.5, linestyle="-")
    if any(scale.value is not None for scale in frozen):
        sign(ax, "at frozen parameters, on fresh data", **FROZEN)
    bounds = [scale.low for scale in (*windows, *frozen) if scale.value is None]
    if any(low is not None for low in bounds):
        sign(ax, "not resolved: at least this", marker=UP_ARROW, markersize=6)
    if None in bounds:
        sign(ax, "not resolved, and no bound", marker="|", markersize=5)


def _marks(ax: Axes, placed: Sequence[Placed], colour: str | None, label: str) -> None:
    """Marks of the unresolved: arrows at lower bounds, and ticks at the top of the axes where there is none."""
    bounds = [(at, scale.low) for at, scale in placed if scale.value is None]
    arrows = [(at, low) for at, low in bounds if low is not None]
    ticks = [(at, NO_BOUND) for at, low in bounds if low is None]
    top = ax.get_xaxis_transform()
    ax.plot(*np.reshape(arrows, (-1, 2)).T, ls="", marker=UP_ARROW, ms=6, color=colour, label=label)
    ax.plot(*np.reshape(ticks, (-1, 2)).T, "|", ms=5, color=colour, transform=top, label="_no bound")


def _interval(ax: Axes, x: float, scale: Estimate, **look: Any) -> None:
    if scale.value is not None and scale.low is not None and scale.high is not None:
        ax.plot([x, x], [scale.low, scale.high], label="_interval", **look)
