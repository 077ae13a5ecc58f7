"""Recognising columns: which one is the batch size, the steps, the metric, under the names that people use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bscrit.errors import UserError, nearest
from bscrit.tables.names import (
    ALIASES,
    HELD_OUT,
    ROLES,
    UNSAID,
    also_says,
    direction_of,
    is_held_out,
    is_part,
    may_be_metric,
    tidy,
    unit_of,
    words,
)
from bscrit.tables.sheet import Sheet

ONE_MEANING = ("batch_size", "steps", "lr", "target")
PERPLEXITY, TRAINING = words("ppl perplexity"), words("train training")
COMMON = words("to n num number id is total train training global loss seen goal reach target")
TRUTHS = tuple(map(words, ("true false", "yes no", "y n", "t f", "1 0 1.0 0.0")))


@dataclass(frozen=True)
class Columns:
    """Which column plays which role.

    Attributes:
        of: role -> column.
        by: columns that separate fits, in order, the workload first.
        metrics: columns that may hold the loss or another metric, when none was named.
        metric_name: what says the direction of a metric that was named.
        notes: roles that a reader would not guess from the names.
    """

    of: Mapping[str, str]
    by: tuple[str, ...]
    metrics: tuple[str, ...]
    metric_name: str
    notes: tuple[str, ...]

    @property
    def unit(self) -> str:
        """The unit of a batch size as the names tell it, "" where they don't."""
        units = (unit_of(self.of.get(role, "")) for role in ("batch_size", "examples"))
        return next(filter(None, units), "")

    @property
    def run_columns(self) -> list[str]:
        """The columns that tell runs apart."""
        roles = [self.of[role] for role in ("batch_size", "lr", "seed", "run") if role in self.of]
        return list(dict.fromkeys([*roles, *self.by]))

    def without(self, role: str) -> Columns:
        """The same columns, none of which plays the role."""
        return replace(self, of={other: column for other, column in self.of.items() if other != role})


def option(role: str, column: str) -> str:
    """The option that gives a column its role, as a shell takes it.

    >>> option("steps", "steps to 3.28")
    "--columns 'steps=steps to 3.28'"
    """
    return f"--columns {shlex.quote(f'{role}={column}')}"


def recognise(sheet: Sheet, asked: Mapping[str, str], by: Sequence[str]) -> Columns:
    """The roles of a sheet's columns.

    Args:
        asked: role, or name of a metric -> column, as the user says.
        by: columns that separate fits.

    Raises:
        UserError: a role or column that doesn't exist, or two columns that could play one role.
    """
    names = list(sheet.frame.columns)
    of, metric_name = _asked(sheet, asked)
    separate = tuple(dict.fromkeys(_column(sheet, name, "--by") for name in by))
    free = [column for column in names if column not in of.values() and column not in separate]
    for role in ROLES:
        if role not in of and (column := _pick(sheet, role, free)) is not None:
            of[role] = column
            free.remove(column)
    metrics = tuple(column for column in free if may_be_metric(column))
    if "workload" in of:
        separate = (of["workload"], *(column for column in separate if column != of["workload"]))
    notes = tuple(
        f"{role} is {column!r}"
        for role, column in of.items()
        if role != "metric" and tidy(column).rstrip("s") != role.rstrip("s")
    )
    return Columns(of, separate, metrics, metric_name, notes)


def find(sheet: Sheet, role: str, asked: Mapping[str, str]) -> str | None:
    """The column of one role, for a sheet whose shape is not settled yet."""
    if asked.get(role) in sheet.frame.columns:
        return asked[role]
    return _pick(sheet, role, [c for c in sheet.frame.columns if c not in asked.values()])


def choose_metric(sheet: Sheet, columns: Columns) -> tuple[str, str, tuple[str, ...]]:
    """(column, name that says the direction, notes) of the metric; UserError where several may be meant."""
    if "metric" in columns.of:
        return columns.of["metric"], columns.metric_name, ()
    # A perplexity is the exponential of the loss that is logged beside it.
    candidates = [name for name in columns.metrics if not PERPLEXITY & set(tidy(name).split("_"))]
    candidates = candidates or list(columns.metrics)
    quantities = {_quantity(column) for column in candidates}
    if len(quantities) > 1:
        what = f"has several metrics: {', '.join(candidates)}"
        raise UserError(sheet.name, what, f"choose one: {option('metric', candidates[0])}")
    held_out = [column for column in candidates if is_held_out(column)]
    chosen = (held_out or [c for c in candidates if "train" not in tidy(c).split("_")] or candidates)[0]
    rest = [column for column in columns.metrics if column != chosen]
    notes = (f"the metric is {chosen!r}, not {', '.join(map(repr, rest))}",) if rest else ()
    return chosen, chosen, notes


def require(sheet: Sheet, columns: Columns) -> None:
    """Raise UserError where no column holds the batch size, or none counts steps."""
    if "batch_size" not in columns.of:
        raise _missing(sheet, columns, "batch_size")
    if not {"steps", "examples", "epochs"} & set(columns.of):
        raise _missing(sheet, columns, "steps", "examples")


def _missing(sheet: Sheet, columns: Columns, *roles: str) -> UserError:
    """The error for a table in which no column plays any of some roles; names a column that is called alike."""
    names = [str(column) for column in sheet.frame.columns]
    aliases = {alias: role.replace("_", " ") for alias, role in ALIASES.items() if role in roles}
    for column in columns.by:
        if tidy(column) in aliases:
            what = f"{column!r} holds the {aliases[tidy(column)]}: a role, not a group"
            return UserError(f"--by {column}", what, "name a column that separates fits, as a model's size")
    for role, column in columns.of.items():
        if tidy(column) in aliases:
            what = f"takes {column!r}, and no other column holds the {aliases[tidy(column)]}"
            return UserError(f"--columns {role}={column}", what, f"give {role} another column")
    missing = " or ".join(role.replace("_", " ") for role in roles)
    what = f"has no column for {missing}; found: {listed(names)}"
    if "batch_size" in roles and (parts := [name for name in names if is_part(name)]):
        remedy = "is a part: multiply it by devices and accumulation into a new column batch_size"
        return UserError(sheet.name, what, f"{parts[0]!r} {remedy}")
    for column in names[:200]:
        for alias in get_close_matches(tidy(column), aliases, n=1):
            if _akin(tidy(column), alias):
                return UserError(sheet.name, what, f"is it {column!r}? {option(ALIASES[alias], column)}")
    named = ", or name the runs like bs64-lr0.003-s1" if "batch_size" in roles else ""
    return UserError(sheet.name, what, f"say which one it is: --columns {roles[0]}=NAME{named}")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names of columns for a message, of which there may be hundreds."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _akin(name: str, alias: str) -> bool:
    """Whether a name shares a word that means something with an alias, or may be one word misspelled."""
    return "_" not in name or bool((words(name.replace("_", " ")) & words(alias.replace("_", " "))) - COMMON)


def _asked(sheet: Sheet, asked: Mapping[str, str]) -> tuple[dict[str, str], str]:
    of: dict[str, str] = {}
    metric_name = ""
    for key, name in asked.items():
        role = {"step": "steps", "epoch": "epochs", "example": "examples"}.get(key, key)
        if role not in ROLES and role not in UNSAID and direction_of(role) is None:
            if key in sheet.frame.columns and name in ROLES:
                what = f"{key}={name} is the wrong way round"
                raise UserError("--columns", what, option(name, key))
            raise UserError("--columns", f"{key!r} is no role", nearest(key, [*ROLES, "metric"]))
        column = _column(sheet, name, f"--columns {key}={name}")
        if role not in ROLES:
            role, metric_name = "metric", role if direction_of(role) else column
        if role in of or column in of.values():
            raise UserError("--columns", f"names {role!r} or {column!r} twice", "give each role one column")
        of[role] = column
    return of, metric_name


def _column(sheet: Sheet, name: str, where: str) -> str:
    """The column that a user means by a name."""
    names = [str(column) for column in sheet.frame.columns]
    same = [column for column in names if column == name] or [c for c in names if tidy(c) == tidy(name)]
    if len(same) != 1:
        raise UserError(where, f"{sheet.name} has no column {name!r}", nearest(name, names[:200]))
    return same[0]


def _pick(sheet: Sheet, role: str, free: Sequence[str]) -> str | None:
    for tier in ROLES[role]:
        named = [column for column in free if tidy(column) in tier.split()]
        named = named or [column for column in free if also_says(column, role)]
        same = [column for column in named if _may_hold(sheet, column, role, tier)]
        if len(same) > 1 and role in ONE_MEANING:
            first, second = (sheet.frame[column] for column in same[:2])
            if not first.reset_index(drop=True).equals(second.reset_index(drop=True)):
                what = f"columns {same[0]!r} and {same[1]!r} may both be {role.replace('_', ' ')}"
                raise UserError(sheet.name, what, f"choose one: {option(role, same[0])}")
        if same:
            return same[0]
    return None


def _may_hold(sheet: Sheet, column: str, role: str, tier: str) -> bool:
    """Whether the cells of a column do not contradict a role that its name says."""
    match role:
        case "censored" | "reached":
            return tier == ROLES[role][0] or is_truth(sheet, column)
        case "status":
            return sheet.frame[column].dtype.kind not in "iufb"
        case "target":
            return not is_truth(sheet, column)
    return True


def is_truth(sheet: Sheet, column: str) -> bool:
    """Whether a column holds both truth values and nothing else."""
    texts = {text.strip().lower() for text in sheet.frame[column].dropna().astype(str).unique()[:8]}
    return any(texts and texts <= pair for pair in TRUTHS) and not texts <= {"1", "1.0"}


def _quantity(column: str) -> str:
    return "_".join(word for word in tidy(column).split("_") if word not in HELD_OUT | UNSAID | TRAINING)
