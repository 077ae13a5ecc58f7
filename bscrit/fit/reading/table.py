"""Any table -> crossings: the way into the fit for everything that bscrit did not train itself.

>>> import pandas as pd
>>> read_table(pd.DataFrame({"bs": [64, 128], "iters": [46000, 23000]})).crossings[0].examples
2944000.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from bscrit.crossing import Crossing
from bscrit.errors import UserError
from bscrit.fit.reading.columns import Columns, Direction, direction_of, recognise
from bscrit.fit.reading.curves import are_curves, read_runs
from bscrit.fit.reading.exports import long_form
from bscrit.fit.reading.keys import Group, check_pooling, unit_of
from bscrit.fit.reading.meetings import crossings_of_runs, no_targets
from bscrit.fit.reading.rows import crossings_of_rows, left_out
from bscrit.fit.reading.sheet import Sheet, join, open_sheet

if TYPE_CHECKING:
    import pandas as pd

SPREAD = 0.1
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Table:
    """What a source says.

    Attributes:
        source: as the user named it.
        unit: what a batch size counts, "example" where the source does not say.
        crossings: in the order of the source.
        notes: rows left out, duplicates, and how the file was understood.
        diverged: (batch size, learning rate or None, group) of each setting at which a run diverged; its
            learning rate is infeasible, which is not the same as slow.
    """

    source: str
    unit: str
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...] = ()
    diverged: tuple[tuple[float, float | None, Group], ...] = ()


def read_table(
    source: Path | str | pd.DataFrame | Sequence[Path | str],
    *,
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] = NOTHING,
    by: Sequence[str] = (),
    direction: Direction | None = None,
    unit: str | None = None,
) -> Table:
    """Read crossings, or curves, from a file, several files, standard input ("-") or a data frame.

    A table of crossings has a row for each run: batch size, steps (or examples), and what else is known: lr,
    seed, target, censored or status, workload. Curves have a row for each logged point: batch size, step, and
    a loss or another metric.

    Args:
        source: CSV, TSV, JSON lines, JSON or Parquet.
        targets: values of the metric to reach, for curves; for crossings, those to keep.
        columns: role -> column, for names that are not recognised; a role may be the name of a metric.
        by: columns whose values separate fits; a workload column always does.
        direction: whether the metric gets better downwards or upwards, where its name does not say.
        unit: what a batch size counts.

    Raises:
        UserError: whatever can't be understood, with the file, the line, the value and the remedy.
    """
    sheet = _open(source, columns)
    found = recognise(sheet, columns, by)
    sheet, duplicates = _without_duplicates(sheet)
    _check_targets(targets or ())
    pooled = check_pooling(sheet, found)
    if are_curves(sheet, found):
        runs = read_runs(sheet, found, direction)
        if not targets:
            raise no_targets(sheet, runs)
        held = crossings_of_runs(sheet, runs, targets)
    else:
        _refuse_endings(sheet, found, columns)
        held = crossings_of_rows(sheet, found, targets)
    if not held.crossings:
        what = "; ".join(["holds no crossing", *held.notes])
        raise UserError(
            sheet.name, what, "give runs that met a target, or that were still running towards it"
        )
    notes = (*sheet.notes, *found.notes, *duplicates, *held.notes, *pooled)
    return Table(
        sheet.name,
        unit or unit_of(sheet, found) or "example",
        held.crossings,
        tuple(dict.fromkeys(notes)),
        held.diverged,
    )


def _open(source: Path | str | pd.DataFrame | Sequence[Path | str], columns: Mapping[str, str]) -> Sheet:
    if isinstance(source, Sequence) and not isinstance(source, str):
        if not source:
            raise UserError("", "no file is named", "name a table or a results folder")
        return join([long_form(open_sheet(path), columns) for path in source])
    return long_form(open_sheet(source), columns)


def _without_duplicates(sheet: Sheet) -> tuple[Sheet, list[str]]:
    """The sheet without rows that repeat an earlier one in every cell, and a note."""
    try:
        again = sheet.frame.duplicated().to_numpy()
    except TypeError:  # cells of JSON that hold lists
        again = sheet.frame.astype(str).duplicated().to_numpy()
    if not again.any():
        return sheet, []
    return sheet.only(~again), left_out(sheet, again, "exact duplicates of earlier rows")


def _refuse_endings(sheet: Sheet, found: Columns, columns: Mapping[str, str]) -> None:
    """Refuse a list of runs with their last step and last loss, which looks like a table of crossings."""
    if {"target", "censored", "reached", "low"} & set(found.of) or {"steps", "step"} & set(columns):
        return
    for metric in found.metrics:
        if sheet.frame[metric].dtype.kind not in "iuf" or direction_of(metric) is None:
            continue
        ends = sheet.frame[metric].to_numpy(float, na_value=np.nan)
        ends = ends[np.isfinite(ends)]
        if len(ends) and np.ptp(ends) > SPREAD * abs(np.median(ends)):
            spread = f"{metric} from {ends.min():.4g} to {ends.max():.4g}"
            what = f"says where runs ended, with {spread}, not when they met a target"
            steps = found.of.get("steps", "NAME")
            remedy = f"export the history of the runs; if they all ended at a target: --columns steps={steps}"
            raise UserError(sheet.name, what, remedy)


def _check_targets(targets: Sequence[float]) -> None:
    for target in targets:
        if not math.isfinite(target):
            raise UserError("--targets", f"{target} is no target", "name finite values of the metric")
