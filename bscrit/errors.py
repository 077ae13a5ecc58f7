"""Errors of a user: where, what, and the remedy.

>>> print(UserError("runs.csv, line 7", "steps is -3", "counts must be positive"))
runs.csv, line 7: steps is -3
  hint: counts must be positive
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake that the user can mend; printed in two lines, never as a traceback."""

    def __init__(self, where: str, what: str, remedy: str = "") -> None:
        super().__init__(where, what, remedy)
        self.where = where
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{line}\n  hint: {self.remedy}" if self.remedy else line)


def printable(text: str) -> str:
    r"""A text whose control characters are written as escapes: somebody else's may move the cursor, or hide a line.

    >>> printable("b\x1b[2J")
    'b\\x1b[2J'
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class UserErrors(UserError):
    """Several mistakes that were found together, reported together."""

    def __init__(self, errors: Iterable[UserError]) -> None:
        self.errors = tuple(errors)
        super().__init__("", f"{len(self.errors)} errors")

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def in_short(error: BaseException) -> str:
    """Type and first line of an error, however many lines it runs over; the whole text belongs in a log.

    >>> in_short(RuntimeError("\\nno room\\n  File kernel.cu"))
    'RuntimeError: no room'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def nearest(word: str, choices: Iterable[str]) -> str:
    """A remedy for an unknown word: the nearest known one first, then all of them.

    >>> nearest("momentom", ["momentum", "nesterov"])
    "did you mean 'momentum'? known: momentum, nesterov"
    """
    names = sorted(choices)
    folded = {name.casefold(): name for name in names}
    close = get_close_matches(word.casefold(), folded, n=1)
    listed = f"known: {', '.join(names)}"
    return f"did you mean '{folded[close[0]]}'? {listed}" if close else listed
