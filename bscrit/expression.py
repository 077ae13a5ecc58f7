"""Arithmetic in `batch_size`, as a spec may write it for an optimizer's values: parsed, never run as code.

>>> parse("0.95 ** (batch_size / 64)").at(128)
0.9025

Known are numbers, `batch_size`, `+ - * / **`, parentheses, and sqrt, log, min and max. Everything is
computed in float64, so that towers of powers overflow at once instead of growing without end.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from bscrit.errors import UserError, nearest

LONGEST = 200
_Compiled = Callable[[float], float]


@dataclass(frozen=True)
class Expression:
    """A number that may depend on the batch size; two are equal when their texts are."""

    text: str
    _compiled: _Compiled = field(repr=False, compare=False)

    @property
    def is_constant(self) -> bool:
        return "batch_size" not in self.text

    def at(self, batch_size: int) -> float:
        """The value at one batch size; UserError (its `where` left empty) where none is finite and real."""
        # The sum makes a negative zero positive: the two are one value and must have one hash.
        return self._compiled(float(batch_size)) + 0.0


def parse(value: str | float) -> Expression:
    """Read a number or an expression; UserError (its `where` left empty) for anything else."""
    if not isinstance(value, str):
        return _parse_text(repr(value))
    if len(value) > LONGEST:
        raise UserError("", f"is an expression of {len(value)} characters", f"at most {LONGEST} are read")
    return _parse_text(value.strip())


@lru_cache(maxsize=1000)
def _parse_text(text: str) -> Expression:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UserError("", "is neither a number nor an expression that can be read", _KNOWN) from None
    return Expression(text, _compile(tree.body))


def _compile(node: ast.expr) -> _Compiled:
    """The one whitelist: what is not named here is refused before it could be computed."""
    match node:
        case ast.Constant(value=bool() | complex() | str() | bytes() | None):
            raise _unknown(ast.unparse(node))
        case ast.Constant(value=int() | float() as number):
            return _constant(number)
        case ast.Name(id="batch_size"):
            return lambda batch_size: batch_size
        case ast.Name(id=name):
            raise UserError("", f"{name!r} is not known here", nearest(name, ["batch_size", *_FUNCTIONS]))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compile(operand)
            return lambda batch_size: -inner(batch_size)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _compile(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _call(_OPERATIONS[type(op)], [_compile(left), _compile(right)])
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _call_function(name, arguments)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            raise UserError("", f"there is no function {name!r} here", nearest(name, _FUNCTIONS))
        case _:
            raise _unknown(ast.unparse(node))


def _constant(number: float) -> _Compiled:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    return lambda _: _finite(value)


def _call_function(name: str, arguments: list[ast.expr]) -> _Compiled:
    fewest, most = (1, 1) if name in ("sqrt", "log") else (2, LONGEST)
    if not fewest <= len(arguments) <= most:
        wanted = "one value" if most == 1 else "two values or more"
        raise UserError("", f"{name} of {len(arguments)} values", f"{name} takes {wanted}")
    return _call(_FUNCTIONS[name], [_compile(argument) for argument in arguments])


def _call(function: Callable[..., float | complex], arguments: list[_Compiled]) -> _Compiled:
    def compiled(batch_size: float) -> float:
        values = [argument(batch_size) for argument in arguments]
        try:
            return _finite(function(*values))
        except ZeroDivisionError:
            raise UserError("", "divides by zero", "add a positive number to the divisor") from None
        except OverflowError:
            return _finite(math.inf)
        except ValueError:
            return _finite(math.nan)

    return compiled


def _finite(value: float | complex) -> float:
    if isinstance(value, complex) or math.isnan(value):
        raise UserError("", "is not a real number", "roots and logarithms need positive values")
    if math.isinf(value):
        raise UserError("", "is too large to be computed", "write it with smaller numbers or powers")
    return float(value)


def _unknown(part: str) -> UserError:
    shown = part if len(part) <= 40 else f"{part[:37]}..."
    return UserError("", f"{shown} is not arithmetic in batch_size", _KNOWN)


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float | complex]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"sqrt": math.sqrt, "log": math.log, "min": min, "max": max}
_KNOWN = "write a number, or arithmetic in batch_size with + - * / ** ( ) sqrt log min max"
