"""Errors of a spec in the user's words: which file, table, key and value, what is wrong, and the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bscrit.errors import UserError, nearest
from bscrit.spec.tables import TABLES
from bscrit.values import Table, kind

Place = tuple[str, str | None]
"""A table and a key in it, None for the table itself."""


@dataclass(frozen=True)
class Source:
    """Where a spec's values came from: a file, and what the command line or a caller set over it.

    Attributes:
        dropped: a sentence on each key of the file without meaning for a choice that was set over it.
        option: how the caller sets values over it.
    """

    file: str
    data: Mapping[str, Any] = field(default_factory=dict)
    overridden: frozenset[Place] = frozenset()
    dropped: tuple[str, ...] = ()
    option: str = "--set"

    def where(self, table: str, key: str | None = None) -> str:
        """The place of a value as errors name it, the value included.

        >>> Source("x.toml", {"sweep": {"seeds": 0}}).where("sweep", "seeds")
        'x.toml [sweep] seeds = 0'
        """
        if key is None:
            return f"{self.file} [{table}]"
        keys = self.data.get(table)
        value = [_toml(keys[key])] if isinstance(keys, Mapping) and key in keys else []
        if (table, key) in self.overridden:
            return "=".join([f"{self.option} {table}.{key}", *value])
        return " = ".join([f"{self.file} [{table}] {_name(key)}", *value])

    def error(self, table: str, key: str | None, what: str, remedy: str = "") -> UserError:
        return UserError(self.where(table, key), what, remedy)

    def to_toml(self) -> str:
        """The tables as TOML, with what the command line set: reading it gives the same sweep."""
        tables = []
        for table, keys in self.data.items():
            lines = [f"{_name(key)} = {_whole(value)}" for key, value in keys.items()]
            tables.append("\n".join([f"[{table}]", *lines]) + "\n")
        return "\n".join(tables)


def explain(error: ValidationError, source: Source) -> Iterator[tuple[Place, UserError]]:
    """Every error of a validation with its place, in the order of the tables."""
    for details in error.errors(include_url=False):
        table, key, index = _place(details["loc"])
        yield (table, key), _explain(details, table, key, index, source)


def unknown_table(name: str, value: Any, source: Source) -> UserError:
    """A name at the top of the file that is no table of a spec."""
    if isinstance(value, dict):
        return UserError(f"{source.file} [{_name(name)}]", "is not a table of a spec", nearest(name, TABLES))
    where = f"{source.file} {_name(name)} = {_toml(value)}"
    remedy = _home(name) or "put it below the [table] it belongs to"
    return UserError(where, "stands outside of any table", remedy)


def _place(location: tuple[int | str, ...]) -> tuple[str, str | None, int | None]:
    """Table, key and number in a list; without what pydantic puts between table and key."""
    table, *rest = location
    if rest and (len(TABLES[str(table)]) > 1 or (table, rest[0]) == ("workload", "settings")):
        rest = rest[1:]
    key = str(rest[0]) if rest else None
    return str(table), key, rest[1] if len(rest) > 1 and isinstance(rest[1], int) else None


def _explain(
    details: ErrorDetails, table: str, key: str | None, index: int | None, source: Source
) -> UserError:
    value, context = details["input"], details.get("ctx", {})
    where = source.where(table, key)
    item = "" if index is None else f"item {index + 1}, {_toml(value)}, "
    match details["type"]:
        case "refused":
            return UserError(where, item + context["what"], context["remedy"])
        case "model_type" | "model_attributes_type":
            place = f"{source.file} {table} = {_toml(value)}"
            remedy = f"write [{table}] on a line of its own, and its keys below"
            return UserError(place, f"must be a table, not {kind(value)}", remedy)
        case "missing" if key is None:
            remedy = f"add it, with {_required(TABLES[table][0])}"
            return UserError(source.file, f"[{table}] is missing", remedy)
        case "missing":
            return UserError(source.where(table), f"{key} is missing", _describe(table, key))
        case "extra_forbidden" if key is not None:
            return _unknown_key(table, key, source)
        case "union_tag_invalid":
            chooser = next(iter(TABLES[table][0].model_fields))
            remedy = _allowed(value.get(chooser), context["expected_tags"])
            return UserError(source.where(table, chooser), "is not a choice that is known", remedy)
        case "literal_error":
            return UserError(where, "is not a choice that is known", _allowed(value, context["expected"]))
        case "tuple_type":
            return UserError(where, f"must be a list, not {kind(value)}", f"write it as {key} = [...]")
        case "bool_type":
            remedy = "allowed: true, false (without quotes)"
            return UserError(where, f"must be a boolean, not {kind(value)}", remedy)
        case "string_type":
            return UserError(where, f"{item}must be a string, not {kind(value)}", "write it in quotes")
        case _:
            return UserError(where, f"{item}cannot be understood", _describe(table, key))


def _unknown_key(table: str, key: str, source: Source) -> UserError:
    """A key that this table does not have; it may belong to another choice of it, or to another table."""
    where, model = source.where(table, key), TABLES[table][0]
    chooser, by_choice = choices(table)
    if by_choice:
        chosen = source.data[table].get(chooser, model.model_fields[chooser].default)
        model = by_choice.get(chosen, model)
        fitting = [f'"{choice}"' for choice, other in by_choice.items() if key in other.model_fields]
        if fitting:
            remedy = f"remove it, or set {chooser} to {' or '.join(fitting)}"
            return UserError(where, f'has no meaning where {chooser} = "{chosen}"', remedy)
    return UserError(where, f"is not a key of [{table}]", _home(key) or nearest(key, model.model_fields))


def _home(key: str) -> str:
    if key in ("lr", "learning_rate", "rate"):
        return (
            "the rate is tuned at each batch size; [learning_rate] says how, and its key guess where to start"
        )
    homes = [name for name, models in TABLES.items() for model in models if key in _own_keys(model)]
    return f"it belongs below [{homes[0]}]" if homes else ""


def _own_keys(model: type[Table]) -> set[str]:
    return set(model.model_fields) - {"use", "settings", "folder"}


def choices(table: str) -> tuple[str, dict[str, type[Table]]]:
    """The key of a table that makes a choice, and the class for each; none where all specs have the same keys."""
    chooser = next(iter(TABLES[table][0].model_fields))
    if len(TABLES[table]) == 1:
        return chooser, {}
    return chooser, {get_args(model.model_fields[chooser].annotation)[0]: model for model in TABLES[table]}


def _allowed(value: Any, listed: str) -> str:
    """A remedy out of pydantic's list of what it expected."""
    return nearest(value if isinstance(value, str) else "", re.findall(r"'([^']*)'", listed))


def _required(model: type[Table]) -> str:
    return ", ".join(name for name, field in model.model_fields.items() if field.is_required())


def _describe(table: str, key: str | None) -> str:
    described = [m.model_fields[key].description for m in TABLES[table] if key in m.model_fields]
    meaning = next((text for text in described if text), "see its description in the JSON Schema")
    return f"{key}: {meaning[:1].lower()}{meaning[1:].removesuffix('.')}"


def _name(key: str) -> str:
    """A key as TOML writes it, in quotes where it must be."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _toml(value: Any) -> str:
    """A value as the user may have written it, cut where it is long."""
    text = _whole(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _whole(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            # Python refuses to write very large integers in decimal.
            return str(value) if abs(value) < 2**64 else f"{value:#x}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(_whole(item) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{_name(key)} = {_whole(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)
