"""What a row is about: batch size, steps, learning rate, seed, and the fit that it belongs to.

A table may count steps, examples or epochs. Steps win, examples are divided by the batch size, and epochs
stand in for examples where there is nothing else: B_crit does not depend on the size of the data set.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Group
from bscrit.curve import Floats
from bscrit.errors import UserError
from bscrit.tables.columns import APART, HELD_OUT, ROLES, UNITS, Columns, is_truth, option, tidy, words
from bscrit.tables.numerals import Flags, Numbers, distinct, read_numbers
from bscrit.tables.sheet import Sheet

Codes = NDArray[np.intp]
TOLERANCE = 0.02
LEAST, MOST = 1e-9, 1e18  # counts of anything that was trained lie between them
MOST_VALUES = 50
CONFOUNDERS = words(
    "model model_name model_size params parameters n_params num_params n_parameters size arch architecture"
    " dataset dataset_name data series"
)


@dataclass(frozen=True)
class RowFields:
    """One entry per row of the sheet.

    Attributes:
        batch_size, steps, lr: NaN where the cell is empty.
        beyond: whether the steps are written as "> 5000".
        seed, run, role: as text, "" where the source does not say.
        group: index into `groups`.
        groups: what separates fits, as (name, value) pairs.
        numbers: the further columns that were asked for.
        unit: what a batch size counts, "" where the source does not say.
        notes: how the columns were understood.
    """

    batch_size: Floats
    steps: Floats
    lr: Floats
    beyond: Flags
    seed: NDArray[np.object_]
    run: NDArray[np.object_]
    role: NDArray[np.object_]
    group: Codes
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
    of = columns.of
    counts = [of[role] for role in ("steps", "examples", "epochs") if role in of]
    rates = [of["lr"]] if "lr" in of else []
    kinds = {
        of["batch_size"]: True,
        **dict.fromkeys(counts, True),
        **dict.fromkeys([*rates, *further], False),
    }
    numbers, notes = read_numbers(sheet, kinds)

    batch_size = numbers[of["batch_size"]].values
    for column in counts:
        counted = numbers[column].values
        _refuse(sheet, column, counted < 0 if first_step == 0 else counted <= 0)
    _refuse(
        sheet, of["batch_size"], (batch_size <= 0) | np.isinf(batch_size) | numbers[of["batch_size"]].beyond
    )
    _refuse(sheet, of["batch_size"], np.isnan(batch_size) & ~np.isnan(numbers[counts[0]].values))
    for column in (of["batch_size"], *counts):
        _refuse_size(sheet, column, numbers[column].values)
    group, groups = _groups(sheet, columns)
    if _is_foreign(sheet, of, numbers):
        notes += (f"{of['examples']!r} counts something else than {of['batch_size']!r} and is not used",)
        columns = columns.without("examples")
    if not {"steps", "examples"} & set(of) and "epochs" in of and _counts_finished(sheet, columns, numbers):
        epochs = numbers[of["epochs"]]
        numbers = {**numbers, of["epochs"]: replace(epochs, values=epochs.values + 1)}
        notes += (
            f"{of['epochs']!r} begins at 0 beside a training metric: one is added, as rows end an epoch",
        )
    steps, source, more = _steps(columns, numbers, batch_size, group)
    beyond = np.zeros(len(steps), bool)
    for column in counts:
        beyond |= numbers[column].beyond & (source == column)
    return RowFields(
        batch_size,
        steps,
        numbers[rates[0]].values if rates else np.full(len(steps), np.nan),
        beyond,
        labels(sheet, of.get("seed")),
        labels(sheet, of["run"]) if "run" in of else _files(sheet),
        labels(sheet, of.get("role")),
        group,
        groups,
        {column: numbers[column] for column in further},
        _unit(sheet, columns),
        (*notes, *more),
    )


def labels(sheet: Sheet, column: str | None) -> NDArray[np.object_]:
    """A column as text, "" where it is empty; whole numbers without a decimal point."""
    if column is None:
        return np.full(len(sheet.frame), "", dtype=object)
    codes, texts = distinct(sheet.frame[column])
    return _take([*(text.strip() for text in texts), ""], codes)


def check_pooling(sheet: Sheet, columns: Columns) -> tuple[str, ...]:
    """Notes on columns that would separate fits, if they were named by `by`.

    Such a column has several values, of which two or more occur at several batch sizes.

    Raises:
        UserError: the column is a model or a data set, of which a mixture has no critical batch size.
    """
    import pandas as pd

    if "batch_size" not in columns.of:
        return ()
    notes = []
    used = {*columns.of.values(), *columns.by, *columns.metrics}
    within = pd.DataFrame(
        {"group": _groups(sheet, columns)[0], "size": labels(sheet, columns.of["batch_size"])}
    )
    for column in [column for column in sheet.frame.columns if column not in used]:
        confounds = tidy(column) in CONFOUNDERS
        if sheet.frame[column].dtype.kind in "iufbM" and not confounds:
            continue
        value = labels(sheet, column)
        values = [word for word in dict.fromkeys(value) if word]
        if not 2 <= len(values) <= MOST_VALUES:
            continue
        sizes = within.assign(value=value).drop_duplicates().groupby(["group", "value"]).size()
        if (sizes >= 2).groupby("group").sum().max() < 2:
            continue
        if confounds:
            what = f"{column!r} has {len(values)} values ({', '.join(values[:4])}), which need a fit each"
            raise UserError(sheet.name, what, f"--by {shlex.quote(','.join([*columns.by, column]))}")
        notes.append(f"rows with different {column!r} are pooled; --by {shlex.quote(column)} separates them")
    return tuple(notes)


def unrecognised(sheet: Sheet, columns: Columns) -> tuple[str, ...]:
    """Notes on columns of a table of crossings that have no role and may decide the answer.

    They hold truth values, or numbers that differ within a batch size and come back at others, as settings do.
    """
    import pandas as pd

    notes = []
    used = {*columns.of.values(), *columns.by, *columns.metrics}
    size = labels(sheet, columns.of["batch_size"])
    counts = {alias for tiers in ROLES.values() for tier in tiers for alias in tier.split()}
    for column in [column for column in sheet.frame.columns if column not in used]:
        name = tidy(column)
        if not {"reached", "censored", "status"} & set(columns.of) and is_truth(sheet, column):
            named = option("reached", column)
            notes.append(
                f"{column!r} holds truth values and is not used; {named} if it means that a run arrived"
            )
            continue
        if sheet.frame[column].dtype.kind not in "iuf" or name in counts or set(name.split("_")) & APART:
            continue
        pairs = pd.DataFrame({"size": size, "value": labels(sheet, column)}).drop_duplicates()
        pairs = pairs[pairs["value"] != ""]
        again = pairs.groupby("value").size() >= 2
        if again.sum() >= 2 and len(again) <= MOST_VALUES and pairs["size"].duplicated().any():
            notes.append(
                f"rows with different {column!r} are pooled; --by {shlex.quote(column)} separates them,"
                f" {option('lr', column)} if it is the learning rate"
            )
    return tuple(notes)


def _groups(sheet: Sheet, columns: Columns) -> tuple[Codes, list[Group]]:
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
            raise UserError(sheet.where(int(np.flatnonzero(blank)[0])), f"{column} is empty", remedy)
    group = values.groupby(list(columns.by), sort=False).ngroup().to_numpy().astype(np.intp)
    first = values[~values.duplicated()]
    return group, [tuple(zip(names, row, strict=True)) for row in first.itertuples(index=False, name=None)]


def _unit(sheet: Sheet, columns: Columns) -> str:
    """What a batch size counts, by a column that says it or by the names of columns; "" where none does."""
    if "unit" not in columns.of:
        return columns.unit
    cells = labels(sheet, columns.of["unit"])
    said = [word for word in dict.fromkeys(cells) if word]
    if len(said) > 1:
        where = sheet.where(int(np.flatnonzero(cells == said[1])[0]))
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
    columns: Columns, numbers: Mapping[str, Numbers], batch_size: Floats, group: Codes
) -> tuple[Floats, NDArray[np.object_], list[str]]:
    """Steps of each row, the column that they come from, and notes."""
    of, notes = columns.of, list[str]()
    nothing = np.full(len(batch_size), np.nan)
    by_steps, examples, epochs = (
        numbers[of[role]].values if role in of else nothing for role in ("steps", "examples", "epochs")
    )
    steps = np.where(np.isnan(by_steps), examples / batch_size, by_steps)
    source = _take([of.get("steps", ""), of.get("examples", "")], np.isnan(by_steps).astype(np.intp))
    counted = np.zeros(int(group.max(initial=0)) + 1, bool)
    counted[group[~np.isnan(steps)]] = True
    derived = ~counted[group] & ~np.isnan(epochs)
    if derived.any():
        notes.append(f"{of['epochs']!r} is taken as examples: B_crit holds, steps and examples count epochs")
        steps = np.where(derived, epochs / batch_size, steps)
        source[derived] = of["epochs"]
    return steps, source, notes


def _counts_finished(sheet: Sheet, columns: Columns, numbers: Mapping[str, Numbers]) -> bool:
    """Whether epoch 0 is the first that was trained: its rows hold a metric of training beside a held-out one."""
    epochs = numbers[columns.of["epochs"]].values
    first = epochs == 0
    metrics = [*columns.metrics, *([columns.of["metric"]] if "metric" in columns.of else [])]
    trained = [column for column in metrics if not HELD_OUT & set(tidy(column).split("_"))]
    whole = bool((epochs[np.isfinite(epochs)] % 1 == 0).all())
    filled = [bool(sheet.frame[column][first].notna().all()) for column in trained]
    return bool(first.any()) and whole and len(trained) < len(metrics) and any(filled)


def _files(sheet: Sheet) -> NDArray[np.object_]:
    """The file of each row where there are several, for runs that are told apart by nothing else."""
    index = sheet.frame.index
    several = index.nlevels > 1
    return index.get_level_values(0).to_numpy(object) if several else np.full(len(index), "", dtype=object)


def _take(values: Sequence[str], codes: Codes) -> NDArray[np.object_]:
    taken: NDArray[np.object_] = np.array(values, dtype=object)[codes]
    return taken


def _refuse(sheet: Sheet, column: str, wrong: Flags, remedy: str = "counts must be positive numbers") -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        cell = sheet.frame[column].iloc[[int(rows[0])]]
        shown = "empty" if cell.isna().all() else cell.iloc[0]
        raise UserError(sheet.where(int(rows[0])), f"{column} is {shown}", remedy)


def _refuse_size(sheet: Sheet, column: str, values: Floats) -> None:
    wrong = np.isfinite(values) & (values != 0) & ((values < LEAST) | (values > MOST))
    _refuse(sheet, column, wrong, "counts must lie between 1e-9 and 1e18")
