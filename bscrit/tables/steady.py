"""Batch sizes that scatter about a constant along a run, as those of batches in tokens do: the run has their mean."""

from __future__ import annotations

import numpy as np

from bscrit.tables.columns import Columns
from bscrit.tables.sheet import Sheet

POINTS = 5  # of a run, which tell scatter from a design
WIDEST = 1.5  # ratio of the largest and the smallest batch of a run
APART = 0.05  # in ln(batch size), between the means of runs that are not of one batch size


def with_steady_sizes(sheet: Sheet, columns: Columns) -> Sheet:
    """The sheet with one batch size for each such run, the same for runs whose means are close.

    A run goes on while its steps rise. Batch sizes that only rise are a ramp, and stay as they are.
    """
    import pandas as pd

    if "steps" not in columns.of or not (columns.metrics or "metric" in columns.of):
        return sheet
    frame = sheet.frame.reset_index(drop=True)
    size, step = frame[columns.of["batch_size"]], frame[columns.of["steps"]]
    if size.dtype.kind not in "iuf" or step.dtype.kind not in "iuf":
        return sheet
    names = [*(columns.of[role] for role in ("seed", "run") if role in columns.of), *columns.by]
    run = frame.groupby(names, dropna=False).ngroup() if names else pd.Series(0, frame.index)
    if sheet.frame.index.nlevels > 1:
        run = pd.Series(run.to_numpy() * 1_000_000 + pd.factorize(sheet.frame.index.get_level_values(0))[0])
    begins = ~(step.groupby(run).diff() > 0)
    part = begins.groupby(run).cumsum()
    runs = size.astype(float).groupby([run, part])
    change = runs.diff()
    steady = (
        (runs.transform("count") >= POINTS)
        & (runs.transform("nunique") > 2)
        & (runs.transform("max") < WIDEST * runs.transform("min"))
        & (change > 0).groupby([run, part]).transform("any")
        & (change < 0).groupby([run, part]).transform("any")
    )
    if not steady.any():
        return sheet
    mean = runs.transform("mean")
    ordered = np.sort(mean[steady].unique())
    cluster = np.concatenate([[0], np.cumsum(np.diff(np.log(ordered)) > APART)])
    common = pd.Series(ordered).groupby(cluster).transform("mean").round().to_numpy()
    widest = float((size[steady] / mean[steady] - 1).abs().max())
    sizes = size.where(~steady, mean.map(dict(zip(ordered, common, strict=True))))
    note = f"batch sizes scatter by up to {widest:.0%} along a run, which is taken at their mean"
    named = {columns.of["batch_size"]: sizes.to_numpy()}
    return sheet.reshaped(sheet.frame.assign(**named), note)
