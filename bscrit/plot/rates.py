"""Steps to a target against learning rate, one colour per batch size: was every rate tuned?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Rectangle

from bscrit.fit.report import Report
from bscrit.fit.result import Attempt, Point
from bscrit.plot import labels
from bscrit.plot.figure import Drawing, finished
from bscrit.plot.series import censored, say_left_out
from bscrit.plot.style import COLUMNS, DOUBLE, SHADE, UP_ARROW, batch_colours, panels, sign
from bscrit.plot.ticks import limits, log_axis

STRIP = 0.88
MOST_PANELS = 6
OUTCOMES = ("reached", "censored", "diverged")
Dots = list[tuple[float, float]]


def rates(ax: Axes, attempts: Sequence[Attempt], best: Sequence[Point] = ()) -> None:
    """Draw every run at (learning rate, steps to a target) and mark the tuned point of each batch size.

    Censored runs are arrows that start at their last step; diverged ones are crosses in a strip at the top,
    one row per batch size. `best` are the fit's points. The colour bar (`style.batch_bar`) and the legend are
    left to the caller.
    """
    batch_sizes = sorted({attempt.batch_size for attempt in attempts})
    dots = {size: [_dots(attempts, size, outcome) for outcome in OUTCOMES] for size in batch_sizes}
    points = [point for point in best if point.lr is not None and not censored(point)]
    heights = [steps for met, open_, _ in dots.values() for _, steps in met + open_]
    heights += [point.steps for point in points]
    low, high = limits(heights, least=1.3)
    log_axis(ax.xaxis, "Learning rate", limits((attempt.lr for attempt in attempts), least=1.3))
    log_axis(ax.yaxis, "Optimizer steps to target", (low, high * (high / low) ** 0.16))
    if any(diverged for *_, diverged in dots.values()):
        strip = Rectangle((0, STRIP), 1, 1 - STRIP, color=SHADE, lw=0, zorder=0.5, transform=ax.transAxes)
        ax.add_patch(strip)
    colours = batch_colours(batch_sizes)
    for row, (size, (met, open_, diverged)) in enumerate(dots.items()):
        colour = colours(size)
        _met(ax, met, colour)
        ax.plot(*_columns(open_), marker=_up(), ls="", ms=7, color=colour, label="_censored")
        height = STRIP + (1 - STRIP) * (row + 1) / (len(dots) + 1)
        ax.plot(
            [lr for lr, _ in diverged],
            [height] * len(diverged),
            "x",
            color=colour,
            ms=3.5,
            transform=ax.get_xaxis_transform(),
            label="_diverged",
        )
    for point in points:
        look: dict[str, Any] = {
            "ms": 8,
            "mfc": "white",
            "mec": colours(point.batch_size),
            "zorder": 4,
            "label": "_best",
        }
        ax.plot([point.lr or 0.0], [point.steps], "*", **look)
    _explain(ax, list(dots.values()), bool(points))


def _dots(attempts: Sequence[Attempt], batch_size: float, outcome: str) -> Dots:
    """(learning rate, steps) of the runs at a batch size that ended so."""
    return [
        (attempt.lr, attempt.steps or 0.0)
        for attempt in attempts
        if attempt.batch_size == batch_size and attempt.outcome == outcome
    ]


def _met(ax: Axes, met: Dots, colour: str) -> None:
    """Dots, and a line through the fastest run at each rate."""
    fastest = dict(sorted(met, reverse=True))
    ax.plot(*_columns(sorted(fastest.items())), color=colour, lw=0.9, alpha=0.8, label="_fastest")
    ax.plot(*_columns(met), "o", ms=2.8, color=colour, label="_met")


def _columns(dots: Dots) -> tuple[list[float], list[float]]:
    return [x for x, _ in dots], [y for _, y in dots]


def _up() -> MarkerStyle:
    return MarkerStyle(UP_ARROW)


def _explain(ax: Axes, dots: Sequence[Sequence[Dots]], any_best: bool) -> None:
    met, open_, diverged = ([dot for three in dots for dot in three[kind]] for kind in range(3))
    signs: Sequence[tuple[bool, str, dict[str, Any]]] = (
        (bool(met), "run that reached the target", {"marker": "o", "markersize": 2.8}),
        (any_best, "tuned rate", {"marker": "*", "markersize": 8, "markerfacecolor": "white"}),
        (bool(open_), "not reached: at least this", {"marker": _up(), "markersize": 7}),
        (bool(diverged), "diverged", {"marker": "x", "markersize": 3.5}),
    )
    for occurs, label, look in signs:
        if occurs:
            sign(ax, label, **look)


def _lacks(report: Report) -> str:
    if report.runs is None:
        return "the source has no runs with learning rates"
    if not report.runs.attempts:
        return "no target is known"
    attempts = next(iter(report.runs.attempts.values()))
    if len({attempt.lr for attempt in attempts}) < 2:
        return "only one learning rate was tried"
    return "" if any(attempt.outcome != "unknown" for attempt in attempts) else "no run has ended yet"


def _figure(report: Report) -> Figure:
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


FIGURE = Drawing(_lacks, _figure)
