"""Metrics that are averages over past steps: their curves lag behind, most of all where runs are short."""

from __future__ import annotations

from math import inf

import numpy as np

from bscrit.tables.curves import Runs
from bscrit.tables.names import tidy
from bscrit.tables.sheet import Sheet

OVER_STEPS = {"ema", "ewma", "smooth", "smoothed", "running", "moving", "rolling"}
OVER_SOMETHING = {"avg", "average", "averaged"}  # perhaps over the examples of an evaluation
TRAINER = {"epoch", "grad_norm"}  # columns beside the `loss` of the transformers Trainer


def averaging(sheet: Sheet, runs: Runs) -> tuple[str, float]:
    """(what the metric is an average of, the steps that it lags behind), ("", 0) for one that is no average.

    The lag of a mean over a logging interval is half of that; that of an average which only a name tells is unknown.
    """
    metric = tidy(runs.goal.metric)
    words = set(metric.split("_"))
    if words & OVER_STEPS:
        return f"by its name {runs.goal.metric!r} is an average over past steps", inf
    if words & OVER_SOMETHING:
        return f"by its name {runs.goal.metric!r} may be an average over past steps", 0.0
    if metric in ("loss", "train_loss") and {tidy(str(name)) for name in sheet.frame.columns} >= TRAINER:
        gaps = [float(np.median(np.diff(run.curve.steps))) for run in runs.runs if len(run.curve) > 1]
        text = f"{runs.goal.metric!r} of the transformers Trainer is a mean since the last log"
        return text, max(gaps, default=0.0) / 2
    return "", 0.0
