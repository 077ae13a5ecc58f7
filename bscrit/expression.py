"""Arithmetic in `batch_size`, or in other numbers by their names, as a spec may write it: parsed, never run as code.

>>> parse("0.95 ** (batch_size / 64)").at(128)
0.9025
>>> parse("ceil(512 / micro_batch)", ("micro_batch",)).value({"micro_batch": 100})
6

Known are numbers, the names, `+ - * / **`, parentheses, and sqrt, log, min, max, ceil, floor and round. Whole numbers
stay whole under `+ - *`, min and max; powers are computed in float64, so that towers of them overflow at once instead
of growing without end.
"""

from __future__ import annotations

import ast
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from bscrit.errors import UserError, nearest

LONGEST = 200


@dataclass(frozen=True)
class Expression:
    """A number that may depend on others; two are equal when their texts are."""

    text: str
    _body: ast.expr = field(repr=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """The numbers on which its value depends."""
        return frozenset(n.id for n in ast.walk(self._body) if isinstance(n, ast.Name)) - _FUNCTIONS.keys()

    @property
    def is_constant(self) -> bool:
        return not self.names

    def value(self, numbers: Mapping[str, float]) -> float:
        """The value where these numbers have their names: an int where it is made of whole numbers alone.

        Raises:
            UserError: it is not finite and real; the error's `where` is left empty.
        """
        # The sum makes a negative zero positive: the two are one value and must have one hash.
        return _value(self._body, numbers) + 0

    def at(self, batch_size: int) -> float:
        """The value at one batch size; errors as those of `value`."""
        return float(self.value({"batch_size": batch_size}))


def parse(value: str | float, names: tuple[str, ...] = ("batch_size",)) -> Expression:
    """Read a number or an expression in these names; UserError (its `where` left empty) for anything else."""
    if not isinstance(value, str):
        return _parse_text(repr(value), names)
    if len(value) > LONGEST:
        raise UserError("", f"is an expression of {len(value)} characters", f"at most {LONGEST} are read")
    return _parse_text(value.strip(), names)


@lru_cache(maxsize=1000)
def _parse_text(text: str, names: tuple[str, ...]) -> Expression:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UserError(
            "", "is neither a number nor an expression that can be read", _remedy(names)
        ) from None
    _check(tree.body, names)
    return Expression(text, tree.body)


def _check(node: ast.expr, names: tuple[str, ...]) -> None:
    """The one whitelist: what is not named here is refused before it could be computed."""
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            return
        case ast.Name(id=name):
            if name not in names:
                raise UserError("", f"{name!r} is not known here", nearest(name, [*names, *_FUNCTIONS]))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            _check(left, names)
            _check(right, names)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                raise UserError("", f"there is no function {name!r} here", nearest(name, _FUNCTIONS))
            several = name in ("min", "max")
            if (len(arguments) == 1) == several or not arguments:
                wanted = "two values or more" if several else "one value"
                raise UserError("", f"{name} of {len(arguments)} values", f"{name} takes {wanted}")
            for argument in arguments:
                _check(argument, names)
        case _:
            text = ast.unparse(node)
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise UserError("", f"{shown} is not arithmetic in {_listed(names)}", _remedy(names))


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    """The value of a part that was checked."""
    try:
        match node:
            case ast.Constant(value=int() | float() as number):
                return _finite(number)
            case ast.Name(id=name):
                return _finite(numbers[name])
            case ast.UnaryOp(op=op, operand=operand):
                value = _value(operand, numbers)
                return -value if isinstance(op, ast.USub) else value
            case ast.BinOp(left=left, op=op, right=right):
                return _finite(_OPERATIONS[type(op)](_value(left, numbers), _value(right, numbers)))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _finite(_FUNCTIONS[name](*(_value(argument, numbers) for argument in arguments)))
        raise AssertionError(f"{ast.unparse(node)} was not checked")
    except ZeroDivisionError:
        raise UserError("", "divides by zero", "add a positive number to the divisor") from None
    except OverflowError:
        return _finite(math.inf)
    except ValueError:
        return _finite(math.nan)


def _finite(value: float | complex) -> float:
    if isinstance(value, complex) or math.isnan(value):
        raise UserError("", "is not a real number", "roots and logarithms need positive values")
    if abs(value) > sys.float_info.max:
        raise UserError("", "is too large to be computed", "write it with smaller numbers or powers")
    return value


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _remedy(names: tuple[str, ...]) -> str:
    known = "+ - * / ** ( ) sqrt log min max ceil floor round"
    return f"write a number, or arithmetic in {_listed(names)} with {known}"


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float | complex]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: float(a) ** float(b),
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt,
    "log": math.log,
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
}
