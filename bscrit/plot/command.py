"""`bscrit plot`: draw every figure that a source supports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from bscrit.errors import UserError
from bscrit.fit.command import Options, read
from bscrit.fit.rates import RateLaw, fit_rates
from bscrit.fit.report import Report
from bscrit.fit.source import asked_for, training_examples
from bscrit.paths import ResultsPaths
from bscrit.plot.draw import draw
from bscrit.record import Record
from bscrit.results import is_results, read_results

FROM_TABLES = ("frontier", "steps")


def run(
    source: str, out: Path | None, formats: Sequence[str], figures: Sequence[str], options: Options
) -> int:
    """Draw, print the paths on stdout, say on stderr what could not be drawn, and return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of glyphs that a font lacks
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    report = read([source], options)
    folder = Path(source)
    ours = is_results(folder)
    records = asked_for(folder, read_results(folder))[0] if ours else []
    if not records and not figures:
        figures = FROM_TABLES
        print("a table gives the figures frontier and steps; others need a sweep's results", file=sys.stderr)
    paths = draw(
        report,
        records,
        out or _default_out(folder),
        formats,
        figures or None,
        law=_law(report, records),
        data=training_examples(folder) if ours else None,
    )
    if not paths:
        raise UserError(source, "supports none of these figures", "see the reasons above")
    print("\n".join(str(path) for path in paths))
    return 0


def _default_out(source: Path) -> Path:
    """A results folder's own figures; those of a table lie beside it, those of a stream here."""
    if is_results(source):
        return ResultsPaths(source).figures
    return source.with_name(f"{source.stem}-figures") if source.is_file() else Path("figures")


def _law(report: Report, records: Sequence[Record]) -> RateLaw | None:
    """The law of the best rate at the hardest target, from the rates of its points."""
    tuned = [(p.batch_size, p.lr) for fit in report.fits[-1:] for p in fit.points if p.lr]
    adaptive = any(record.trial.optimizer["use"] != "sgd" for record in records)
    return fit_rates([size for size, _ in tuned], [lr for _, lr in tuned], 0.5 if adaptive else 1.0)
