"""A table of crossings -> crossings: one row for each run and target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Crossing, CrossingTable, Setting
from bscrit.curve import Floats
from bscrit.errors import UserError
from bscrit.tables.columns import Columns
from bscrit.tables.numerals import Flags, parse_number, read_flags
from bscrit.tables.row_fields import RowFields, labels, read_fields
from bscrit.tables.sheet import Sheet
from bscrit.words import counted

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


def crossings_of_rows(sheet: Sheet, columns: Columns, targets: Sequence[float] | None) -> CrossingTable:
    """Each row as a crossing; rows that failed, still run, or count no steps are left out with a note.

    Raises:
        UserError: what row_fields.py refuses, a status or truth value that isn't known, a target that no row has.
    """
    columns, target, notes = _target(sheet, columns)
    numeric = [columns.of[role] for role in ("low", "high", "target") if role in columns.of]
    fields = read_fields(
        sheet, columns, [c for c in numeric if target is None or c != columns.of.get("target")]
    )
    if target is None:
        target = fields.numbers[columns.of["target"]].values
    status = read_status(sheet, columns)
    diverged = status == "diverged"
    unusable = np.isin(status, ["failed", "running"])
    unknown = status == "unknown"
    uncounted = ~np.isfinite(fields.steps) & ~diverged & ~unusable & ~unknown
    endless = np.isinf(target)
    keep = ~(diverged | unusable | unknown | uncounted | endless)
    notes = [
        *notes,
        *fields.notes,
        *left_out(sheet, unusable, "failed or still running"),
        *unknown_states(sheet, columns, status),
        *left_out(sheet, uncounted, "no count of steps"),
        *left_out(sheet, endless, "an infinite target"),
    ]
    if targets is not None:
        target = _select(sheet, columns, target, targets)
        keep &= ~np.isnan(target)
    check_rates(sheet, columns, np.where(keep | diverged, fields.lr, np.nan))
    censored = _censored(sheet, columns, fields, status)
    low, high = _bounds(sheet, columns, fields, censored)
    kept = np.flatnonzero(keep)
    notes += _repeated(sheet, fields, target, kept)
    return CrossingTable(
        tuple(
            Crossing(size, steps, goal, ended, least, most, lr, seed, fields.groups[group], role, where)
            for size, steps, goal, ended, least, most, lr, seed, group, role, where in zip(
                fields.batch_size[kept].tolist(),
                fields.steps[kept].tolist(),
                maybe(target[kept]),
                censored[kept].tolist(),
                low[kept].tolist(),
                high[kept].tolist(),
                maybe(fields.lr[kept]),
                fields.seed[kept].tolist(),
                fields.group[kept].tolist(),
                fields.role[kept].tolist(),
                sheet.places(kept) if len(kept) else [],
                strict=True,
            )
        ),
        settings(fields, diverged & ~np.isnan(fields.batch_size)),
        tuple(notes),
        unit=fields.unit,
    )


def read_status(sheet: Sheet, columns: Columns) -> NDArray[np.object_]:
    """One of the statuses of a trial per row, "" where the source does not say, "unknown" for another word."""
    words = labels(sheet, columns.of.get("status"))
    meaning = {word: status for status, known in STATUS.items() for word in known.split()} | {"": ""}
    normalised = {word: re.sub(r"[\s_-]+", "_", str(word).strip().lower()) for word in set(words)}
    tidied = {word: re.sub(r"^trialstate\.|_by_\w+$|\+$", "", name) for word, name in normalised.items()}
    return np.array([meaning.get(tidied[word], "unknown") for word in words], dtype=object)


def unknown_states(sheet: Sheet, columns: Columns, status: NDArray[np.object_]) -> list[str]:
    """A note on rows that are left out because nobody knows what their status means."""
    rows = status == "unknown"
    if not rows.any():
        return []
    name = columns.of["status"]
    found = ", ".join(map(repr, list(dict.fromkeys(labels(sheet, name)[rows]))[:4]))
    return left_out(sheet, rows, f"{name} is {found}, not one of {', '.join(STATUS)}")


def settings(fields: RowFields, rows: Flags) -> tuple[Setting, ...]:
    """The distinct (batch size, learning rate, group) of some rows."""
    chosen = zip(
        fields.batch_size[rows].tolist(), maybe(fields.lr[rows]), fields.group[rows].tolist(), strict=True
    )
    return tuple((batch_size, lr, fields.groups[group]) for batch_size, lr, group in dict.fromkeys(chosen))


def maybe(values: Floats) -> list[float | None]:
    """Numbers with None for NaN."""
    return [None if value != value else value for value in values.tolist()]


def left_out(sheet: Sheet, rows: Flags, why: str) -> list[str]:
    """A note on rows that were left out, with the first few places."""
    count = int(rows.sum())
    if not count:
        return []
    places = [place.removeprefix(f"{sheet.name}, ") for place in sheet.places(np.flatnonzero(rows)[:3])]
    more = " and others" if count > 3 else ""
    return [f"left out {counted(count, 'row')}: {why} ({', '.join(places)}{more})"]


def check_rates(sheet: Sheet, columns: Columns, lr: Floats) -> None:
    """Raise UserError for a learning rate that is not positive."""
    wrong = np.flatnonzero((lr <= 0) | np.isinf(lr))
    if len(wrong):
        what = f"{columns.of['lr']} is {lr[wrong[0]]:g}"
        raise UserError(sheet.where(int(wrong[0])), what, "a learning rate must be positive")


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
        where = sheet.where(int(np.flatnonzero(words == word)[0]))
        raise UserError(where, f"{name} is {word!r}", "write a number")
    of = {role: column for role, column in columns.of.items() if role != "target"}
    note = f"{name} holds no numbers, so that each of its values has a fit of its own"
    return replace(columns, of=of, by=(*columns.by, name)), np.full(len(words), np.nan), [note]


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
            present = ", ".join(f"{known:g}" for known in np.unique(target[~np.isnan(target)])[:12])
            what = f"no row of {sheet.name} has the target {value:g}"
            raise UserError("--targets", what, f"there are rows with {present}")
        selected[same] = value
    return selected


def _censored(sheet: Sheet, columns: Columns, fields: RowFields, status: NDArray[np.object_]) -> Flags:
    censored: Flags = fields.beyond | np.isin(status, ["exhausted", "stopped"])
    if "censored" in columns.of:
        censored |= read_flags(sheet, columns.of["censored"])
    if "reached" in columns.of:
        censored |= ~read_flags(sheet, columns.of["reached"])
    return censored


def _bounds(sheet: Sheet, columns: Columns, fields: RowFields, censored: Flags) -> tuple[Floats, Floats]:
    """Bounds of the steps: as the source gives them, else the steps; infinity above where censored."""
    low, high = (
        np.where(np.isnan(bound) | censored, fields.steps, bound)
        for role in ("low", "high")
        for bound in [fields.numbers[columns.of[role]].values if role in columns.of else fields.steps]
    )
    wrong = np.flatnonzero((low < 0) | (low > fields.steps) | (high < fields.steps))
    if len(wrong):
        row = int(wrong[0])
        what = f"steps {fields.steps[row]:g} are not between low {low[row]:g} and high {high[row]:g}"
        raise UserError(sheet.where(row), what, "low and high are bounds of the steps")
    return low, np.where(censored, np.inf, high)


def _repeated(sheet: Sheet, fields: RowFields, target: Floats, kept: NDArray[np.intp]) -> list[str]:
    """A note when one seed has several rows at the same batch size, rate and target."""
    import pandas as pd

    if not (fields.seed[kept] != "").any():
        return []
    parts = (fields.group, fields.batch_size, fields.lr, target, fields.run, fields.seed)
    frame = pd.DataFrame({index: values[kept] for index, values in enumerate(parts)})
    again = np.zeros(len(target), bool)
    again[kept[frame.duplicated().to_numpy() & (fields.seed[kept] != "")]] = True
    if not again.any():
        return []
    where = sheet.where(int(np.flatnonzero(again)[0]))
    return [f"{again.sum()} rows repeat a seed at the same batch size, rate and target (first: {where})"]
