"""Write the figures that the data support, each as a file that appears whole or not at all.

>>> sorted(FIGURES)
['best_rate', 'curves', 'frontier', 'noise', 'noise_loss', 'rates', 'steps']
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bscrit.errors import UserError, nearest
from bscrit.files import explaining, replacing
from bscrit.fit.report import Report
from bscrit.plot import best_rate, curves, frontier, noise, noise_loss, rates, runs, scales, steps, words
from bscrit.plot.series import say_left_out
from bscrit.plot.style import COLUMNS, DOUBLE, batch_bar, legend, panels, styled
from bscrit.record import Record

FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
MOST_PANELS = 6
log = logging.getLogger(__name__)


def draw(
    report: Report,
    records: Sequence[Record],
    out: Path,
    formats: Sequence[str] = ("png",),
    which: Sequence[str] | None = None,
    *,
    law: best_rate.Law | None = None,
    data: float | None = None,
) -> list[Path]:
    """Write the figures of a report into the folder `out` and return their paths.

    Args:
        report: what was fitted.
        records: the runs behind it; none for a report from a table, which gives frontier and steps.
        out: made if it is not there.
        formats: of "png", "svg", "pdf"; the same input gives the same bytes.
        which: names out of FIGURES, all where None. Figures that the data do not support are left out, and
            logged with the reason that `unsupported` gives: as a warning where they were asked for by name.
        law: best learning rate as a function of the batch size, for the figure best_rate.
        data: examples of the training set, None where they are drawn without end, for the noise scale.

    Raises:
        UserError: unknown format or figure, or a folder that cannot be written.
    """
    endings = [_known(name.strip().lower().removeprefix("."), FORMATS, "format") for name in formats]
    names = [_known(name, FIGURES, "figure") for name in (FIGURES if which is None else which)]
    missing = unsupported(report, records)
    with explaining(out):
        out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in dict.fromkeys(names):
        if name in missing:
            log.log(
                logging.INFO if which is None else logging.WARNING, "no %s figure: %s", name, missing[name]
            )
            continue
        with styled(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # of a user's name: drawn as a box
            figure = FIGURES[name].make(Source(report, records, law, data))
            for ending in dict.fromkeys(endings):
                paths.append(out / f"{name}.{ending}")
                with replacing(paths[-1]) as stream:
                    figure.savefig(stream, format=ending, metadata=dict(FORMATS[ending]))
    return paths


def unsupported(report: Report, records: Sequence[Record]) -> dict[str, str]:
    """The figures that these data cannot give, by name, with the reason in words."""
    source = Source(report, records)
    return {name: reason for name, figure in FIGURES.items() if (reason := figure.lacks(source))}


@dataclass(frozen=True)
class Source:
    """What figures are drawn from."""

    report: Report
    records: Sequence[Record]
    law: best_rate.Law | None = None
    data: float | None = None


@dataclass(frozen=True)
class Drawing:
    """One figure: what it lacks to be drawn ("" for nothing), and how it is made."""

    lacks: Callable[[Source], str]
    make: Callable[[Source], Figure]


def _known(name: str, known: Mapping[str, object], kind: str) -> str:
    if name not in known:
        raise UserError("", f"unknown {kind} '{name}'", nearest(name, known))
    return name


def _lacks_points(source: Source) -> str:
    return "" if any(fit.points for fit in source.report.fits) else "no batch size has a run that counts"


def _lacks_curves(source: Source) -> str:
    if not source.records:
        return "the source has no runs with curves"
    return "" if runs.winners(source.records) else "every run failed or diverged"


def _lacks_rates(source: Source) -> str:
    if not source.records:
        return "the source has no runs with learning rates"
    if not runs.targets(source.report.fits, source.records):
        return "no target is known"
    if not any(len(record.curve) for record in source.records):
        return "no run has a curve yet"
    if len({record.trial.lr for record in source.records}) < 2:
        return "only one learning rate was tried"
    return ""


def _lacks_best_rate(source: Source) -> str:
    tuned = {point.batch_size for fit in source.report.fits for point in best_rate.tuned(fit)}
    return "" if len(tuned) > 1 else "it needs the tuned learning rate of two batch sizes or more"


def _lacks_noise(source: Source) -> str:
    return "" if scales.metrics(runs.winners(source.records)) else "no noise scale was measured"


def _lacks_noise_loss(source: Source) -> str:
    shown = noise_loss.losses(runs.winners(source.records))
    return _lacks_noise(source) or ("" if shown else "no run has a loss above 0")


def _frontier(source: Source) -> Figure:
    (ax,) = panels(height=2.9)
    frontier.frontier(ax, source.report.fits, source.report.unit)
    return _finished([ax])


def _steps(source: Source) -> Figure:
    (ax,) = panels(height=2.5)
    steps.steps(ax, source.report.fits, source.report.unit)
    return _finished([ax])


def _rates(source: Source) -> Figure:
    fits, records = source.report.fits, source.records
    targets = runs.targets(fits, records)
    axes = panels(min(len(targets), MOST_PANELS), width=DOUBLE if len(targets) > 1 else 4.2, height=2.7)
    for ax, target in zip(axes, targets, strict=False):
        best = [point for fit in fits if fit.target == target for point in fit.points]
        rates.rates(ax, records, target, best)
        ax.set_title(words.goal(target))
    for index, ax in enumerate(axes):
        if index % COLUMNS:
            ax.set_ylabel("")
    say_left_out(axes[0], "targets", len(targets) - len(axes))
    return _finished(axes, source)


def _best_rate(source: Source) -> Figure:
    (ax,) = panels()
    best_rate.best_rate(ax, source.report.fits, source.report.unit, source.records, source.law)
    return _finished([ax])


def _curves(source: Source) -> Figure:
    axes = panels(2, width=DOUBLE)
    winners = runs.winners(source.records)
    curves.curves(axes[0], winners, source.report.fits, source.report.unit, "steps")
    curves.curves(axes[1], winners, source.report.fits, source.report.unit, "examples")
    axes[1].set_ylabel("")
    return _finished(axes, source)


def _noise(source: Source) -> Figure:
    return _by_metric(source, noise.noise)


def _noise_loss(source: Source) -> Figure:
    return _by_metric(source, noise_loss.noise_loss)


def _by_metric(source: Source, draw_one: Callable[..., None]) -> Figure:
    """A panel for each metric in which the noise was measured: norms in different geometries have no common axis."""
    fits = source.report.fits
    records = runs.at_one_rate(runs.winners(source.records), fits)
    metrics = scales.metrics(records)
    axes = panels(len(metrics), width=4.2 if len(metrics) == 1 else DOUBLE)
    for ax, metric in zip(axes, metrics, strict=True):
        draw_one(ax, records, fits, source.report.unit, metric, source.data)
    return _finished(axes, source)


def _finished(axes: Sequence[Axes], source: Source | None = None) -> Figure:
    """With the legend, and with the colour bar of the batch sizes where `source` is given."""
    if source is not None:
        batch_bar(axes, list(runs.by_batch_size(source.records)), words.batch_size(source.report.unit))
    legend(axes)
    figure = axes[0].figure
    assert isinstance(figure, Figure)
    return figure


FIGURES: Mapping[str, Drawing] = {
    "frontier": Drawing(_lacks_points, _frontier),
    "steps": Drawing(_lacks_points, _steps),
    "rates": Drawing(_lacks_rates, _rates),
    "best_rate": Drawing(_lacks_best_rate, _best_rate),
    "curves": Drawing(_lacks_curves, _curves),
    "noise": Drawing(_lacks_noise, _noise),
    "noise_loss": Drawing(_lacks_noise_loss, _noise_loss),
}
