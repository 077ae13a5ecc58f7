"""A spec's file as plain tables: TOML, and what the command line sets over it."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bscrit.errors import UserError, nearest
from bscrit.paths import ResultsPaths
from bscrit.spec.errors import Place, Source, choices
from bscrit.spec.tables import TABLES


def read_source(path: Path) -> Source:
    """Read a TOML file; UserError names the line and column of a mistake, or the files that exist nearby."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(str(path), "there is no such file", _nearby(path)) from None
    except IsADirectoryError:
        raise UserError(str(path), "is a folder", _nearby(ResultsPaths(path).spec)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}", "is not UTF-8 text", "save it as UTF-8") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or "is not a path"
        raise UserError(str(path), f"cannot be read: {what}", "check its name and permissions") from None
    try:
        return Source(str(path), tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    except (ValueError, RecursionError):
        raise UserError(str(path), "holds a number or a nest too large to read", "shorten it") from None


def with_overrides(source: Source, overrides: Sequence[str]) -> tuple[Source, list[UserError]]:
    """The source with each "table.key=value" set over it, and what is wrong with their form.

    A value is TOML where it can be read as TOML, else a plain string: `optimizer.use=adam` needs no quotes. A choice
    drops those keys of the file's table that only other choices have.
    """
    data: dict[str, Any] = copy.deepcopy(dict(source.data))
    places: set[Place] = set()
    errors = []
    for override in overrides:
        where = f"{source.option} {override}"
        name, equals, text = override.partition("=")
        table, _, key = (part.strip() for part in name.partition("."))
        if not equals or not table or not re.fullmatch(r"[A-Za-z0-9_-]+", key):
            example = "--set sweep.seeds=5" if source.option == "--set" else '{"sweep.seeds": 5}'
            errors.append(UserError(where, "is not of the form table.key=value", f"for example {example}"))
        elif table not in TABLES:
            errors.append(UserError(where, f"{table!r} is not a table", nearest(table, TABLES)))
        elif isinstance(data.setdefault(table, {}), dict):
            data[table][key] = _value(text.strip())
            places.add((table, key))
    dropped = tuple(_drop(data, places, source))
    return replace(source, data=data, overridden=frozenset(places), dropped=dropped), errors


def _drop(data: dict[str, Any], chosen: set[Place], source: Source) -> Iterator[str]:
    """Delete the file's keys that only other choices than the chosen ones have; a sentence on each."""
    for table, key in sorted(chosen):
        chooser, by_choice = choices(table)
        model = by_choice.get(str(data[table].get(chooser)))
        if key != chooser or model is None:
            continue
        others = {name for other in by_choice.values() for name in other.model_fields}
        for name in sorted({*data[table]} & others - {*model.model_fields}):
            if (table, name) not in chosen:
                choice = f'{chooser} = "{data[table][chooser]}"'
                yield f"{source.where(table, name)} is left out: {choice} has none"
                del data[table][name]


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _syntax_error(path: Path, text: str, message: str) -> UserError:
    """tomllib's sentence, with its place where places belong and the line beside it."""
    lines = text.split("\n")
    place = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    what = place[1] if place else message.removesuffix(" (at end of document)")
    line, column = (int(place[2]), int(place[3])) if place else (len(lines), len(lines[-1]) + 1)
    shown = lines[line - 1].strip()[:60] if line <= len(lines) else ""
    return UserError(
        f"{path}, line {line}, column {column}",
        f"is not valid TOML: {what[:1].lower()}{what[1:]}" + (f" in `{shown}`" if shown else ""),
        _syntax_remedy(what),
    )


def _syntax_remedy(what: str) -> str:
    remedies = {
        "overwrite": "a key may stand once in its table: remove one of the two",
        "twice": "a table may stand once in the file: join the two",
        "Unclosed array": "close the list with ]",
        "Unclosed inline table": "close the table with }, on the same line",
        "table declaration": "write the name of a table as [name]",
        "Unescaped": 'write the string in single quotes, or double each "\\"',
        "escape": 'write the string in single quotes, or double each "\\"',
        "after a key": "write key = value; only a [table] stands alone on its line",
        "Illegal character": "close the string on its line",
        "Unterminated string": "close the string with a quote",
    }
    general = "strings stand in quotes, lists in [ ], booleans are true or false, and decimals use a point"
    return next((remedy for words, remedy in remedies.items() if words in what), general)


def _nearby(path: Path) -> str:
    """A remedy that names the TOML files of the same folder, the current one and its `sweeps`."""
    folders = [path.parent, Path(), Path("sweeps")]
    files = {
        str(file): file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.toml"))
    }
    names = [name for name, file in files.items() if file.name != "pyproject.toml"]
    return (
        nearest(str(path), names) if names else "there is no .toml file nearby; see the examples in `sweeps`"
    )
