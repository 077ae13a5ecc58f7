"""plan(spec, preflight, records) -> cohorts: what is still to be trained, and nothing else.

A pure function of what was observed, never of timing: an interrupted sweep, an added batch size, seed or
target are all this one function, and nothing planned means finished. Batch sizes are taken in ascending
order, since what is known of the small and cheap ones starts the large ones near their best rate:
at each the rate is searched (search.py), then measured on fresh seeds (measurement.py).

While a batch size searches its rate, the smaller ones are measured; a larger one waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bscrit.crossing import steps_to
from bscrit.order import Cohort
from bscrit.preflight import Preflight
from bscrit.rate_law import BestRate, RateEstimate, fit_law
from bscrit.record import Record
from bscrit.sweep.auto import MOST, active, choose
from bscrit.sweep.batch_size import SEEDS_AGAIN, BatchSize
from bscrit.sweep.caps import MAX_RETREATS
from bscrit.sweep.measurement import is_served, measure, retreated
from bscrit.sweep.search import best_rate, search
from bscrit.sweep.tune import MAX_LANES, Infeasible, Try, Tuned

if TYPE_CHECKING:
    from bscrit.spec import Spec

NEAR = 4  # at most so many times a batch size that was looked at, its engine serves


def plan(
    spec: Spec, preflight: Preflight, records: Iterable[Record], given_up: Collection[str] = ()
) -> list[Cohort]:
    """The cohorts that can train now.

    Args:
        records: everything in the results folder; what belongs to other trials than this spec's is ignored.
        given_up: names of trials that failed too often to be tried again now.
    """
    mine = sorted(
        (r for r in records if spec.asks_for(r.trial, preflight.fingerprint)), key=lambda r: r.trial.name
    )
    if not spec.sweep.auto:
        return _at_sizes(spec.sweep.batch_sizes, spec, preflight, mine, given_up)[0]
    sizes = active(spec, preflight, mine)
    cohorts, settled = _at_sizes(sizes, spec, preflight, mine, given_up)
    if cohorts or not settled:
        return cohorts
    chosen = choose(spec, preflight, mine).batch_size
    added = [] if chosen is None else [chosen]
    return _at_sizes(sorted([*sizes, *added]), spec, preflight, mine, given_up)[0]


@dataclass(frozen=True)
class Settled:
    """A batch size whose rate is settled, so that the next one may start.

    Attributes:
        best_rate: for the rate law; None where no rate reaches the hardest target.
        steps: to the hardest target, infinite where they are not known.
        unreachable: targets for which the budget of examples was too small.
    """

    best_rate: BestRate | None
    steps: float
    unreachable: tuple[float, ...] = ()


def _at_sizes(
    batch_sizes: Sequence[int],
    spec: Spec,
    preflight: Preflight,
    records: Sequence[Record],
    given_up: Collection[str],
) -> tuple[list[Cohort], bool]:
    """The cohorts of these batch sizes, and whether the rate is settled at each."""
    cohorts: list[Cohort] = []
    best_rates: list[BestRate] = []
    steps: list[float] = []
    targets = spec.sweep.targets
    by_size: dict[int, list[Record]] = {size: [] for size in batch_sizes}
    for record in records:
        by_size.get(record.trial.batch_size, []).append(record)
    for batch_size, own in by_size.items():
        facts = with_engine(preflight, batch_size)
        here = BatchSize(spec, facts, batch_size, targets, own, given_up)
        planned, settled = _at_size(here, best_rates, steps)
        if settled is None:
            larger = [
                replace(here, batch_size=size, records=r)
                for size, r in by_size.items()
                if size > batch_size and r
            ]
            beyond = [_at_size(there, best_rates, steps)[1] for there in larger]
            rates = [there.best_rate for there in beyond if there and there.best_rate]
            if rates:
                planned, _ = _at_size(here, [*best_rates, *rates], steps)
            return cohorts + planned, False
        cohorts += planned
        if cohorts and spec.learning_rate.tune == "rule":
            return cohorts, False  # what this one takes is a cap for the larger ones
        if settled.best_rate:
            best_rates.append(settled.best_rate)
            steps.append(settled.steps)
        # A larger batch size needs more examples yet: where examples ran out, they run out there too.
        lost = {target for target in settled.unreachable if not _reached_above(records, batch_size, target)}
        targets = tuple(target for target in targets if target not in lost)
        if not targets:
            break
    return cohorts, True


def _at_size(
    here: BatchSize, best_rates: Sequence[BestRate], steps: Sequence[float]
) -> tuple[list[Cohort], Settled | None]:
    """The cohorts of one batch size, and its settled rate, None while it is still searched.

    Args:
        best_rates: of other batch sizes.
        steps: of smaller ones to the hardest target.
    """
    power = here.spec.optimizer.rate_power
    predicted = fit_law(best_rates, power).at(here.batch_size) if best_rates else None
    begun = here.begun()
    rates = {target: _rate(here, target, predicted, steps) for target in reversed(here.targets)}
    if any(isinstance(rate, Infeasible) and rate.failed for rate in rates.values()):
        return begun, None  # Larger ones wait for its rate until what made it fail is mended.
    settled = _settled(here, rates, predicted, steps)
    for target, rate in rates.items():
        if isinstance(rate, Try):
            again = here.is_searched_again(target)
            race = search(here, rate, _targets(here, target), steps, again)
            return begun or [race], settled if again else None
    if begun:
        return begun, settled
    # One target after the other, the hardest first: its runs, where they end up, may serve the easier ones.
    pending: list[float] = []
    for target, rate in rates.items():
        if not isinstance(rate, Tuned):
            continue
        if target != here.hardest and not here.measured(target):
            rate = retreated(here, rate)
            if is_served(here, target, rate, pending):
                continue
        pending += [] if here.measured(target) else [rate.lr]
        if cohort := measure(here, rate, _targets(here, target), steps):
            return [cohort], settled
    return [], settled


def _targets(here: BatchSize, target: float) -> tuple[float, ...]:
    """Targets of a cohort that is made for one: the hardest is asked together with all easier ones."""
    return here.targets if target == here.hardest else (target,)


def _rate(
    here: BatchSize, target: float, predicted: RateEstimate | None, steps: Sequence[float]
) -> Tuned | Try | Infeasible:
    """The rate for a target: the one that was measured last, else that of the search."""
    measured = here.measured(target)
    if measured:
        return Tuned(measured[-1].trial.lr, math.inf)
    return best_rate(here, target, predicted, here.is_searched_again(target), steps)


def _settled(
    here: BatchSize,
    rates: Mapping[float, Tuned | Try | Infeasible],
    predicted: RateEstimate | None,
    steps: Sequence[float],
) -> Settled:
    """What other batch sizes learn: from the first search, whatever its measurement has shown by now."""
    by_examples = here.max_steps == here.spec.sweep.max_examples // here.batch_size
    unreachable = tuple(
        target
        for target, rate in rates.items()
        if by_examples and isinstance(rate, Infeasible) and rate.exhausted
    )
    for rate in (best_rate(here, here.hardest, predicted, False, steps), rates[here.hardest]):
        if isinstance(rate, Tuned):
            runs = [r.curve for r in here.measured(here.hardest) if r.status == "reached"]
            mean = steps_to(runs, here.hardest, confirmed=False) if math.isinf(rate.steps) else None
            ln_rate = RateEstimate(math.log(rate.lr))
            return Settled(BestRate(here.batch_size, ln_rate), mean or rate.steps, unreachable)
    return Settled(None, math.inf, unreachable)


def _reached_above(records: Sequence[Record], batch_size: int, target: float) -> bool:
    return any(
        r.trial.batch_size > batch_size
        and r.role == "measure"
        and r.status == "reached"
        and r.trial.goal.reached(r.order.targets[-1], target)
        for r in records
    )


def with_engine(preflight: Preflight, batch_size: int) -> Preflight:
    """The facts with an engine at this batch size: the one that was chosen at the nearest that was looked at."""
    near = [size for size in preflight.engines if 1 / NEAR <= size / batch_size <= NEAR]
    if not near:
        return preflight
    nearest = min(near, key=lambda size: (abs(math.log(size / batch_size)), size))
    return replace(preflight, engines={**preflight.engines, batch_size: preflight.engines[nearest]})


def largest_cost(spec: Spec, examples: int | None = None) -> tuple[int, float]:
    """The most trials and examples that the whole sweep can take, were every lane to spend its budget.

    Args:
        examples: the data set's size.
    """
    tuning = spec.learning_rate
    lanes = spec.sweep.seeds * len(spec.sweep.targets)
    if tuning.tune == "race":  # searched again, too, measured before that, and at lower rates
        lanes = MAX_LANES * (1 + SEEDS_AGAIN) + lanes * 2 * (1 + MAX_RETREATS)
    elif tuning.tune == "grid":
        lanes += len(tuning.rates)
    each = sorted(
        (lanes * spec.max_steps_at(size) * size for size in spec.candidates(examples)), reverse=True
    )
    if not spec.sweep.auto:
        return lanes * len(each), sum(each)
    total, beginning = spec.sweep.max_total_examples or math.inf, len(spec.beginning(examples))
    # The last batch size may turn out dearer than it was expected to be.
    most = max(sum(each[:beginning]), min(sum(each[:MOST]), total + each[0]))
    return lanes * min(len(each), MOST), most
