"""How far a sweep is, one row a batch size, read from records and from the folders of what trains now."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bscrit.crossing import meet
from bscrit.order import Cohort
from bscrit.paths import TrialPaths
from bscrit.record import Record


@dataclass(frozen=True)
class Row:
    """One batch size.

    Attributes:
        phase: "waiting", "search", "measure" or "done".
        lanes, step: of what trains now; 0 lanes where nothing does.
        lr: the rate that was measured, or the best of the search so far; None while none arrived.
        steps: to the hardest target at that rate.
        examples: trained so far, all trials together.
        seconds: of training so far.
    """

    batch_size: int
    phase: str
    lanes: int
    step: int
    lr: float | None
    steps: float | None
    examples: float
    seconds: float


def rows(
    batch_sizes: Sequence[int],
    target: float,
    seeds: int,
    cohorts: Iterable[Cohort],
    records: Iterable[Record],
    trials: Path,
) -> list[Row]:
    by_size: dict[int, list[Record]] = {size: [] for size in batch_sizes}
    for record in records:
        by_size.setdefault(record.trial.batch_size, []).append(record)
    active: dict[int, list[Cohort]] = {}
    for cohort in cohorts:
        active.setdefault(cohort.batch_size, []).append(cohort)
    return [_row(size, target, seeds, active.get(size, []), by_size[size], trials) for size in batch_sizes]


def seconds_left(table: Sequence[Row], elapsed: float) -> float | None:
    """A rough forecast: a batch size that waits takes as long as the mean of those that are done."""
    done = [row for row in table if row.phase == "done"]
    if not done or elapsed <= 0:
        return None
    return elapsed / (len(done) + 0.5 * sum(row.lanes > 0 for row in table)) * (len(table) - len(done))


def best(records: Sequence[Record], target: float) -> tuple[float, float] | None:
    """The rate that reaches the target in fewest steps, and these steps.

    Measured rates go first, and among them the one with most runs: where a seed was lost, a lower rate was
    measured in its place.
    """
    for role in ("measure", "search"):
        by_rate: dict[float, list[Record]] = {}
        for record in records:
            if record.role == role and record.finished and record.status != "diverged":
                by_rate.setdefault(record.trial.lr, []).append(record)
        met = [
            (-len(group) if role == "measure" else 0, meeting.steps, lr)
            for lr, group in by_rate.items()
            if (meeting := meet([record.curve for record in group], target, confirmed=False)) is not None
        ]
        if met:
            _, steps, lr = min(met)
            return lr, steps
    return None


def failure(record: Record) -> str:
    """Why a trial failed, which of its batch size it is, and where more stands."""
    log = f", log {TrialPaths(record.folder).log}" if record.folder else ""
    return f"{record.reason} (rate {record.trial.lr:.3g}, seed {record.trial.seed}{log})"


def _row(
    size: int, target: float, seeds: int, cohorts: Sequence[Cohort], records: Sequence[Record], trials: Path
) -> Row:
    lanes, step = 0, 0
    for cohort in cohorts:
        running = [t.name for t in cohort.trials if not TrialPaths(trials / t.name).status.exists()]
        lanes += len(running)
        step = max([step, *(last_step(TrialPaths(trials / name).curve) for name in running)])
    ended = [record for record in records if record.finished]
    measured = [record for record in ended if record.role == "measure"]
    phase = cohorts[0].order.role if cohorts else "done" if len(measured) >= seeds else "waiting"
    found = best(ended, target)
    return Row(
        batch_size=size,
        phase=phase,
        lanes=lanes,
        step=step,
        lr=found[0] if found else None,
        steps=found[1] if found else None,
        examples=sum(record.examples for record in records) + lanes * step * size,
        seconds=max([0.0, *(float(r.curve.seconds[-1]) for r in ended if len(r.curve))]),
    )


def last_step(path: Path) -> int:
    """The last whole line's step, without reading the file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(os.fstat(stream.fileno()).st_size - 256, 0))
            lines = stream.read().split(b"\n")[:-1]
        return int(lines[-1].partition(b",")[0])
    except (OSError, ValueError, IndexError):
        return 0


def short(number: float) -> str:
    """A count in a few characters.

    >>> short(950), short(12345), short(2.5e6)
    ('950', '12.3k', '2.5M')
    """
    if not math.isfinite(number):
        return "-"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.4g}"


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(125), duration(7300)
    ('5 s', '2 min 5 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
