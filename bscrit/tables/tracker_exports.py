"""Exports of experiment trackers -> one row for each run and step.

- Wide charts, one column per run: "Step", "bs64-lr0.003 - val/loss", "bs64-lr0.003 - val/loss__MIN" and
  "__MAX", or simply "step", "bs=64", "bs=128".
- Long logs of (run, key, value, step), in which batch size and learning rate may be keys too.
- One file per run with the columns "Wall time", "Step" and "Value"; the file's name says which run.

Where no column holds the batch size, the names of the runs do:

>>> settings_in("mlp-bs64-lr3e-3-s1")
{'batch_size': 64.0, 'lr': 0.003, 'seed': 1.0, 'series': 'mlp'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from bscrit.errors import UserError
from bscrit.tables.columns import find
from bscrit.tables.names import ALIASES, ROLES, tidy
from bscrit.tables.numerals import parse_number
from bscrit.tables.row_fields import labels
from bscrit.tables.sheet import Sheet

WANTED = "name the runs like bs64-lr0.003-s1, or add a column batch_size"


def settings_in(name: str) -> dict[str, Any]:
    """Batch size, learning rate and seed as the name of a run says them; "series" is the rest of the name."""
    settings: dict[str, Any] = {}
    for role, pattern in _SETTINGS:
        if role not in settings and (match := pattern.search(name)):
            settings[role] = float(match[1])
            name = f"{name[: match.start()]} {name[match.end() :]}"
    if "batch_size" in settings:
        settings["series"] = " ".join(re.findall(r"[^\W_]+", name))
    return settings


def long_form(sheet: Sheet, asked: Mapping[str, str]) -> Sheet:
    """The sheet with a row for each run and step, and a batch size where the names of runs tell it.

    Args:
        asked: role -> column, as the user says.

    Raises:
        UserError: names of runs of which some, or in a wide chart none, tell a batch size.
    """
    sheet = _from_keys(_from_scalars(sheet), asked)
    if find(sheet, "batch_size", asked) is None:
        sheet = _from_wide(sheet, asked)
    return _from_names(sheet, asked)


_NUMBER = r"(\d*\.?\d+(?:e[+-]?\d+)?)(?![a-z0-9])"
_SETTINGS = tuple(
    (role, re.compile(rf"(?<![a-z]){name}\s*[=:_-]?\s*{_NUMBER}", re.IGNORECASE))
    for role, name in (
        ("batch_size", r"(?:(?:global|train)[_ -]?)?(?:batch[_ -]?size|batch|bsz|gbs|bs)"),
        ("batch_size", r"(?<![0-9])b"),
        ("lr", r"(?:learning[_ -]?rate|lr)"),
        ("seed", r"(?:seed|s)"),
    )
)
_TIMES = frozenset({"timestamp", "wall_time", "time", "relative_time", "runtime", "_timestamp", "_runtime"})


def _from_scalars(sheet: Sheet) -> Sheet:
    """One run as TensorBoard downloads it: the metric is named by the tag in the name of the file."""
    names = {tidy(column): column for column in sheet.frame.columns}
    tag = re.search(r"-tag-(.+)$", PurePath(sheet.name).stem)
    if set(names) != {"wall_time", "step", "value"} or not tag:
        return sheet
    return sheet.reshaped(sheet.frame.rename(columns={names["value"]: tag[1]}))


def _from_keys(sheet: Sheet, asked: Mapping[str, str]) -> Sheet:
    """A long log of keys and values, with a column for each key."""

    names = {tidy(column): column for column in sheet.frame.columns}
    key = next((names[name] for name in ("key", "tag", "metric", "metric_name") if name in names), None)
    value = names.get("value")
    if key is None or value is None or sheet.frame[key].dtype.kind in "iufb":
        return sheet
    keys = labels(sheet, key)
    is_setting = np.array([ALIASES.get(tidy(word), "steps") != "steps" for word in keys])
    same = [c for c in sheet.frame.columns if c not in (key, value) and tidy(c) not in _TIMES]
    if is_setting.all() or not same:
        return sheet
    points = sheet.frame[~is_setting]
    number = points.groupby(same, sort=False, dropna=False).ngroup()
    cells = points.assign(number=number, key=keys[~is_setting]).drop_duplicates(
        ["number", "key"], keep="last"
    )
    wide = cells.pivot(index="number", columns="key", values=value)
    frame = points.loc[~points.duplicated(same), same].copy()
    frame[list(wide.columns)] = wide.to_numpy()
    run = find(sheet, "run", asked)
    for word in dict.fromkeys(keys[is_setting]):
        rows = sheet.frame[keys == word]
        if run is None:
            frame[word] = rows[value].iloc[-1]
        else:
            frame[word] = frame[run].map(dict(zip(rows[run], rows[value], strict=True)))
    return sheet.reshaped(frame, f"each key in {key!r} is read as a column")


def _from_wide(sheet: Sheet, asked: Mapping[str, str]) -> Sheet:
    """A chart with one column for each run, as one row for each run and step."""
    import pandas as pd

    axis = next((c for role in ("steps", "examples", "epochs") if (c := find(sheet, role, asked))), None)
    if axis is None:
        return sheet
    series = _charted([str(column) for column in sheet.frame.columns if column != axis])
    if not series:
        return sheet
    pieces = []
    for run in dict.fromkeys(run for run, _ in series):
        columns = {column: metric for (name, metric), column in series.items() if name == run}
        logged = sheet.frame[list(columns)].notna().any(axis=1)
        piece = sheet.frame.loc[logged, [axis, *columns]].rename(columns=columns)
        pieces.append(piece.assign(run=run))
    names = list(dict.fromkeys(run for run, _ in series))
    if not any("batch_size" in settings_in(name) for name in names):
        raise UserError(sheet.name, f"no run tells its batch size: {', '.join(names[:4])}", WANTED)
    return sheet.reshaped(pd.concat(pieces), f"{len(names)} runs are read from one column each")


def _charted(columns: Sequence[str]) -> dict[tuple[str, str], str]:
    """(run, metric) -> column of a wide chart; empty where the columns are none."""
    exported = {}
    for column in columns:
        match = re.fullmatch(r"(?:Group: )?(.+) - (.+?)(__MIN|__MAX)?", column)
        if match and not match[3] and ALIASES.get(tidy(match[2])) != "steps":
            exported[match[1], match[2]] = column
    if exported:
        return exported
    if columns and all(parse_number(column) is not None for column in columns):
        return {(f"bs{column}", "value"): column for column in columns}
    return {(column, "value"): column for column in columns if "batch_size" in settings_in(column)}


def _from_names(sheet: Sheet, asked: Mapping[str, str]) -> Sheet:
    """Batch size, rate, seed and the rest of the name as columns, from the names of runs or of the file."""
    import pandas as pd

    run = find(sheet, "run", asked)
    has_size = find(sheet, "batch_size", asked) is not None
    if run is None and has_size:
        return sheet
    names = pd.Series(labels(sheet, run) if run else _file_name(sheet.name), sheet.frame.index, dtype=object)
    settings = pd.DataFrame(list(map(settings_in, names.unique())), index=names.unique())
    untold = settings.index[settings["batch_size"].isna()] if "batch_size" in settings else settings.index
    if len(untold) and (has_size or len(untold) == len(settings)):
        return sheet
    if len(untold):
        where = sheet.first(names.to_numpy() == untold[0])
        raise UserError(where, f"the run {untold[0]!r} does not tell its batch size", WANTED)
    added = [
        role
        for role in ("batch_size", "lr", "seed", "series")
        if role in settings and role not in sheet.frame and not (role in ROLES and find(sheet, role, asked))
    ]
    if "series" in added and settings["series"].nunique() == 1:
        added.remove("series")
    frame = sheet.frame.assign(**{role: names.map(settings[role]) for role in added})
    if run is None:
        frame["run"] = names
    return sheet.reshaped(frame, f"{', '.join(added)} from the names of runs") if added else sheet


def _file_name(path: str) -> str:
    """The part of a path that tells the settings: the file's name, else the last folders too."""
    parts = PurePath(path).with_suffix("").parts
    return parts[-1] if parts and "batch_size" in settings_in(parts[-1]) else "/".join(parts[-3:])
