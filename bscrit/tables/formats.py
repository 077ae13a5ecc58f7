"""Any source -> a sheet.

A file is recognised by what it holds, not by its name: separated cells (separated.py), JSON (json_objects.py), a log
of printed lines (printed_logs.py) or Parquet; gzip is undone first. A data frame is taken as it is.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bscrit.errors import UserError
from bscrit.tables.json_objects import read_objects
from bscrit.tables.printed_logs import is_log, read_log
from bscrit.tables.separated import read_cells
from bscrit.tables.sheet import EMPTY, Sheet, column_names, first_line

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 200  # characters of a path that an error shows
_SAMPLE = 1 << 16
_LARGEST = 1 << 31  # bytes that a compressed table may hold
_SIGNATURES = {
    b"PK\x03\x04": ("is a workbook or a zip archive", "save the sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("is a workbook", "save the sheet as CSV"),
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


def open_sheet(source: Path | str | pd.DataFrame) -> Sheet:
    """Read one file, standard input ("-") or a data frame; UserError where it can't be a table."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        sheet = _from_frame("data frame", source)
    else:
        name = "standard input" if str(source) == "-" else str(source)
        data = _read(source)
        if data.startswith(b"PAR1"):
            sheet = _from_parquet(name, data)
        else:
            text, encoding = _decode(name, data)
            read = read_objects if text.lstrip()[:1] in ("{", "[") else read_cells
            sheet = (read_log if is_log(text) else read)(name, text)
            if encoding not in ("utf-8", "utf-8-sig"):
                sheet = replace(sheet, notes=(f"read as {encoding}", *sheet.notes))
    if not len(sheet.frame) or not len(sheet.frame.columns):
        raise UserError(sheet.name, "holds no rows", EMPTY)
    return sheet


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
            if path.exists() and not path.is_file() and not str(path).startswith(("/dev/fd/", "/dev/stdin")):
                raise UserError(str(source), "is no ordinary file", "pipe it in: bscrit fit -")
            data = path.read_bytes()
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise UserError(f"{str(source)[:LONGEST]}", what, "check the path") from None
    if data.startswith(b"\x1f\x8b"):
        data = _decompressed(str(source), data)
    if not data.strip():
        raise UserError(str(source), "is empty", EMPTY)
    for signature, (what, remedy) in _SIGNATURES.items():
        if data.startswith(signature):
            raise UserError(str(source), what, remedy)
    return data


def _decompressed(name: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            whole = stream.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(name, f"is a damaged gzip file ({first_line(error)})", "compress it again") from None
    if len(whole) > _LARGEST:
        raise UserError(name, "holds more than 2 GiB when decompressed", "split the table")
    return whole


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
    control = sum(character < " " and character not in "\t\n\r\f\b\x1b" for character in sample)
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
