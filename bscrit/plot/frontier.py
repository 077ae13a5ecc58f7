"""Examples processed against optimizer steps to a target: the Pareto frontier of time and compute.

McCandlish et al. 2018, figure 1 and equation 2.11: (S/S_min - 1)(E/E_min - 1) = 1. Each batch size is a
diagonal, E = B S. Beside it lies the frontier that the noise scale of the runs at one batch size predicts
(appendix D there), where the fit has such a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.fit.report import Report
from bscrit.fit.result import Fit
from bscrit.plot import labels
from bscrit.plot.figure import Drawing, finished, lacks_points
from bscrit.plot.series import Frame, batch_sizes, draw_series, explain, reach, shown, steps_at
from bscrit.plot.style import FAINT, GREY, SERIES, panels, sign
from bscrit.plot.ticks import limits, log_axis, ticks_at
from bscrit.words import compact

DIAGONALS = 10
MOST_FORECASTS = 3
PREFERRED = ("hessian", "adam", "identity")  # the nearer to what B_crit is an average of, the earlier
PREDICTED: dict[str, Any] = {"linestyle": (0, (3, 1.2, 1, 1.2)), "linewidth": 1.1}


def frontier(ax: Axes, fits: Sequence[Fit], unit: str) -> None:
    """Draw every fit's points and fitted curve; steps to the right, examples [unit] upwards.

    Of more fits than MOST_FORECASTS only the last one's forecast is drawn, not to make a thicket of them.
    The legend is left to the caller: `ax.legend()`, or `style.legend` under the figure.
    """
    drawn = shown(fits)
    told = {index: forecast for index, fit in enumerate(drawn) if (forecast := _forecast(fit))}
    if len(told) > MOST_FORECASTS:
        told = dict([max(told.items())])
    batch, steps = reach(drawn)
    batch += [forecast.b_crit for forecast in told.values()]
    steps += [2 * forecast.s_min for forecast in told.values()]
    xspan = limits(steps, pad=0.1)
    yspan = limits((b * s for b, s in zip(batch, steps, strict=True)), pad=0.1)
    log_axis(ax.xaxis, "Optimizer steps", xspan)
    log_axis(ax.yaxis, labels.examples(unit), yspan)
    _diagonals(ax, batch_sizes(drawn), unit)
    arrow = min(xspan[1] / xspan[0], yspan[1] / yspan[0]) ** 0.09
    beyond = np.geomspace(yspan[0] / xspan[1], yspan[1] / xspan[0], 400)
    for index in range(len(drawn)):
        draw_series(ax, index, drawn, unit, Frame(_place, beyond, arrow))
        if index in told:
            _predicted(ax, told[index], SERIES[index][0], beyond)
    if told:
        _explain(
            ax,
            list(told.values()),
            "" if len(drawn) <= MOST_FORECASTS else labels.name(drawn[max(told)], fits),
        )
    explain(ax, drawn, len(fits) - len(drawn))


def _place(batch: Floats, steps: Floats) -> tuple[Floats, Floats]:
    return steps, batch * steps


@dataclass(frozen=True)
class _Told:
    """A forecast with values: of which metric, from which batch size, s_min, b_crit and its error."""

    metric: str
    batch_size: float
    s_min: float
    b_crit: float
    error: Estimate


def _forecast(fit: Fit) -> _Told | None:
    """The forecast of a fit in the metric that is nearest to what B_crit is, None where no forecast has values."""
    known: dict[str, _Told] = {}
    for one in fit.noise:
        forecast = one.forecast
        if forecast is not None and forecast.s_min.value is not None and forecast.b_crit.value is not None:
            values = (forecast.s_min.value, forecast.b_crit.value)
            known[one.metric] = _Told(one.metric, forecast.batch_size, *values, forecast.error)
    return next((known[metric] for metric in (*PREFERRED, *known) if metric in known), None)


def _predicted(ax: Axes, told: _Told, colour: str, batch: Floats) -> None:
    where = _place(batch, steps_at(batch, told.s_min, told.b_crit))
    ax.plot(*where, color=colour, zorder=1.9, label="_predicted", **PREDICTED)
    x, y = 2 * told.s_min, 2 * told.s_min * told.b_crit
    ax.plot([x], [y], "d", ms=6, mfc="white", mec=colour, mew=1, zorder=4.8, label="_predicted b_crit")


def _explain(ax: Axes, told: Sequence[_Told], only: str) -> None:
    """One line for all forecasts; `only` names the fit that it is for, where others have none drawn."""
    whence = dict.fromkeys(
        f"{labels.scale(one.metric)} at batch size {compact(one.batch_size)}" for one in told
    )
    errors = [one.error for one in told if one.error.value is not None]
    said = ", ".join(f"{error.value:.2g}" for error in errors)
    if len(errors) == 1 and errors[0].low is not None and errors[0].high is not None:
        said += f" ({errors[0].low:.2g}–{errors[0].high:.2g})"
    label = f"predicted from {', '.join(whence)} alone"
    label += f": {labels.B_CRIT} {said} times the fitted one" if errors else ""
    label += f" (drawn for {only} only)" if only else ""
    sign(ax, label, marker="d", markersize=6, markerfacecolor="white", **PREDICTED)


def _diagonals(ax: Axes, sizes: Sequence[float], unit: str) -> None:
    """Lines of equal batch size, labelled where they leave the axes: above, or on the right."""
    (left, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    sizes = sizes[:: max(-(-len(sizes) // DIAGONALS), 1)]
    for size in sizes:
        ax.plot([left, right], [size * left, size * right], color=FAINT, lw=0.6, zorder=1, label="_diagonal")

    def over_top(value: Any) -> Any:
        """Steps at the top edge to batch size, and back; the axis asks at 0 too, before it has its limits."""
        return top / np.maximum(value, np.finfo(float).tiny * max(top, 1))

    def over_right(value: Any) -> Any:
        return value / right

    def times_right(value: Any) -> Any:
        return value * right

    above = ax.secondary_xaxis("top", functions=(over_top, over_top))
    beside = ax.secondary_yaxis("right", functions=(over_right, times_right))
    leaving_above = [size for size in sizes if size * right >= top]
    leaving_right = [size for size in sizes if size * right < top]
    for axis, leaving in ((above.xaxis, leaving_above), (beside.yaxis, leaving_right)):
        ticks_at(axis, leaving)
        axis.set_tick_params(which="both", length=0, colors=GREY, pad=1.5)
    above.set_xlabel(labels.batch_size(unit), color=GREY, fontsize=7)
    for edge in (*above.spines.values(), *beside.spines.values()):
        edge.set_color(FAINT)


def _figure(report: Report) -> Figure:
    (ax,) = panels(height=2.9)
    frontier(ax, report.fits, report.unit)
    return finished([ax])


FIGURE = Drawing(lacks_points, _figure)
