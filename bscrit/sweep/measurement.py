"""The measurement of one batch size: fresh seeds at the rate of the search, whose mean curve the fit sees.

Where a seed is lost at the edge of stability, all are measured again at a lower rate. Runs to a hard target
serve the easier ones too, where these want nearly the same rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bscrit.crossing import steps_to
from bscrit.order import Cohort
from bscrit.record import Record
from bscrit.sweep.batch_size import SEEDS_AGAIN, BatchSize
from bscrit.sweep.cadence import noise_settings
from bscrit.sweep.caps import MAX_RETREATS, lowered, repeat_cap, rule_cap
from bscrit.sweep.rates import Tuned, round_rate
from bscrit.sweep.search import fewest_searched

SHARED = 0.04  # ln(steps) that an easier target may lose by runs that were made for a harder one


def measure(here: BatchSize, rate: Tuned, target: float) -> Cohort | None:
    """Fresh seeds at the tuned rate, or at a lower one where a seed was lost; None where nothing is missing."""
    lr = rate.lr
    done = here.measured(target)
    retreats = max(len({record.trial.lr for record in done}) - 1, 0)
    if done:
        lr = done[-1].trial.lr
        last = [record for record in done if record.trial.lr == lr]
        if retreats < MAX_RETREATS and here.spec.learning_rate.tune == "race" and _is_lost(last, target):
            lr, retreats = lowered(lr), retreats + 1
    # Runs at this rate to a harder target serve as well: to ask the same trials again for this one would undo them.
    seeds = range(here.spec.sweep.first_seed, here.spec.sweep.first_seed + here.spec.sweep.seeds)
    have = {r.trial.seed: r for r in here.serving(target) if r.trial.lr == lr and r.trial.seed in seeds}
    if _is_torn(list(have.values()), target):
        have = {}
    lanes = [(lr, seed) for seed in seeds if seed not in have and not here.is_given_up(lr, seed)]
    if not lanes:
        return None
    expected, cap, cap_seeds = _expected(here, rate, done, target, retreats)
    return here.cohort(
        "measure",
        lanes,
        here.asked_with(target),
        cap_steps=cap,
        cap_seeds=cap_seeds if cap else 0,
        least_steps=max((int(r.curve.steps[-1]) for r in have.values() if r.status == "reached"), default=0),
        noise=noise_settings(here, expected),
    )


def is_served(here: BatchSize, target: float, rate: Tuned, pending: Sequence[float]) -> bool:
    """Whether runs to a harder target have this rate, to within a few per cent of the steps.

    Args:
        pending: rates of harder targets whose runs failed: they will serve once what made them fail is mended.
    """
    if here.measured(target):
        return False
    asked = {r.order.targets[-1] for r in here.serving(target)}
    harder = {other for other in asked - {target} if here.spec.goal.reached(other, target)}
    rates = [*pending, *(here.measured(other)[-1].trial.lr for other in harder)]
    return any(rate.loss_at(lr) <= SHARED for lr in rates)


def retreated(here: BatchSize, rate: Tuned) -> Tuned:
    """The rate of an easier target, lower by the factor by which runs to the hardest one had to go down.

    The searches of all targets share their seed, so that an easier one was misled as well.
    """
    runs = here.measured(here.hardest)
    if not runs or any(r.status != "reached" for r in runs if r.trial.lr == runs[-1].trial.lr):
        return rate
    factor = min(runs[-1].trial.lr / runs[0].trial.lr, 1.0)
    return replace(rate, lr=round_rate(factor * rate.lr), steps=rate.steps / factor)


def _expected(
    here: BatchSize, rate: Tuned, done: Sequence[Record], target: float, retreats: int
) -> tuple[float, int, int]:
    """Steps that the repeats are expected to take, their cap, and on how many seeds it rests."""
    again = here.is_searched_again(target)
    steps = rate.steps if math.isfinite(rate.steps) else fewest_searched(here, target, again)
    tune = here.spec.learning_rate.tune
    if tune != "race":  # No lower rate follows where runs wander, and a grid's best rate rests on one run.
        return steps, rule_cap(here.smaller_steps, here.max_steps) if tune == "rule" else 0, 0
    own = [own for record in done if (own := record.steps_to(target)) is not None]
    seeds = SEEDS_AGAIN if again else 1
    if len(own) > seeds:
        steps, seeds = max(steps, float(np.median(own))), len(own)
    return steps, 0 if here.cut_short(target) > 1 else repeat_cap(steps, retreats, here.max_steps), seeds


def _is_lost(runs: Sequence[Record], target: float) -> bool:
    """Whether a run at one rate diverged or met its cap, or a cohort's mean never met the target that all its runs met.

    Near the edge of stability, when one run is down others are up.
    """
    if any(record.status in ("diverged", "stopped") for record in runs):
        return True
    cohorts = [[r for r in runs if r.order == order] for order in {record.order for record in runs}]
    return any(
        all(record.status == "reached" for record in cohort)
        and steps_to([record.curve for record in cohort], target, confirmed=False) is None
        for cohort in cohorts
    )


def _is_torn(runs: Sequence[Record], target: float) -> bool:
    """Whether seeds were added to others that had ended before the mean of all meets the target: they train again."""
    reached = [record for record in runs if record.status == "reached"]
    return len({record.order for record in reached}) > 1 and not steps_to([r.curve for r in reached], target)
