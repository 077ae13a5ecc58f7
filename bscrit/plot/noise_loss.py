"""The gradient noise scale against the metric, with B_crit at each target: one scale to compare the two on.

McCandlish et al. 2018, section 3, draw it so: as training goes on, from left to right, the loss falls and both
grow. A target of a fit is a value of the metric, and B_crit at it is a point; the growth law is a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, Growth, NoiseAlong
from bscrit.plot import labels
from bscrit.plot.figure import by_metric, lacks_noise
from bscrit.plot.scales import draw_scales
from bscrit.plot.series import draw_arrow
from bscrit.plot.ticks import limits, log_axis
from bscrit.words import compact


def noise_loss(ax: Axes, along: NoiseAlong, fits: Sequence[Fit], unit: str) -> None:
    """Draw the windowed noise scale of each batch size against the metric, B_crit at its targets, and the growth law.

    Growth law and measurements at frozen parameters are those of the last fit that has them: the hardest target.
    A metric that falls has a logarithmic axis, on which values that are not positive have no place.
    The colour bar (`style.batch_bar`) and the legend are left to the caller.
    """
    compared = [comparison for fit in fits for comparison in fit.noise if comparison.metric == along.metric]
    frozen = next((comparison.frozen for comparison in reversed(compared) if comparison.frozen), ())
    measured = [("black", (measurement.loss, measurement.scale)) for measurement in frozen]
    falls = along.goal.direction == "down"
    ax.set_xscale("log" if falls else "linear")
    taken = draw_scales(ax, along, fits, unit, lambda point: point.loss, measured, _critical)
    taken += [fit.target for fit in fits if fit.target is not None]
    name = f"{labels.metric(along.goal)} ({'falls' if falls else 'rises'} as training goes on)"
    if falls:
        low, high = limits(taken, least=1.08)
        log_axis(ax.xaxis, name, (high, low))
    else:
        ax.set_xlabel(name)
    growth = next((comparison.growth for comparison in reversed(compared) if comparison.growth), None)
    if growth is not None:
        _draw_growth(ax, growth, along.metric)


def _critical(ax: Axes, fit: Fit, series: tuple[str, str], label: str) -> None:
    """B_crit and its interval at the fit's target; hollow, with an arrow, where the data give a bound."""
    colour, marker = series
    look: dict[str, Any] = {"ls": "", "marker": marker, "ms": 6, "color": colour, "zorder": 5}
    ax.plot([], [], mec="black", mew=0.6, label=label, **look)
    at, value, low, high = fit.target, fit.b_crit.value, fit.b_crit.low, fit.b_crit.high
    if at is None or (at <= 0 and ax.get_xscale() == "log"):
        return
    if value is not None:
        ax.plot(
            [at, at],
            [low or value, high or value],
            color=colour,
            lw=1.8,
            zorder=4.5,
            label="_b_crit interval",
        )
        ax.plot([at], [value], mec="black", mew=0.6, label="_b_crit", **look)
        return
    bound, factor = (low, 1.5) if fit.verdict == "lower bound" else (high, 1 / 1.5)
    if fit.verdict in ("lower bound", "upper bound") and bound is not None:
        draw_arrow(ax, (at, bound), (at, bound * factor), colour)
        ax.plot([at], [bound], mfc="white", label="_bound", **look)


def _draw_growth(ax: Axes, law: Growth, metric: str) -> None:
    exponent = law.exponent
    at = np.geomspace(law.high_loss, law.low_loss, 50)
    said = compact(exponent.value or 0.0, labels.DIGITS)
    if exponent.low is not None and exponent.high is not None:
        said += f" ({compact(exponent.low, labels.DIGITS)} to {compact(exponent.high, labels.DIGITS)})"
    label = f"{labels.scale(metric)} in proportion to 1/loss$^a$, a = {said}"
    height = law.at_one * at ** -(exponent.value or 0.0)
    ax.plot(at, height, color="black", lw=1.3, ls=(0, (1, 1)), zorder=3.2, label=label)


def lacks(report: Report) -> str:
    along = report.runs.noise if report.runs else ()
    groups = [group for noise in along for group in (*noise.windows.values(), *noise.frozen.values())]
    placed = any(point.loss is not None for group in groups for point in group)
    return lacks_noise(report) or ("" if placed else "no run has a loss above 0")


def figure(report: Report) -> Figure:
    return by_metric(report, noise_loss)
