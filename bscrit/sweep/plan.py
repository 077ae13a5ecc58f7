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
from bscrit.sweep.auto import active, choose
from bscrit.sweep.batch_size import BatchSize
from bscrit.sweep.measurement import is_served, measure, retreated
from bscrit.sweep.rates import Infeasible, Try, Tuned
from bscrit.sweep.search import best_rate, search

if TYPE_CHECKING:
    from bscrit.spec import Spec


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
        best_rate, steps: for the hardest target; None and infinite where they are not known.
        unreachable: targets for which the budget of examples was too small.
    """

    batch_size: int
    best_rate: float | None
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
    settled: list[Settled] = []
    targets = spec.sweep.targets
    own: dict[int, list[Record]] = {size: [] for size in batch_sizes}
    for record in records:
        own.get(record.trial.batch_size, []).append(record)
    for batch_size in batch_sizes:
        here, *larger = (
            BatchSize(spec, preflight, size, targets, own[size], given_up)
            for size in batch_sizes
            if size == batch_size or (size > batch_size and own[size])
        )
        planned, this = _at_size(here, settled)
        if this is None:
            beyond = [there for other in larger if (there := _at_size(other, settled)[1])]
            return cohorts + (_at_size(here, settled + beyond)[0] if beyond else planned), False
        cohorts += planned
        if cohorts and spec.learning_rate.tune == "rule":
            return cohorts, False  # what this one takes is a cap for the larger ones
        settled.append(this)
        # A larger batch size needs more examples yet: where examples ran out, they run out there too.
        lost = {target for target in this.unreachable if not _reached_above(records, batch_size, target)}
        targets = tuple(target for target in targets if target not in lost)
        if not targets:
            break
    return cohorts, True


def _at_size(here: BatchSize, others: Sequence[Settled]) -> tuple[list[Cohort], Settled | None]:
    """The cohorts of one batch size, and its settled rate, None while it is still searched."""
    here = _with_law(here, [other for other in others if other.best_rate])
    begun = here.begun()
    rates = {target: _rate(here, target) for target in reversed(here.targets)}
    settled = _settled(here, rates)
    for target, rate in rates.items():
        if isinstance(rate, Try):
            again = here.is_searched_again(target)
            return begun or [search(here, rate, target, again)], settled if again else None
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
        if cohort := measure(here, rate, target):
            return [cohort], settled
    return [], settled


def _with_law(here: BatchSize, others: Sequence[Settled]) -> BatchSize:
    """With what other batch sizes know of its rate and steps."""
    if not others:
        return here
    points = [BestRate(other.batch_size, RateEstimate(math.log(other.best_rate or 1))) for other in others]
    predicted = fit_law(points, here.spec.optimizer.rate_power).at(here.batch_size)
    smaller = [other.steps for other in others if other.batch_size < here.batch_size]
    return replace(here, predicted=predicted, smaller_steps=smaller)


def _rate(here: BatchSize, target: float) -> Tuned | Try | Infeasible:
    """The rate for a target: the one that was measured last, else that of the search."""
    if measured := here.measured(target):
        return Tuned(measured[-1].trial.lr, math.inf)
    return best_rate(here, target, here.is_searched_again(target))


def _settled(here: BatchSize, rates: Mapping[float, Tuned | Try | Infeasible]) -> Settled:
    """What other batch sizes learn: from the first search, whatever its measurement has shown by now."""
    by_examples = here.max_steps == here.spec.sweep.max_examples // here.batch_size
    spent = [target for target, rate in rates.items() if isinstance(rate, Infeasible) and rate.exhausted]
    unreachable = tuple(spent) if by_examples else ()
    for rate in (best_rate(here, here.hardest, False), rates[here.hardest]):
        if isinstance(rate, Tuned):
            steps = rate.steps
            if math.isinf(steps):
                runs = [r.curve for r in here.measured(here.hardest) if r.status == "reached"]
                steps = steps_to(runs, here.hardest, confirmed=False) or math.inf
            return Settled(here.batch_size, rate.lr, steps, unreachable)
    return Settled(here.batch_size, None, math.inf, unreachable)


def _reached_above(records: Sequence[Record], batch_size: int, target: float) -> bool:
    return any(
        r.trial.batch_size > batch_size
        and r.role == "measure"
        and r.status == "reached"
        and r.trial.goal.reached(r.order.targets[-1], target)
        for r in records
    )
