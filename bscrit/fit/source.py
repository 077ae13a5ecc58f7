"""From any source to a report: a results folder of our own, or a table of somebody else's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bscrit.errors import UserError
from bscrit.files import readable, whole_json
from bscrit.fit.core import fit_crossings, fit_evidence
from bscrit.fit.crossings import from_records
from bscrit.fit.noise.compare import with_noise
from bscrit.fit.noise.meter import is_noise, read_meters, report_of, with_meters
from bscrit.fit.report import Report
from bscrit.paths import ResultsPaths
from bscrit.record import Record
from bscrit.results import is_folder, is_results, read_results
from bscrit.spec import restore_spec
from bscrit.tables.options import as_targets

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
    noise: Path | str | Sequence[Path | str] = (),
) -> Report:
    """Fit S = s_min (1 + b_crit/B) to every group and target of a source.

    Args:
        source: a results folder, a table of crossings or curves (CSV, TSV, JSON lines, JSON, Parquet), several
            files of one export, "-" for standard input, or a data frame. Several results folders stand side by
            side, told apart by a group "source". A noise.csv alone has no B_crit: its report holds noise scales.
        targets: losses to fit; those of the sweep, or all in a table of crossings, when left out.
        columns: role -> column, such as {"steps": "iter"}, for names that are not recognised.
        by: columns whose values separate fits.
        direction: whether the metric gets better "down" or "up", where its name does not say.
        unit: what a batch size counts.
        noise: files noise.csv that a meter wrote, one per run, to set against the fits of one source; their
            batch size is n_big, in the unit of the source.

    Returns:
        The frozen report; `report.table()` and `report.points()` are data frames.

    Raises:
        UserError: whatever cannot be understood, with the place and the remedy; a source that is named twice;
            folders that count in different units; options on columns where there are none.
    """
    named = list(source) if isinstance(source, list | tuple) else [source]
    _refuse_twice([str(one) for one in named if isinstance(one, str | Path)])
    meters = [noise] if isinstance(noise, str | Path) else list(noise)
    _refuse_twice([str(one) for one in meters])
    if any(map(is_noise, named)):
        _refuse_all_but_noise(
            named, meters, {"targets": targets, "columns": columns, "by": by, "direction": direction}
        )
        return report_of([str(one) for one in named], unit or "example")
    if meters:
        if len(named) > 1:
            raise UserError("--noise", "goes with one source", f"name one: {named[0]}")
        held = read_meters(meters)
    folders = [one for one in named if is_folder(one)]
    if folders and len(folders) == len(named):
        _refuse_columns(str(folders[0]), {"columns": columns, "by": by, "direction": direction})

    def one(source: Any) -> Report:
        folder = _results_folder(source)
        if folder is not None:
            return _of_results(folder, as_targets(targets), unit)
        return _of_table(source, targets, columns or {}, by, direction, unit)

    if len(named) == 1 or not folders:
        return with_meters(one(source), held) if meters else one(source)
    return _side_by_side([str(name) for name in named], [one(name) for name in named])


def _of_table(
    source: Any,
    targets: Sequence[float] | None,
    columns: Mapping[str, str],
    by: Sequence[str],
    direction: Literal["down", "up"] | None,
    unit: str | None,
) -> Report:
    from bscrit.tables.table import read_table

    table = read_table(source, targets=targets, columns=columns, by=by, direction=direction, unit=unit)
    return fit_crossings(
        table.crossings, source=table.source, unit=table.unit, diverged=table.diverged, notes=table.notes
    )


def _results_folder(source: Any) -> Path | None:
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    if not is_folder(source):
        return None
    if not is_results(Path(source)):
        raise UserError(
            str(source),
            "is a folder, but not of a sweep's results: it has no folder 'trials'",
            "name a results folder, or a table: a CSV, TSV, JSON lines or Parquet file",
        )
    return Path(source)


def _of_results(folder: Path, targets: Sequence[float] | None, unit: str | None) -> Report:
    records, notes = asked_for(folder, read_results(folder))
    if not any(record.finished for record in records):
        raise UserError(str(folder), "holds no finished trial yet", "run `bscrit sweep` to its end first")
    evidence = from_records(records, targets)
    found = str(_facts(folder).get("unit", "example"))
    report = fit_evidence(evidence, source=str(folder), unit=unit or found)
    fits = tuple(with_noise(fit, records, training_examples(folder)) for fit in report.fits)
    return replace(report, fits=fits, notes=(*notes, *report.notes))


def asked_for(folder: Path, records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """The records that the folder's spec asks for, at any batch size, and notes on what is left out or missing.

    A folder may hold trials of an older spec, with another optimizer or other data: they are other curves.
    """
    if not ResultsPaths(folder).spec.exists() or not _facts(folder):
        _check_alike(folder, records)
        return list(records), [
            "spec.toml or preflight.json is missing: whose trials these are was not checked"
        ]
    spec = restore_spec(ResultsPaths(folder).spec)
    fingerprint = str(_facts(folder).get("fingerprint", ""))
    mine = [record for record in records if spec.asks_for(record.trial, fingerprint)]
    notes = []
    if len(mine) < len(records):
        notes.append(
            f"{len(records) - len(mine)} trials of another spec or other data lie in this folder: left out"
        )
    unfinished = sum(not record.finished for record in mine)
    measured = {record.trial.batch_size for record in mine if record.role == "measure" and record.finished}
    asked = spec.sweep.batch_sizes or sorted({record.trial.batch_size for record in mine})
    missing = [str(size) for size in asked if size not in measured]
    if unfinished or missing:
        parts = [f"{unfinished} trials are not finished"] if unfinished else []
        parts += [f"nothing is measured yet at batch size {', '.join(missing)}"] if missing else []
        notes.append(f"the sweep is not complete: {'; '.join(parts)}; run the same `bscrit sweep` again")
    return mine, notes


def _facts(folder: Path) -> dict[str, Any]:
    """What preflight found, nothing where its file is not there or torn."""
    with readable(folder):
        facts = whole_json(ResultsPaths(folder).preflight)
    return facts if isinstance(facts, dict) else {}


def training_examples(folder: Path) -> float | None:
    """Examples of the training set, None where they are drawn without end or not known."""
    found = _facts(folder).get("examples")
    return float(found) if isinstance(found, int) and found > 0 else None


def _check_alike(folder: Path, records: Sequence[Record]) -> None:
    """Refuse trials of one batch size that differ in more than rate and seed: without a spec none is preferred."""
    kinds: dict[int, str] = {}
    for record in records:
        kind = json.dumps({**record.trial.to_dict(), "lr": 0, "seed": 0}, sort_keys=True)
        if kinds.setdefault(record.trial.batch_size, kind) != kind:
            raise UserError(
                str(folder),
                f"holds trials of several specs at batch size {record.trial.batch_size}, and spec.toml or "
                "preflight.json is missing",
                "run the `bscrit sweep` that you mean once more: it writes both",
            )


def _side_by_side(sources: Sequence[str], reports: Sequence[Report]) -> Report:
    units = {report.unit for report in reports}
    if len(units) > 1:
        what = f"count in different units: {', '.join(sorted(units))}"
        raise UserError(" ".join(sources), what, "fit them one at a time")
    fits = [
        replace(found, group={"source": source, **found.group})
        for source, report in zip(sources, reports, strict=True)
        for found in report.fits
    ]
    notes = tuple(note for report in reports for note in report.notes)
    return Report(" ".join(sources), units.pop(), tuple(fits), notes)


def _refuse_columns(folder: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise UserError(folder, f"is a results folder, where --{name} says nothing", "it is for tables")


def _refuse_all_but_noise(
    named: Sequence[Any], meters: Sequence[Path | str], options: Mapping[str, object]
) -> None:
    """A noise.csv stands alone, or beside others of its kind."""
    meter = next(str(one) for one in named if is_noise(one))
    other = next((str(one) for one in named if not is_noise(one)), None)
    if other is not None or meters:
        what = "is a noise.csv, and no source of crossings"
        raise UserError(meter, what, f"`bscrit fit {other or 'TABLE'} --noise {meter}`")
    for name, value in options.items():
        if value:
            raise UserError(meter, f"is a noise.csv, where --{name} says nothing", "it is for tables")


def _refuse_twice(sources: Sequence[str]) -> None:
    seen: set[Path] = set()
    for source in sources:
        with contextlib.suppress(OSError, ValueError):  # no path at all: its reader says so
            place = Path(source).resolve()
            if place in seen:
                raise UserError(source, "is named twice", "name each source once")
            seen.add(place)
