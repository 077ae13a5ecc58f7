"""Curves of the metric at the tuned rates, one colour per batch size, against steps or examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.curve import Curve
from bscrit.fit.report import Report
from bscrit.fit.result import Fit, TunedRun
from bscrit.goal import LOSS
from bscrit.plot import labels
from bscrit.plot.figure import finished
from bscrit.plot.series import censored
from bscrit.plot.style import DOUBLE, GREY, batch_colours, panels, sign
from bscrit.plot.ticks import limits, log_axis
from bscrit.words import compact

MOST_POINTS = 2000


def curves(
    ax: Axes,
    runs: Sequence[TunedRun],
    fits: Sequence[Fit],
    unit: str,
    against: Literal["steps", "examples"] = "steps",
) -> None:
    """Draw each run's metric, the targets of the fits as lines, and the fits' crossings on them.

    Curves of more than MOST_POINTS evaluations are thinned to about as many, evenly in ln(step). The colour
    bar (`style.batch_bar`) and the legend are left to the caller.
    """
    kept = [(run.batch_size, _thinned(run.curve)) for run in runs]
    xspan = limits((x for _, curve in kept for x in getattr(curve, against).tolist()), pad=0.02, least=1.02)
    goals = list(dict.fromkeys(fit.target for fit in fits if fit.target is not None))
    log_axis(ax.xaxis, "Optimizer steps" if against == "steps" else labels.examples(unit), xspan)
    _metric_axis(ax, [curve for _, curve in kept if len(curve)], goals)
    colours = batch_colours([run.batch_size for run in runs])
    for batch_size, curve in kept:
        colour = colours(batch_size)
        metric = curve.goal.falls(curve.loss)
        ax.plot(getattr(curve, against), metric, color=colour, lw=0.8, alpha=0.9, label="_curve")
    for target in goals:
        ax.axhline(target, color=GREY, lw=0.7, ls=(0, (4, 2)), zorder=1.8, label="_target")
    for fit in fits:
        for point in fit.points:
            if fit.target is not None and not censored(point):
                x = getattr(point, against)
                face = colours(point.batch_size)
                ax.plot(
                    x, fit.target, "o", ms=4.5, mfc=face, mec="white", mew=0.6, zorder=4, label="_crossing"
                )
    if goals:
        named = ("target " if len(goals) == 1 else "targets ") + ", ".join(map(compact, goals))
        sign(ax, named, linestyle=(0, (4, 2)), linewidth=0.7)
        sign(ax, "crossing", marker="o", markersize=4.5, markeredgecolor="white")


def _thinned(curve: Curve) -> Curve:
    finite = np.flatnonzero(np.isfinite(curve.loss))
    if len(finite) > MOST_POINTS:
        finite = finite[np.unique(np.geomspace(1, len(finite), MOST_POINTS).astype(int)) - 1]
    steps, examples, loss = curve.steps[finite], curve.examples[finite], curve.loss[finite]
    return Curve(steps, examples, loss, curve.seconds[finite], curve.goal)


def _metric_axis(ax: Axes, kept: Sequence[Curve], targets: Sequence[float]) -> None:
    """Logarithmic where the metric falls and is positive; a spike beyond the start of training is cut off."""
    goal = kept[0].goal if kept else LOSS
    falling = [goal.falls(target) for target in targets]
    low = min([*(float(curve.loss.min()) for curve in kept), *falling], default=0.1)
    tops = [max(float(curve.loss[0]), float(np.quantile(curve.loss, 0.99))) for curve in kept]
    high = max([*tops, *falling], default=1.0)
    label = labels.metric(goal)
    if low > 0 and goal.direction == "down":
        log_axis(ax.yaxis, label, limits([low, high], least=1.05))
    else:
        margin = 0.05 * (high - low)
        bottom, top = sorted((goal.falls(low - margin), goal.falls(high + margin)))
        ax.set_ylim(bottom, top)
        ax.set_ylabel(label)


def lacks(report: Report) -> str:
    if report.runs is None:
        return "the source has no runs with curves"
    return "" if report.runs.tuned else "every run failed or diverged"


def figure(report: Report) -> Figure:
    axes = panels(2, width=DOUBLE)
    runs = report.runs.tuned if report.runs else ()
    curves(axes[0], runs, report.fits, report.unit, "steps")
    curves(axes[1], runs, report.fits, report.unit, "examples")
    axes[1].set_ylabel("")
    return finished(axes, report)
