"""Examples processed against optimizer steps to a target: the Pareto frontier of time and compute.

McCandlish et al. 2018, figure 1 and equation 2.11: (S/S_min - 1)(E/E_min - 1) = 1. Each batch size is a
diagonal, E = B S. Beside it lies the frontier that the noise scale of the runs at one batch size predicts
(appendix D there), where the fit has such a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, Forecast
from bscrit.plot import labels
from bscrit.plot.figure import finished, lacks_points
from bscrit.plot.series import Frame, batch_sizes, critical_point, draw_series, explain, reach, shown
from bscrit.plot.style import FAINT, GREY, SERIES, panels, sign
from bscrit.plot.ticks import limits, log_axis, ticks_at
from bscrit.words import compact

DIAGONALS = 10
MOST_FORECASTS = 3
PREFERRED = ("hessian", "adam", "identity")  # the nearer to what B_crit is an average of, the earlier
Predicted = tuple[str, Forecast, tuple[float, float]]
"""A metric, its forecast, and that as (B_crit, 2 S_min)."""
PREDICTED: dict[str, Any] = {"linestyle": (0, (3, 1.2, 1, 1.2)), "linewidth": 1.1}


def frontier(ax: Axes, fits: Sequence[Fit], unit: str) -> None:
    """Draw every fit's points and fitted curve; steps to the right, examples [unit] upwards.

    Of more fits than MOST_FORECASTS only the last one's forecast is drawn, not to make a thicket of them.
    The legend is left to the caller: `ax.legend()`, or `style.legend` under the figure.
    """
    drawn = shown(fits)
    told = {index: predicted for index, fit in enumerate(drawn) if (predicted := _predicted(fit))}
    if len(told) > MOST_FORECASTS:
        told = dict([max(told.items())])
    batch, steps = reach(drawn)
    batch += [b_crit for _, _, (b_crit, _) in told.values()]
    steps += [twice_s_min for _, _, (_, twice_s_min) in told.values()]
    xspan = limits(steps, pad=0.1)
    yspan = limits((b * s for b, s in zip(batch, steps, strict=True)), pad=0.1)
    log_axis(ax.xaxis, "Optimizer steps", xspan)
    log_axis(ax.yaxis, labels.examples(unit), yspan)
    _diagonals(ax, batch_sizes(drawn), unit)
    arrow = min(xspan[1] / xspan[0], yspan[1] / yspan[0]) ** 0.09
    beyond = np.geomspace(yspan[0] / xspan[1], yspan[1] / xspan[0], 400)
    frame = Frame(lambda batch, steps: (steps, batch * steps), beyond, arrow)
    for index in range(len(drawn)):
        draw_series(ax, index, drawn, unit, frame)
    for index, (_, _, critical) in told.items():
        colour = SERIES[index][0]
        ax.plot(*frame.hyperbola(beyond, critical), color=colour, zorder=1.9, label="_predicted", **PREDICTED)
        point = frame.place(*np.array(critical)[:, None])
        ax.plot(*point, "d", ms=6, mfc="white", mec=colour, mew=1, zorder=4.8, label="_predicted b_crit")
    if told:
        name = labels.name(drawn[max(told)], fits)
        only = f" (drawn for {name} only)" if len(drawn) > MOST_FORECASTS else ""
        look = {**PREDICTED, "marker": "d", "markersize": 6, "markerfacecolor": "white"}
        sign(ax, _prediction(list(told.values())) + only, **look)
    explain(ax, drawn, len(fits) - len(drawn))


def _predicted(fit: Fit) -> Predicted | None:
    """The forecast in the metric that is nearest to what B_crit is, None where none has values."""
    for metric in PREFERRED:
        for forecast in (comparison.forecast for comparison in fit.noise if comparison.metric == metric):
            if forecast and (critical := critical_point(forecast)):
                return metric, forecast, critical
    return None


def _prediction(told: Sequence[Predicted]) -> str:
    """The legend line of all forecasts."""
    whence = dict.fromkeys(
        f"{labels.scale(metric)} at batch size {compact(forecast.batch_size)}" for metric, forecast, _ in told
    )
    errors = [forecast.error for _, forecast, _ in told if forecast.error.value is not None]
    text = f"predicted from {', '.join(whence)} alone"
    if errors:
        text += f": {labels.B_CRIT} {', '.join(f'{error.value:.2g}' for error in errors)}"
        if len(errors) == 1 and errors[0].low is not None and errors[0].high is not None:
            text += f" ({errors[0].low:.2g}–{errors[0].high:.2g})"
        text += " times the fitted one"
    return text


def _diagonals(ax: Axes, sizes: Sequence[float], unit: str) -> None:
    """Lines of equal batch size, labelled where they leave the axes: above, or on the right."""
    (left, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    sizes = sizes[:: max(-(-len(sizes) // DIAGONALS), 1)]
    for size in sizes:
        ax.plot([left, right], [size * left, size * right], color=FAINT, lw=0.6, zorder=1, label="_diagonal")

    def over_top(value: Any) -> Any:
        """Steps at the top edge to batch size, and back; the axis asks at 0 too, before it has its limits."""
        return top / np.maximum(value, np.finfo(float).tiny * max(top, 1))

    above = ax.secondary_xaxis("top", functions=(over_top, over_top))
    over_right: Any = (lambda value: value / right, lambda size: size * right)
    beside = ax.secondary_yaxis("right", functions=over_right)
    leaving_above = [size for size in sizes if size * right >= top]
    leaving_right = [size for size in sizes if size * right < top]
    for axis, leaving in ((above.xaxis, leaving_above), (beside.yaxis, leaving_right)):
        ticks_at(axis, leaving)
        axis.set_tick_params(which="both", length=0, colors=GREY, pad=1.5)
    above.set_xlabel(labels.batch_size(unit), color=GREY, fontsize=7)
    for edge in (*above.spines.values(), *beside.spines.values()):
        edge.set_color(FAINT)


lacks = lacks_points


def figure(report: Report) -> Figure:
    (ax,) = panels(height=2.9)
    frontier(ax, report.fits, report.unit)
    return finished([ax])
