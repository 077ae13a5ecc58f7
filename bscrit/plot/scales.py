"""Noise scales on an Axes: windows of the runs with intervals, and measurements at frozen parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle

from bscrit.estimate import Estimate
from bscrit.fit.result import FrozenScale, NoisePoint
from bscrit.plot.style import UP_ARROW, sign

NO_BOUND = 0.98  # height in the axes of the mark of a window of which nothing is known
FROZEN: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "white"}
MOST_INTERVALS = 12  # batch sizes; with more, intervals would hide the lines


Where = Callable[[NoisePoint], float | None]
"""Where on the axis of steps or losses a scale is drawn, None for nowhere."""


def draw_scales(ax: Axes, x: Where, points: Sequence[NoisePoint], colour: str) -> None:
    """A line through the resolved scales with gaps for the others, whose marks are at their lower bounds."""
    placed = [(at, one.scale) for one in points if (at := x(one)) is not None]
    values = [np.nan if scale.value is None else scale.value for _, scale in placed]
    ax.plot([at for at, _ in placed], values, "-o", ms=2.5, lw=1, color=colour, label="_noise scale")
    gone = [(at, scale.low) for at, scale in placed if scale.value is None]
    _marks(ax, gone, colour, "_unresolved")


def draw_intervals(ax: Axes, x: Where, points: Sequence[NoisePoint], colour: str) -> None:
    """The 95 % intervals of the resolved scales, thin and light."""
    for one in points:
        _interval(ax, x(one), one.scale, color=colour, lw=0.7, alpha=0.4, zorder=1.7)


def draw_frozen(ax: Axes, x: float | None, scale: Estimate, colour: str) -> None:
    """A measurement at frozen parameters: a point with its interval, or the mark of its lower bound."""
    if x is None:
        return
    _interval(ax, x, scale, color=colour, lw=1, zorder=3.4)
    if scale.value is not None:
        ax.plot([x], [scale.value], ls="", color=colour, zorder=6, label="_frozen", **FROZEN)
    else:
        _marks(ax, [(x, scale.low)], colour, "_frozen unresolved")


def heights(estimates: Iterable[Estimate]) -> list[float]:
    """The numbers that a logarithmic axis must hold: values, and bounds where there is no value."""
    ends = [next((e for e in (one.value, one.low, one.high) if e is not None), None) for one in estimates]
    return [end for end in ends if end is not None]


def explain_scales(
    ax: Axes, shown: Iterable[NoisePoint], frozen: Iterable[NoisePoint | FrozenScale], *, intervals: bool
) -> None:
    """Legend lines for the signs that occur."""
    estimates, fresh = [one.scale for one in shown], [one.scale for one in frozen]
    if estimates:
        what = f"noise scale in windows of the runs{'; 95 % intervals' if intervals else ''}"
        sign(ax, what, marker="o", markersize=2.5, linestyle="-")
    if any(one.value is not None for one in fresh):
        sign(ax, "at frozen parameters, on fresh data", **FROZEN)
    unresolved = [one for one in [*estimates, *fresh] if one.value is None]
    if any(one.low is not None for one in unresolved):
        sign(ax, "not resolved: at least this", marker=MarkerStyle(UP_ARROW), markersize=6)
    if any(one.low is None for one in unresolved):
        sign(ax, "not resolved, and no bound", marker="|", markersize=5)


def _marks(ax: Axes, gone: Sequence[tuple[float, float | None]], colour: str, label: str) -> None:
    """Marks of the unresolved: arrows at lower bounds, and ticks at the top of the axes where there is none."""
    bounds = [(at, low) for at, low in gone if low is not None]
    ax.plot(*_columns(bounds), ls="", marker=MarkerStyle(UP_ARROW), ms=6, color=colour, label=label)
    nothing = [(at, NO_BOUND) for at, low in gone if low is None]
    top = ax.get_xaxis_transform()
    ax.plot(*_columns(nothing), "|", ms=5, color=colour, transform=top, label="_no bound")


def _interval(ax: Axes, x: float | None, scale: Estimate, **look: Any) -> None:
    if x is not None and scale.value is not None and scale.low is not None and scale.high is not None:
        ax.plot([x, x], [scale.low, scale.high], label="_interval", **look)


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [one for one, _ in pairs], [other for _, other in pairs]
