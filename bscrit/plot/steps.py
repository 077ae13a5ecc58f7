"""Steps to a target against batch size: perfect scaling at the left, diminishing returns at the right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit
from bscrit.plot import labels
from bscrit.plot.figure import finished, lacks_points
from bscrit.plot.series import Frame, batch_sizes, critical_point, draw_series, explain, reach, shown
from bscrit.plot.style import SERIES, panels, sign
from bscrit.plot.ticks import batch_axis, limits, log_axis

MOST_ASYMPTOTES = 3
PERFECT = (0, (4, 2))


def steps(ax: Axes, fits: Sequence[Fit], unit: str) -> None:
    """Draw every fit's points and curve with its two asymptotes, E_min / B and S_min.

    More fits than MOST_ASYMPTOTES are drawn without asymptotes, which would be a thicket.
    The legend is left to the caller: `ax.legend()`, or `style.legend` under the figure.
    """
    drawn = shown(fits)
    sizes, heights = reach(drawn)
    heights += [fit.s_min.value for fit in drawn if fit.s_min.value is not None]
    xspan, yspan = limits(sizes, least=1.4), limits(heights, least=1.3)
    batch_axis(ax.xaxis, batch_sizes(drawn), labels.batch_size(unit), xspan)
    log_axis(ax.yaxis, "Optimizer steps to target", yspan)
    asymptotes = len(drawn) <= MOST_ASYMPTOTES
    frame = Frame(
        lambda batch, height: (batch, height), np.geomspace(*xspan, 400), (yspan[1] / yspan[0]) ** 0.07
    )
    for index, (fit, (colour, _)) in enumerate(zip(drawn, SERIES, strict=False)):
        if asymptotes:
            _asymptotes(ax, fit, colour, xspan)
        draw_series(ax, index, drawn, unit, frame)
    if asymptotes and any(fit.e_min.value for fit in drawn):
        sign(ax, "$E_{min}/B$: perfect scaling, fewest examples", lw=0.9, linestyle=PERFECT)
    if asymptotes and any(fit.s_min.value for fit in drawn):
        sign(ax, "$S_{min}$: fewest steps, at any batch size", lw=0.9, linestyle=":")
    explain(ax, drawn, len(fits) - len(drawn))


def _asymptotes(ax: Axes, fit: Fit, colour: str, xspan: tuple[float, float]) -> None:
    """Each is drawn where its own value is known: a bound on B_crit leaves one of them."""
    if fit.e_min.value is not None:
        falling = [fit.e_min.value / batch for batch in xspan]
        ax.plot(xspan, falling, color=colour, ls=PERFECT, lw=0.7, alpha=0.7, label="_perfect scaling")
    if fit.s_min.value is not None:
        ax.plot(xspan, [fit.s_min.value] * 2, color=colour, ls=":", lw=0.9, alpha=0.8, label="_plateau")
    critical = critical_point(fit)
    if critical is not None:
        ax.vlines(critical[0], 0, critical[1], color=colour, lw=0.6, alpha=0.8, label="_drop")


lacks = lacks_points


def figure(report: Report) -> Figure:
    (ax,) = panels(height=2.5)
    steps(ax, report.fits, report.unit)
    return finished([ax])
