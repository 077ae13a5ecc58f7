"""plan(spec, preflight, records) -> cohorts: what is still to be trained, and nothing else.

A pure function of what was observed, never of timing: an interrupted sweep, an added batch size, seed or
target are all this one function, and nothing planned means finished. Batch sizes are taken in ascending
order, since what is known of the small and cheap ones starts the large ones near their best rate:

While a batch size searches its rate, the smaller ones are measured; a larger one waits (size.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.sweep.cohort import Cohort
from bscrit.sweep.size import BRACKET, MAX_RETREATS, SEEDS_PER_RACE, BatchSize
from bscrit.sweep.tune import MAX_LANES

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
    cohorts: list[Cohort] = []
    mine = sorted((r for r in records if asked_for(spec, preflight, r)), key=lambda r: r.trial.name)
    known: list[tuple[float, float]] = []
    slowest = math.inf
    targets = spec.sweep.targets
    for batch_size in spec.sweep.batch_sizes:
        here = [record for record in mine if record.trial.batch_size == batch_size]
        size = BatchSize(spec, preflight, batch_size, targets, here, given_up, tuple(known), slowest)
        found, settled = size.plan()
        cohorts += found
        if settled is None:
            break
        if settled.lr > 0:
            known.append((batch_size, settled.lr))
            slowest = min(slowest, settled.steps)
        # A larger batch size needs more examples yet: where examples ran out, they run out there too.
        targets = tuple(target for target in targets if target not in settled.unreachable)
        if not targets:
            break
    return cohorts


def largest_cost(spec: Spec) -> tuple[int, float]:
    """The most trials and examples that the whole sweep can take, were every lane to spend its budget."""
    race = MAX_LANES + BRACKET * (spec.sweep.seeds // SEEDS_PER_RACE)
    lanes = {"race": race, "grid": len(spec.learning_rate.rates or ()), "rule": 0}[spec.learning_rate.tune]
    retreats = MAX_RETREATS if spec.learning_rate.tune == "race" else 0
    lanes += spec.sweep.seeds * (1 + retreats) * len(spec.sweep.targets)
    examples = sum(lanes * spec.max_steps_at(size) * size for size in spec.sweep.batch_sizes)
    return lanes * len(spec.sweep.batch_sizes), examples


def asked_for(spec: Spec, preflight: Preflight, record: Record) -> bool:
    """Whether a record is of a trial that this spec asks for: not of an older spec, nor of other data."""
    return record.trial.batch_size in spec.sweep.batch_sizes and spec.asks_for(
        record.trial, preflight.fingerprint
    )
