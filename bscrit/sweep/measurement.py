"""The measurement of one batch size: fresh seeds at the rate of the search, whose mean curve the fit sees.

Where a seed is lost at the edge of stability, all are measured again at a lower rate. Runs to a hard target
serve the easier ones too, where these want nearly the same rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bscrit.crossing import steps_to
from bscrit.order import Cohort, NoiseSettings
from bscrit.record import Record
from bscrit.sweep.batch_size import BatchSize
from bscrit.sweep.caps import MAX_RETREATS, lowered, repeat_cap
from bscrit.sweep.tune import Tuned

NOISE_SAMPLES = 7  # of a run at least
SHARED = 0.04  # ln(steps) that an easier target may lose by runs that were made for a harder one


def measure(here: BatchSize, rate: Tuned, targets: tuple[float, ...]) -> Cohort | None:
    """Fresh seeds at the tuned rate, or at a lower one where a seed was lost; None where nothing is missing."""
    lr, steps, target = rate.lr, rate.steps, targets[-1]
    done = here.measured(target)
    last = [record for record in done if record.trial.lr == done[-1].trial.lr]
    retreats = max(len({record.trial.lr for record in done}) - 1, 0)
    if last:
        lr = last[0].trial.lr
        if retreats < MAX_RETREATS and here.spec.learning_rate.tune == "race" and _is_lost(last, target):
            lr, retreats = lowered(lr), retreats + 1
    # Runs at this rate to a harder target serve as well: to ask the same trials again for this one would undo them.
    have = {record.trial.seed for record in here.serving(target) if record.trial.lr == lr}
    first = here.spec.sweep.first_seed
    seeds = (seed for seed in range(first, first + here.spec.sweep.seeds) if seed not in have)
    lanes = [(lr, seed) for seed in seeds if not here.is_given_up(lr, seed)]
    if not lanes:
        return None
    if not math.isfinite(steps):
        steps = here.fewest_steps(target)
    return here.cohort(
        "measure",
        done[-1].order.round + 1 if done else 0,
        lanes,
        targets,
        cap_steps=repeat_cap(steps, retreats, here.max_steps),
        noise=_noise_settings(here, steps),
    )


def is_served(here: BatchSize, target: float, rate: Tuned, pending: Sequence[float]) -> bool:
    """Whether runs to a harder target have this rate, to within a few per cent of the steps.

    Args:
        pending: rates of harder targets whose runs failed: they will serve once what made them fail is mended.
    """
    if here.measured(target):
        return False
    if _rate_after_retreat(here) <= rate.lr:
        return True
    asked = {r.order.targets[-1] for r in here.serving(target)}
    harder = {other for other in asked - {target} if here.spec.goal.reached(other, target)}
    rates = [*pending, *(here.measured(other)[-1].trial.lr for other in harder)]
    return any(rate.loss_at(lr) <= SHARED for lr in rates)


def _rate_after_retreat(here: BatchSize) -> float:
    """The rate to which runs to the hardest target had to go down; infinite where its search was right.

    The searches of all targets share their seed, so an easier one was misled as well.
    """
    runs = here.measured(here.hardest)
    if not runs or any(r.status != "reached" for r in runs if r.trial.lr == runs[-1].trial.lr):
        return math.inf
    return runs[-1].trial.lr if runs[-1].trial.lr < runs[0].trial.lr else math.inf


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


def _noise_settings(here: BatchSize, steps: float) -> NoiseSettings | None:
    """How noise is measured; not where a batch has no parts between which it could be seen.

    A run that is expected to take few steps takes its samples closer together.
    """
    noise = here.spec.noise
    if noise.source == "none" or not here.preflight.splits or here.batch_size < 2:
        return None
    several = math.ceil(steps / NOISE_SAMPLES) if math.isfinite(steps) else noise.every
    return NoiseSettings(
        source=noise.source,
        metrics=noise.metric,
        parts=noise.parts,
        every=min(noise.every, max(several, 1)),
        spacing=noise.spacing,
        losses=tuple(sorted(noise.at_losses, reverse=True)),
        precision=noise.precision,
        max_examples=noise.max_examples,
    )
