"""Steps to a target against learning rate, one colour per batch size: was every rate tuned?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bscrit.curve import Floats
from bscrit.fit.report import Report
from bscrit.fit.result import Attempt, Point
from bscrit.plot import labels
from bscrit.plot.figure import finished
from bscrit.plot.series import censored, say_left_out
from bscrit.plot.style import COLUMNS, DOUBLE, SHADE, UP_ARROW, batch_colours, panels, sign
from bscrit.plot.ticks import limits, log_axis

STRIP = 0.88
MOST_PANELS = 6
SIGNS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "reached": ("run that reached the target", {"marker": "o", "markersize": 2.8}),
    "best": ("tuned rate", {"marker": "*", "markersize": 8, "markerfacecolor": "white"}),
    "censored": ("not reached: at least this", {"marker": UP_ARROW, "markersize": 7}),
    "diverged": ("diverged", {"marker": "x", "markersize": 3.5}),
}


def rates(ax: Axes, attempts: Sequence[Attempt], best: Sequence[Point] = ()) -> None:
    """Draw every run at (learning rate, steps to a target) and mark the tuned point of each batch size.

    Censored runs are arrows that start at their last step; diverged ones are crosses in a strip at the top,
    one row per batch size. `best` are the fit's points. The colour bar (`style.batch_bar`) and the legend are
    left to the caller.
    """
    batch_sizes = sorted({attempt.batch_size for attempt in attempts})
    dots = {size: {kind: _dots(attempts, size, kind) for kind in SIGNS} for size in batch_sizes}
    points = [point for point in best if point.lr is not None and not censored(point)]
    heights = [steps for kinds in dots.values() for _, steps in kinds["reached"] + kinds["censored"]]
    low, high = limits([*heights, *(point.steps for point in points)], least=1.3)
    log_axis(ax.xaxis, "Learning rate", limits((attempt.lr for attempt in attempts), least=1.3))
    log_axis(ax.yaxis, "Optimizer steps to target", (low, high * (high / low) ** 0.16))
    occurring = {kind for kinds in dots.values() for kind, placed in kinds.items() if placed}
    if "diverged" in occurring:
        strip = Rectangle((0, STRIP), 1, 1 - STRIP, color=SHADE, lw=0, zorder=0.5, transform=ax.transAxes)
        ax.add_patch(strip)
    colours = batch_colours(batch_sizes)
    for row, (size, kinds) in enumerate(dots.items()):
        fastest = sorted(dict(sorted(kinds["reached"], reverse=True)).items())
        ax.plot(*_columns(fastest), color=colours(size), lw=0.9, alpha=0.8, label="_fastest")
        height = STRIP + (1 - STRIP) * (row + 1) / (len(dots) + 1)
        _mark(ax, "reached", kinds["reached"], colours(size))
        _mark(ax, "censored", kinds["censored"], colours(size))
        crosses = [(lr, height) for lr, _ in kinds["diverged"]]
        _mark(ax, "diverged", crosses, colours(size), transform=ax.get_xaxis_transform())
    for point in points:
        _mark(ax, "best", [(point.lr or 0.0, point.steps)], colours(point.batch_size), zorder=4)
    for kind, (label, look) in SIGNS.items():
        if kind in occurring or (kind == "best" and points):
            sign(ax, label, **look)


def _dots(attempts: Sequence[Attempt], batch_size: float, outcome: str) -> list[tuple[float, float]]:
    """(learning rate, steps) of the runs at a batch size that ended so."""
    mine = [
        attempt for attempt in attempts if attempt.batch_size == batch_size and attempt.outcome == outcome
    ]
    return [(attempt.lr, attempt.steps or 0.0) for attempt in mine]


def _mark(ax: Axes, kind: str, dots: Sequence[tuple[float, float]], colour: str, **look: Any) -> None:
    ax.plot(*_columns(dots), ls="", color=colour, label=f"_{kind}", **SIGNS[kind][1], **look)


def _columns(dots: Sequence[tuple[float, float]]) -> Floats:
    return np.reshape(dots, (-1, 2)).T


def lacks(report: Report) -> str:
    if report.runs is None:
        return "the source has no runs with learning rates"
    if not report.runs.attempts:
        return "no target is known"
    attempts = next(iter(report.runs.attempts.values()))
    if len({attempt.lr for attempt in attempts}) < 2:
        return "only one learning rate was tried"
    return "" if any(attempt.outcome != "unknown" for attempt in attempts) else "no run has ended yet"


def figure(report: Report) -> Figure:
    attempts = report.runs.attempts if report.runs else {}
    count = min(len(attempts), MOST_PANELS)
    axes = panels(count, width=DOUBLE if count > 1 else 4.2, height=2.7)
    for ax, (target, each) in zip(axes, attempts.items(), strict=False):
        rates(ax, each, [point for fit in report.fits if fit.target == target for point in fit.points])
        ax.set_title(labels.goal(target))
    for index, ax in enumerate(axes):
        if index % COLUMNS:
            ax.set_ylabel("")
    say_left_out(axes[0], "targets", len(attempts) - count)
    return finished(axes, report)
