"""Any table -> crossings: the way into the fit for everything that bscrit did not train itself.

>>> import pandas as pd
>>> read_table(pd.DataFrame({"bs": [64, 128], "iters": [46000, 23000]})).crossings[0].examples
2944000.0
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bscrit.crossing import Crossing, CrossingTable
from bscrit.errors import UserError
from bscrit.goal import Direction
from bscrit.tables.columns import Columns, option, recognise, require
from bscrit.tables.crossing_rows import crossings_of_rows, left_out
from bscrit.tables.curve_crossings import crossings_of_runs, no_targets
from bscrit.tables.curves import CROSSED, are_curves, read_runs, refuse_unknown_metric
from bscrit.tables.formats import open_sheet
from bscrit.tables.names import direction_of, is_part, tidy, unit_of, words
from bscrit.tables.numerals import parse_number
from bscrit.tables.options import as_columns, as_direction, as_names, as_targets
from bscrit.tables.pooling import unused_columns
from bscrit.tables.row_fields import labels
from bscrit.tables.sheet import Sheet, join
from bscrit.tables.steady import with_steady_sizes
from bscrit.tables.tracker_exports import long_form
from bscrit.words import sizes

if TYPE_CHECKING:
    import pandas as pd

SPREAD = 0.1
WHOLE = words("global total effective gbs")
MULTIPLIERS = words(
    "gradient_accumulation_steps gradient_accumulation grad_accumulation_steps grad_accumulation"
    " grad_accum_steps grad_accum grad_acc_steps accumulation_steps accumulation accum_steps accum"
    " accumulate_grad_batches num_gpus n_gpus n_gpu ngpus gpus num_devices n_devices devices world_size"
    " num_replicas replicas num_nodes nodes dp dp_size data_parallel_size"
)
MULTIPLE = re.compile(
    r"[(\[]\s*(?:[kmb]|bn|mio)\b|\b(?:thousand|million|billion)s?\b"
    r"|[ _(](?:k|m|b|bn)[ _]?(?:tokens|tok|images|seqs?)\b",
    re.IGNORECASE,
)
DIVISIBLE = frozenset({"token", "second", "hour"})  # of which an example usually has many
COARSE = 100  # counts below it are equal by chance
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
    roles = recognise(sheet, columns, by)
    require(sheet, roles)
    sheet = with_steady_sizes(sheet, roles)
    sheet, duplicates = _without_duplicates(sheet)
    _refuse_other_unit(sheet, roles, unit)
    curves = are_curves(sheet, roles)
    cautions = [*unused_columns(sheet, roles, curves), *_parts_of_batches(sheet, roles)]
    if curves:
        runs = read_runs(sheet, roles, direction)
        if targets is None:
            raise no_targets(sheet, runs)
        held = crossings_of_runs(sheet, runs, targets)
    else:
        refuse_unknown_metric(sheet, roles)
        _refuse_endings(sheet, roles, columns)
        held = crossings_of_rows(sheet, roles, targets)
        cautions += _budgets(roles, held.crossings)
    if not held.crossings:
        what = "; ".join(["holds no crossing", *held.notes])
        raise UserError(sheet.name, what, "give runs that met a target, or were still running towards it")
    notes = dict.fromkeys([*sheet.notes, *roles.notes, *duplicates, *held.notes, *cautions])
    return replace(held, source=sheet.name, unit=unit or held.unit or "example", notes=tuple(notes))


def _open(source: Any, columns: Mapping[str, str]) -> Sheet:
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return long_form(open_sheet(source), columns)
    paths = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not paths:
        raise UserError("", "no file is named", "name a table or a results folder")
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            remedy = "give a path, several, or a data frame; rows in Python become one by pandas.DataFrame"
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


def _refuse_endings(sheet: Sheet, roles: Columns, columns: Mapping[str, str]) -> None:
    """Refuse a list of runs with their last step and last loss, which looks like a table of crossings."""
    if CROSSED & set(roles.of) or {"steps", "step"} & set(columns):
        return
    for metric in roles.metrics:
        if sheet.frame[metric].dtype.kind not in "iuf" or direction_of(metric) is None:
            continue
        ends = sheet.frame[metric].to_numpy(float, na_value=np.nan)
        ends = ends[np.isfinite(ends)]
        if not len(ends):
            continue
        differ = np.ptp(ends)
        if differ > SPREAD * abs(np.median(ends)) or (differ > 0 and _one_budget(sheet, roles)):
            spread = f"{metric} from {ends.min():.4g} to {ends.max():.4g}"
            what = f"says where runs ended, with {spread}, not when they met a target"
            steps = roles.of.get("steps", "NAME")
            remedy = (
                f"export the history of the runs; if they all ended at a target: {option('steps', steps)}"
            )
            raise UserError(sheet.name, what, remedy)


def _refuse_other_unit(sheet: Sheet, roles: Columns, unit: str | None) -> None:
    """Refuse examples in another unit than the batch size where no column counts steps, and multiples in a name."""
    for role in ("batch_size", "steps", "examples"):
        column = roles.of.get(role, "")
        if MULTIPLE.search(column):
            what = f"{column!r} counts thousands, millions or billions"
            raise UserError(sheet.name, what, "write whole numbers, below a name that says their unit")
    if "steps" in roles.of or "examples" not in roles.of:
        return
    size, counted = (unit_of(roles.of[role]) for role in ("batch_size", "examples"))
    if counted == size or (not size and (unit or "unit" in roles.of or counted not in DIVISIBLE)):
        return
    if not counted:
        return
    named = f"a {size}" if size else "nothing that its name says"
    what = (
        f"{roles.of['examples']!r} counts {counted}s, {roles.of['batch_size']!r} {named}: steps can't be told"
    )
    remedy = f"add a column steps, or write both in {counted}s"
    raise UserError(sheet.name, what, remedy if size else f"{remedy}; if they are: --unit {counted}")


def _one_budget(sheet: Sheet, roles: Columns) -> bool:
    """Whether every run of three batch sizes or more took the same examples, to within one step."""
    if "steps" not in roles.of:
        return False
    columns = [labels(sheet, roles.of[role]) for role in ("batch_size", "steps")]
    pairs = [(parse_number(size), parse_number(steps)) for size, steps in zip(*columns, strict=True)]
    counted = np.array([(size, steps) for size, steps in pairs if size and steps and steps > 1], float)
    if len(counted) < 3 or len(np.unique(counted[:, 0])) < 3:
        return False
    size, examples = counted[:, 0], counted[:, 0] * counted[:, 1]
    return bool((np.abs(examples - examples.max()) <= size + 1e-9 * examples).all())


def _parts_of_batches(sheet: Sheet, columns: Columns) -> list[str]:
    """Notes where the batch size may be that of one device or of one pass."""
    size = columns.of["batch_size"]
    if WHOLE & set(tidy(size).split("_")):
        return []
    notes = []
    for column in sheet.frame.columns:
        if tidy(column) not in MULTIPLIERS or column in columns.of.values():
            continue
        counts = {parse_number(word) for word in set(labels(sheet, column))}
        most = max((count for count in counts if count is not None and count > 1), default=None)
        if most is not None:
            notes.append(
                f"{size!r} is taken as the whole batch; {column!r} is {'up to ' * (len(counts) > 1)}{most:g}:"
                f" multiply if {size!r} counts one part"
            )
    if is_part(size) and not notes:
        notes.append(f"{size!r} is taken as the whole batch; its name says a part, to be multiplied first")
    return notes


def _budgets(columns: Columns, crossings: Sequence[Crossing]) -> list[str]:
    """A note where the largest count is the same at several batch sizes, and nothing says which runs arrived."""
    if {"censored", "reached", "status"} & set(columns.of):
        return []
    fits: dict[object, list[Crossing]] = {}
    for crossing in crossings:
        fits.setdefault((crossing.group, crossing.target), []).append(crossing)
    for members in fits.values():
        for noun in ("steps", "examples"):
            counts = np.array([getattr(crossing, noun) for crossing in members])
            most = counts.max()
            rounded = np.array([crossing.batch_size if noun == "examples" else 0.0 for crossing in members])
            rounded = np.where(counts > COARSE * rounded, rounded, 0.0)  # of whole steps, less than one
            at = [
                members[i].batch_size for i in np.flatnonzero(most - counts <= 0.999 * rounded + 1e-9 * most)
            ]
            if len(set(at)) > 1 and most >= COARSE:
                return [
                    f"{noun} are exactly {most:.10g} at batch size {sizes(sorted(set(at)))}: if that is a"
                    " budget, mark these rows in a column censored"
                ]
    return []
