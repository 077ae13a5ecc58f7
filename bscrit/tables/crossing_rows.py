"""A table of crossings -> crossings: one row for each run and target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Crossing, CrossingTable
from bscrit.curve import Floats
from bscrit.errors import UserError
from bscrit.tables.columns import Columns
from bscrit.tables.numerals import Flags, parse_number, read_flags
from bscrit.tables.row_fields import RowFields, labels, read_fields
from bscrit.tables.sheet import Sheet
from bscrit.words import counted

if TYPE_CHECKING:
    import pandas as pd

STATUS = {
    "reached": "reached finished completed complete done success succeeded converged ok pass passed met terminated"
    " target goal target_reached goal_reached",
    "exhausted": "exhausted budget max_steps timeout censored unreached not_reached not_converged dnf timed_out"
    " walltime wall_time time_limit deadline max_epochs max_iterations max_time truncated out_of_time",
    "stopped": "stopped pruned early_stopped early_stopping cancelled canceled",
    "diverged": "diverged divergence nan inf exploded unstable",
    "failed": "fail failed error errored crashed killed oom out_of_memory preempted node_fail boot_fail revoked lost",
    "running": "running pending queued scheduled unfinished waiting paused suspended preempting requeued resizing"
    " completing configuring",
}
FIELDS = ("batch_size", "steps", "target", "censored", "low", "high", "lr", "seed", "group", "role", "where")


def crossings_of_rows(sheet: Sheet, columns: Columns, targets: Sequence[float] | None) -> CrossingTable:
    """Each row as a crossing; rows that failed, still run, or count no steps are left out with a note.

    Raises:
        UserError: what row_fields.py refuses, a truth value that isn't known, a target that no row has.
    """
    columns, target, notes = _target(sheet, columns)
    numeric = ("low", "high", *(("target",) if target is None else ()))
    fields = read_fields(sheet, columns, [columns.of[role] for role in numeric if role in columns.of])
    if target is None:
        target = fields.numbers[columns.of["target"]].values
    rows, status = fields.rows, read_status(sheet, columns)
    diverged = status == "diverged"
    left = np.isin(status, ["failed", "running"])
    notes += [*fields.notes, *left_out(sheet, left, "failed or still running")]
    notes += unknown_states(sheet, columns, status)
    left |= diverged | (status == "unknown")
    uncounted = ~np.isfinite(rows["steps"].to_numpy()) & ~left
    notes += left_out(sheet, uncounted, "no count of steps")
    notes += left_out(sheet, np.isinf(target), "an infinite target")
    left |= uncounted | np.isinf(target)
    if targets is not None:
        target = _select(sheet, columns, target, targets)
        left |= np.isnan(target)
    check_rates(sheet, columns, rows["lr"].where(~left | diverged))
    censored = _censored(sheet, columns, rows["beyond"].to_numpy(), status)
    low, high = _bounds(sheet, columns, fields, censored)
    rows = rows.assign(target=target, censored=censored, low=low, high=high)
    kept = rows[~left]
    notes += _repeated(sheet, kept)
    at = {name: kept[name].tolist() for name in kept}
    at |= {"target": list(map(maybe, at["target"])), "lr": list(map(maybe, at["lr"]))}
    at["group"] = [fields.groups[index] for index in at["group"]]
    at["where"] = sheet.places(kept.index.to_numpy()) if len(kept) else []
    crossings = tuple(Crossing(*cells) for cells in zip(*(at[name] for name in FIELDS), strict=True))
    lost = rows[diverged & rows["batch_size"].notna()]
    triples = zip(*(lost[name].tolist() for name in ("batch_size", "lr", "group")), strict=True)
    settings = dict.fromkeys((size, maybe(lr), fields.groups[group]) for size, lr, group in triples)
    return CrossingTable(crossings, tuple(settings), tuple(notes), unit=fields.unit)


def read_status(sheet: Sheet, columns: Columns) -> NDArray[np.object_]:
    """One of the statuses of a trial per row, "" where the source does not say, "unknown" for another word."""
    words = labels(sheet, columns.of.get("status"))
    meaning = {word: status for status, words in STATUS.items() for word in words.split()} | {"": ""}
    normalised = {word: re.sub(r"[\s_-]+", "_", str(word).strip().lower()) for word in set(words)}
    tidied = {word: re.sub(r"^trialstate\.|_by_\w+$|\+$", "", name) for word, name in normalised.items()}
    return np.array([meaning.get(tidied[word], "unknown") for word in words], dtype=object)


def unknown_states(sheet: Sheet, columns: Columns, status: NDArray[np.object_]) -> list[str]:
    """A note on rows that are left out because nobody knows what their status means."""
    rows = status == "unknown"
    if not rows.any():
        return []
    name = columns.of["status"]
    states = ", ".join(map(repr, list(dict.fromkeys(labels(sheet, name)[rows]))[:4]))
    return left_out(sheet, rows, f"{name} is {states}, not one of {', '.join(STATUS)}")


def maybe(value: float) -> float | None:
    """A number, None for NaN."""
    return None if value != value else value


def left_out(sheet: Sheet, rows: Flags, why: str) -> list[str]:
    """A note on rows that were left out, with the first few places."""
    count = int(rows.sum())
    if not count:
        return []
    places = [place.removeprefix(f"{sheet.name}, ") for place in sheet.places(np.flatnonzero(rows)[:3])]
    more = " and others" if count > 3 else ""
    return [f"left out {counted(count, 'row')}: {why} ({', '.join(places)}{more})"]


def check_rates(sheet: Sheet, columns: Columns, lr: pd.Series[float]) -> None:
    """Raise UserError for a learning rate that is not positive; NaN is none."""
    wrong = lr[(lr <= 0) | np.isinf(lr)]
    if len(wrong):
        what = f"{columns.of['lr']} is {wrong.iloc[0]:g}"
        raise UserError(sheet.where(int(wrong.index[0])), what, "a learning rate must be positive")


def _target(sheet: Sheet, columns: Columns) -> tuple[Columns, Floats | None, list[str]]:
    """The target of each row when it is not a plain number: "75.9% top-1" is 75.9, "easy" names a fit."""
    if "target" not in columns.of:
        return columns, np.full(len(sheet.frame), np.nan), []
    name = columns.of["target"]
    words = labels(sheet, name)
    distinct = [word for word in dict.fromkeys(words) if word]
    if all(parse_number(word) is not None or parse_number(word, ",") is not None for word in distinct):
        return columns, None, []
    leading = {word: re.match(r"\D?\s*(\d+\.?\d*(?:e[+-]?\d+)?)", word, re.IGNORECASE) for word in distinct}
    values = {word: float(match[1]) for word, match in leading.items() if match}
    if len(values) == len(distinct):
        note = f"{name} {distinct[0]!r} is taken as {values[distinct[0]]:g}"
        return columns, np.array([values.get(word, np.nan) for word in words]), [note]
    if values:
        word = next(word for word in distinct if word not in values)
        where = sheet.first(words == word)
        raise UserError(where, f"{name} is {word!r}", "write a number")
    note = f"{name} holds no numbers, so that each of its values has a fit of its own"
    return replace(columns.without("target"), by=(*columns.by, name)), np.full(len(words), np.nan), [note]


def _select(sheet: Sheet, columns: Columns, target: Floats, wanted: Sequence[float]) -> Floats:
    """The targets that are wanted, NaN elsewhere."""
    if "target" not in columns.of:
        if len(wanted) > 1:
            what = "has no target column, so that its rows can't be told apart by target"
            raise UserError(sheet.name, what, "add a column target, or name the one target: --targets 3.2")
        return np.full(len(target), float(wanted[0]))
    selected = np.full(len(target), np.nan)
    for value in wanted:
        same = np.isclose(target, value, rtol=1e-6, atol=0)
        if not same.any():
            present = ", ".join(f"{value:g}" for value in np.unique(target[~np.isnan(target)])[:12])
            what = f"no row of {sheet.name} has the target {value:g}"
            raise UserError("--targets", what, f"there are rows with {present}")
        selected[same] = value
    return selected


def _censored(sheet: Sheet, columns: Columns, beyond: Flags, status: NDArray[np.object_]) -> Flags:
    censored: Flags = beyond | np.isin(status, ["exhausted", "stopped"])
    if "censored" in columns.of:
        censored |= read_flags(sheet, columns.of["censored"])
    if "reached" in columns.of:
        censored |= ~read_flags(sheet, columns.of["reached"])
    return censored


def _bounds(sheet: Sheet, columns: Columns, fields: RowFields, censored: Flags) -> tuple[Floats, Floats]:
    """Bounds of the steps: as the source gives them, else the steps; infinity above where censored."""
    steps = fields.rows["steps"].to_numpy()
    low, high = (
        np.where(np.isnan(bound) | censored, steps, bound)
        for role in ("low", "high")
        for bound in [fields.numbers[columns.of[role]].values if role in columns.of else steps]
    )
    wrong = np.flatnonzero((low < 0) | (low > steps) | (high < steps))
    if len(wrong):
        row = int(wrong[0])
        what = f"steps {steps[row]:g} are not between low {low[row]:g} and high {high[row]:g}"
        raise UserError(sheet.where(row), what, "low and high are bounds of the steps")
    return low, np.where(censored, np.inf, high)


def _repeated(sheet: Sheet, rows: pd.DataFrame) -> list[str]:
    """A note when one seed has several rows at the same batch size, rate and target."""
    seeded = rows[rows["seed"] != ""]
    again = seeded[seeded.duplicated(["group", "batch_size", "lr", "target", "run", "seed"])]
    if not len(again):
        return []
    where = sheet.where(int(again.index[0]))
    return [f"{len(again)} rows repeat a seed at the same batch size, rate and target (first: {where})"]
