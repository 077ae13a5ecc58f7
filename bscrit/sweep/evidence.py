"""What finished runs say to the plan: how one did in the search, and whether a cohort fell apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bscrit.crossing import forecast, steps_to
from bscrit.record import Record
from bscrit.sweep.tune import Lane


def lane_of(record: Record, target: float) -> Lane:
    """What a finished run of the search did at one target."""
    lr = record.trial.lr
    if record.status in ("diverged", "failed"):
        return Lane(lr, "diverged", math.inf)
    loss = float(record.curve.loss.min())
    steps = record.steps_to(target)
    if steps is not None:
        return Lane(lr, "met", steps, loss)
    steps = forecast(record.curve, target)
    return Lane(lr, "exhausted" if record.status == "exhausted" else "slow", steps, loss)


def apart(records: Sequence[Record], target: float) -> bool:
    """Whether runs of one cohort all met the target, but their mean never did.

    Near the edge of stability, when one is down others are up.
    """
    cohorts = [[r for r in records if r.order == order] for order in {record.order for record in records}]
    return any(
        all(record.status == "reached" for record in cohort)
        and steps_to([record.curve for record in cohort], target, confirmed=False) is None
        for cohort in cohorts
    )
