"""The gradient noise scale over training, beside B_crit.

tr(Sigma)/|G|^2 is one ratio of two sums over a window of steps, pooled over the seeds of a batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, NoiseAlong
from bscrit.plot.figure import by_metric, lacks_noise
from bscrit.plot.scales import draw_scales
from bscrit.plot.style import batch_colours
from bscrit.plot.ticks import limits, log_axis


def noise(ax: Axes, along: NoiseAlong, fits: Sequence[Fit], unit: str) -> None:
    """Draw the windowed noise scale of each batch size against steps, and B_crit with its interval as lines.

    Windows whose signal is not distinguishable from 0 have no ratio: they leave a gap and a mark. Measurements
    at frozen parameters are points of their own.
    The colour bar (`style.batch_bar`) and the legend are left to the caller.
    """
    colours = batch_colours(list(along.windows))
    frozen = [
        (colours(size), (point.steps, point.scale))
        for size, points in along.frozen.items()
        for point in points
    ]
    taken = draw_scales(ax, along, fits, unit, lambda point: point.steps, frozen, _critical)
    log_axis(ax.xaxis, "Optimizer steps", limits(taken, pad=0.03))


def _critical(ax: Axes, fit: Fit, series: tuple[str, str], label: str) -> None:
    """A line across the axes, the fit's marker at its right end; only the legend where there is no value."""
    colour, marker = series
    look: dict[str, Any] = {"ls": "--", "marker": marker, "color": colour, "lw": 1.1}
    ax.plot([], [], label=label, **look)
    critical = fit.b_crit
    if critical.value is not None:
        across = ax.get_yaxis_transform()
        ends = [critical.value] * 2
        ax.plot([0, 1], ends, markevery=[1], transform=across, clip_on=False, label="_b_crit", **look)
        if critical.low is not None and critical.high is not None:
            ax.axhspan(critical.low, critical.high, color=colour, alpha=0.12, lw=0, label="_b_crit interval")


lacks = lacks_noise


def figure(report: Report) -> Figure:
    return by_metric(report, noise)
