"""Progress of a sweep, one row a batch size, from its results and from the folders of what trains now."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bscrit.crossing import crossing_of
from bscrit.order import Cohort
from bscrit.paths import ResultsPaths, TrialPaths
from bscrit.position import Position
from bscrit.record import Record
from bscrit.results import Results


class Best(NamedTuple):
    """The best learning rate, and where a target is met at it."""

    lr: float
    steps: float
    examples: float


@dataclass(frozen=True)
class Row:
    """One batch size.

    Attributes:
        phase: "waiting", "search", "measure" or "done".
        lanes, step: of what trains now; 0 lanes where nothing does.
        best: at the hardest target, measured or of the search so far; None while no run arrived.
        examples: trained so far, all trials together.
    """

    batch_size: int
    phase: str
    lanes: int
    step: int
    best: Best | None
    examples: float


def rows(
    batch_sizes: Iterable[int], target: float, seeds: int, cohorts: Iterable[Cohort], results: Results
) -> list[Row]:
    """One row for each of the batch sizes.

    Args:
        target: the hardest one.
        seeds: finished runs that make a batch size "done".
        cohorts: those that train now.
    """
    records: dict[int, list[Record]] = defaultdict(list)
    for record in results.asked_for:
        records[record.trial.batch_size].append(record)
    running: dict[int, list[Cohort]] = defaultdict(list)
    for cohort in cohorts:
        running[cohort.batch_size].append(cohort)
    paths = ResultsPaths(results.folder)
    return [_row(size, target, seeds, running[size], records[size], paths) for size in batch_sizes]


def seconds_left(table: Sequence[Row], elapsed: float) -> float | None:
    """A rough forecast: a batch size that waits takes as long as the mean of those that are done."""
    done = [row for row in table if row.phase == "done"]
    if not done or elapsed <= 0:
        return None
    return elapsed / (len(done) + 0.5 * sum(row.lanes > 0 for row in table)) * (len(table) - len(done))


def best(records: Sequence[Record], target: float) -> Best | None:
    """The rate at which finished runs meet the target in fewest steps; None where none does.

    Measured rates go first, and among them the one with most runs: where a seed was lost, a lower rate was
    measured in its place.
    """
    for role in ("measure", "search"):
        by_rate: dict[float, list[Record]] = defaultdict(list)
        for record in records:
            if record.role == role and record.finished and record.status != "diverged":
                by_rate[record.trial.lr].append(record)
        crossings = [
            (-len(runs) if role == "measure" else 0, crossing.steps, lr, crossing.examples)
            for lr, runs in by_rate.items()
            if (crossing := crossing_of([run.curve for run in runs], target, confirmed=False)) is not None
        ]
        if crossings:
            _, steps, lr, examples = min(crossings)
            return Best(lr, steps, examples)
    return None


def failure(record: Record) -> str:
    """Why a trial failed, which of its batch size it is, and where more stands."""
    log = f", log {TrialPaths(record.folder).log}" if record.folder else ""
    return f"{record.reason} (rate {record.trial.lr:.3g}, seed {record.trial.seed}{log})"


def last_position(path: Path) -> Position:
    """The position of the last whole line, without reading the file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(os.fstat(stream.fileno()).st_size - 256, 0))
            lines = stream.read().split(b"\n")[:-1]
        steps, examples = (int(cell) for cell in lines[-1].split(b",")[:2])
        return Position(steps, examples)
    except (OSError, ValueError, IndexError):
        return Position()


def _row(
    size: int,
    target: float,
    seeds: int,
    cohorts: Sequence[Cohort],
    records: Sequence[Record],
    paths: ResultsPaths,
) -> Row:
    lanes, step = 0, 0
    examples = sum(record.examples for record in records)
    for cohort in cohorts:
        trials = [paths.trial(trial.name) for trial in cohort.trials]
        running = [trial for trial in trials if not trial.status.exists()]
        lanes += len(running)
        positions = [last_position(trial.curve) for trial in running]
        step = max([step, *(position.steps for position in positions)])
        examples += sum(position.examples for position in positions)
    measured = sum(record.finished and record.role == "measure" for record in records)
    phase = cohorts[0].order.role if cohorts else "done" if measured >= seeds else "waiting"
    return Row(size, phase, lanes, step, best(records, target), examples)
