"""Best learning rate against batch size, with its law and the two rules of thumb."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, Point, SweepRuns
from bscrit.plot import labels
from bscrit.plot.figure import finished
from bscrit.plot.series import censored, say_left_out, shown
from bscrit.plot.style import GREY, SERIES, SHADE, panels, sign
from bscrit.plot.ticks import batch_axis, limits, log_axis


def best_rate(ax: Axes, fits: Sequence[Fit], unit: str, runs: SweepRuns | None = None) -> None:
    """Draw each fit's tuned rates, and of a sweep the rate law and the least rate that diverged at each batch size.

    The guide lines, rates in proportion to B and to its square root, pass through the tuned rate of the hardest
    target at its smallest batch size. The legend is left to the caller.
    """
    with_rates = [fit for fit in fits if tuned(fit)]
    drawn = shown(with_rates)
    points = [point for fit in drawn for point in tuned(fit)]
    sizes = sorted({point.batch_size for point in points})
    unstable = runs.least_diverged if runs else {}
    xspan = limits([*sizes, *unstable], least=1.4)
    yspan = limits([*(point.lr for point in points if point.lr), *unstable.values()], least=1.5)
    batch_axis(ax.xaxis, sorted({*sizes, *unstable}), labels.batch_size(unit), xspan)
    log_axis(ax.yaxis, "Best learning rate", yspan)
    if unstable:
        x, y = list(unstable), list(unstable.values())
        ax.fill_between(x, y, yspan[1], color=SHADE, zorder=0.5, label="_unstable")
        ax.plot(x, y, "x", color=GREY, ms=4, label="_diverged")
        sign(ax, "least rate that diverged", marker="x", markersize=4)
    if drawn:
        _guides(ax, tuned(drawn[-1])[0], xspan)
    for index, fit in enumerate(drawn):
        colour, marker = SERIES[index]
        batch, lr = zip(*((point.batch_size, point.lr or 0.0) for point in tuned(fit)), strict=True)
        size = 4 + 1.2 * (len(drawn) - 1 - index)  # so that equal rates of several targets can all be seen
        ax.plot(batch, lr, lw=0.7, marker=marker, ms=size, color=colour, label=labels.name(fit, fits))
    if runs and runs.rate_law:
        batch_sizes = np.geomspace(*xspan, 200)
        rates = runs.rate_law.curve(batch_sizes)
        ax.plot(batch_sizes, rates, color="black", lw=1.1, zorder=1.9, label="law of the best rate")
    say_left_out(ax, "fits", len(with_rates) - len(drawn))


def tuned(fit: Fit) -> list[Point]:
    """The points whose best rate is known."""
    return [point for point in fit.points if point.lr is not None and not censored(point)]


def _guides(ax: Axes, anchor: Point, xspan: tuple[float, float]) -> None:
    batch = np.array(xspan)
    for power, dashes, label in ((1.0, "--", "proportional to B"), (0.5, ":", r"proportional to $\sqrt{B}$")):
        lr = (anchor.lr or 0.0) * (batch / anchor.batch_size) ** power
        ax.plot(batch, lr, dashes, color=GREY, lw=0.8, zorder=1, label=label)


def lacks(report: Report) -> str:
    batch_sizes = {point.batch_size for fit in report.fits for point in tuned(fit)}
    return "" if len(batch_sizes) > 1 else "it needs the tuned learning rate of two batch sizes or more"


def figure(report: Report) -> Figure:
    (ax,) = panels()
    best_rate(ax, report.fits, report.unit, report.runs)
    return finished([ax])
