"""Columns without a role that may decide the answer: settings that are pooled, and truth values that are not read."""

from __future__ import annotations

import shlex

from bscrit.errors import UserError
from bscrit.tables.columns import Columns, is_truth, option
from bscrit.tables.names import ALIASES, APART, CONFOUNDERS, tidy
from bscrit.tables.row_fields import labels, read_groups
from bscrit.tables.sheet import Sheet

MOST_VALUES = 50


def unused_columns(sheet: Sheet, columns: Columns, curves: bool) -> tuple[str, ...]:
    """Notes on columns that `by` or another role may have been meant for.

    Such a column has several values, of which two or more occur at several batch sizes, as settings do. Numbers must
    also differ within a batch size, and where rows are points of curves stay the same along each run.

    Raises:
        UserError: the column is a model or a data set, of which a mixture has no critical batch size.
    """
    import pandas as pd

    notes = []
    used = {*columns.of.values(), *columns.by, *columns.metrics}
    within = pd.DataFrame(
        {"group": read_groups(sheet, columns)[0], "size": labels(sheet, columns.of["batch_size"])}
    )
    runs = sheet.frame.groupby(columns.run_columns, sort=False, dropna=False) if curves else None
    for column in [column for column in sheet.frame.columns if column not in used]:
        name, kind = tidy(column), sheet.frame[column].dtype.kind
        confounds = name in CONFOUNDERS
        if not curves and not {"reached", "censored", "status"} & set(columns.of) and is_truth(sheet, column):
            remedy = f"{option('reached', column)} if it means that a run arrived"
            notes.append(f"{column!r} holds truth values and is not used; {remedy}")
            continue
        is_number = kind in "iuf" and not confounds
        no_setting = name in ALIASES or set(name.split("_")) & APART
        if not confounds and (kind in "bM" or (is_number and no_setting)):
            continue
        value = labels(sheet, column)
        values = [word for word in dict.fromkeys(value) if word]
        if not 2 <= len(values) <= MOST_VALUES:
            continue
        settings = within.assign(value=value).query("value != ''").drop_duplicates()
        again = settings.groupby(["group", "value"]).size() >= 2
        if again.groupby("group").sum().max() < 2:
            continue
        if confounds:
            what = f"{column!r} has {len(values)} values ({', '.join(values[:4])}), which need a fit each"
            raise UserError(sheet.name, what, f"--by {shlex.quote(','.join([*columns.by, column]))}")
        differs = settings.duplicated(["group", "size"]).any()
        if is_number and (not differs or (runs is not None and (runs[column].nunique() > 1).any())):
            continue
        rate = f", {option('lr', column)} if it is the learning rate" if is_number else ""
        notes.append(
            f"rows with different {column!r} are pooled; --by {shlex.quote(column)} separates them{rate}"
        )
    return tuple(notes)
