"""From any source to a report: a results folder of our own, or a table of somebody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bscrit.errors import UserError
from bscrit.files import read_json
from bscrit.fit.compare import with_noise
from bscrit.fit.core import fit_crossings, fit_evidence
from bscrit.fit.crossings import from_records
from bscrit.fit.result import Report
from bscrit.results import is_results, read_results

if TYPE_CHECKING:
    import pandas as pd


def fit(
    source: Path | str | pd.DataFrame | Sequence[Path | str],
    *,
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    by: Sequence[str] = (),
    direction: Literal["down", "up"] | None = None,
    unit: str | None = None,
) -> Report:
    """Fit S = s_min (1 + b_crit/B) to every group and target of a source.

    Args:
        source: a results folder, a table of crossings or curves (CSV, TSV, JSON lines, JSON, Parquet), several
            files of one export, "-" for standard input, or a data frame.
        targets: losses to fit; those of the sweep, or all in a table of crossings, when left out.
        columns: role -> column, such as {"steps": "iter"}, for names that are not recognised.
        by: columns whose values separate fits.
        direction: whether the metric gets better "down" or "up", where its name does not say.
        unit: what a batch size counts.

    Returns:
        The frozen report; `report.table()` and `report.points()` are data frames.

    Raises:
        UserError: whatever cannot be understood, with the place and the remedy.
    """
    folder = _results_folder(source)
    if folder is not None:
        return _of_results(folder, targets, unit)
    from bscrit.fit.reading.table import read_table

    table = read_table(
        source, targets=targets, columns=columns or {}, by=by, direction=direction, unit=unit
    )
    return fit_crossings(
        table.crossings, source=table.source, unit=table.unit, diverged=table.diverged, notes=table.notes
    )


def _results_folder(source: Any) -> Path | None:
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return None
    if not is_results(Path(source)):
        raise UserError(
            str(source),
            "is a folder, but not of a sweep's results: it has no folder 'trials'",
            "name a results folder, or a table: a CSV, TSV, JSON lines or Parquet file",
        )
    return Path(source)


def _of_results(folder: Path, targets: Sequence[float] | None, unit: str | None) -> Report:
    records = read_results(folder)
    if not any(record.finished for record in records):
        raise UserError(str(folder), "holds no finished trial yet", "run `bscrit sweep` to its end first")
    evidence = from_records(records, targets)
    facts = read_json(folder / "preflight.json") if (folder / "preflight.json").exists() else {}
    report = fit_evidence(evidence, source=str(folder), unit=unit or facts.get("unit", "example"))
    return replace(report, fits=tuple(with_noise(fit, records) for fit in report.fits))
