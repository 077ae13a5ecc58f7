"""Examples processed against optimizer steps to a target: the Pareto frontier of time and compute.

McCandlish et al. 2018, figure 1 and equation 2.11: (S/S_min - 1)(E/E_min - 1) = 1. Each batch size is a
diagonal, E = B S.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bscrit.curve import Floats
from bscrit.fit.result import Fit
from bscrit.plot import words
from bscrit.plot.series import Frame, batch_sizes, draw_series, explain, reach, shown
from bscrit.plot.style import FAINT, GREY
from bscrit.plot.ticks import limits, log_axis, ticks_at

DIAGONALS = 10


def frontier(ax: Axes, fits: Sequence[Fit], unit: str) -> None:
    """Draw every fit's points and fitted curve; steps to the right, examples [unit] upwards.

    The legend is left to the caller: `ax.legend()`, or `style.legend` under the figure.
    """
    drawn = shown(fits)
    batch, steps = reach(drawn)
    xspan = limits(steps, pad=0.1)
    yspan = limits((b * s for b, s in zip(batch, steps, strict=True)), pad=0.1)
    log_axis(ax.xaxis, "Optimizer steps", xspan)
    log_axis(ax.yaxis, words.examples(unit), yspan)
    _diagonals(ax, batch_sizes(drawn), unit)
    arrow = min(xspan[1] / xspan[0], yspan[1] / yspan[0]) ** 0.09
    beyond = np.geomspace(yspan[0] / xspan[1], yspan[1] / xspan[0], 400)
    for index in range(len(drawn)):
        draw_series(ax, index, drawn, unit, Frame(_place, beyond, arrow))
    explain(ax, drawn, len(fits) - len(drawn))


def _place(batch: Floats, steps: Floats) -> tuple[Floats, Floats]:
    return steps, batch * steps


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
    above.set_xlabel(words.batch_size(unit), color=GREY, fontsize=7)
    for edge in (*above.spines.values(), *beside.spines.values()):
        edge.set_color(FAINT)
