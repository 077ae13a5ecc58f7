"""Tables of a spec and the kinds of numbers in them: real, whole, and those that may depend on the batch size.

The numbers are annotations for pydantic: `Annotated[int, Whole(low=1)]`. Each reads `1e-4` and `"1e-4"` alike, never
takes a boolean for a number, refuses what is out of its range in a sentence, and writes its own JSON Schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from bscrit.errors import UserError
from bscrit.expression import Expression, parse

MOST = 2**53
"""Above this, whole numbers are no longer exact in float64 and in many readers of JSON."""
Scalar = str | int | float | bool


class Table(BaseModel):
    """A table of a spec: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def choosing(key: str, default: str) -> Callable[[Any], Any]:
    """A validator for a table with a class for each choice: the default where none is made."""
    return lambda table: {key: default, **table} if isinstance(table, dict) else table


def refuse(what: str, remedy: str = "") -> NoReturn:
    """Raise an error of validation that carries a sentence for the user, and the remedy."""
    raise PydanticCustomError("refused", "{what}", {"what": what, "remedy": remedy})


def each_once(values: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """The values themselves; refuses none at all, and the same one twice."""
    if not values:
        refuse("is empty", f"name at least one {name}")
    if twice := [value for value in values if values.count(value) > 1]:
        refuse(f"holds {twice[0]} twice", f"name each {name} once")
    return values


@dataclass(frozen=True)
class Real:
    """A finite number within a range; an open end is not in the range."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False

    def read(self, value: Any) -> Any:
        return self.within(_finite(value))

    def within(self, value: float) -> float:
        """The value itself; refuses it when it is out of range."""
        if not self.holds(value):
            refuse("is out of range", f"choose a number that is {self.words}")
        return value

    def holds(self, value: float) -> bool:
        """Whether a value is in the range."""
        too_low = self.low is not None and (value < self.low or (self.open_low and value == self.low))
        too_high = self.high is not None and (value > self.high or (self.open_high and value == self.high))
        return not (too_low or too_high)

    @property
    def words(self) -> str:
        """The range as a phrase.

        >>> Real(low=0, high=1, open_high=True).words
        'at least 0 and below 1'
        """
        parts = []
        if self.low is not None:
            parts.append(f"{'above' if self.open_low else 'at least'} {self.low:g}")
        if self.high is not None:
            parts.append(f"{'below' if self.open_high else 'at most'} {self.high:g}")
        return " and ".join(parts)

    def json_schema(self) -> dict[str, Any]:
        low = "exclusiveMinimum" if self.open_low else "minimum"
        high = "exclusiveMaximum" if self.open_high else "maximum"
        limits = {low: self.low, high: self.high}
        bounds = {key: value for key, value in limits.items() if value is not None}
        return {"type": ["number", "string"], **bounds, "pattern": _NUMERAL}

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.json_schema()


@dataclass(frozen=True)
class Whole(Real):
    """A whole number within a range, or `word` where one is given ("auto")."""

    word: str = ""

    def read(self, value: Any) -> Any:
        if self.word and value == self.word:
            return value
        also = f" or {self.word!r}" if self.word else ""
        number = value if type(value) is int else _finite(value, f"a whole number{also}")
        if number != int(number):
            refuse("must be a whole number", f"for example {max(round(number), 1)}")
        if abs(number) > MOST:
            refuse("is too large", f"counts go up to 2**53 = {MOST}")
        self.within(number)
        return int(number)

    def json_schema(self) -> dict[str, Any]:
        also = f"|^{self.word}$" if self.word else ""
        return {**super().json_schema(), "type": ["integer", "string"], "pattern": f"{_NUMERAL}{also}"}


@dataclass(frozen=True)
class Quantity(Real):
    """A number, or an expression in `batch_size`, whose values lie within a range."""

    def read(self, value: Any) -> Any:
        if not isinstance(value, str):
            _finite(value)
        try:
            expression = parse(value)
            value = expression.at(1) if expression.is_constant else None
        except UserError as error:
            refuse(error.what, error.remedy)
        if value is not None:
            self.within(value)
        return expression

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        shown = core_schema.plain_serializer_function_ser_schema(_shown)
        return core_schema.no_info_plain_validator_function(self.read, serialization=shown)

    def json_schema(self) -> dict[str, Any]:
        schema = super().json_schema()
        del schema["pattern"]
        return schema


def _finite(value: Any, wanted: str = "a number") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse(f"must be {wanted}, not {kind(value)}", "write it without quotes or brackets, as in 3 or 1e-4")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except ValueError:
        refuse(f"must be {wanted}, not {kind(value)}", "write it without quotes or units, as in 3 or 1e-4")
    if not math.isfinite(number):
        refuse("must be finite", "write a number, as in 3 or 1e-4")
    return number + 0.0  # a negative zero is zero


def kind(value: Any) -> str:
    """TOML's name for a value, with its article."""
    names = {bool: "a boolean", str: "a string", dict: "a table", list: "a list", int: "a number"}
    return {**names, float: "a number"}.get(type(value), "a date or time")


def _shown(value: Expression | float) -> str | float:
    return value.text if isinstance(value, Expression) else value


_NUMERAL = r"^\s*[+-]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
