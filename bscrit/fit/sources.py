"""One source or several -> one report: what the command line and a notebook both read through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bscrit.errors import UserError
from bscrit.fit.result import Report
from bscrit.fit.source import fit
from bscrit.results import is_folder

if TYPE_CHECKING:
    import pandas as pd


def fit_sources(
    source: Path | str | pd.DataFrame | Sequence[Path | str],
    *,
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    by: Sequence[str] = (),
    direction: Literal["down", "up"] | None = None,
    unit: str | None = None,
) -> Report:
    """As `bscrit.fit.source.fit`; several results folders stand side by side, told apart by a group "source".

    Raises:
        UserError: a source that is named twice, different units, or an option that speaks of columns where there
            are none; and whatever `bscrit.fit.source.fit` raises.
    """
    named = list(source) if isinstance(source, list | tuple) else [source]
    _refuse_twice([str(one) for one in named if isinstance(one, str | Path)])
    folders = [one for one in named if is_folder(one)]
    if folders and len(folders) == len(named):
        _refuse_columns(str(folders[0]), {"columns": columns, "by": by, "direction": direction})

    def one(source: Path | str | pd.DataFrame | Sequence[Path | str]) -> Report:
        return fit(source, targets=targets, columns=columns, by=by, direction=direction, unit=unit)

    if len(named) == 1 or not folders:
        return one(source)
    return _side_by_side([str(name) for name in named], [one(name) for name in named])


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


def _refuse_twice(sources: Sequence[str]) -> None:
    seen: set[Path] = set()
    for source in sources:
        if Path(source).resolve() in seen:
            raise UserError(source, "is named twice", "name each source once")
        seen.add(Path(source).resolve())
