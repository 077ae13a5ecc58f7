"""The gradient noise scale over training, beside B_crit.

tr(Sigma)/|G|^2 is one ratio of two sums over a window of steps, pooled over the seeds of a batch size.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, NoiseAlong, NoisePoint
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


def noise(ax: Axes, along: NoiseAlong, fits: Sequence[Fit], unit: str) -> None:
    """Draw the windowed noise scale of each batch size against steps, and B_crit with its interval as lines.

    Windows whose signal is not distinguishable from 0 have no ratio: they leave a gap and a mark. Measurements
    at frozen parameters are points of their own.
    The colour bar (`style.batch_bar`) and the legend are left to the caller.
    """
    windows, frozen = along.windows, along.frozen
    drawn = shown(fits)
    every = [one for group in (*windows.values(), *frozen.values()) for one in group]
    tall = heights([*(one.scale for one in every), *(fit.b_crit for fit in drawn if fit.b_crit.value)])
    log_axis(ax.xaxis, "Optimizer steps", limits([one.steps for one in every], pad=0.03))
    log_axis(
        ax.yaxis, f"Noise scale {labels.scale(along.metric)} ({labels.plural(unit)})", limits(tall, least=1.5)
    )
    colours = batch_colours(list(windows))
    few = sum(map(bool, windows.values())) <= MOST_INTERVALS
    for size in windows:
        if few:
            draw_intervals(ax, _steps, windows[size], colours(size))
        draw_scales(ax, _steps, windows[size], colours(size))
        for one in frozen[size]:
            draw_frozen(ax, one.steps, one.scale, colours(size))
    for index, fit in enumerate(drawn):
        _critical(ax, fit, SERIES[index], f"{labels.name(fit, fits)}: {labels.b_crit(fit, unit)}")
    fresh = [one for group in frozen.values() for one in group]
    explain_scales(ax, [one for group in windows.values() for one in group], fresh, intervals=few)
    say_left_out(ax, "fits", len(fits) - len(drawn))


def _steps(one: NoisePoint) -> float:
    return one.steps


def _critical(ax: Axes, fit: Fit, look: tuple[str, str], label: str) -> None:
    """A line across the axes, the fit's marker at its right end; only the legend where there is no value."""
    colour, marker = look
    value = fit.b_crit.value
    ax.plot([], [], "--", marker=marker, color=colour, lw=1.1, label=label)
    if value is None:
        return
    ax.plot(
        [0, 1],
        [value, value],
        "--",
        marker=marker,
        markevery=[1],
        color=colour,
        lw=1.1,
        transform=ax.get_yaxis_transform(),
        clip_on=False,
        label="_b_crit",
    )
    if fit.b_crit.low is not None and fit.b_crit.high is not None:
        ax.axhspan(fit.b_crit.low, fit.b_crit.high, color=colour, alpha=0.12, lw=0, label="_b_crit interval")


def _figure(report: Report) -> Figure:
    return by_metric(report, lambda ax, along: noise(ax, along, report.fits, report.unit))


FIGURE = Drawing(lacks_noise, _figure)
