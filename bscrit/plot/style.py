"""One look for all figures: paper sizes, fonts, colours that survive colour blindness and grey print."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

from bscrit.plot.ticks import ticks_at

SINGLE, DOUBLE = 3.4, 7.0
COLUMNS = 3
MOST = 7
SERIES = (
    ("#0072B2", "o"),
    ("#E69F00", "s"),
    ("#009E73", "^"),
    ("#D55E00", "D"),
    ("#CC79A7", "v"),
    ("#000000", "P"),
    ("#56B4E9", "X"),
)
LETTER = 3.9  # points of the legend's font that a letter takes on average
GREY, FAINT, SHADE = "#555555", "#BBBBBB", "#EEEEEE"
UP_ARROW = MarkerStyle(
    Path(
        [(0, 0), (0, 1.5), (-0.45, 0.85), (0, 1.5), (0.45, 0.85)],
        [Path.MOVETO, Path.LINETO] * 2 + [Path.LINETO],
    )
)

_RC: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.borderaxespad": 0.2,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
    "svg.hashsalt": "bscrit",
    "mathtext.default": "regular",
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own defaults and this look, whatever the user's matplotlibrc says; undone at the end."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def panels(count: int = 1, width: float = SINGLE, height: float = 2.6) -> list[Axes]:
    """`count` empty axes on one new figure, COLUMNS to a row.

    `width` is the figure's and `height` that of a row without the legend, in inches.
    """
    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)
    return [figure.add_subplot(rows, columns, place + 1) for place in range(count)]


def legend(axes: Sequence[Axes]) -> Figure:
    """The figure, with one legend under all panels, each label once, lines wrapped; it grows by its height."""
    figure = axes[0].figure
    assert isinstance(figure, Figure)
    entries: dict[str, Artist] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return figure
    width, height = figure.get_size_inches()
    columns = min(int(width / (0.9 * SINGLE)), len(entries))
    letters = int((72 * width / columns - 34) / LETTER)
    labels = [
        "\n".join(wrap(label, letters, break_long_words=False, break_on_hyphens=False)) for label in entries
    ]
    rows = -(-len(labels) // columns)
    lines = max(
        sum(label.count("\n") + 1 for label in labels[i : i + rows]) for i in range(0, len(labels), rows)
    )
    figure.set_size_inches(width, height + 0.135 * lines + 0.08)
    handles = list(entries.values())
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, labelspacing=0.25)
    return figure


def sign(ax: Axes, label: str, **look: Any) -> None:
    """A legend line for a sign that every series uses, in grey; `look` as Line2D takes it."""
    ax.add_line(Line2D([], [], **{"color": GREY, "linestyle": "", "label": label, **look}))


def batch_colours(sizes: Sequence[float]) -> Callable[[float], str]:
    """Batch size to colour: small is dark, large is light, even steps of lightness per doubling."""
    shades = _shades(sizes)
    return lambda size: to_hex(tuple(shades.to_rgba(np.array([size]))[0]))


def batch_bar(axes: Sequence[Axes], sizes: Sequence[float], label: str) -> None:
    """A colour bar beside the panels, with ticks at the batch sizes."""
    bar = axes[0].figure.colorbar(_shades(sizes), ax=list(axes), aspect=30, pad=0.02)
    bar.set_label(label)
    ticks_at(bar.ax.yaxis, sizes)
    bar.outline.set_visible(False)


def _shades(sizes: Sequence[float]) -> ScalarMappable:
    """The lightest part of the map is left out, as it vanishes on white paper."""
    low, high = min(sizes, default=1.0), max(sizes, default=1.0)
    norm = LogNorm(low, high) if low < high else LogNorm(low / 2, high * 2)
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.86, 256))
    return ScalarMappable(norm, LinearSegmentedColormap.from_list("batch sizes", shades.tolist()))
