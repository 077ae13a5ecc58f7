"""A spec: what one TOML file says, read and validated whole before anything trains.

    spec = read_spec("sweeps/digits.toml", ["sweep.seeds=5"])
    spec.candidates(), spec.optimizer.at(256), spec.max_steps_at(256)

Every error is found at once and names file, table, key, value and the remedy.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bscrit.errors import UserError, UserErrors
from bscrit.spec.checks import check, table_errors
from bscrit.spec.errors import Place, Source, explain, unknown_table
from bscrit.spec.file import read_source, with_overrides
from bscrit.spec.spec import Spec
from bscrit.spec.tables import TABLES
from bscrit.values import MOST

__all__ = ["Spec", "check", "json_schema", "parse_spec", "read_spec"]


def read_spec(path: str | os.PathLike[str], overrides: Sequence[str] = (), option: str = "--set") -> Spec:
    """Read a TOML file, set each "table.key=value" over it, and check it whole; errors name the option that set them.

    Raises:
        UserErrors: everything that is wrong with the file and the overrides.
    """
    path = Path(path)
    try:
        source = read_source(path)
    except UserError as error:
        raise UserErrors([error]) from None
    source, errors = with_overrides(replace(source, option=option), overrides)
    return _checked(source, path.stem, path.absolute().parent, errors)


def restore_spec(path: Path) -> Spec:
    """The spec that a sweep wrote into its results folder; whether its workload is still there does not matter.

    Raises:
        UserErrors: the file was damaged.
    """
    return _checked(read_source(path), path.parent.name, path.absolute().parent, [], restored=True)


def parse_spec(
    data: Mapping[str, Any],
    name: str = "spec",
    folder: Path = Path(),
    overrides: Sequence[str] = (),
    option: str = "--set",
) -> Spec:
    """The same for tables that were read elsewhere; errors call their file NAME.toml."""
    source, errors = with_overrides(Source(f"{name}.toml", data, option=option), overrides)
    return _checked(source, name, folder, errors)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec (draft 2020-12), from the same classes that read it."""
    schema = _without_clutter(Spec.model_json_schema())
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bscrit sweep",
        "description": "What `bscrit sweep` trains, at which batch sizes and to which losses.",
    }
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def _checked(
    source: Source, name: str, folder: Path, errors: list[UserError], restored: bool = False
) -> Spec:
    context = {"folder": folder, "restored": restored}
    fields = {"name": name, "source": source}
    tables = {key: value for key, value in source.data.items() if key in TABLES}
    errors += [unknown_table(k, v, source) for k, v in source.data.items() if k not in TABLES]
    spec: Spec | None = None
    try:
        spec = Spec.model_validate({**tables, **fields}, context=context)
    except ValidationError as error:
        explained = list(explain(error, source))
        errors += [sentence for _, sentence in explained]
        repaired = _repaired(tables, {place for place, _ in explained})
        try:
            spec = Spec.model_validate({**repaired, **fields}, context=context)
        except ValidationError:
            raise UserErrors(errors) from None
    errors += table_errors(spec)
    if errors:
        raise UserErrors(errors)
    return spec


def _repaired(tables: Mapping[str, Any], wrong: Iterable[Place]) -> dict[str, Any]:
    """The tables without what was wrong, so that errors between tables are found in the same go."""
    repaired = copy.deepcopy({"optimizer": {}, **tables})
    for table, key in wrong:
        if key is None or key == "use" or table == "learning_rate":
            repaired.pop(table, None)
        elif table in repaired:
            repaired[table].pop(key, None)
            repaired[table] |= {key: _STAND_INS[table, key]} if (table, key) in _STAND_INS else {}
    return {**_STAND_IN_TABLES, **repaired}


def _without_clutter(schema: Any, is_keys: bool = False) -> Any:
    """Without titles that only repeat names, and without defaults that are null or repeat a table's own."""
    if isinstance(schema, list):
        return [_without_clutter(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    no_default = isinstance(schema.get("default"), dict | None)
    clutter = {"title", "discriminator"} | ({"default"} if no_default else set())
    kept = {key: value for key, value in schema.items() if is_keys or key not in clutter}
    return {key: _without_clutter(value, key in ("properties", "$defs")) for key, value in kept.items()}


_STAND_IN_TABLES: dict[str, Any] = {"workload": {"use": "quadratic"}, "optimizer": {"use": "adam"}}
_STAND_INS: dict[Place, Any] = {
    ("sweep", "targets"): [0.0],
    ("sweep", "max_examples"): MOST,
    ("optimizer", "momentum"): 0.5,
    ("schedule", "horizon_steps"): MOST,
    ("schedule", "horizon_examples"): MOST,
}
"""Values without which a repaired table would show errors that the user did not make."""
