"""A log of printed lines -> a sheet: steps and metrics as training scripts print them.

Read are pairs of a name and a number, in lines that hold a step (or else an epoch) and a metric, and MLPerf's lines
`:::MLLOG {...}`. Lines of one step are one row.

>>> pairs("step 50: train loss 4.91, val loss 4.95"), pairs("s:50 tel:4.95")
({'step': '50', 'train loss': '4.91', 'val loss': '4.95'}, {'step': '50', 'val_loss': '4.95'})
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from bscrit.errors import UserError
from bscrit.tables.names import ALIASES, also_says, may_be_metric, tidy, words
from bscrit.tables.separated import parse
from bscrit.tables.sheet import Sheet
from bscrit.words import counted

HEAD = 2_000_000  # characters, among which a log shows its points: some print their whole source first
LONGEST = 10_000  # characters at the end of a line that are read
MLPERF = ":::MLLOG"
AXES = words("step steps iter iteration iterations update updates epoch")
NO_AXIS = words("per time of total max num number remaining")
SHORT = {
    "s": "step",
    "it": "step",
    "tel": "val_loss",
    "trl": "train_loss",
    "val": "val_loss",
    "train": "train_loss",
}
_JSON = re.compile(r'\s*(?:\{\s*"|\[\s*[\[{"])')
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AXIS = re.compile(
    rf"\b(?:{'|'.join(sorted(AXES))}|s|it)\b|{MLPERF}|^\d+ (?:val|train) ", re.IGNORECASE | re.MULTILINE
)
_PAIR = re.compile(
    r"([A-Za-z][\w ./()-]{0,60}?)['\"]?\s*[:= ]\s*['\"]?([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))(?![\w.])",
    re.IGNORECASE,
)
Cells = dict[str, str]


def is_log(text: str) -> bool:
    """Whether several lines hold a point of a curve, in a text that is no JSON."""
    if _JSON.match(text):
        return False
    points = (cells for _, cells in _lines(text[:HEAD]) if {"step", "epoch", "samples_count"} & set(cells))
    return len(list(islice(points, 2))) == 2


def read_log(name: str, text: str) -> Sheet:
    """Read a log of one run.

    Raises:
        UserError: steps begin again in each epoch.
    """
    settings, by_axis, numbers, notes = Cells(), dict[str, dict[str, Cells]](), dict[str, int](), list[str]()
    whole = text[: text.rfind("\n") + 1] or text  # a number that is cut is another number
    for number, cells in _lines(whole):
        axis = next((axis for axis in ("step", "samples_count", "epoch") if axis in cells), None)
        if axis is None:
            settings |= cells
            continue
        rows = by_axis.setdefault(axis, {})
        at = cells[axis]
        if rows and float(at) < float(last := next(reversed(rows))):
            if axis == "step" and float(cells.get("epoch", 0)) > float(rows[last].get("epoch", 0)):
                what = f"steps begin again in each epoch: {at} comes after {last}"
                raise UserError(f"{name}, line {number}", what, "log steps that go on through the epochs")
            notes.append(
                f"begins again at {axis} {at} in line {number}: what it held from there on is left out"
            )
            rows = by_axis[axis] = {key: row for key, row in rows.items() if float(key) < float(at)}
        numbers[at] = number
        rows[at] = rows.get(at, {}) | cells
    unit, rows = max(by_axis.items(), key=lambda item: (item[0] == "step", len(item[1])))
    columns = list(dict.fromkeys([*settings, *(column for cells in rows.values() for column in cells)]))
    body = io.StringIO()
    writer = csv.DictWriter(body, columns)
    writer.writerows({**settings, **cells} for cells in rows.values())
    frame = parse(body.getvalue(), columns, [numbers[at] for at in rows])
    return Sheet(name, frame, (f"read as a log: {counted(len(rows), unit)}", *notes), blanks=True)


def pairs(line: str) -> Cells:
    """The numbers of a line by their names; one that ends in a word for steps is the step."""
    cells = Cells()
    line = re.sub(r"^(\d+) (?=(?:val|train) )", r"step \1 ", line)
    held_out = "validation " if "validation" in line else ""
    for name, number in _PAIR.findall(line):
        name = name.strip()
        *others, last = tidy(name).split("_")
        if (last in AXES and not NO_AXIS & set(others)) or SHORT.get(name) == "step":
            cells.setdefault("epoch" if last == "epoch" else "step", number)
        else:
            name = SHORT.get(name, name)
            cells.setdefault(f"{held_out}{name}" if may_be_metric(name) else name, number)
    return cells


def _lines(text: str) -> Iterator[tuple[int, Cells]]:
    """Line number and cells of each line that holds a point of a curve, or a setting of MLPERF's."""
    for number, line in enumerate(io.StringIO(_COLOUR.sub("", text), newline="\n"), 1):
        if not _AXIS.search(line):
            continue
        for part in (part[-LONGEST:] for part in line.split("\r")):
            if MLPERF in part:
                cells = _of_mlperf(part.partition(MLPERF)[2])
            else:
                cells = {name: cell for name, cell in pairs(part).items() if _is_kept(name)}
                cells = cells if any(map(may_be_metric, cells)) and {"step", "epoch"} & set(cells) else {}
            if cells.get("grad_norm") == "nan":  # some trainers then log a loss of zero
                cells = {name: "nan" if may_be_metric(name) else cell for name, cell in cells.items()}
            if cells:
                yield number, cells


def _is_kept(name: str) -> bool:
    return name == "grad_norm" or tidy(name) in ALIASES or also_says(name, "lr") or may_be_metric(name)


def _of_mlperf(text: str) -> Cells:
    """A point of a metric, or a setting of the run."""
    try:
        entry: dict[str, Any] = json.loads(text)
        key, value, metadata = str(entry["key"]), entry["value"], entry.get("metadata") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    if not isinstance(value, int | float) or isinstance(value, bool):
        return {}
    places = {"step_num": "step", "samples_count": "samples_count", "epoch_num": "epoch"}
    at = {places[name]: str(metadata[name]) for name in places if isinstance(metadata.get(name), int | float)}
    if may_be_metric(key) and at:
        return {**at, key: str(value)}
    return {key: str(value)} if tidy(key) in ALIASES or also_says(key, "lr") else {}
