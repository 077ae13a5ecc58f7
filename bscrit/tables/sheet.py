"""A sheet: a table as its source holds it, with the place of each row for messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bscrit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

EMPTY = "export the table again: a line of column names, then one line for each row"


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

    def first(self, rows: NDArray[np.bool_]) -> str:
        """The file and line of the first of some rows."""
        return self.where(int(np.flatnonzero(rows)[0]))

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


def column_names(name: str, header: Sequence[object]) -> list[str]:
    """The columns' names as text without padding; UserError for a name that stands twice."""
    names = [str(column).strip() for column in header]
    twice = [column for column, count in Counter(names).items() if count > 1 and column]
    if twice:
        raise UserError(
            name, f"has {Counter(names)[twice[0]]} columns named {twice[0]!r}", "rename or remove one of them"
        )
    return [column or f"unnamed {index + 1}" for index, column in enumerate(names)]


def first_line(error: BaseException) -> str:
    """The words of an error, for the middle of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
