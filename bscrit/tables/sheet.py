"""Any source -> a sheet: a frame whose index says where each row stood.

A file is recognised by what it holds, not by its name: CSV of any dialect (dialect.py), JSON (objects.py) or
Parquet. A data frame is taken as it is.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bscrit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sheet:
    """A table as it was found.

    Attributes:
        name: the source as the user named it.
        frame: columns named as in the source; the index holds the line of the source, or (file, line).
        notes: how the source was understood, where that was not obvious.
        noun: what the index counts: line, row or record.
        separator: of the cells, "" where the format has none.
        blanks: whether an empty cell can be told from NaN; then NaN is an empty cell, and "nan" is text.
        spelled: gives the named columns as text, with the digits that a typed column has lost.
    """

    name: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    noun: str = "line"
    separator: str = ""
    blanks: bool = False
    spelled: Callable[[Sequence[str]], pd.DataFrame] | None = None

    def where(self, position: int) -> str:
        """The file and line of the row at a position of the frame."""
        return self.places([position])[0]

    def places(self, positions: Sequence[int] | NDArray[np.intp]) -> list[str]:
        """The file and line of the rows at some positions."""
        labels = self.frame.index[positions].tolist()
        if isinstance(self.frame.index[0], tuple):
            return [f"{name}, {self.noun} {number}" for name, number in labels]
        return [f"{self.name}, {self.noun} {number}" for number in labels]

    def reshaped(self, frame: pd.DataFrame, *notes: str) -> Sheet:
        """The same source in another shape; the text of its cells is no longer at hand."""
        return replace(self, frame=frame, notes=self.notes + notes, spelled=None)

    def only(self, rows: NDArray[np.bool_]) -> Sheet:
        """The same sheet with some of its rows."""
        spelled = self.spelled
        return replace(
            self,
            frame=self.frame[rows],
            spelled=None if spelled is None else lambda columns: spelled(columns)[rows],
        )


def open_sheet(source: Path | str | pd.DataFrame) -> Sheet:
    """Read one file, standard input ("-") or a data frame; UserError where it can't be a table."""
    import pandas as pd

    from bscrit.tables.dialect import read_cells
    from bscrit.tables.json_objects import read_objects

    if isinstance(source, pd.DataFrame):
        sheet = _from_frame("data frame", source)
    else:
        name = "standard input" if str(source) == "-" else str(source)
        data = _read(source)
        if data.startswith(b"PAR1"):
            sheet = _from_parquet(name, data)
        else:
            text, encoding = _decode(name, data)
            sheet = (read_objects if text.lstrip()[:1] in ("{", "[") else read_cells)(name, text)
            if encoding not in ("utf-8", "utf-8-sig"):
                sheet = replace(sheet, notes=(f"read as {encoding}", *sheet.notes))
    if not len(sheet.frame) or not len(sheet.frame.columns):
        raise UserError(sheet.name, "holds no rows", EMPTY)
    return sheet


def join(sheets: Sequence[Sheet]) -> Sheet:
    """Several files as one sheet, indexed by (file, line)."""
    import pandas as pd

    if len(sheets) == 1:
        return sheets[0]
    names = [sheet.name for sheet in sheets]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(twice[0], "is named twice", "name each file once")
    frame = pd.concat([sheet.frame for sheet in sheets], keys=names)
    notes = tuple(dict.fromkeys(note for sheet in sheets for note in sheet.notes))
    blanks = all(sheet.blanks for sheet in sheets)
    separator = sheets[0].separator if len({sheet.separator for sheet in sheets}) == 1 else ""
    return Sheet(", ".join(names), frame, notes, sheets[0].noun, separator, blanks)


def column_names(name: str, found: Sequence[object]) -> list[str]:
    """The columns' names as text without padding; UserError for a name that stands twice."""
    names = [str(column).strip() for column in found]
    twice = [column for column, count in Counter(names).items() if count > 1 and column]
    if twice:
        raise UserError(
            name, f"has {Counter(names)[twice[0]]} columns named {twice[0]!r}", "rename or remove one of them"
        )
    return [column or f"unnamed {index + 1}" for index, column in enumerate(names)]


def first_line(error: BaseException) -> str:
    """What an error says, for the middle of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


EMPTY = "export the table again: a line of column names, then one line for each row"
LONGEST = 200  # characters of a path that an error shows
_SAMPLE = 1 << 16
_SIGNATURES = {
    b"PK\x03\x04": ("is a workbook or a zip archive", "save the sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("is a workbook", "save the sheet as CSV"),
    b"\x1f\x8b": ("is compressed", "decompress it first, with gunzip"),
    b"SQLite format 3": ("is a database", "export the table as CSV"),
}
_PICKLE = "loading a pickle can run code, so none is loaded: save the table as CSV or Parquet"
_UNREAD = {
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".pt": _PICKLE,
    ".yaml": "write the table as CSV or JSON lines",
    ".yml": "write the table as CSV or JSON lines",
}


def _read(source: Path | str) -> bytes:
    if str(source) == "-":
        if sys.stdin is None:
            raise UserError("standard input", "is closed", "pipe a table into it, or name a file")
        data = sys.stdin.buffer.read()
    else:
        path = Path(source)
        if path.suffix.lower() in _UNREAD:
            raise UserError(str(source), f"{path.suffix} files are not read", _UNREAD[path.suffix.lower()])
        try:
            if path.is_dir():
                what = "is a folder, but not a results folder (it has no trials/)"
                raise UserError(str(source), what, "name the tables in it: runs/*.csv")
            data = path.read_bytes()
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise UserError(f"{str(source)[:LONGEST]}", what, "check the path") from None
    if not data.strip():
        raise UserError(str(source), "is empty", EMPTY)
    for signature, (what, remedy) in _SIGNATURES.items():
        if data.startswith(signature):
            raise UserError(str(source), what, remedy)
    return data


def _decode(name: str, data: bytes) -> tuple[str, str]:
    """The text without byte-order mark, and the name of its encoding."""
    encoding = "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif data.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    elif b"\0" in data[:_SAMPLE]:
        even, odd = data[:_SAMPLE:2].count(0), data[1:_SAMPLE:2].count(0)
        encoding = "utf-16-le" if odd > even else "utf-16-be"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"
        text = data.decode(encoding)
    sample = text[:_SAMPLE]
    control = sum(character < " " and character not in "\t\n\r\f" for character in sample)
    if "\0" in text or control > len(sample) / 100:
        raise UserError(name, "is a binary file", "give a table as CSV, TSV, JSON lines or Parquet")
    return text, encoding


def _from_frame(name: str, source: pd.DataFrame) -> Sheet:
    import pandas as pd

    named = any(level is not None for level in source.index.names)
    frame = source.reset_index(allow_duplicates=True) if named else source.copy(deep=False)
    joined = [
        "_".join(str(part) for part in column if str(part)) if isinstance(column, tuple) else column
        for column in frame.columns
    ]
    frame.columns = pd.Index(column_names(name, joined))
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return Sheet(name, frame, noun="row")


def _from_parquet(name: str, data: bytes) -> Sheet:
    import pandas as pd

    try:
        frame = pd.read_parquet(io.BytesIO(data), engine="pyarrow")
    except ImportError:
        raise UserError(name, "Parquet needs pyarrow", "pip install 'bscrit[parquet]'") from None
    except Exception as error:  # damaged bytes surface as whatever C++ met first, in no common class
        raise UserError(name, f"is a damaged Parquet file ({first_line(error)})", "export it again") from None
    return _from_frame(name, frame)
