"""One fit on one Axes, wherever (batch size, steps) is put: in that the frontier and steps figures differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bscrit.curve import Floats
from bscrit.fit.result import Fit, Forecast, Point
from bscrit.plot.labels import B_CRIT, b_crit, name
from bscrit.plot.style import FAINT, GREY, MOST, SERIES, sign

SET_ASIDE = 0.5
ARROW = "-|>,head_width=0.2,head_length=0.35"


@dataclass(frozen=True)
class Frame:
    """Where things are put.

    Attributes:
        place: (batch size, steps) to the coordinates of the Axes.
        batch: (k,) batch sizes at which curves are drawn, beyond those that were tried.
        arrow: factor of steps by which the arrow of a censored point is long.
    """

    place: Callable[[Floats, Floats], tuple[Floats, Floats]]
    batch: Floats
    arrow: float

    def hyperbola(self, batch: Floats, critical: tuple[float, float]) -> tuple[Floats, Floats]:
        """Steps to the target at batch sizes, S_min (1 + B_crit/B), where critical is (B_crit, 2 S_min)."""
        return self.place(batch, critical[1] / 2 * (1 + critical[0] / batch))


def shown(fits: Sequence[Fit]) -> Sequence[Fit]:
    """The fits that get a colour: as many as can be told apart."""
    return fits[:MOST]


def batch_sizes(fits: Iterable[Fit]) -> list[float]:
    return sorted({point.batch_size for fit in fits for point in fit.points})


def reach(fits: Sequence[Fit]) -> tuple[list[float], list[float]]:
    """Batch sizes and steps, pairwise, that the axes must hold: points, their intervals, and B_crit."""
    pairs = [critical for fit in fits if (critical := critical_point(fit))]
    for point in (point for fit in fits for point in fit.points):
        pairs += [(point.batch_size, steps or point.steps) for steps in (point.steps, point.low, point.high)]
    return [batch for batch, _ in pairs], [steps for _, steps in pairs]


def critical_point(fit: Fit | Forecast) -> tuple[float, float] | None:
    """(B_crit, 2 S_min), None where the data give no value."""
    if fit.b_crit.value is None or fit.s_min.value is None:
        return None
    return fit.b_crit.value, 2 * fit.s_min.value


def draw_series(ax: Axes, index: int, fits: Sequence[Fit], unit: str, frame: Frame) -> None:
    """Draw the `index`-th of the fits: band, curve, B_crit, intervals, points, arrows and legend line."""
    fit, (colour, marker) = fits[index], SERIES[index]
    _band(ax, fit, colour, frame)
    _curve(ax, fit, colour, frame)
    for point in fit.points:
        _point(ax, point, colour, marker, frame)
    _critical(ax, fit, colour, frame)
    line = "-" if critical_point(fit) else "none"
    ax.plot([], [], ls=line, color=colour, marker=marker, label=f"{name(fit, fits)}: {b_crit(fit, unit)}")


def explain(ax: Axes, fits: Sequence[Fit], left_out: int) -> None:
    """Legend lines for the signs that occur, in grey, as they are the same for every fit."""
    points = [point for fit in fits for point in fit.points]
    if any(critical_point(fit) for fit in fits):
        label = f"{B_CRIT}: twice the fewest steps, twice the fewest examples; thick: 95 % interval"
        sign(ax, label, marker="*", markersize=8, markerfacecolor="white")
    if any(len(fit.region) > 2 for fit in fits):
        sign(ax, "95 % region of the fit", color=FAINT, linestyle="-", linewidth=5)
    if any(censored(point) for point in points):
        sign(ax, "target not reached: at least this", marker=r"$\uparrow$", markersize=7)
    if any(0 < point.censored < point.runs for point in points):
        sign(ax, "some of the runs did not reach the target", marker="o", markerfacecolor="white")
    if any(point.robust_weight < SET_ASIDE for point in points):
        sign(ax, "set aside by the fit", marker="x", markersize=7)
    say_left_out(ax, "fits", left_out)


def say_left_out(ax: Axes, what: str, count: int) -> None:
    """A legend line on what is not drawn because there are more than can be told apart."""
    if count:
        sign(ax, f"{count} more {what} are not drawn", alpha=0)


def censored(point: Point) -> bool:
    """Whether no run at this batch size met the target, so that `steps` is a bound."""
    return point.censored >= point.runs


def draw_arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """The arrow of a bound."""
    arrow = {"arrowstyle": ARROW, "color": colour, "lw": 1, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=arrow, label="_censored")


def _band(ax: Axes, fit: Fit, colour: str, frame: Frame) -> None:
    if len(fit.region) < 3:
        return
    s_min, b_crit = np.array(fit.region).T[..., None]
    every = s_min * (1 + b_crit / frame.batch)
    low, high = frame.place(frame.batch, every.min(0)), frame.place(frame.batch, every.max(0))
    x, y = (np.concatenate([a, b[::-1]]) for a, b in zip(low, high, strict=True))
    ax.fill(x, y, color=colour, alpha=0.15, linewidth=0, zorder=1.5, label="_region")


def _curve(ax: Axes, fit: Fit, colour: str, frame: Frame) -> None:
    """Solid over the batch sizes that were tried, dashed beyond."""
    critical = critical_point(fit)
    if critical is None or not fit.points:
        return
    tried = batch_sizes([fit])
    solid = np.clip(frame.batch, tried[0], tried[-1])
    ax.plot(*frame.hyperbola(frame.batch, critical), "--", color=colour, lw=0.8)
    ax.plot(*frame.hyperbola(solid, critical), color=colour, label="_curve")


def _critical(ax: Axes, fit: Fit, colour: str, frame: Frame) -> None:
    critical = critical_point(fit)
    if critical is None:
        return
    low, high = fit.b_crit.low, fit.b_crit.high
    if low is not None or high is not None:
        least, most = frame.batch[0], frame.batch[-1]
        inside = np.geomspace(np.clip(low or least, least, most), np.clip(high or most, least, most), 50)
        look: dict[str, Any] = {"alpha": 0.35, "solid_capstyle": "butt", "label": "_b_crit interval"}
        ax.plot(*frame.hyperbola(inside, critical), color=colour, lw=5, zorder=2.2, **look)
    star = frame.place(*np.array(critical)[:, None])
    ax.plot(*star, "*", ms=8, mfc="white", mec=colour, mew=1, zorder=5, label="_b_crit")


def _point(ax: Axes, point: Point, colour: str, marker: str, frame: Frame) -> None:
    batch = np.array([point.batch_size, point.batch_size])
    x, y = frame.place(batch, np.array([point.steps, point.steps * frame.arrow]))
    faint = 0.45 if point.robust_weight < SET_ASIDE else 1.0
    if censored(point):
        draw_arrow(ax, (x[0], y[0]), (x[1], y[1]), colour)
        ax.plot(x[:1], y[:1], marker, mfc="white", mec=colour, zorder=4, label="_bound")
        return
    if point.low is not None and point.high is not None:
        ends = frame.place(batch, np.array([point.low, point.high]))
        ax.plot(*ends, color=colour, lw=1, alpha=faint, zorder=3, label="_interval")
    face = "white" if point.censored else colour
    ax.plot(x[:1], y[:1], marker, color=colour, mfc=face, alpha=faint, zorder=4, label="_point")
    if point.robust_weight < SET_ASIDE:
        ax.plot(x[:1], y[:1], "x", color=GREY, ms=8, mew=1, zorder=4.5, label="_set aside")
