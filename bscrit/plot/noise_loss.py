"""The gradient noise scale against the loss, with B_crit at each target: one scale to compare the two on.

McCandlish et al. 2018, section 3, draw it so: as training goes on, from left to right, the loss falls and both
grow. A target of a fit is a loss, and B_crit at it is a point; the growth law is a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, FrozenScale, Growth, NoiseAlong, NoisePoint
from bscrit.plot import labels
from bscrit.plot.figure import Drawing, by_metric, lacks_noise
from bscrit.plot.scales import (
    MOST_INTERVALS,
    draw_frozen,
    draw_intervals,
    draw_scales,
    explain_scales,
    heights,
)
from bscrit.plot.series import say_left_out, shown
from bscrit.plot.style import SERIES, batch_colours
from bscrit.plot.ticks import limits, log_axis
from bscrit.words import compact


def noise_loss(ax: Axes, along: NoiseAlong, fits: Sequence[Fit], unit: str) -> None:
    """Draw the windowed noise scale of each batch size against the loss, B_crit at its targets, and the growth law.

    Growth law and measurements at frozen parameters are those of the last fit that has them: the hardest target.
    Losses that are not positive have no place on the axis.
    The colour bar (`style.batch_bar`) and the legend are left to the caller.
    """
    metric = along.metric
    windows = {
        size: [point for point in points if point.loss is not None] for size, points in along.windows.items()
    }
    compared = [one for fit in fits for one in fit.noise if one.metric == metric]
    frozen = next((one.frozen for one in reversed(compared) if one.frozen), ())
    law = next((one.growth for one in reversed(compared) if one.growth), None)
    drawn = shown(fits)
    every = [one for group in windows.values() for one in group]
    _axes(ax, every, frozen, drawn, f"Noise scale {labels.scale(metric)} ({labels.plural(unit)})")
    colours = batch_colours(list(windows))
    few = sum(map(bool, windows.values())) <= MOST_INTERVALS
    for size, points in windows.items():
        if few:
            draw_intervals(ax, _loss, points, colours(size))
        draw_scales(ax, _loss, points, colours(size))
    for one in frozen:
        draw_frozen(ax, one.loss, one.scale, "black")
    for index, fit in enumerate(drawn):
        _critical(ax, fit, SERIES[index], f"{labels.name(fit, fits)}: {labels.b_crit(fit, unit)}")
    if law is not None:
        _growth(ax, law, metric)
    explain_scales(ax, every, frozen, intervals=few)
    say_left_out(ax, "fits", len(fits) - len(drawn))


def _loss(one: NoisePoint) -> float | None:
    return one.loss


def _axes(
    ax: Axes, windows: Sequence[NoisePoint], frozen: Sequence[FrozenScale], fits: Sequence[Fit], label: str
) -> None:
    every: list[NoisePoint | FrozenScale] = [*windows, *frozen]
    x = [one.loss for one in every if one.loss is not None]
    x += [fit.target for fit in fits if fit.target is not None]
    low, high = limits(x, least=1.08)
    log_axis(ax.xaxis, "Loss (falls as training goes on)", (high, low))
    tall = heights(one.scale for one in every) + heights(
        fit.b_crit for fit in fits if fit.verdict != "not identified"
    )
    log_axis(ax.yaxis, label, limits(tall, least=1.5))


def _critical(ax: Axes, fit: Fit, look: tuple[str, str], label: str) -> None:
    """B_crit and its interval at the fit's target; hollow, with an arrow, where the data give a bound."""
    colour, marker = look
    ax.plot([], [], ls="", marker=marker, ms=6, color=colour, mec="black", mew=0.6, label=label)
    at, low, high = fit.target, fit.b_crit.low, fit.b_crit.high
    if at is None or at <= 0:
        return
    point: dict[str, Any] = {"ls": "", "marker": marker, "ms": 6, "color": colour, "zorder": 5}
    if fit.b_crit.value is not None:
        ends = [low or fit.b_crit.value, high or fit.b_crit.value]
        ax.plot([at, at], ends, color=colour, lw=1.8, zorder=4.5, label="_b_crit interval")
        ax.plot([at], [fit.b_crit.value], mec="black", mew=0.6, label="_b_crit", **point)
        return
    bound, factor = (low, 1.5) if fit.verdict == "lower bound" else (high, 1 / 1.5)
    if fit.verdict in ("lower bound", "upper bound") and bound is not None:
        head = "-|>,head_width=0.2,head_length=0.35"
        arrow = {"arrowstyle": head, "color": colour, "lw": 1, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (at, bound * factor), (at, bound), arrowprops=arrow, label="_censored")
        ax.plot([at], [bound], mfc="white", label="_bound", **point)


def _growth(ax: Axes, law: Growth, metric: str) -> None:
    at = np.geomspace(law.high_loss, law.low_loss, 50)
    exponent = law.exponent
    said = compact(exponent.value or 0.0, labels.DIGITS)
    if exponent.low is not None and exponent.high is not None:
        said += f" ({compact(exponent.low, labels.DIGITS)} to {compact(exponent.high, labels.DIGITS)})"
    label = f"{labels.scale(metric)} in proportion to 1/loss$^a$, a = {said}"
    height = law.at_one * at ** -(exponent.value or 0.0)
    ax.plot(at, height, color="black", lw=1.3, ls=(0, (1, 1)), zorder=3.2, label=label)


def _lacks(report: Report) -> str:
    curves = [run.curve.finite() for run in report.runs.tuned] if report.runs else []
    positive = any(curve.goal.direction == "down" and (curve.loss > 0).any() for curve in curves)
    return lacks_noise(report) or ("" if positive else "no run has a loss above 0")


def _figure(report: Report) -> Figure:
    return by_metric(report, lambda ax, along: noise_loss(ax, along, report.fits, report.unit))


FIGURE = Drawing(_lacks, _figure)
