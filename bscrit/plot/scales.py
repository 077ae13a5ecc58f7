"""Noise scales as the figures show them: windows of the runs with intervals, and measurements at frozen parameters.

The windows and their averages are those of `bscrit.fit.noise`: ratios of two sums, pooled over the seeds of a
batch size. A mean of ratios would be off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle

from bscrit.curve import Curve
from bscrit.estimate import Estimate
from bscrit.fit.noise.averages import average, over_progress
from bscrit.fit.noise.compare import in_order
from bscrit.fit.noise.frozen import frozen_scales
from bscrit.fit.noise.windows import Runs, Window, windows
from bscrit.fit.result import FrozenScale
from bscrit.noise import samples_of
from bscrit.plot.style import UP_ARROW, sign
from bscrit.record import Record

INSIDE = 9  # steps of a window at which the loss is read
NO_BOUND = 0.98  # height in the axes of the mark of a window of which nothing is known
FROZEN: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "white"}
MOST_INTERVALS = 12  # batch sizes; with more, intervals would hide the lines


@dataclass(frozen=True)
class Measured:
    """A noise scale somewhere along the runs at one batch size.

    Attributes:
        steps: in the middle of the window, or where the parameters were frozen.
        loss: of the mean curve there, None where it is unknown or not positive.
        scale: with its interval; where it is not resolved, without a value.
    """

    steps: float
    loss: float | None
    scale: Estimate


Where = Callable[[Measured], float | None]
"""Where on the axis of steps or losses a scale is drawn, None for nowhere."""


def metrics(records: Iterable[Record]) -> list[str]:
    """The metrics in which anything was measured, in the order in which they are told."""
    found = {metric for record in records for metric, samples in record.noise.items() if len(samples)}
    return in_order(found | {one.metric for record in records for one in record.frozen})


def along(records: Sequence[Record], metric: str, data: float | None = None) -> list[Measured]:
    """Each window of the runs at one batch size, ascending in steps.

    Args:
        data: examples of the training set, None where they are drawn without end.
    """
    samples = [samples_of(record.noise, metric).from_data_of(data) for record in records]
    last = max((float(one.steps[-1]) for one in samples if len(one)), default=0.0)
    curves = tuple(finite for record in records if len(finite := record.curve.finite()))
    runs = Runs(records[0].trial.batch_size, last, tuple(samples), curves)
    return [
        Measured(
            window.low + window.length / 2,
            _mean_loss(curves, window),
            average([window], runs.batch_size, over_progress),
        )
        for window in windows(runs)
    ]


def at_frozen(records: Sequence[Record], metric: str, data: float | None = None) -> list[Measured]:
    """Each measurement at frozen parameters of the runs at one batch size, all seeds together."""
    single = [one for record in records for one in record.frozen if one.metric == metric and one.loss > 0]
    found = frozen_scales(records, metric, data)
    steps = defaultdict(list)
    for one in single:
        nearest = min(range(len(found)), key=lambda place: abs(log(found[place].loss / one.loss)))
        steps[nearest].append(max(one.step, 0.5))
    return [
        Measured(exp(sum(map(log, mine)) / len(mine)), found[place].loss, found[place].scale)
        for place, mine in sorted(steps.items())
    ]


def draw_scales(ax: Axes, x: Where, found: Sequence[Measured], colour: str) -> None:
    """A line through the resolved scales with gaps for the others, whose marks are at their lower bounds."""
    placed = [(at, one.scale) for one in found if (at := x(one)) is not None]
    values = [np.nan if scale.value is None else scale.value for _, scale in placed]
    ax.plot([at for at, _ in placed], values, "-o", ms=2.5, lw=1, color=colour, label="_noise scale")
    gone = [(at, scale.low) for at, scale in placed if scale.value is None]
    _marks(ax, gone, colour, "_unresolved")


def draw_intervals(ax: Axes, x: Where, found: Sequence[Measured], colour: str) -> None:
    """The 95 % intervals of the resolved scales, thin and light."""
    for one in found:
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
    """What a logarithmic axis must hold: values, and bounds where there is no value."""
    ends = [next((e for e in (one.value, one.low, one.high) if e is not None), None) for one in estimates]
    return [end for end in ends if end is not None]


def explain_scales(
    ax: Axes, shown: Iterable[Measured], frozen: Iterable[Measured | FrozenScale], *, intervals: bool
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


def _mean_loss(curves: Sequence[Curve], window: Window) -> float | None:
    """The geometric mean over a window's steps of the runs' mean loss."""
    if not curves:
        return None
    steps = window.low + window.length * (np.arange(INSIDE) + 0.5) / INSIDE
    wanted = np.log(np.maximum(steps, 0.5))
    each = [np.interp(wanted, np.log(np.maximum(curve.steps, 0.5)), curve.loss) for curve in curves]
    loss = np.mean(each, axis=0)
    return float(np.exp(np.log(loss).mean())) if (loss > 0).all() else None


def _marks(ax: Axes, gone: Sequence[tuple[float, float | None]], colour: str, label: str) -> None:
    """What is not resolved: arrows at lower bounds, and ticks at the top of the axes where there is none."""
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
