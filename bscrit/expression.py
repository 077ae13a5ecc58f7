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


@dataclass(frozen=True)
class Expression:
    """A number that may depend on the batch size; two are equal when their texts are."""

    text: str
    _body: ast.expr = field(repr=False, compare=False)

    @property
    def is_constant(self) -> bool:
        return "batch_size" not in self.text

    def at(self, batch_size: int) -> float:
        """The value at one batch size; UserError (its `where` left empty) where none is finite and real."""
        # The sum makes a negative zero positive: the two are one value and must have one hash.
        return _value(self._body, float(batch_size)) + 0.0


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
    _check(tree.body)
    return Expression(text, tree.body)


def _check(node: ast.expr) -> None:
    """The one whitelist: what is not named here is refused before it could be computed."""
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            return
        case ast.Name(id=name):
            if name != "batch_size":
                raise UserError("", f"{name!r} is not known here", nearest(name, ["batch_size", *_FUNCTIONS]))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            _check(left)
            _check(right)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                raise UserError("", f"there is no function {name!r} here", nearest(name, _FUNCTIONS))
            if (len(arguments) == 1) != (name in ("sqrt", "log")) or not arguments:
                wanted = "one value" if name in ("sqrt", "log") else "two values or more"
                raise UserError("", f"{name} of {len(arguments)} values", f"{name} takes {wanted}")
            for argument in arguments:
                _check(argument)
        case _:
            text = ast.unparse(node)
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise UserError("", f"{shown} is not arithmetic in batch_size", _KNOWN)


def _value(node: ast.expr, batch_size: float) -> float:
    """The value of a part that was checked."""
    try:
        match node:
            case ast.Constant(value=int() | float() as number):
                return _finite(float(number))
            case ast.UnaryOp(op=op, operand=operand):
                value = _value(operand, batch_size)
                return -value if isinstance(op, ast.USub) else value
            case ast.BinOp(left=left, op=op, right=right):
                return _finite(_OPERATIONS[type(op)](_value(left, batch_size), _value(right, batch_size)))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _finite(_FUNCTIONS[name](*(_value(argument, batch_size) for argument in arguments)))
        return batch_size
    except ZeroDivisionError:
        raise UserError("", "divides by zero", "add a positive number to the divisor") from None
    except OverflowError:
        return _finite(math.inf)
    except ValueError:
        return _finite(math.nan)


def _finite(value: float | complex) -> float:
    if isinstance(value, complex) or math.isnan(value):
        raise UserError("", "is not a real number", "roots and logarithms need positive values")
    if math.isinf(value):
        raise UserError("", "is too large to be computed", "write it with smaller numbers or powers")
    return float(value)


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float | complex]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"sqrt": math.sqrt, "log": math.log, "min": min, "max": max}
_KNOWN = "write a number, or arithmetic in batch_size with + - * / ** ( ) sqrt log min max"
