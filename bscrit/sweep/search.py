"""The search of the best rate at one batch size: lanes of one seed race at several rates, round after round.

tune.py reads the race; a fixed grid tries each of its rates once, and a rule searches nothing. Where the repeats show
that the seed of a race was lucky, it is repeated on several seeds, which race by their mean curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bscrit.crossing import forecast, steps_to
from bscrit.curve import Curve
from bscrit.order import Cohort
from bscrit.record import Record
from bscrit.sweep.batch_size import BatchSize
from bscrit.sweep.caps import search_cap
from bscrit.sweep.rates import (
    WIDEST,
    Infeasible,
    Lane,
    Try,
    Tuned,
    first_rates,
    predicted_rates,
    rates_around,
)
from bscrit.sweep.tune import tune

POWERS = {"linear": 1.0, "sqrt": 0.5}  # of the batch size, by the rule's name
MORE = 1.1  # times the fewest steps of smaller batch sizes: what a larger one takes at most, when its rate is right
AROUND_MEASURED = 1.25  # factor between the first rates where an easier target was measured


def best_rate(here: BatchSize, target: float, again: bool) -> Tuned | Try | Infeasible:
    """The rate that the search, or its repetition, settled for a target, or what is still to be tried."""
    settings = here.spec.learning_rate
    if settings.tune == "rule":
        ratio = here.batch_size / settings.base_batch_size
        return Tuned(settings.base * ratio ** POWERS[settings.scaling], math.inf)
    lanes = lanes_of(here, target, again)
    step = (
        _grid(here, lanes, settings.rates) if settings.tune == "grid" else _race(here, target, lanes, again)
    )
    if isinstance(step, Try):
        seeds = here.search_seeds(again)
        rates = tuple(lr for lr in step.rates if not any(here.is_given_up(lr, seed) for seed in seeds))
        return Try(rates) if rates else Infeasible("the rates that are left failed")
    return step


def search(here: BatchSize, rates: Try, target: float, again: bool) -> Cohort:
    """The next round of the search, or of its repetition: every rate with every seed."""
    seeds, targets = here.search_seeds(again), here.asked_with(target)
    best = tuple(fewest_searched(here, asked, again) for asked in targets)
    rounds = {r.order.round for r in here.records if r.role == "search" and r.trial.seed in seeds}
    arrived = all(map(math.isfinite, best))
    return here.cohort(
        "search",
        [(lr, seed) for lr in rates.rates for seed in seeds],
        targets,
        cap_steps=0 if arrived else search_cap(here.smaller_steps, len(rounds), here.max_steps),
        incumbents=best if arrived else (),
    )


def fewest_searched(here: BatchSize, target: float, again: bool) -> float:
    """Steps of the best rate of the search so far; infinite where none arrived."""
    return min((lane.steps for lane in lanes_of(here, target, again) if lane.kind == "met"), default=math.inf)


def lanes_of(here: BatchSize, target: float, again: bool) -> list[Lane]:
    """How the rates of the search did at a target, so far."""
    return [_lane(lr, runs, target) for lr, runs in here.searched(target, again).items()]


def _lane(lr: float, runs: Sequence[Record], target: float) -> Lane:
    """How one rate did, by the mean curve of its seeds."""
    if any(run.status in ("diverged", "failed") for run in runs):
        return Lane(lr, "diverged", math.inf)
    curve = _mean([run.curve for run in runs])
    loss = float(curve.loss.min())
    steps = runs[0].steps_to(target) if len(runs) == 1 else steps_to([curve], target, confirmed=False)
    if steps is not None:
        return Lane(lr, "met", steps, loss)
    spent = all(run.status == "exhausted" for run in runs)
    return Lane(lr, "exhausted" if spent else "slow", forecast(curve, target), loss)


def _mean(curves: Sequence[Curve]) -> Curve:
    """The mean of curves in lockstep, as far as all of them go."""
    shortest = min(curves, key=len)
    return replace(shortest, loss=np.mean([curve.loss[: len(shortest)] for curve in curves], axis=0))


def _race(here: BatchSize, target: float, lanes: Sequence[Lane], again: bool) -> Tuned | Try | Infeasible:
    measured = [r for r in here.records if r.role == "measure" and r.finished]
    if measured and all(lane.kind == "diverged" for lane in lanes):
        # A target that was added later begins around what the next easier one measured, a repetition around its like.
        nearest = min(measured, key=lambda r: (r.trial.goal.falls(r.order.targets[-1]), -r.order.round))
        tried = {lane.lr for lane in lanes}
        around = rates_around(nearest.trial.lr, WIDEST if again else AROUND_MEASURED).rates
        if untried := tuple(lr for lr in around if lr not in tried):
            return Try(untried)
    elif not lanes:
        return predicted_rates(here.predicted) if here.predicted else first_rates(here.spec.first_guess())
    if target != here.hardest:
        return tune(lanes, fine=False)
    return tune(lanes, predicted=here.predicted, most=MORE * min(here.smaller_steps, default=0.0))


def _grid(here: BatchSize, lanes: Sequence[Lane], rates: Sequence[float]) -> Tuned | Try | Infeasible:
    """Every rate of a fixed grid once; the best of them, as it stands."""
    done = {lane.lr for lane in lanes}
    missing = tuple(lr for lr in rates if lr not in done)
    if not all(here.is_given_up(lr, seed) for lr in missing for seed in here.search_seeds(False)):
        return Try(missing)
    met = [lane for lane in lanes if lane.kind == "met"]
    if not met:
        return Infeasible("no rate of the grid arrives within the budget")
    best = min(met, key=lambda lane: lane.steps)
    return Tuned(best.lr, best.steps)
