"""From any source to a report: a results folder of our own, or a table of somebody else's."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bscrit.errors import UserError
from bscrit.fit.core import WIDEST, fit_table
from bscrit.fit.crossings import from_records
from bscrit.fit.noise.compare import with_noise
from bscrit.fit.noise.meter import is_noise, read_meters, report_of, with_meters
from bscrit.fit.report import Report
from bscrit.fit.runs import sweep_runs
from bscrit.results import HasResults, Results, carried, is_folder, is_results, read_results
from bscrit.tables.options import as_targets, as_unit
from bscrit.tables.table import read_table

if TYPE_CHECKING:
    import pandas as pd


def fit(
    source: Path | str | Results | HasResults | pd.DataFrame | Sequence[Path | str | Results | HasResults],
    *,
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    by: Sequence[str] = (),
    direction: Literal["down", "up"] | None = None,
    unit: str | None = None,
    noise: Path | str | Sequence[Path | str] = (),
    widest: float | None = None,
) -> Report:
    """Fit S = s_min (1 + b_crit/B) to every group and target of a source.

    Args:
        source: a results folder, what `bscrit.sweep` returned, a table of crossings or curves (CSV, TSV, JSON lines,
            JSON, Parquet), several files of one export, "-" for standard input, or a data frame. Several results
            folders stand side by side, told apart by a group "source". A noise.csv alone has no B_crit: its report
            holds noise scales.
        targets: losses to fit; those of the sweep, or all in a table of crossings, when left out.
        columns: role -> column, such as {"steps": "iter"}, for names that are not recognised.
        by: columns whose values separate fits.
        direction: whether the metric gets better "down" or "up", where its name does not say.
        unit: what a batch size counts.
        noise: files noise.csv that a meter wrote, one per run, to set against the fits of one source; their
            batch size is n_big, in the unit of the source.
        widest: ratio of the ends of an interval of B_crit beyond which it has a serious caveat, 4 when left out.

    Returns:
        The frozen report; `report.table()` and `report.points()` are data frames.

    Raises:
        UserError: whatever cannot be understood, with the place and the remedy; a source that is named twice;
            folders that count in different units; options on columns where there are none.
    """
    unit, targets, widest = as_unit(unit), as_targets(targets), _as_widest(widest)
    sources = [carried(each) for each in (source if isinstance(source, list | tuple) else [source])]
    meters = [noise] if isinstance(noise, str | Path) else list(noise)
    _refuse_twice(sources)
    _refuse_twice(meters)
    for_tables = {"columns": columns, "by": by, "direction": direction}
    if any(map(is_noise, sources)):
        _refuse_beside_noise(sources, meters)
        _refuse_options(str(sources[0]), "a noise.csv", {"targets": targets, **for_tables})
        return report_of([str(path) for path in sources], unit or "example")
    if meters and len(sources) > 1:
        raise UserError("--noise", "goes with one source", f"name one: {sources[0]}")
    measured = read_meters(meters) if meters else None
    opened = [_opened(source) for source in sources]
    folders = [_name(source) for source in opened if isinstance(source, Results)]
    if folders and len(folders) == len(opened):
        _refuse_options(folders[0], "a results folder", for_tables)
    if len(opened) > 1 and not folders:
        opened = [opened]  # several files of one export are one table
    reports = [
        _of_results(source, targets, unit, widest)
        if isinstance(source, Results)
        else fit_table(
            read_table(source, targets=targets, columns=columns or {}, by=by, direction=direction, unit=unit),
            widest,
        )
        for source in opened
    ]
    if len(reports) > 1:
        return _side_by_side(list(map(_name, sources)), reports)
    return reports[0] if measured is None else with_meters(reports[0], measured)


def _name(source: Any) -> str:
    """A source as the user named it."""
    return str(source.folder if isinstance(source, Results) else source)


def _opened(source: Any) -> Any:
    """The results of a folder; any other source as it is."""
    if not is_folder(source):
        return source
    if not is_results(Path(source)):
        raise UserError(
            str(source),
            "is a folder, but not of a sweep's results: it has no folder 'trials'",
            "name a results folder, or a table: a CSV, TSV, JSON lines or Parquet file",
        )
    return read_results(Path(source))


def _as_widest(widest: float | None) -> float:
    if widest is None:
        return WIDEST
    if not widest > 1:
        raise UserError(
            f"--widest {widest:g}", "is no factor from end to end", "give a number above 1, such as 4"
        )
    return widest


def _of_results(results: Results, targets: Sequence[float] | None, unit: str | None, widest: float) -> Report:
    if results.spec is None:
        _check_alike(results)
    records = results.belonging
    if not any(record.finished for record in records):
        raise UserError(
            str(results.folder), "holds no finished trial yet", "run `bscrit sweep` to its end first"
        )
    facts = results.preflight
    table = from_records(records, targets)
    report = fit_table(replace(table, source=str(results.folder), unit=unit or facts.unit), widest)
    fits = tuple(with_noise(fit, records, facts.examples) for fit in report.fits)
    runs = partial(sweep_runs, records, fits, facts.examples)
    return replace(report, fits=fits, notes=(*_notes(results), *report.notes), deferred_runs=runs)


def _notes(results: Results) -> list[str]:
    """Sentences on trials that are left out, and on those that the sweep still lacks."""
    spec, records = results.spec, results.belonging
    if spec is None:
        return ["spec.toml or preflight.json is missing: whose trials these are was not checked"]
    notes = []
    if others := len(results.records) - len(records):
        notes.append(f"{others} trials of another spec or other data lie in this folder: left out")
    unfinished = sum(not record.finished for record in records)
    measured = {record.trial.batch_size for record in records if record.role == "measure" and record.finished}
    batch_sizes = spec.sweep.batch_sizes or sorted({record.trial.batch_size for record in records})
    missing = [str(size) for size in batch_sizes if size not in measured]
    if unfinished or missing:
        parts = [f"{unfinished} trials are not finished"] if unfinished else []
        parts += [f"nothing is measured yet at batch size {', '.join(missing)}"] if missing else []
        notes.append(f"the sweep is not complete: {'; '.join(parts)}; run the same `bscrit sweep` again")
    return notes


def _check_alike(results: Results) -> None:
    """Refuse trials of one batch size that differ in more than rate and seed: without a spec none is preferred."""
    kinds: dict[int, str] = {}
    for record in results.records:
        kind = json.dumps({**record.trial.to_dict(), "lr": 0, "seed": 0}, sort_keys=True)
        if kinds.setdefault(record.trial.batch_size, kind) != kind:
            raise UserError(
                str(results.folder),
                f"holds trials of several specs at batch size {record.trial.batch_size}, and spec.toml or "
                "preflight.json is missing",
                "run the `bscrit sweep` that you mean once more: it writes both",
            )


def _side_by_side(names: Sequence[str], reports: Sequence[Report]) -> Report:
    """One report of several sources, which a group keeps apart."""
    units = {report.unit for report in reports}
    source = " ".join(names)
    if len(units) > 1:
        raise UserError(
            source, f"count in different units: {', '.join(sorted(units))}", "fit them one at a time"
        )
    fits = tuple(
        replace(fit, group={"source": name, **fit.group})
        for name, report in zip(names, reports, strict=True)
        for fit in report.fits
    )
    goals = {report.goal for report in reports}
    notes = tuple(note for report in reports for note in report.notes)
    return Report(source, units.pop(), fits, notes, goal=goals.pop() if len(goals) == 1 else None)


def _refuse_options(where: str, kind: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise UserError(where, f"is {kind}, where --{name} says nothing", "it is for tables")


def _refuse_beside_noise(sources: Sequence[Any], meters: Sequence[Path | str]) -> None:
    """A noise.csv stands alone, or beside others of its kind."""
    meter = next(str(source) for source in sources if is_noise(source))
    other = next((str(source) for source in sources if not is_noise(source)), None)
    if other is not None or meters:
        what = "is a noise.csv, and no source of crossings"
        where = f"`bscrit fit {shlex.quote(other)}`" if other else "a fit of a table or a sweep"
        raise UserError(meter, what, f"{where} takes it, by --noise {shlex.quote(meter)}")


def _refuse_twice(sources: Sequence[Any]) -> None:
    resolved: set[Path] = set()
    for source in sources:
        if not isinstance(source, str | Path):
            continue
        with contextlib.suppress(OSError, ValueError):  # no path at all: its reader refuses it
            path = Path(source).resolve()
            if path in resolved:
                raise UserError(str(source), "is named twice", "name each source once")
            resolved.add(path)
