"""Crossings of the runs of a sweep, and the families of crossings that are fitted together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

from bscrit.crossing import Crossing, CrossingTable, Group, Setting, crossing_of, examples_at
from bscrit.goal import TRAIN_LOSS
from bscrit.order import Order
from bscrit.record import Record
from bscrit.trial import CENSORED

USABLE = frozenset({"reached", "running"}) | CENSORED


@dataclass(frozen=True)
class Family:
    """The crossings of one fit: one group, one target."""

    group: Group
    target: float | None
    crossings: tuple[Crossing, ...]
    diverged: tuple[Setting, ...]


def from_records(records: Iterable[Record], targets: Sequence[float] | None = None) -> CrossingTable:
    """Every usable run against every target (by default those of the sweep).

    Runs that differ in their seed only meet a target together, at the crossing of their mean curve, of which
    each has its share; where that mean does not meet the target each run is taken alone, and censored at its
    last step if it did not arrive either. Runs that failed, and unfinished runs that have not met a target,
    are left out; so are runs of a search that has not ended, or whose batch size waits for its measurement.
    """
    records = list(records)
    if targets is None:
        asked = {target: record.trial.goal for record in records for target in record.order.targets}
        targets = sorted(asked, key=lambda target: asked[target].falls(target), reverse=True)
    measured = {r.trial.batch_size for r in records if r.role == "measure" and r.finished}
    repeats: dict[tuple[int, float, str], list[Record]] = defaultdict(list)
    for record in records:
        waits = not record.finished or (measured and record.trial.batch_size not in measured)
        if record.status in USABLE and len(record.curve) and not (record.role == "search" and waits):
            repeats[record.trial.batch_size, record.trial.lr, record.role].append(record)
    crossings = [
        crossing for target in targets for runs in repeats.values() for crossing in _of_repeats(runs, target)
    ]
    diverged = [(float(r.trial.batch_size), r.trial.lr, ()) for r in records if r.status == "diverged"]
    failed = [record.trial.name for record in records if record.status == "failed"]
    recipes = {record.trial.batch_size: record.trial.recipe for record in records}
    schedules = {recipe.schedule.use for recipe in recipes.values() if recipe.schedule.ends}
    return CrossingTable(
        tuple(crossings),
        tuple(dict.fromkeys(diverged)),
        (f"{len(failed)} runs failed and say nothing ({', '.join(failed[:3])})",) if failed else (),
        goal=records[0].trial.goal if records else None,
        horizons=tuple(sorted(schedules)),
        warmups={float(size): recipe.schedule.warmup_at(size) for size, recipe in recipes.items()},
    )


def families(table: CrossingTable) -> list[Family]:
    """One family per group and target: groups as they first appear, targets easiest first."""
    groups: dict[Group, dict[float | None, list[Crossing]]] = {}
    for crossing in table.crossings:
        groups.setdefault(crossing.group, {}).setdefault(crossing.target, []).append(crossing)
    diverged: dict[Group, list[Setting]] = defaultdict(list)
    for setting in table.diverged:
        diverged[setting[2]].append(setting)
    return [
        Family(group, target, tuple(sorted(rows, key=_order)), tuple(diverged[group]))
        for group, targets in groups.items()
        for target, rows in sorted(targets.items(), key=_hardness)
    ]


def _of_repeats(runs: Sequence[Record], target: float) -> list[Crossing]:
    """Crossings of the runs at one batch size, rate and role.

    Seeds that were added later ended on their own: where all together do not meet the target, each cohort is
    taken by itself.
    """
    together = _together(runs, target)
    if together:
        return together
    cohorts: dict[Order, list[Record]] = defaultdict(list)
    for run in runs:
        cohorts[run.order].append(run)
    return [
        crossing
        for cohort in cohorts.values()
        for crossing in _together(cohort, target) or _one_by_one(cohort, target)
    ]


def _together(records: Sequence[Record], target: float) -> list[Crossing]:
    """Each run's share of the mean curve's crossing; none where the mean does not meet the target."""
    unfinished = any(not record.finished for record in records)
    crossing = crossing_of([record.curve for record in records], target, confirmed=unfinished)
    if crossing is None:
        return []
    shares = zip(records, crossing.runs.tolist(), strict=True)
    shared = len(records) > 1
    # an evaluation set is fixed: what fluctuates on it is the run itself, as its seeds show
    error = crossing.error if records[0].trial.goal.metric == TRAIN_LOSS else 0.0
    return [replace(_crossing(record, target, steps), error=error, shared=shared) for record, steps in shares]


def _one_by_one(records: Sequence[Record], target: float) -> list[Crossing]:
    """Every run alone, censored at its last step where it did not arrive."""
    crossings = []
    for record in records:
        alone = _together([record], target)
        if alone:
            crossings += alone
        elif record.finished and record.curve.steps[-1] > 0:
            crossings.append(_crossing(record, target, float(record.curve.steps[-1]), censored=True))
    return crossings


def _crossing(record: Record, target: float, steps: float, censored: bool = False) -> Crossing:
    trial = record.trial
    return Crossing(
        batch_size=float(trial.batch_size),
        steps=steps,
        target=target,
        censored=censored,
        low=steps,
        high=float("inf") if censored else steps,
        lr=trial.lr,
        seed=str(trial.seed),
        role=record.role,
        raced=record.order.raced,
        where=trial.name,
        examples=examples_at(record.curve, steps),
    )


def _order(crossing: Crossing) -> tuple[float, float, str, float, str]:
    """An order that does not depend on the source's, so that neither does the last digit of the answer."""
    return (crossing.batch_size, crossing.lr or 0.0, crossing.seed, crossing.steps, crossing.where)


def _hardness(item: tuple[float | None, Sequence[Crossing]]) -> tuple[float, float]:
    """Targets met in fewer steps come first; a batch size counts by the fewest steps there."""
    target, rows = item
    fewest: dict[float, float] = {}
    for row in rows:
        fewest[row.batch_size] = min(fewest.get(row.batch_size, float("inf")), row.steps)
    return sum(map(log, fewest.values())) / len(fewest), -(target or 0.0)
