"""Runs -> crossings: where curves meet their targets, and which targets they can meet.

Where the log is dense around the meeting point, the seeds of one batch size and rate are averaged and smoothed
as in bscrit.crossing. Where it is coarse, each run meets the target between two logged points: `low` and `high`
are their steps, and `steps` lies between them on a line in ln(step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, log
from typing import TypeVar

from bscrit.crossing import AFTER, BEFORE, Crossing, meet
from bscrit.errors import UserError
from bscrit.fit.curves import Run, Runs
from bscrit.fit.keys import Group
from bscrit.fit.rows import Found
from bscrit.fit.sheet import Sheet

K = TypeVar("K")
DENSE = 5
EARLIEST = 1e-3
PROPOSED = (0.5, 0.25, 0.05)


def crossings_of_runs(sheet: Sheet, runs: Runs, targets: Sequence[float]) -> Found:
    """Every run against every target; a run that never meets it is censored at its last point.

    A diverged run has crossings at the targets that it met before, and none at the others.
    """
    crossings: list[Crossing] = []
    notes = list(runs.notes)
    for group, members in _grouped(runs.runs, lambda run: run.group):
        cells = _grouped(members, lambda run: (run.batch_size, run.lr))
        for target in targets:
            started = [run for run in members if len(run.curve)]
            if started and all(run.first(runs.sign * target) == 0 for run in started):
                notes.append(f"{_named(group)}{target:g} is met by the first logged point of every run: left out")
                continue
            for _, cell in cells:
                crossings += [replace(found, target=target) for found in _cell(sheet, cell, runs.sign * target)]
    notes += _gaps(crossings)
    lost = [(run.batch_size, run.lr, run.group) for run in runs.runs if run.diverged]
    return Found(tuple(crossings), tuple(dict.fromkeys(lost)), tuple(notes))


def no_targets(sheet: Sheet, runs: Runs) -> UserError:
    """The error for curves without targets: the range that every batch size reaches, and values within it."""
    ranges, proposed = [], list[float]()
    for group, members in _grouped(runs.runs, lambda run: run.group):
        sizes = [cell for _, cell in _grouped(members, lambda run: run.batch_size)]
        losses = [[run.curve.loss for run in size if len(run.curve)] for size in sizes]
        hardest = max((min(loss.min() for loss in size) if size else float("inf") for size in losses), default=float("inf"))
        easiest = min((loss[0] for size in losses for loss in size), default=float("-inf"))
        name = ", ".join(value for _, value in group)
        of = f" of {name}" if name else ""
        if hardest < easiest:
            ranges.append(f"every batch size{of} reaches {runs.sign * easiest:.4g} to {runs.sign * hardest:.4g}")
            proposed += [runs.sign * _rounded(hardest + share * (easiest - hardest), hardest, easiest) for share in PROPOSED]
        else:
            ranges.append(f"no value is reached by every batch size{of}")
    what = f"holds curves of {runs.metric!r} and needs targets; {'; '.join(ranges)}"
    if not proposed:
        return UserError(sheet.name, what, "choose one that most batch sizes reach: --targets VALUE")
    return UserError(sheet.name, what, f"--targets {','.join(f'{value:g}' for value in dict.fromkeys(proposed))}")


def _cell(sheet: Sheet, cell: Sequence[Run], target: float) -> Iterator[Crossing]:
    """Crossings of runs that differ in their seed only."""
    whole = [run for run in cell if not run.diverged and len(run.curve)]
    firsts = [run.first(target) for run in whole]
    if whole and any(first is not None for first in firsts):
        dense = all(first is None or _is_dense(run, first) for run, first in zip(whole, firsts, strict=True))
        meeting = meet([run.curve for run in whole], target) if dense else None
        if meeting is not None:
            for run, steps in zip(whole, meeting.runs.tolist(), strict=True):
                point = int(min(run.curve.steps.searchsorted(steps), len(run.rows) - 1))
                yield _crossing(sheet, run, point, steps, steps, steps)
            whole = []
    for run in [*whole, *(run for run in cell if run.diverged and len(run.curve))]:
        first = run.first(target)
        if first is not None:
            yield _crossing(sheet, run, first, *_between(run, first, target))
        elif not run.diverged:
            last = float(run.curve.steps[-1])
            yield replace(_crossing(sheet, run, -1, last, last, float("inf")), censored=True)


def _crossing(sheet: Sheet, run: Run, point: int, steps: float, low: float, high: float) -> Crossing:
    return Crossing(
        run.batch_size,
        steps,
        low=low,
        high=high,
        lr=run.lr,
        seed=run.seed,
        group=run.group,
        role=run.role,
        where=sheet.where(int(run.rows[point])),
    )


def _is_dense(run: Run, first: int) -> bool:
    """Whether enough points are logged in the smoothing window around a point for a smoothed crossing."""
    steps = run.curve.steps
    low, high = steps.searchsorted([steps[first] * exp(-BEFORE), steps[first] * exp(AFTER)])
    return bool(high - low >= DENSE)


def _between(run: Run, first: int, target: float) -> tuple[float, float, float]:
    """(steps, low, high) of a run that meets the target between a point and the one before it."""
    high = float(run.curve.steps[first])
    if first == 0:
        return high, EARLIEST * high, high
    low = float(run.curve.steps[first - 1])
    before, after = run.curve.loss[first - 1 : first + 1].tolist()
    share = (before - target) / (before - after)
    if low < EARLIEST * high:
        return max(low + share * (high - low), EARLIEST * high), EARLIEST * high, high
    return exp(log(low) + share * (log(high) - log(low))), low, high


def _gaps(crossings: Sequence[Crossing]) -> list[str]:
    """Notes on crossings that are known only to lie between two logged points."""
    coarse = [crossing for crossing in crossings if crossing.low < crossing.high < float("inf")]
    early = [crossing for crossing in coarse if crossing.low <= EARLIEST * crossing.high]
    gaps = [crossing.high / crossing.low - 1 for crossing in coarse if crossing.low > EARLIEST * crossing.high]
    notes = []
    if gaps:
        notes.append(f"{len(gaps)} of {len(crossings)} crossings lie between logged steps up to {max(gaps):.0%} apart")
    if early:
        notes.append(f"{len(early)} of {len(crossings)} crossings come before the first step that was logged")
    return notes


def _rounded(value: float, low: float, high: float) -> float:
    """A number with few digits near a value, within bounds."""
    for digits in range(1, 15):
        short = float(f"{value:.{digits}g}")
        if low <= short < high:
            return short
    return value


def _named(group: Group) -> str:
    return f"{', '.join(value for _, value in group)}: " if group else ""


def _grouped(runs: Sequence[Run], key: Callable[[Run], K]) -> list[tuple[K, list[Run]]]:
    """Runs with equal keys, in order of appearance."""
    found: dict[K, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.items())
