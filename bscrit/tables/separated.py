"""Separated cells -> a sheet, whatever the separator, quoting, comments and blank lines.

A pass over the lines finds the separator, numbers the rows for messages, and refuses rows with too many cells or
too few, which a parser would shift or pad in silence. pandas then types the columns of the rows, written anew.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from bscrit.errors import UserError
from bscrit.tables.sheet import EMPTY, Sheet, column_names, first_line

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
SAMPLE = 50
SED = r"sed -nE 's/.*step[: ]+([0-9]+).*loss[: ]+([0-9.]+).*/\1,\2/p'"


def read_cells(name: str, text: str) -> Sheet:
    """Read the text of a table; columns whose cells are all plain numbers are typed, others are text.

    An empty cell is NaN, while "nan" stays text: a loss that was not logged is not a loss that diverged.
    """

    markdown = _without_markdown(text)
    lines, sample = _Lines(markdown or text), list(islice(_Lines(markdown or text), SAMPLE))
    declared = re.fullmatch(r"sep=([,;|\t])\s*", sample[0] if sample else "", re.IGNORECASE)
    if declared:
        sample.remove(next(lines))
    separator = declared[1] if declared else _separator(sample)
    notes = [] if separator in ", " else [f"cells are separated by {SEPARATORS[separator]}"]
    notes = ["read as a Markdown table"] if markdown else notes
    rows = _rows(name, lines, separator)
    sampled = list(_rows(name, iter(sample), separator))
    if titles := _titles(sampled):
        notes.append(f"left out {titles} lines of title above the header")
    header, start = next(islice(rows, titles, None), []), lines.number
    if header and all(map(_is_number, header)):
        commented = next(_rows(name, iter([lines.comment]), separator), [])
        if len(commented) != len(header):
            what = f"has no column names, it begins with {', '.join(header)[:60]}"
            raise UserError(f"{name}, line {start}", what, "begin with a line like batch_size,steps,lr")
        header, start, rows = commented, lines.commented, chain([header], rows)
    named = sum(bool(cell.strip()) for cell in header)
    whole = [named <= len(cells) <= len(header) for cells in sampled[titles:]]
    if len(whole) > 2 and sum(whole) <= len(whole) / 2:
        what = "is neither a table nor a log whose lines hold a step and a loss"
        raise UserError(name, what, f"make a table step,loss of it, as with {SED} LOG")
    columns = column_names(f"{name}, line {start}", header)
    body, numbers, more = _body(name, lines, rows, columns)
    if not numbers:
        raise UserError(name, "holds no rows", EMPTY)
    frame = parse(body, columns, numbers)
    filled = frame.notna().any(axis=1)

    def spelled(names: Sequence[str]) -> pd.DataFrame:
        return parse(body, columns, numbers, typed=False)[list(names)][filled]

    return Sheet(name, frame[filled], (*notes, *more), separator=separator, blanks=True, spelled=spelled)


def _body(
    name: str, lines: _Lines, rows: Iterator[list[str]], columns: list[str]
) -> tuple[str, list[int], list[str]]:
    """The rows below the header as plain CSV, the line number of each, and notes on what was left out."""
    body, numbers, repeated, notes = io.StringIO(), list[int](), list[str](), list[str]()
    write = csv.writer(body).writerow
    width = len(columns)
    named = max((i for i, column in enumerate(columns, 1) if not column.startswith("unnamed ")), default=0)
    header_words = {column for column in columns if not _is_number(column)}
    before, cells = lines.number, list[str]()
    for cells in rows:
        again = None if header_words.isdisjoint(cells) else _repeats(cells, columns, header_words)
        if again is False:
            what = f"begins another table, with the columns {', '.join(cells)[:60]}"
            raise UserError(f"{name}, line {lines.number}", what, "put each table in a file of its own")
        if again:
            repeated.append(str(lines.number))
        elif len(cells) < named and not lines.ended and next(rows, None) is None:
            notes.append(f"left out line {lines.number}, which is torn")
            break
        elif len(cells) < named or any(cell.strip() for cell in cells[width:]):
            raise _uneven(f"{name}, line {before + 1}", cells, width)
        else:
            write((cells + [""] * width)[:width])
            numbers.append(lines.number)
        before = lines.number
    if _spans(cells) and lines.text.count('"') % 2:
        raise _uneven(f"{name}, line {before}", cells, width)
    if repeated:
        more = " and others" * (len(repeated) > 3)
        notes.insert(0, f"left out lines that repeat the header ({', '.join(repeated[:3])}{more})")
    return body.getvalue(), numbers, notes


def parse(body: str, columns: list[str], numbers: list[int], typed: bool = True) -> pd.DataFrame:
    """The rows as a frame, indexed by their line numbers."""
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.StringIO(body),
            names=columns,
            index_col=False,
            dtype=None if typed else str,
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
        )
    except (ValueError, OverflowError):  # of a number that no type holds
        return parse(body, columns, numbers, typed=False)
    return frame.set_axis(pd.Index(numbers, dtype="int64"))


def _repeats(cells: Sequence[str], columns: Sequence[str], words: set[str]) -> bool | None:
    """Whether a row is the header again; False where it is another header, None where it holds values."""
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if names == [column for column in columns if not column.startswith("unnamed ")]:
        return True
    shared = len(words.intersection(names))
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
        ended: whether the last line of the text is whole.
        number: of the last line.
        comment, commented: the last comment and its line number.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.ended = text.endswith(("\n", "\r"))
        self.stream = io.StringIO(text, newline="")
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
