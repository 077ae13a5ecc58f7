"""JSON -> a sheet: one object per line, an array of objects, or one object of columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bscrit.errors import UserError
from bscrit.tables.names import ALIASES, tidy
from bscrit.tables.sheet import Sheet, column_names, first_line

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 20_000
WRAPPED = ("log_history", "history", "rows", "data", "trials", "results", "runs", "records")
SETTINGS = ("batch_size", "lr", "seed", "run", "workload", "unit", "target")


def read_objects(name: str, text: str) -> Sheet:
    """Read the text of a JSON file; an object within a record becomes columns like "config.batch_size"."""
    if _one_per_line(text):
        return _read_lines(name, text)
    try:
        whole = _loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(name, error) from None
    if isinstance(whole, dict) and whole and all(isinstance(column, list) for column in whole.values()):
        lengths = {key: len(column) for key, column in whole.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(name, f"has columns of different lengths: {lengths}", "make them equally long")
        whole = [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]
    records, notes = (whole, ()) if isinstance(whole, list) else _unwrapped(whole)
    return Sheet(name, _frame(name, "record", records, range(1, len(records) + 1)), notes, noun="record")


def _unwrapped(whole: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The records that an object wraps, each with the object's settings, and notes; else the object itself.

    Counts and metrics of the object are those of its end and belong to none of the records.
    """
    if not isinstance(whole, dict):
        return [whole], ()
    lists = [key for key, value in whole.items() if _are_records(value)]
    key = next((name for name in WRAPPED if name in lists), lists[0] if len(lists) == 1 else None)
    if key is None:
        return [whole], ()
    settings = {
        name: value
        for name, value in whole.items()
        if not isinstance(value, list)
        and value is not None
        and (isinstance(value, dict) or ALIASES.get(tidy(name)) in SETTINGS)
    }
    notes = [f"the records are read from {key!r}"]
    if key == "log_history" and "train_batch_size" in settings:
        notes.append(
            "'train_batch_size' is taken as the whole batch; the transformers Trainer writes that of one process"
            " without accumulation: multiply if there are several"
        )
    return [{**settings, **record} for record in whole[key]], tuple(notes)


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(record, dict) for record in value)


def _one_per_line(text: str) -> bool:
    """Whether the first line is an object of its own and not the whole file."""
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("{") or not rest.strip():
        return False
    try:
        _loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _read_lines(name: str, text: str) -> Sheet:
    """JSON lines, some thousand at a time: a million objects at once would need gigabytes."""
    import pandas as pd

    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    frames, torn = [], tuple[str, ...]()
    for start in range(0, len(lines), CHUNK):
        records = {}
        for number, line in lines[start : start + CHUNK]:
            try:
                records[number] = _loads(line)
            except (ValueError, RecursionError) as error:
                if number != lines[-1][0]:
                    raise _invalid(f"{name}, line {number}", error) from None
                torn = (f"left out line {number}, which is torn",)
        frames.append(_frame(name, "line", list(records.values()), list(records)))
    return Sheet(name, pd.concat(frames), torn)


def _frame(name: str, noun: str, records: Sequence[Any], numbers: Sequence[int]) -> pd.DataFrame:
    import pandas as pd

    for number, record in zip(numbers, records, strict=True):
        if not isinstance(record, dict):
            what = f"{json.dumps(record)[:40]} is not an object"
            remedy = 'write each row as {"batch_size": 64, "steps": 1200}'
            raise UserError(f"{name}, {noun} {number}", what, remedy)
    nested = any(isinstance(value, dict) for record in records for value in record.values())
    frame = pd.json_normalize(list(records)) if nested else pd.DataFrame.from_records(list(records))
    frame.columns = pd.Index(column_names(name, list(frame.columns)))
    frame.index = pd.Index(list(numbers), dtype="int64")
    return frame


def _loads(text: str) -> Any:
    """JSON whose integers fit into a float: pandas 2 stumbles over larger ones."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 300 else float(digits))


def _invalid(where: str, error: Exception) -> UserError:
    what = f"is not valid JSON ({first_line(error)})"
    return UserError(where, what, "restore the file, or export it again")
