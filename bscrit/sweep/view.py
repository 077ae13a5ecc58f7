"""Views of a sweep while it runs: a live table on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import IO

from bscrit.errors import printable
from bscrit.order import Cohort
from bscrit.record import Record
from bscrit.results import Results
from bscrit.spec import Spec
from bscrit.sweep.progress import Progress, Row, failure, point_of, seconds_left
from bscrit.words import compact, counted, duration, number

LINE_SECONDS = 30.0
LIVE_SECONDS = 0.5


class View:
    """A view, as the driver sees it; this one shows nothing."""

    def note(self, text: str) -> None:
        """A sentence worth telling."""

    def begun(self, cohort: Cohort) -> None:
        """A cohort begins to train."""

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        """A cohort ended, or its worker failed."""

    def update(self, cohorts: Sequence[Cohort], results: Results) -> None:
        """Called several times a second while something trains."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def choose_view(spec: Spec, stream: IO[str] | None = None) -> View:
    stream = stream or sys.stderr
    return Live(spec) if stream.isatty() else Plain(spec, stream)


class Plain(View):
    """One line when something begins or ends, and one every half minute in between."""

    def __init__(self, spec: Spec, stream: IO[str]) -> None:
        self._progress, self._stream = Progress(spec), stream
        self._began = self._last_line = time.monotonic()

    def note(self, text: str) -> None:
        self._line(text)

    def begun(self, cohort: Cohort) -> None:
        self._progress.begin()
        self._line(f"{_name(cohort)}: {_lanes(cohort)}")

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        self._line(f"{_name(cohort)}: {_ending(records, cohort.order.targets[-1])}")

    def update(self, cohorts: Sequence[Cohort], results: Results) -> None:
        if time.monotonic() - self._last_line < LINE_SECONDS:
            return
        table = self._progress.rows(cohorts, results)
        training = [
            f"batch size {row.batch_size} {row.phase}: {row.lanes} lanes at step {row.step}"
            for row in table
            if row.lanes
        ]
        self._line("; ".join([*training, _footer(table, self._progress.seconds)]))

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        print(f"[{self._last_line - self._began:7.1f} s] {printable(text)}", file=self._stream, flush=True)


class Live(View):
    """A table that is drawn over itself."""

    def __init__(self, spec: Spec) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._progress, self._target = Progress(spec), spec.sweep.targets[-1]
        self._live = RichLive(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()
        self._drawn = 0.0

    def note(self, text: str) -> None:
        self._live.console.print(printable(text), markup=False, highlight=False)

    def begun(self, cohort: Cohort) -> None:  # noqa: ARG002 (the table shows it)
        self._progress.begin()

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        if any(record.status == "failed" for record in records):
            self.note(f"{_name(cohort)}: {_ending(records, cohort.order.targets[-1])}")

    def update(self, cohorts: Sequence[Cohort], results: Results) -> None:
        now = time.monotonic()
        if now - self._drawn < LIVE_SECONDS:
            return
        self._drawn = now
        from rich.table import Table

        table = self._progress.rows(cohorts, results)
        drawing = Table(caption=_footer(table, self._progress.seconds), caption_justify="left")
        steps = f"steps to {self._target:g}"
        for heading in ("batch size", "phase", "lanes", "step", "best rate", steps, "examples"):
            drawing.add_column(heading, justify="left" if heading == "phase" else "right")
        for row in table:
            drawing.add_row(
                f"{row.batch_size}",
                row.phase,
                str(row.lanes or ""),
                str(row.step or ""),
                f"{row.point.lr:.3g}" if row.point else "",
                number(row.point.steps, 4) if row.point else "",
                compact(row.examples) if row.examples else "",
                style="bold" if row.lanes else "dim" if row.phase == "waiting" else "",
            )
        self._live.update(drawing, refresh=True)

    def close(self) -> None:
        self._live.stop()


def _footer(table: Sequence[Row], elapsed: float) -> str:
    left = seconds_left(table, elapsed)
    examples = compact(sum(row.examples for row in table))
    forecast = f", about {duration(left)} left" if left is not None else ""
    return f"{examples} examples trained in {duration(elapsed)}{forecast}"


def _name(cohort: Cohort) -> str:
    return f"batch size {cohort.batch_size} {cohort.order.role}"


def _lanes(cohort: Cohort) -> str:
    rates = sorted({trial.lr for trial in cohort.trials})
    if len(rates) == 1:
        return f"{counted(len(cohort.trials), 'seed')} at rate {rates[0]:.3g}"
    return f"{len(rates)} rates from {rates[0]:.3g} to {rates[-1]:.3g}"


def _ending(records: Sequence[Record], target: float) -> str:
    counts = Counter(record.status for record in records)
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    failed = next((record for record in records if record.status == "failed"), None)
    if failed is not None:
        return f"{listed}: {failure(failed)}"
    point = point_of(records, target)
    arrived = f"; rate {point.lr:.3g} needs {number(point.steps, 4)} steps to {target:g}" if point else ""
    return f"{listed}{arrived}"
