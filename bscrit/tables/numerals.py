"""Cells -> numbers and truth values, in whatever way people and spreadsheets write them.

1000, 1e3, 1,000, 1 000, 1'000 and, where the file has decimal commas, 1.000 and 0,003. What a comma means is
settled once for the whole file, by the cells that can be read in one way only. A file that has both
meanings is refused, and so is one whose only hint is a cell like 1,234 in a column where both make sense.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bscrit.curve import Floats
from bscrit.errors import UserError
from bscrit.tables.sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd

Decimal = Literal[".", ","]
Flags = NDArray[np.bool_]
EVIDENCE = 10_000
MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "null", "none", "-", "--", "–", "—", "?"})
TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0", "x", "on", "✓"})
FALSE = frozenset({"false", "f", "no", "n", "0", "0.0", "off", "nan"}) | MISSING


@dataclass(frozen=True)
class Numbers:
    """A column of numbers.

    Attributes:
        values: (n,) NaN where the cell is empty, or is NaN itself.
        empty: (n,) whether the cell is known to be empty.
        beyond: (n,) whether the cell says "> 5000".
    """

    values: Floats
    empty: Flags
    beyond: Flags


def parse_number(text: str, decimal: Decimal = ".") -> float | None:
    """The number that a cell holds, None where it holds something else.

    >>> parse_number("1,000"), parse_number("0,003", ","), parse_number("1 000 000"), parse_number("fast")
    (1000.0, 0.003, 1000000.0, None)
    """
    text = _GAP.sub("", text.strip().removesuffix("%").rstrip().replace("−", "-"))
    if decimal == ",":
        text = text.translate(_SWAP)
    if _PLAIN.fullmatch(text):
        return float(text)
    if _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    return _WORDS.get(text.lower())


def read_numbers(sheet: Sheet, columns: Mapping[str, bool]) -> tuple[dict[str, Numbers], tuple[str, ...]]:
    """Columns of a sheet as numbers, and notes on how they were understood.

    Args:
        columns: name -> whether the column holds counts, in which 1,000 means a thousand.

    Raises:
        UserError: a cell that is no number, decimal commas and decimal points in one file, or a comma that
            may be either.
    """
    kinds = {column: sheet.frame[column].dtype.kind for column in columns}
    texts = {column: sheet.frame[column] for column, kind in kinds.items() if kind not in "iuf"}
    lost = [column for column, kind in kinds.items() if kind == "f" and sheet.frame[column].notna().any()]
    doubtful = any(series.astype(str).str.contains(",", regex=False).any() for series in texts.values())
    decimal: Decimal = "."
    if doubtful or (sheet.separator == ";" and any(columns[column] for column in lost)):
        frame = sheet.spelled(lost) if sheet.spelled and lost else None
        spelled = {} if frame is None else {column: frame[column] for column in lost}
        decimal = _decimal(sheet, texts | spelled, columns)
        texts |= spelled if decimal == "," else {}
    numbers = {
        column: _from_text(sheet, column, texts[column], decimal)
        if column in texts
        else _from_numbers(sheet, sheet.frame[column])
        for column in columns
    }
    return numbers, ("numbers have decimal commas",) if decimal == "," else ()


def read_flags(sheet: Sheet, column: str) -> Flags:
    """A column of truth values: true, yes, 1, x and their opposites; an empty cell is false."""
    codes, words = distinct(sheet.frame[column])
    for code, word in enumerate(words):
        if word.strip().lower() not in TRUE | FALSE:
            raise UserError(sheet.first(codes == code), f"{column} is {word!r}", "write true or false")
    return np.array([*(word.strip().lower() in TRUE for word in words), False])[codes]


def distinct(series: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Codes and the distinct cells as text; the code of an empty cell is -1."""
    try:
        codes, uniques = series.factorize()
    except TypeError:  # lists and objects of JSON
        codes, uniques = series.map(str, na_action="ignore").factorize()
    return codes, [_text(value) for value in uniques.tolist()]


def _text(value: object) -> str:
    """A cell as text, a whole number without its decimal point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_GAP = re.compile(r"(?<=\d)[\s'’_](?=\d{3}(?!\d))")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_BEYOND = re.compile(r"^\s*(?:>=|=>|>|≥|⩾)\s*")
_SWAP = str.maketrans(".,", ",.")
_WORDS = {sign + word: float(f"{sign}inf") for word in ("inf", "infinity", "∞") for sign in ("", "+", "-")}
_WORDS["nan"] = float("nan")


def _decimal(sheet: Sheet, texts: Mapping[str, pd.Series[Any]], columns: Mapping[str, bool]) -> Decimal:
    """The decimal sign of the file."""
    sure: dict[Decimal, tuple[str, str]] = {}
    either: dict[tuple[str, bool], tuple[str, str]] = {}
    for column, series in texts.items():
        for word in distinct(series)[1][:EVIDENCE]:
            point, comma = parse_number(word, "."), parse_number(word, ",")
            if point is not None and comma is None:
                sure.setdefault(".", (column, word))
            elif comma is not None and point is None:
                sure.setdefault(",", (column, word))
            elif point != comma and point == point:
                either.setdefault(("," if "," in word else ".", columns[column]), (column, word))
    if "." in sure and "," in sure:
        raise _mixed(sheet, texts, sure["."], sure[","])
    if "," in sure:
        if (",", True) in either:
            raise _mixed(sheet, texts, either[",", True], sure[","])
        return ","
    if "." in sure or (",", False) not in either:
        if "." not in sure and sheet.separator == ";" and (".", True) in either:
            raise _ambiguous(sheet, texts, either[".", True])
        return "."
    if (",", True) in either or sheet.separator != ";":
        raise _ambiguous(sheet, texts, either[",", False])
    return ","


def _from_numbers(sheet: Sheet, series: pd.Series[Any]) -> Numbers:
    values = series.to_numpy(float, na_value=np.nan)
    nothing = np.zeros(len(values), bool)
    return Numbers(values, np.isnan(values) if sheet.blanks else nothing, nothing)


def _from_text(sheet: Sheet, column: str, series: pd.Series[Any], decimal: Decimal) -> Numbers:
    codes, words = distinct(series)
    beyond = [_BEYOND.match(word) is not None for word in words]
    empty = [word.strip().lower() in MISSING for word in words]
    values = np.full(len(words) + 1, np.nan)
    for code, word in enumerate(words):
        value = parse_number(_BEYOND.sub("", word), decimal)
        if value is not None:
            values[code] = value
        elif not empty[code]:
            if parse_number(word, "," if decimal == "." else ".") is not None:
                raise _mixed(sheet, {column: series}, (column, word))
            where = sheet.first(codes == code)
            raise UserError(where, f"{column} is {word[:40]!r}", "write a number, or leave the cell empty")
    return Numbers(values[codes], np.array([*empty, True])[codes], np.array([*beyond, False])[codes])


def _mixed(sheet: Sheet, texts: Mapping[str, pd.Series[Any]], *cells: tuple[str, str]) -> UserError:
    shown = " and ".join(f"{column} {word!r}" for column, word in cells)
    what = f"{shown} has another decimal sign than the rest of the file"
    if len(cells) > 1:
        what = f"has decimal points and decimal commas: {shown}"
    return UserError(_place(sheet, texts, cells[-1]), what, "write all numbers with a decimal point")


def _ambiguous(sheet: Sheet, texts: Mapping[str, pd.Series[Any]], cell: tuple[str, str]) -> UserError:
    what = f"{cell[0]} is {cell[1]!r}, which may be thousands or decimals"
    remedy = "write it with a decimal point and without thousands separators"
    return UserError(_place(sheet, texts, cell), what, remedy)


def _place(sheet: Sheet, texts: Mapping[str, pd.Series[Any]], cell: tuple[str, str]) -> str:
    codes, words = distinct(texts[cell[0]])
    return sheet.first(codes == words.index(cell[1]))
