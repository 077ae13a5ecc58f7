"""plan(spec, preflight, records) -> cohorts: what is still to be trained, and nothing else.

A pure function of what was observed, never of timing: an interrupted sweep, an added batch size, seed or
target are all this one function, and nothing planned means finished. Batch sizes are taken in ascending
order, since what is known of the small and cheap ones starts the large ones near their best rate:

While a batch size searches its rate, the smaller ones are measured; a larger one waits (size.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bscrit.order import Cohort
from bscrit.preflight import Preflight
from bscrit.rate_law import Known
from bscrit.record import Record
from bscrit.sweep.auto import MOST, active, choose
from bscrit.sweep.size import MAX_RETREATS, BatchSize
from bscrit.sweep.tune import MAX_LANES

if TYPE_CHECKING:
    from bscrit.spec import Spec

NEAR = 4  # at most so many times a batch size that was looked at, its backend serves


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
        return _at(spec.sweep.batch_sizes, spec, preflight, mine, given_up)[0]
    sizes = active(spec, preflight, mine)
    cohorts, settled = _at(sizes, spec, preflight, mine, given_up)
    if cohorts or not settled:
        return cohorts
    chosen = choose(spec, preflight, mine).batch_size
    added = [] if chosen is None else [chosen]
    return _at(sorted([*sizes, *added]), spec, preflight, mine, given_up)[0]


def _at(
    batch_sizes: Sequence[int],
    spec: Spec,
    preflight: Preflight,
    records: Sequence[Record],
    given_up: Collection[str],
) -> tuple[list[Cohort], bool]:
    """The cohorts of these batch sizes, and whether the rate is settled at each."""
    cohorts: list[Cohort] = []
    known: list[Known] = []
    slowest = math.inf
    targets = spec.sweep.targets
    by_size: dict[int, list[Record]] = {size: [] for size in batch_sizes}
    for record in records:
        by_size.get(record.trial.batch_size, []).append(record)
    for batch_size, here in by_size.items():
        facts = with_backend(preflight, batch_size)
        size = BatchSize(spec, facts, batch_size, targets, here, given_up, tuple(known), slowest)
        found, settled = size.plan()
        if settled is None:
            larger = [
                replace(size, batch_size=b, records=r) for b, r in by_size.items() if b > batch_size and r
            ]
            rates = [s.known for other in larger if (s := other.plan()[1]) and s.known]
            return cohorts + (replace(size, known=(*known, *rates)).plan()[0] if rates else found), False
        cohorts += found
        if settled.known:
            known.append(settled.known)
            slowest = min(slowest, settled.steps)
        # A larger batch size needs more examples yet: where examples ran out, they run out there too.
        beyond = {target for target in settled.unreachable if not _reached_above(records, batch_size, target)}
        targets = tuple(target for target in targets if target not in beyond)
        if not targets:
            break
    return cohorts, True


def _reached_above(records: Sequence[Record], batch_size: int, target: float) -> bool:
    return any(
        r.trial.batch_size > batch_size
        and r.role == "measure"
        and r.status == "reached"
        and r.order.targets[-1] <= target
        for r in records
    )


def with_backend(preflight: Preflight, batch_size: int) -> Preflight:
    """The facts with a backend at this batch size: the one that was chosen at the nearest that was looked at."""
    near = [size for size in preflight.backends if 1 / NEAR <= size / batch_size <= NEAR]
    if not near:
        return preflight
    nearest = min(near, key=lambda size: (abs(math.log(size / batch_size)), size))
    return replace(preflight, backends={**preflight.backends, batch_size: preflight.backends[nearest]})


def largest_cost(spec: Spec, examples: int | None = None) -> tuple[int, float]:
    """The most trials and examples that the whole sweep can take, were every lane to spend its budget.

    Args:
        examples: the data set's size.
    """
    lanes = {"race": MAX_LANES, "grid": len(spec.learning_rate.rates or ()), "rule": 0}[
        spec.learning_rate.tune
    ]
    retreats = MAX_RETREATS if spec.learning_rate.tune == "race" else 0
    lanes += spec.sweep.seeds * (1 + retreats) * len(spec.sweep.targets)
    each = sorted(
        (lanes * spec.max_steps_at(size) * size for size in spec.candidates(examples)), reverse=True
    )
    if not spec.sweep.auto:
        return lanes * len(each), sum(each)
    total, beginning = spec.sweep.max_total_examples or math.inf, len(spec.beginning(examples))
    # The last batch size may turn out dearer than it was expected to be.
    most = max(sum(each[:beginning]), min(sum(each[:MOST]), total + each[0]))
    return lanes * min(len(each), MOST), most
