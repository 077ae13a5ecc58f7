"""Runs -> crossings: where curves meet their targets, and which targets they can meet.

Where the log is dense around the crossing, the seeds of one batch size and rate are averaged and
smoothed as in bscrit.crossing. Where it is coarse, each run meets the target between two logged points: `low`
and `high` are their steps, and `steps` lies between them on a line in ln(step). What the metric's fluctuation leaves
uncertain is the crossing's `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, log
from typing import TypeVar

import numpy as np

from bscrit.crossing import FARTHEST, Crossing, CrossingTable, MeanCrossing, crossing_of
from bscrit.errors import UserError
from bscrit.smoothing import AFTER, BEFORE
from bscrit.tables.averages import averaging
from bscrit.tables.curves import Run, Runs
from bscrit.tables.sheet import Sheet

K = TypeVar("K")
DENSE = 5
ENOUGH = 6  # points that tell their scatter about a parabola
EARLIEST = 1e-3
SHOWN = 4
PROPOSED = (0.5, 0.25, 0.05)


def crossings_of_runs(sheet: Sheet, runs: Runs, targets: Sequence[float]) -> CrossingTable:
    """Every run against every target; a run that never meets it is censored at its last point.

    A diverged run has crossings at the targets that it met before, and none at the others.
    """
    crossings: list[Crossing] = []
    notes = list(runs.notes)
    for group, members in _grouped(runs.runs, lambda run: run.group):
        cells = _grouped(members, lambda run: (run.batch_size, run.lr))
        for target in targets:
            started = [run for run in members if run.started]
            if started and all(run.curve.loss[0] <= runs.goal.falls(target) for run in started):
                name = "".join(f"{value}: " for _, value in group)
                notes.append(f"{name}{target:g} is met by the first logged point of every run: left out")
                continue
            for _, cell in cells:
                crossings += [replace(crossing, target=target) for crossing in _cell(sheet, cell, target)]
    notes += _gaps(crossings)
    lost = [(run.batch_size, run.lr, run.group) for run in runs.runs if run.diverged]
    averaged, lag = averaging(sheet, runs)
    return CrossingTable(
        tuple(crossings),
        tuple(dict.fromkeys(lost)),
        tuple(notes),
        unit=runs.unit,
        goal=runs.goal,
        averaged=averaged,
        lag=lag,
    )


def no_targets(sheet: Sheet, runs: Runs) -> UserError:
    """The error for curves without targets: the range that every batch size reaches, and values within it."""
    ranges, proposed = [], list[float]()
    falls = runs.goal.falls
    for group, members in _grouped(runs.runs, lambda run: run.group):
        started = [run for run in members if run.started]
        best = {run.batch_size: float("inf") for run in members}
        for run in started:
            best[run.batch_size] = min(best[run.batch_size], float(run.curve.loss.min()))
        hardest = max(best.values(), default=float("inf"))
        easiest = min((float(run.curve.loss[0]) for run in started), default=float("-inf"))
        of = "".join(f" of {value}" for _, value in group)
        if hardest < easiest:
            ranges.append(f"every batch size{of} reaches {falls(easiest):.4g} to {falls(hardest):.4g}")
            wanted = [hardest + share * (easiest - hardest) for share in PROPOSED]
            proposed += [falls(_rounded(value, hardest, easiest)) for value in wanted]
        else:
            ranges.append(f"no value is reached by every batch size{of}")
    shown = ranges if len(ranges) <= SHOWN else [*ranges[:SHOWN], f"and {len(ranges) - SHOWN} more fits"]
    what = f"holds curves of {runs.goal.metric!r} and needs targets; {'; '.join(shown)}"
    if not proposed:
        return UserError(sheet.name, what, "choose one that most batch sizes reach: --targets VALUE")
    listed = ",".join(f"{value:g}" for value in list(dict.fromkeys(proposed))[: 2 * SHOWN])
    return UserError(sheet.name, what, f"--targets {listed}")


def _cell(sheet: Sheet, cell: Sequence[Run], target: float) -> Iterator[Crossing]:
    """Crossings of runs that differ in their seed only."""
    together, mean = _together([run for run in cell if run.started and not run.diverged], target)
    for run, steps in zip(together, mean.runs.tolist() if mean else (), strict=True):
        point = min(int(run.curve.steps.searchsorted(steps)), len(run.rows) - 1)
        yield replace(_crossing(sheet, run, point, steps, steps, steps), error=mean.error if mean else 0.0)
    for run in cell:
        if not run.started or any(run is other for other in together):
            continue
        first = run.first(target)
        if first is not None:
            crossing = _crossing(sheet, run, first, *_between(run, first, target))
            yield replace(crossing, error=_fluctuation(run, first))
        elif not run.diverged:
            last = float(run.curve.steps[-1])
            yield replace(_crossing(sheet, run, -1, last, last, float("inf")), censored=True)


def _together(runs: Sequence[Run], target: float) -> tuple[Sequence[Run], MeanCrossing | None]:
    """The runs whose mean meets the target, and where; none where the log is too coarse for it.

    Runs that ended before the others met the target are left out, the shortest first, and are censored; runs that are
    logged too coarsely around the crossing meet the target on their own.
    """
    late = sorted((run for run in runs if run.first(target) is None), key=lambda run: run.curve.steps[-1])
    met = [run for run in runs if run.first(target) is not None]
    for left_out in range(len(late) + 1) if met else ():
        rest = [*late[left_out:], *met]
        if max(run.curve.steps[0] for run in rest) > min(run.curve.steps[-1] for run in rest):
            continue
        mean = crossing_of([run.curve for run in rest], target, confirmed=False)
        if mean is not None:
            dense = [run for run in rest if _is_dense(run, mean.steps)]
            return (rest, mean) if len(dense) == len(rest) else _together(dense, target)
    return (), None


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


def _is_dense(run: Run, steps: float) -> bool:
    """Whether enough points are logged in the smoothing window around a crossing."""
    low, high = run.curve.steps.searchsorted([steps * exp(-BEFORE), steps * exp(AFTER)])
    return bool(high - low >= DENSE)


def _between(run: Run, first: int, target: float) -> tuple[float, float, float]:
    """(steps, low, high) of a run that meets the target between a point and the one before it."""
    high = float(run.curve.steps[first])
    goal = run.curve.goal.falls(target)
    if first == 0 or run.curve.loss[first - 1] <= goal:
        return high, EARLIEST * high, high
    low = float(run.curve.steps[first - 1])
    before, after = run.curve.loss[first - 1 : first + 1].tolist()
    share = (before - goal) / (before - after)
    if low < EARLIEST * high:
        return max(low + share * (high - low), EARLIEST * high), EARLIEST * high, high
    return exp(log(low) + share * (log(high) - log(low))), low, high


def _fluctuation(run: Run, first: int) -> float:
    """Standard error of ln(steps) of one point: its scatter about a parabola through those around it."""
    near = slice(max(first - 4, 0), first + 4)
    steps, loss = run.curve.steps[near], run.curve.loss[near]
    x, loss = np.log(steps[steps > 0] / run.curve.steps[first]), loss[steps > 0]
    if len(x) < ENOUGH:
        return 0.0
    bend = np.polyfit(x, loss, 2)
    scatter = float(np.sqrt(((loss - np.polyval(bend, x)) ** 2).sum() / (len(x) - 3)))
    return min(scatter / -float(bend[1]), FARTHEST) if bend[1] < 0 else FARTHEST * (scatter > 0)


def _gaps(crossings: Sequence[Crossing]) -> list[str]:
    """Notes on crossings that are known only to lie between two logged points."""
    coarse = [crossing for crossing in crossings if crossing.low < crossing.high < float("inf")]
    early = [crossing for crossing in coarse if crossing.low <= EARLIEST * crossing.high]
    gaps = [c.high / c.low - 1 for c in coarse if c.low > EARLIEST * c.high]
    of = f"of {len(crossings)} crossings"
    notes = []
    if gaps:
        notes.append(f"{len(gaps)} {of} lie between logged steps that are up to {max(gaps):.0%} apart")
    if early:
        notes.append(f"{len(early)} {of} come before the first step that was logged")
    return notes


def _rounded(value: float, low: float, high: float) -> float:
    """A number with few digits near a value, within bounds."""
    for digits in range(1, 15):
        short = float(f"{value:.{digits}g}")
        if low <= short < high:
            return short
    return value


def _grouped(runs: Sequence[Run], key: Callable[[Run], K]) -> list[tuple[K, list[Run]]]:
    """Runs with equal keys, in order of appearance."""
    groups: dict[K, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.items())
