"""Texts with expressions in braces, as the arguments of a command: filled with numbers, never read by a shell.

>>> fill("--batch={micro_batch}", {"micro_batch": 64})
'--batch=64'
>>> fill("--lr={lr / 10} --every={max(5, round(80 / sqrt(batch_size)))}", {"lr": 1e-4, "batch_size": 16})
'--lr=1.0e-05 --every=20'

`{{` and `}}` are braces themselves. A whole number is written without a point, any other with one and with a signed
exponent: some trainers take `1` for no learning rate, and readers of YAML take `1e-05` for text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bscrit.errors import UserError
from bscrit.expression import parse

NUMBERS = (
    "batch_size",
    "lr",
    "seed",
    "horizon",
    "warmup",
    "steps",
    "examples",
    "micro_batch",
    "accumulation",
    "ranks",
    "attempt",
    "eval_every",
)
"""Names that expressions may use; `dir`, the trial's own folder, stands alone in its braces."""
DIR = "dir"


def names(text: str) -> frozenset[str]:
    """The numbers, and `dir`, on which a text depends.

    Raises:
        UserError: an expression that cannot be read, a brace without its like; `where` is left empty.
    """
    return frozenset(name for _, inside in _parts(text) if inside for name in _names(inside))


def fill(text: str, values: Mapping[str, float | str]) -> str:
    """The text with every expression in its place.

    Raises:
        UserError: an expression that has no value, or needs one that is not among these; `where` is left empty.
    """
    return "".join(plain + (_written(inside, values) if inside else "") for plain, inside in _parts(text))


def fill_partly(text: str, values: Mapping[str, float]) -> str:
    """The text with those expressions filled that need no other numbers than these; the others stay as they are."""
    filled = []
    for plain, inside in _parts(text):
        literal = plain.replace("{", "{{").replace("}", "}}")
        ready = inside and _names(inside) <= values.keys()
        filled.append(literal + (_written(inside, values) if ready else f"{{{inside}}}" if inside else ""))
    return "".join(filled)


def number(value: float) -> str:
    """A number as any trainer reads it.

    >>> number(64), number(0.001), number(1e-5), number(1.0), number(3e20)
    ('64', '0.001', '1.0e-05', '1.0', '3.0e+20')
    """
    if isinstance(value, int):
        return str(value)
    digits, exponent, power = repr(float(value)).partition("e")
    digits = digits if "." in digits else f"{digits}.0"
    return f"{digits}e{int(power):+03d}" if exponent else digits


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Plain text, its double braces made single, each with the expression that follows it; "" after the last."""
    plain, place = "", 0
    for match in _BRACE.finditer(text):
        plain += text[place : match.start()]
        place = match.end()
        if match[0] in ("{{", "}}"):
            plain += match[0][0]
        elif match[1] is None or not match[1].strip():
            what = f"holds a {match[0][0]} without its like" if match[1] is None else "holds empty braces"
            raise UserError("", what, "double a brace that is meant as itself: {{ or }}")
        else:
            yield plain, match[1].strip()
            plain = ""
    yield plain + text[place:], ""


def _names(inside: str) -> frozenset[str]:
    if inside == DIR:
        return frozenset({DIR})
    try:
        return parse(inside, NUMBERS).names
    except UserError as error:
        remedy = f"{error.remedy}; braces that are meant as themselves are doubled: {{{{ }}}}"
        raise UserError("", f"{{{inside}}}: {error.what}", remedy) from None


def _written(inside: str, values: Mapping[str, float | str]) -> str:
    if lacking := sorted(_names(inside) - values.keys()):
        raise UserError(
            "", f"{{{inside}}} needs {lacking[0]}, which is not known here", f"leave {lacking[0]} out"
        )
    if inside == DIR:
        return str(values[DIR])
    numbers = {name: value for name, value in values.items() if not isinstance(value, str)}
    try:
        return number(parse(inside, NUMBERS).value(numbers))
    except UserError as error:
        raise UserError("", f"{{{inside}}} {error.what}", error.remedy) from None


_BRACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
