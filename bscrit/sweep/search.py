"""The search of the best rate at one batch size: lanes of one seed race at several rates, round after round.

tune.py reads the race; a fixed grid tries each of its rates once, and a rule searches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bscrit.crossing import forecast
from bscrit.order import Cohort
from bscrit.rate_law import RateEstimate
from bscrit.record import Record
from bscrit.sweep.batch_size import BatchSize
from bscrit.sweep.caps import search_cap
from bscrit.sweep.tune import (
    Infeasible,
    Lane,
    Try,
    Tuned,
    first_rates,
    predicted_rates,
    rates_around,
    tune,
)

POWERS = {"linear": 1.0, "sqrt": 0.5}  # of the batch size, by the rule's name
AROUND_MEASURED = 1.25  # factor between the first rates where an easier target was measured


def best_rate(here: BatchSize, target: float, predicted: RateEstimate | None) -> Tuned | Try | Infeasible:
    """The rate that the search settled for a target, or what is still to be tried.

    Args:
        predicted: by the law of the other batch sizes; None where none is known.
    """
    settings = here.spec.learning_rate
    if settings.tune == "rule":
        ratio = here.batch_size / settings.base_batch_size
        return Tuned(settings.base * ratio ** POWERS[settings.scaling], math.inf)
    lanes = [lane_of(record, target) for record in here.searched(target)]
    step = _grid(here, lanes) if settings.tune == "grid" else _race(here, target, lanes, predicted)
    if isinstance(step, Try):
        rates = tuple(lr for lr in step.rates if not here.is_given_up(lr, here.search_seed))
        return Try(rates) if rates else Infeasible("the rates that are left failed")
    return step


def search(here: BatchSize, rates: Try, targets: tuple[float, ...], fewest_steps: float) -> Cohort:
    """The next round of the search: a lane per rate, all of one seed.

    Args:
        fewest_steps: that a smaller batch size needs to the hardest target.
    """
    rounds = [record.order.round for record in here.records if record.role == "search"]
    best = tuple(here.fewest_steps(target) for target in targets)
    return here.cohort(
        "search",
        max(rounds, default=-1) + 1,
        ((lr, here.search_seed) for lr in rates.rates),
        targets,
        cap_steps=search_cap(fewest_steps, here.max_steps),
        incumbents=best if all(map(math.isfinite, best)) else (),
    )


def lane_of(record: Record, target: float) -> Lane:
    """How a finished run of the search did at one target."""
    lr = record.trial.lr
    if record.status in ("diverged", "failed"):
        return Lane(lr, "diverged", math.inf)
    loss = float(record.curve.loss.min())
    steps = record.steps_to(target)
    if steps is not None:
        return Lane(lr, "met", steps, loss)
    steps = forecast(record.curve, target)
    return Lane(lr, "exhausted" if record.status == "exhausted" else "slow", steps, loss)


def _race(
    here: BatchSize, target: float, lanes: Sequence[Lane], predicted: RateEstimate | None
) -> Tuned | Try | Infeasible:
    measured = [r for r in here.records if r.role == "measure" and r.finished]
    if measured and all(lane.kind == "diverged" for lane in lanes):
        # A target that was added later begins around what the next easier one measured.
        nearest = min(measured, key=lambda r: (r.trial.goal.falls(r.order.targets[-1]), -r.order.round))
        tried = {lane.lr for lane in lanes}
        around = rates_around(nearest.trial.lr, AROUND_MEASURED).rates
        if untried := tuple(lr for lr in around if lr not in tried):
            return Try(untried)
    elif not lanes:
        return predicted_rates(predicted) if predicted else first_rates(here.spec.first_guess())
    hardest = target == here.hardest
    return tune(lanes, fine=hardest, predicted=predicted if hardest else None)


def _grid(here: BatchSize, lanes: Sequence[Lane]) -> Tuned | Try | Infeasible:
    """Every rate of a fixed grid once; the best of them, as it stands."""
    done = {lane.lr for lane in lanes}
    assert here.spec.learning_rate.tune == "grid"
    missing = tuple(lr for lr in here.spec.learning_rate.rates if lr not in done)
    if not all(here.is_given_up(lr, here.search_seed) for lr in missing):
        return Try(missing)
    met = [lane for lane in lanes if lane.kind == "met"]
    if not met:
        return Infeasible("no rate of the grid arrives within the budget")
    best = min(met, key=lambda lane: lane.steps)
    return Tuned(best.lr, best.steps)
