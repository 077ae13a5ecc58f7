"""Any table -> crossings: the way into the fit for everything that bscrit did not train itself.

>>> import pandas as pd
>>> read_table(pd.DataFrame({"bs": [64, 128], "iters": [46000, 23000]})).crossings[0].examples
2944000.0
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bscrit.crossing import CrossingTable
from bscrit.errors import UserError
from bscrit.goal import Direction
from bscrit.tables.cautions import budgets, parts_of_batches
from bscrit.tables.columns import Columns, direction_of, recognise, require, tidy
from bscrit.tables.crossings import crossings_of_runs, no_targets
from bscrit.tables.curves import CROSSED, are_curves, read_runs, refuse_unknown_metric
from bscrit.tables.exports import long_form
from bscrit.tables.formats import open_sheet
from bscrit.tables.keys import check_pooling
from bscrit.tables.options import as_columns, as_direction, as_names, as_targets
from bscrit.tables.rows import crossings_of_rows, left_out
from bscrit.tables.sheet import Sheet, join

if TYPE_CHECKING:
    import pandas as pd

SPREAD = 0.1
NOTHING: Mapping[str, str] = MappingProxyType({})


def read_table(
    source: Path | str | pd.DataFrame | Sequence[Path | str],
    *,
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] = NOTHING,
    by: Sequence[str] = (),
    direction: Direction | None = None,
    unit: str | None = None,
) -> CrossingTable:
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
    targets, columns, by = as_targets(targets), as_columns(columns), as_names(by)
    direction = as_direction(direction)
    sheet = _open(source, columns)
    _refuse_frontier(sheet)
    found = recognise(sheet, columns, by)
    require(sheet, found)
    sheet, duplicates = _without_duplicates(sheet)
    cautions = [*check_pooling(sheet, found), *parts_of_batches(sheet, found)]
    if are_curves(sheet, found):
        runs = read_runs(sheet, found, direction)
        if targets is None:
            raise no_targets(sheet, runs)
        held = crossings_of_runs(sheet, runs, targets)
    else:
        refuse_unknown_metric(sheet, found)
        _refuse_endings(sheet, found, columns)
        held = crossings_of_rows(sheet, found, targets)
        cautions += budgets(found, held.crossings)
    if not held.crossings:
        what = "; ".join(["holds no crossing", *held.notes])
        raise UserError(
            sheet.name, what, "give runs that met a target, or that were still running towards it"
        )
    notes = (*sheet.notes, *found.notes, *duplicates, *held.notes, *cautions)
    return replace(
        held, source=sheet.name, unit=unit or held.unit or "example", notes=tuple(dict.fromkeys(notes))
    )


def _open(source: Any, columns: Mapping[str, str]) -> Sheet:
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return long_form(open_sheet(source), columns)
    paths = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not paths:
        raise UserError("", "no file is named", "name a table or a results folder")
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            remedy = (
                "give a path, several paths, or a data frame; rows in Python become one by pandas.DataFrame"
            )
            raise UserError("", f"cannot read {path!r:.40}, a {type(path).__name__}", remedy)
    return join([long_form(open_sheet(path), columns) for path in paths])


def _without_duplicates(sheet: Sheet) -> tuple[Sheet, list[str]]:
    """The sheet without rows that repeat an earlier one in every cell, and a note."""
    try:
        again = sheet.frame.duplicated().to_numpy()
    except TypeError:  # cells of JSON that hold lists
        again = sheet.frame.astype(str).duplicated().to_numpy()
    if not again.any():
        return sheet, []
    return sheet.only(~again), left_out(sheet, again, "exact duplicates of earlier rows")


def _refuse_frontier(sheet: Sheet) -> None:
    """Refuse our own frontier.csv: its low and high are limits of confidence, and its censored is a count."""
    if {"runs", "robust_weight"} <= {tidy(column) for column in sheet.frame.columns}:
        what = "holds the points of a fit, not the runs behind them"
        raise UserError(sheet.name, what, "fit the crossings.csv beside it, or the results folder")


def _refuse_endings(sheet: Sheet, found: Columns, columns: Mapping[str, str]) -> None:
    """Refuse a list of runs with their last step and last loss, which looks like a table of crossings."""
    if CROSSED & set(found.of) or {"steps", "step"} & set(columns):
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
