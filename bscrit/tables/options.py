"""Options of the reader, in whatever shape Python or a command line has them; UserError for what makes no sense.

>>> as_targets(3.2), as_targets("3.2, 2.5"), as_names("model")
((3.2,), (3.2, 2.5), ('model',))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bscrit.errors import UserError, nearest
from bscrit.goal import Direction

LONGEST_UNIT = 60


def as_targets(wanted: Any) -> tuple[float, ...] | None:
    """Finite numbers from a number, a text, an array or anything that can be gone through; None for None."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        wanted = [part for part in wanted.split(",") if part.strip()]
    listed = wanted.tolist() if hasattr(wanted, "tolist") else wanted
    targets = tuple(map(_target, listed if isinstance(listed, Iterable) else [listed]))
    if not targets:
        raise UserError("--targets", "names no target", "name values of the metric, or leave it out")
    return targets


def _target(value: Any) -> float:
    try:
        target = float(value)
    except (TypeError, ValueError, OverflowError):
        target = math.nan
    if not math.isfinite(target):
        raise UserError("--targets", f"{value} is no target", "name finite values of the metric")
    return target


def as_names(by: Any) -> tuple[str, ...]:
    """Names of columns from one name or several."""
    names = _several(by)
    for name in names:
        if not isinstance(name, str):
            raise UserError("--by", f"{name!r} is no name of a column", "name columns: by=['model']")
    return names


def as_columns(columns: Any) -> Mapping[str, str]:
    """Role -> column from a mapping, or from texts like "steps=iter,lr=rate"."""
    if isinstance(columns, Mapping):
        for role, column in columns.items():
            if not isinstance(role, str) or not isinstance(column, str):
                what = f"{role!r}: {column!r} does not map a role to a column's name"
                raise UserError("--columns", what, "for example columns={'steps': 'iter'}")
        return dict(columns)
    pairs: dict[str, str] = {}
    for pair in as_paths(map(str, _several(columns))):
        role, _, column = map(str.strip, pair.partition("="))
        if not role or not column:
            what = "is not of the form role=column"
            raise UserError(f"--columns {pair}", what, "--columns steps=iter, or columns={'steps': 'iter'}")
        if role in pairs:
            raise UserError(f"--columns {pair}", f"{role} has a column already", "give each role one")
        pairs[role] = column
    return pairs


def _several(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)


def as_direction(direction: Any) -> Direction | None:
    """up, down or None."""
    if direction is None or direction == "up" or direction == "down":
        return direction  # type: ignore[no-any-return]
    raise UserError(
        "--direction", f"{direction!r} is not a direction", nearest(str(direction), ("down", "up"))
    )


def as_unit(unit: Any) -> str | None:
    """A name on one line, or None."""
    if unit is None or (
        isinstance(unit, str) and unit.strip() and unit.isprintable() and len(unit) <= LONGEST_UNIT
    ):
        return unit and unit.strip()
    what = f"is not a name on one line of at most {LONGEST_UNIT} letters"
    raise UserError(f"--unit {unit!r:.{LONGEST_UNIT}}", what, "for example --unit image")


def as_paths(texts: Iterable[str]) -> tuple[str, ...]:
    """Paths, several in one text separated by commas."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
