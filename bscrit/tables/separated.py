"""Separated cells -> a sheet, whatever the separator, quoting, comments and blank lines.

A plain pass over the lines finds the separator, numbers the rows for messages, and refuses rows with too
many cells or too few, which a parser would shift or pad in silence. pandas' C parser then types the columns.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from bscrit.errors import UserError
from bscrit.tables.sheet import Sheet, column_names, first_line

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
SAMPLE = 50


def read_cells(name: str, text: str) -> Sheet:
    """Read the text of a table; columns whose cells are all plain numbers are typed, others are text.

    An empty cell is NaN, while "nan" stays text: a loss that was not logged is not a loss that diverged.
    """
    import pandas as pd

    plain = _without_markdown(text)
    data = (plain or text).encode()
    layout = _survey(name, data)
    frame = _parse(name, data, layout)
    frame.index = pd.Index(layout.lines, dtype="int64")
    filled = frame.notna().any(axis=1)

    def spelled(columns: Sequence[str]) -> pd.DataFrame:
        return _parse(name, data, layout, typed=False)[list(columns)].set_axis(frame.index)[filled]

    notes = [] if layout.separator in ", " else [f"cells are separated by {SEPARATORS[layout.separator]}"]
    notes = ["read as a Markdown table"] if plain else notes
    again = ", ".join(map(str, layout.repeated[:3])) + " and others" * (len(layout.repeated) > 3)
    notes += [f"left out lines that repeat the header ({again})"] if layout.repeated else []
    notes += [f"left out {layout.titles} lines of title above the header"] if layout.titles else []
    notes += [f"left out line {layout.torn}, which is torn"] if layout.torn else []
    return Sheet(name, frame[filled], tuple(notes), separator=layout.separator, blanks=True, spelled=spelled)


@dataclass(frozen=True)
class _Layout:
    """Where the table stands in its text.

    Attributes:
        separator: one of SEPARATORS.
        columns: names of the header.
        start: number of lines up to and including the header.
        lines: line number of each row.
        plain: whether every line after the header is a whole row or blank.
        torn: the line of an unfinished last row, 0 where there is none.
        titles: number of lines above the header that hold a title.
        repeated: line numbers at which the header stands again.
    """

    separator: str
    columns: list[str]
    start: int
    lines: list[int]
    plain: bool
    torn: int
    titles: int
    repeated: list[int]


def _survey(name: str, data: bytes) -> _Layout:
    lines = _Lines(data)
    declared = re.fullmatch(r"sep=([,;|\t])\s*", next(lines, ""), re.IGNORECASE)
    if not declared:
        lines = _Lines(data)
    sample = list(islice(_Lines(data), int(bool(declared)), SAMPLE))
    separator = declared[1] if declared else _separator(sample)
    rows = _rows(name, lines, separator)
    titles = _titles(list(_rows(name, iter(sample), separator)))
    for _ in range(titles):
        next(rows)
    header, start, line_numbers = next(rows, []), lines.number, list[int]()
    if header and all(_is_number(cell) for cell in header):
        if len(commented := next(_rows(name, iter([lines.comment]), separator), [])) != len(header):
            what = f"has no column names, it begins with {', '.join(header)[:60]}"
            raise UserError(f"{name}, line {start}", what, "begin with a line like batch_size,steps,lr")
        header, start, line_numbers = commented, lines.commented, [start]
    columns = column_names(f"{name}, line {start}", header)
    named = max((index + 1 for index, cell in enumerate(header) if cell.strip()), default=0)

    comments, padded, torn, before, cells = lines.commented, False, 0, lines.number, header
    known, repeated = {column for column in columns if not _is_number(column)}, list[int]()
    for cells in rows:
        if not known.isdisjoint(cells) and (again := _repeats(cells, columns, known)) is not None:
            if not again:
                what = f"begins another table, with the columns {', '.join(cells)[:60]}"
                raise UserError(f"{name}, line {lines.number}", what, "put each table in a file of its own")
            repeated.append(before := lines.number)
            continue
        if len(cells) != len(columns):
            padded = True
            if len(cells) < named or any(cell.strip() for cell in cells[len(columns) :]):
                if len(cells) < named and not data.endswith((b"\n", b"\r")) and next(rows, None) is None:
                    torn = lines.number
                    break
                raise _uneven(f"{name}, line {before + 1}", cells, len(columns))
        line_numbers.append(lines.number)
        before = lines.number
    if data.count(b'"') % 2 and _spans(cells):
        raise _uneven(f"{name}, line {line_numbers[-1] if line_numbers else start}", cells, len(columns))
    plain = not padded and not torn and comments == lines.commented
    return _Layout(separator, columns, start, line_numbers, plain, torn, titles, repeated)


def _repeats(cells: Sequence[str], columns: Sequence[str], known: set[str]) -> bool | None:
    """Whether a row is the header again; False where it is another header, None where it holds values."""
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if names == [column for column in columns if not column.startswith("unnamed ")]:
        return True
    shared = len(known.intersection(names))
    return False if shared > 1 and not any(map(_is_number, names)) else None


def _without_markdown(text: str) -> str:
    """A Markdown table without outer bars and rule, its text around it blank; "" where the text is none.

    Lines keep their numbers.
    """
    lines = re.split(r"\r\n|\r|\n", text)
    rules = [index for index, line in enumerate(lines[: 2 * SAMPLE]) if "-" in line and _RULE.fullmatch(line)]
    if not rules or rules[0] == 0 or "|" not in lines[rules[0] - 1]:
        return ""
    rows = [line.strip().replace("**", "").replace("`", "") if "|" in line else "" for line in lines]
    for index in range(len(rows)):
        if index < rules[0] - 1 or _RULE.fullmatch(lines[index]):
            rows[index] = ""
    return "\n".join(row.removeprefix("|").removesuffix("|") for row in rows)


_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")


def _uneven(where: str, cells: Sequence[str], columns: int) -> UserError:
    if _spans(cells):
        return UserError(where, "a cell runs on over several lines", "close its quote")
    what = f"has {len(cells)} cells, but there are {columns} columns"
    if len(cells) > columns:
        return UserError(where, what, "put a cell that holds the separator in double quotes")
    return UserError(where, what, "write an empty cell for a value that is missing")


def _spans(cells: Sequence[str]) -> bool:
    return any("\n" in cell.strip() for cell in cells)


class _Lines(Iterator[str]):
    """The lines that may hold cells, neither blank nor a comment.

    Attributes:
        number: of the last line.
        comment, commented: the last comment and its line number.
    """

    def __init__(self, data: bytes) -> None:
        self.stream = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
        self.number = self.commented = 0
        self.comment = ""

    def __next__(self) -> str:
        for line in self.stream:
            self.number += 1
            if line.startswith("#"):
                self.comment, self.commented = line.lstrip("# "), self.number
            elif not line.isspace():
                return line
        raise StopIteration


def _rows(name: str, lines: Iterator[str], separator: str) -> Iterator[list[str]]:
    try:
        if separator == " ":
            yield from map(str.split, lines)
        else:
            yield from csv.reader(lines, delimiter=separator)
    except csv.Error as error:
        raise UserError(name, f"has a cell without end ({first_line(error)})", "close the quotes") from None


def _separator(sample: Sequence[str]) -> str:
    """The separator that cuts most lines into as many cells as the header; spaces come last."""

    def score(separator: str) -> tuple[float, int]:
        rows = list(_rows("", iter(sample), separator))
        rows = rows[_titles(rows) :]
        width = len(rows[0]) if rows else 0
        whole = sum(len(row) == width for row in rows)
        return (whole / len(sample), width * (separator != " ")) if width > 1 else (0.0, 0)

    return max(SEPARATORS, key=score)


def _titles(rows: Sequence[Sequence[str]]) -> int:
    """How many rows stand above the header, with a title in one cell."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    return next((index for index, count in enumerate(filled) if count > 1), 0)


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"\s*[+-]?[\d.,]+(e[+-]?\d+)?\s*", cell, re.IGNORECASE) is not None


def _parse(name: str, data: bytes, layout: _Layout, typed: bool = True) -> pd.DataFrame:
    """The rows as a frame; the C parser where it sees the same rows, else cell by cell."""
    import pandas as pd

    if layout.plain:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(data),
                    sep=r"\s+" if layout.separator == " " else layout.separator,
                    header=None,
                    names=layout.columns,
                    index_col=False,
                    skiprows=[*range(layout.start), *(line - 1 for line in layout.repeated)]
                    if layout.repeated
                    else layout.start,
                    dtype=None if typed else str,
                    keep_default_na=False,
                    na_values=[""],
                    low_memory=False,
                )
        except (ValueError, OverflowError, pd.errors.ParserWarning):  # a ParserError is a ValueError
            frame = pd.DataFrame()
        if len(frame) == len(layout.lines):
            return frame
    lines = _Lines(data)
    while lines.number < layout.start:
        next(lines)
    width = len(layout.columns)
    every = (row for row in _rows(name, lines, layout.separator) if lines.number not in layout.repeated)
    rows = islice(every, len(layout.lines))
    cells = [(row + [""] * width)[:width] for row in rows]
    frame = pd.DataFrame(cells, columns=layout.columns, dtype="str")
    return frame.mask(frame == "")
