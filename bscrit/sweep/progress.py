"""Progress of a sweep, one row a batch size, from its results and from the folders of what trains now."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bscrit.fit.points import measured_points
from bscrit.fit.result import Point
from bscrit.order import Cohort
from bscrit.paths import ResultsPaths, TrialPaths
from bscrit.position import Position
from bscrit.record import Record
from bscrit.results import Results
from bscrit.spec import Spec


@dataclass(frozen=True)
class Row:
    """One batch size.

    Attributes:
        phase: "waiting", "search", "measure" or "done".
        lanes, step: of what trains now; 0 lanes where nothing does.
        point: at the hardest target, measured or of the search so far; None while no run arrived.
        examples: trained so far, all trials together.
    """

    batch_size: int
    phase: str
    lanes: int
    step: int
    point: Point | None
    examples: float


class Progress:
    """Rows of a sweep; a point is reckoned anew where the records of its batch size have changed."""

    def __init__(self, spec: Spec) -> None:
        self._sweep = spec.sweep
        self._points: dict[int, tuple[list[Record], Point | None]] = {}
        self._began: float | None = None

    def begin(self) -> None:
        """Something trains from now on."""
        self._began = time.monotonic() if self._began is None else self._began

    @property
    def seconds(self) -> float:
        """Since training began."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def rows(self, cohorts: Sequence[Cohort], results: Results) -> list[Row]:
        """One row for each batch size of the spec, or for those that were begun where the sweep chooses them.

        Args:
            cohorts: those that train now.
        """
        sizes = self._sweep.batch_sizes or {record.trial.batch_size for record in results.asked_for}
        return [self._row(size, cohorts, results) for size in sorted(sizes)]

    def _row(self, size: int, cohorts: Sequence[Cohort], results: Results) -> Row:
        records = [record for record in results.asked_for if record.trial.batch_size == size]
        here = [cohort for cohort in cohorts if cohort.batch_size == size]
        names = [trial.name for cohort in here for trial in cohort.trials]
        running = [ResultsPaths(results.folder).trial(name) for name in names]
        running = [trial for trial in running if not trial.status.exists()]
        positions = [last_position(trial.curve) for trial in running]
        measured = sum(record.finished and record.role == "measure" for record in records)
        waits = "done" if measured >= self._sweep.seeds else "waiting"
        return Row(
            batch_size=size,
            phase=here[0].order.role if here else waits,
            lanes=len(running),
            step=max((position.steps for position in positions), default=0),
            point=self._point(size, records),
            examples=sum(record.examples for record in records) + sum(at.examples for at in positions),
        )

    def _point(self, size: int, records: list[Record]) -> Point | None:
        before, point = self._points.get(size, ([], None))
        if [id(record) for record in before] != [id(record) for record in records]:
            point = point_of(records, self._sweep.targets[-1])
            self._points[size] = records, point
        return point


def point_of(records: Sequence[Record], target: float) -> Point | None:
    """The point of records of one batch size; None where no run met the target."""
    points = [point for point in measured_points(records, target) if point.censored < point.runs]
    return points[0] if points else None


def seconds_left(table: Sequence[Row], elapsed: float) -> float | None:
    """A rough forecast: a batch size that waits takes as long as the mean of those that are done."""
    done = [row for row in table if row.phase == "done"]
    if not done or elapsed <= 0:
        return None
    return elapsed / (len(done) + 0.5 * sum(row.lanes > 0 for row in table)) * (len(table) - len(done))


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
