"""What the fit starts from: crossings, and the settings at which a run diverged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from bscrit.crossing import Crossing, meet
from bscrit.order import Order
from bscrit.record import Record
from bscrit.trial import CENSORED

Group = tuple[tuple[str, str], ...]
Setting = tuple[float, float | None, Group]
USABLE = frozenset({"reached", "running"}) | CENSORED


@dataclass(frozen=True)
class Evidence:
    """What a source says about any number of frontiers.

    Attributes:
        crossings: one per run and target, in any order.
        diverged: (batch size, learning rate or None, group) of each setting at which a run diverged.
        horizons: schedules whose rates depend on the planned length of the run, as words for a caveat.
        warmups: batch size -> steps of warm-up.
        notes: what was left out.
    """

    crossings: tuple[Crossing, ...]
    diverged: tuple[Setting, ...] = ()
    horizons: tuple[str, ...] = ()
    warmups: Mapping[float, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """The crossings of one fit: one group, one target."""

    group: Group
    target: float | None
    crossings: tuple[Crossing, ...]
    diverged: tuple[Setting, ...]


def from_records(records: Iterable[Record], targets: Sequence[float] | None = None) -> Evidence:
    """Every usable run against every target (by default those that the sweep asked for).

    Runs that differ in their seed only meet a target together, at the crossing of their mean curve, of which
    each has its share; where that mean does not meet the target each run is taken alone, and censored at its
    last step if it did not arrive either. Runs that failed, and unfinished runs that have not met a target,
    say nothing.
    """
    records = list(records)
    if targets is None:
        targets = sorted({target for record in records for target in record.order.targets}, reverse=True)
    cells: dict[tuple[int, float, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.status in USABLE and len(record.curve):
            cells[record.trial.batch_size, record.trial.lr, record.role].append(record)
    crossings = [
        crossing for target in targets for cell in cells.values() for crossing in _against(cell, target)
    ]
    diverged = [(float(r.trial.batch_size), r.trial.lr, ()) for r in records if r.status == "diverged"]
    failed = [record.trial.name for record in records if record.status == "failed"]
    schedules = {r.trial.recipe.schedule.use for r in records if r.trial.recipe.schedule.ends}
    notes = [f"{len(failed)} runs failed and say nothing ({', '.join(failed[:3])})"] if failed else []
    warmups = {
        float(trial.batch_size): trial.recipe.schedule.warmup_at(trial.batch_size)
        for trial in (record.trial for record in records)
    }
    return Evidence(
        tuple(crossings), tuple(dict.fromkeys(diverged)), tuple(sorted(schedules)), warmups, tuple(notes)
    )


def families(evidence: Evidence) -> list[Family]:
    """One family per group and target: groups as they first appear, targets easiest first."""
    found: dict[Group, dict[float | None, list[Crossing]]] = {}
    for crossing in evidence.crossings:
        found.setdefault(crossing.group, {}).setdefault(crossing.target, []).append(crossing)
    lost: dict[Group, list[Setting]] = defaultdict(list)
    for setting in evidence.diverged:
        lost[setting[2]].append(setting)
    return [
        Family(group, target, tuple(sorted(rows, key=_order)), tuple(lost[group]))
        for group, targets in found.items()
        for target, rows in sorted(targets.items(), key=_hardness)
    ]


def _against(cell: Sequence[Record], target: float) -> list[Crossing]:
    """Crossings of the runs at one batch size, rate and role.

    Seeds that were added later ended on their own: where all together do not meet the target, each cohort is
    taken by itself.
    """
    together = _together(cell, target)
    if together:
        return together
    cohorts: dict[Order, list[Record]] = defaultdict(list)
    for record in cell:
        cohorts[record.order].append(record)
    return [
        crossing
        for cohort in cohorts.values()
        for crossing in _together(cohort, target) or _one_by_one(cohort, target)
    ]


def _together(records: Sequence[Record], target: float) -> list[Crossing]:
    """Each run's share of the mean curve's crossing; none where the mean does not meet the target."""
    meeting = meet([record.curve for record in records], target)
    if meeting is None:
        return []
    shares = zip(records, meeting.runs.tolist(), strict=True)
    return [_crossing(record, target, steps) for record, steps in shares]


def _one_by_one(records: Sequence[Record], target: float) -> list[Crossing]:
    """Every run alone, censored at its last step where it did not arrive."""
    found = []
    for record in records:
        alone = meet([record.curve], target)
        if alone is not None:
            found.append(_crossing(record, target, alone.steps))
        elif record.finished and record.curve.steps[-1] > 0:
            found.append(_crossing(record, target, float(record.curve.steps[-1]), censored=True))
    return found


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
        where=trial.name,
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
