"""Steps to a target against learning rate, one colour per batch size: was every rate tuned?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Rectangle

from bscrit.crossing import meet
from bscrit.fit.result import Point
from bscrit.plot.runs import by_batch_size
from bscrit.plot.series import censored
from bscrit.plot.style import SHADE, UP_ARROW, batch_colours, sign
from bscrit.plot.ticks import limits, log_axis
from bscrit.record import Record
from bscrit.trial import CENSORED

STRIP = 0.88
Dots = list[tuple[float, float]]


def rates(ax: Axes, records: Sequence[Record], target: float, best: Sequence[Point] = ()) -> None:
    """Draw every run at (learning rate, steps to `target`) and mark the tuned point of each batch size.

    Censored runs are arrows that start at their last step; diverged ones are crosses in a strip at the top,
    one row per batch size. `best` are the fit's points. The colour bar (`style.batch_bar`) and the legend are
    left to the caller.
    """
    groups = by_batch_size(records)
    found = {size: _sorted_out(group, target) for size, group in groups.items()}
    points = [point for point in best if point.lr is not None and not censored(point)]
    heights = [steps for met, open_, _ in found.values() for _, steps in met + open_]
    heights += [point.steps for point in points]
    low, high = limits(heights, least=1.3)
    log_axis(ax.xaxis, "Learning rate", limits((record.trial.lr for record in records), least=1.3))
    log_axis(ax.yaxis, "Optimizer steps to target", (low, high * (high / low) ** 0.16))
    if any(diverged for _, _, diverged in found.values()):
        strip = Rectangle((0, STRIP), 1, 1 - STRIP, color=SHADE, lw=0, zorder=0.5, transform=ax.transAxes)
        ax.add_patch(strip)
    colours = batch_colours(list(groups))
    for row, (size, (met, open_, diverged)) in enumerate(found.items()):
        colour = colours(size)
        _met(ax, met, colour)
        ax.plot(*_columns(open_), marker=_up(), ls="", ms=7, color=colour, label="_censored")
        height = STRIP + (1 - STRIP) * (row + 1) / (len(found) + 1)
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
    _explain(ax, list(found.values()), bool(points))


def _sorted_out(records: Sequence[Record], target: float) -> tuple[Dots, Dots, Dots]:
    """(learning rate, steps) of the runs that met the target, the censored ones, the diverged ones."""
    met: Dots = []
    open_: Dots = []
    diverged: Dots = []
    for record in records:
        if record.status == "diverged":
            diverged.append((record.trial.lr, float("nan")))
        elif record.status != "failed" and (meeting := meet([record.curve], target, confirmed=False)):
            met.append((record.trial.lr, meeting.steps))
        elif record.status in CENSORED and len(record.curve):
            open_.append((record.trial.lr, float(record.curve.steps[-1])))
    return sorted(met), sorted(open_), sorted(diverged)


def _met(ax: Axes, met: Dots, colour: str) -> None:
    """Dots, and a line through the fastest run at each rate."""
    fastest = dict(sorted(met, reverse=True))
    ax.plot(*_columns(sorted(fastest.items())), color=colour, lw=0.9, alpha=0.8, label="_fastest")
    ax.plot(*_columns(met), "o", ms=2.8, color=colour, label="_met")


def _columns(dots: Dots) -> tuple[list[float], list[float]]:
    return [x for x, _ in dots], [y for _, y in dots]


def _up() -> MarkerStyle:
    return MarkerStyle(UP_ARROW)


def _explain(ax: Axes, found: Sequence[tuple[Dots, Dots, Dots]], any_best: bool) -> None:
    met, open_, diverged = ([dot for three in found for dot in three[kind]] for kind in range(3))
    signs: Sequence[tuple[bool, str, dict[str, Any]]] = (
        (bool(met), "run that reached the target", {"marker": "o", "markersize": 2.8}),
        (any_best, "tuned rate", {"marker": "*", "markersize": 8, "markerfacecolor": "white"}),
        (bool(open_), "not reached: at least this", {"marker": _up(), "markersize": 7}),
        (bool(diverged), "diverged", {"marker": "x", "markersize": 3.5}),
    )
    for occurs, label, look in signs:
        if occurs:
            sign(ax, label, **look)
