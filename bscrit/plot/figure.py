"""Parts of whole figures, which several of them have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.fit.report import Report
from bscrit.fit.result import Fit, NoiseAlong
from bscrit.plot import labels
from bscrit.plot.style import DOUBLE, batch_bar, legend, panels


def finished(axes: Sequence[Axes], report: Report | None = None) -> Figure:
    """The figure with its legend, and with the colour bar of the batch sizes where `report` is given."""
    if report is not None and report.runs is not None:
        batch_bar(axes, report.runs.batch_sizes, labels.batch_size(report.unit))
    return legend(axes)


def by_metric(report: Report, draw: Callable[[Axes, NoiseAlong, Sequence[Fit], str], None]) -> Figure:
    """A panel for each metric in which the noise was measured: norms in different geometries have no common axis."""
    along = report.runs.noise if report.runs else ()
    axes = panels(len(along), width=4.2 if len(along) == 1 else DOUBLE)
    for ax, noise in zip(axes, along, strict=True):
        draw(ax, noise, report.fits, report.unit)
    return finished(axes, report)


def lacks_points(report: Report) -> str:
    return "" if any(fit.points for fit in report.fits) else "no batch size has a run that counts"


def lacks_noise(report: Report) -> str:
    return "" if report.runs and report.runs.noise else "no noise scale was measured"
