"""The fields of rows: batch size, steps, learning rate, seed, and the fit that each belongs to.

A table may count steps, examples or epochs. Steps win, examples are divided by the batch size, and epochs
stand in for examples where there is nothing else: B_crit does not depend on the size of the data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Group
from bscrit.curve import Floats
from bscrit.errors import UserError
from bscrit.tables.columns import Columns
from bscrit.tables.names import UNITS, is_held_out, tidy
from bscrit.tables.numerals import Flags, Numbers, distinct, read_numbers
from bscrit.tables.sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.intp]
TOLERANCE = 0.02
LEAST, MOST = 1e-9, 1e18  # counts of anything that was trained lie between them


@dataclass(frozen=True)
class RowFields:
    """The columns that every kind of table has.

    Attributes:
        rows: by position in the sheet: batch_size, steps and lr, NaN where the cell is empty; beyond, whether the
            steps are written as "> 5000"; seed, run and role as text, "" where the source does not say; and group, an
            index into `groups`.
        groups: what separates fits, as (name, value) pairs.
        numbers: the further columns that were asked for.
        unit: what a batch size counts, "" where the source does not say.
        notes: how the columns were understood.
    """

    rows: pd.DataFrame
    groups: list[Group]
    numbers: Mapping[str, Numbers]
    unit: str
    notes: tuple[str, ...]


def read_fields(
    sheet: Sheet, columns: Columns, further: Sequence[str] = (), first_step: int = 1
) -> RowFields:
    """Read and check the columns that say what each row is about.

    Args:
        further: more columns of numbers to read.
        first_step: 0 where a step of 0 is allowed, as in curves.

    Raises:
        UserError: a count that is not positive or beyond belief, or steps and examples that contradict each
            other.
    """
    import pandas as pd

    of = columns.of
    counts = [of[role] for role in ("steps", "examples", "epochs") if role in of]
    others = [*(of[role] for role in ("lr",) if role in of), *further]
    numbers, notes = read_numbers(
        sheet, {**dict.fromkeys([of["batch_size"], *counts], True), **dict.fromkeys(others, False)}
    )
    batch_size, blank = numbers[of["batch_size"]], np.full(len(sheet.frame), np.nan)
    size = batch_size.values
    for column in counts:
        count = numbers[column].values
        _refuse(sheet, column, count < 0 if first_step == 0 else count <= 0)
    missing = np.isnan(size) & ~np.isnan(numbers[counts[0]].values)
    _refuse(sheet, of["batch_size"], (size <= 0) | np.isinf(size) | batch_size.beyond | missing)
    for column in (of["batch_size"], *counts):
        count = numbers[column].values
        wrong = np.isfinite(count) & (count != 0) & ((count < LEAST) | (count > MOST))
        _refuse(sheet, column, wrong, "counts must lie between 1e-9 and 1e18")
    group, groups = read_groups(sheet, columns)
    if _is_foreign(sheet, of, numbers):
        notes += (f"{of['examples']!r} counts something else than {of['batch_size']!r} and is not used",)
        columns = columns.without("examples")
    if not {"steps", "examples"} & set(of) and _counts_finished(sheet, columns, numbers):
        epochs = numbers[of["epochs"]]
        numbers = {**numbers, of["epochs"]: replace(epochs, values=epochs.values + 1)}
        notes += (
            f"{of['epochs']!r} begins at 0 beside a training metric: one is added, as rows end an epoch",
        )
    steps, beyond, more = _steps(columns.of, numbers, group)
    rows = pd.DataFrame(
        {
            "batch_size": size,
            "steps": steps,
            "lr": numbers[of["lr"]].values if "lr" in of else blank,
            "beyond": beyond,
            "seed": labels(sheet, of.get("seed")),
            "run": labels(sheet, of["run"]) if "run" in of else _files(sheet),
            "role": labels(sheet, of.get("role")),
            "group": group,
        }
    )
    asked_for = {column: numbers[column] for column in further}
    return RowFields(rows, groups, asked_for, _unit(sheet, columns), (*notes, *more))


def labels(sheet: Sheet, column: str | None) -> NDArray[np.object_]:
    """A column as text, "" where it is empty; whole numbers without a decimal point."""
    if column is None:
        return np.full(len(sheet.frame), "", dtype=object)
    codes, texts = distinct(sheet.frame[column])
    taken: NDArray[np.object_] = np.array([*(text.strip() for text in texts), ""], dtype=object)[codes]
    return taken


def read_groups(sheet: Sheet, columns: Columns) -> tuple[Codes, list[Group]]:
    """The fit that each row belongs to, as an index, and what separates the fits."""
    import pandas as pd

    if not columns.by:
        return np.zeros(len(sheet.frame), dtype=np.intp), [()]
    names = ["workload" if column == columns.of.get("workload") else column for column in columns.by]
    values = pd.DataFrame({column: labels(sheet, column) for column in columns.by})
    filled = labels(sheet, columns.of.get("batch_size")) != ""
    for column in columns.by:
        blank = (values[column] == "").to_numpy() & filled
        if blank.any() and not blank[filled].all():
            remedy = "write the group in every row"
            raise UserError(sheet.first(blank), f"{column} is empty", remedy)
    group = values.groupby(list(columns.by), sort=False).ngroup().to_numpy().astype(np.intp)
    first = values[~values.duplicated()]
    return group, [tuple(zip(names, row, strict=True)) for row in first.itertuples(index=False, name=None)]


def _unit(sheet: Sheet, columns: Columns) -> str:
    """The unit of a batch size, by a column that says it or by the names of columns; "" where none does."""
    if "unit" not in columns.of:
        return columns.unit
    cells = labels(sheet, columns.of["unit"])
    said = [word for word in dict.fromkeys(cells) if word]
    if len(said) > 1:
        where = sheet.first(cells == said[1])
        what = f"{columns.of['unit']} is {said[1]!r}, and {said[0]!r} before"
        raise UserError(where, what, "keep one unit in a file: split it in two")
    return UNITS.get(said[0].lower(), said[0]) if said else columns.unit


def _is_foreign(sheet: Sheet, of: Mapping[str, str], numbers: Mapping[str, Numbers]) -> bool:
    """Whether the examples have another unit than the batch size, as tokens beside sequences.

    Raises:
        UserError: they are not steps times batch size, and no unit in their name explains it.
    """
    if "steps" not in of or "examples" not in of:
        return False
    size, steps, examples = (numbers[of[role]].values for role in ("batch_size", "steps", "examples"))
    with np.errstate(all="ignore"):  # infinite counts are left out later
        differ = np.abs(examples - steps * size)
        contrary = (differ > size + 1) & (differ > TOLERANCE * examples)
    if contrary.any() and not set(tidy(of["examples"]).split("_")) & set(UNITS):
        row = int(np.flatnonzero(contrary)[0])
        what = (
            f"{of['examples']} is {examples[row]:.10g}, but {of['steps']} {steps[row]:.10g} times"
            f" {of['batch_size']} {size[row]:.10g} is {steps[row] * size[row]:.10g}"
        )
        raise UserError(sheet.where(row), what, f"count both in one unit, or remove {of['examples']!r}")
    return bool(contrary.any())


def _steps(
    of: Mapping[str, str], numbers: Mapping[str, Numbers], group: Codes
) -> tuple[Floats, Flags, tuple[str, ...]]:
    """Steps of each row, whether they are known to be more, and notes; epochs stand in for examples in whole fits."""
    size, notes = numbers[of["batch_size"]].values, tuple[str, ...]()
    steps, beyond = np.full(len(size), np.nan), np.zeros(len(size), bool)
    for role in ("steps", "examples", "epochs"):
        if role not in of:
            continue
        count = numbers[of[role]]
        taken = np.isnan(steps) & ~np.isnan(count.values)
        if role == "epochs":
            taken &= ~np.isin(group, group[~np.isnan(steps)])
            name = f"{of['epochs']!r} is taken as examples"
            notes = (f"{name}: B_crit holds, steps and examples count epochs",) if taken.any() else ()
        steps = np.where(taken, count.values / (1 if role == "steps" else size), steps)
        beyond |= taken & count.beyond
    return steps, beyond, notes


def _counts_finished(sheet: Sheet, columns: Columns, numbers: Mapping[str, Numbers]) -> bool:
    """Whether epoch 0 is the first that was trained: its rows hold a metric of training beside a held-out one."""
    epochs = numbers[columns.of["epochs"]].values
    first = epochs == 0
    metrics = [*columns.metrics, *([columns.of["metric"]] if "metric" in columns.of else [])]
    trained = [column for column in metrics if not is_held_out(column)]
    whole = bool((epochs[np.isfinite(epochs)] % 1 == 0).all())
    filled = [bool(sheet.frame[column][first].notna().all()) for column in trained]
    return bool(first.any()) and whole and len(trained) < len(metrics) and any(filled)


def _files(sheet: Sheet) -> NDArray[np.object_]:
    """The file of each row where there are several, for runs that are told apart by nothing else."""
    index = sheet.frame.index
    several = index.nlevels > 1
    return index.get_level_values(0).to_numpy(object) if several else np.full(len(index), "", dtype=object)


def _refuse(sheet: Sheet, column: str, wrong: Flags, remedy: str = "counts must be positive numbers") -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        cell = sheet.frame[column].iloc[[int(rows[0])]]
        shown = "empty" if cell.isna().all() else cell.iloc[0]
        raise UserError(sheet.where(int(rows[0])), f"{column} is {shown}", remedy)
