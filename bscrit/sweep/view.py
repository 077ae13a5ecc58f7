"""What a sweep shows while it runs: a live table on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from bscrit.order import Cohort
from bscrit.paths import ResultsPaths
from bscrit.record import Record
from bscrit.spec import Spec
from bscrit.sweep.progress import Row, best, duration, failure, rows, seconds_left, short

LINE_SECONDS = 30.0
LIVE_SECONDS = 0.5


class View(Protocol):
    """What the driver tells."""

    def note(self, text: str) -> None:
        """A sentence worth telling."""

    def begun(self, cohort: Cohort) -> None:
        """A cohort begins to train."""

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        """A cohort ended, or its worker failed."""

    def update(self, cohorts: Sequence[Cohort], records: Sequence[Record], out: Path) -> None:
        """Called several times a second while something trains."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def choose_view(spec: Spec, stream: IO[str] | None = None) -> View:
    stream = stream or sys.stderr
    return Live(spec) if stream.isatty() else Plain(spec, stream)


class Plain:
    """One line when something begins or ends, and one every half minute in between."""

    def __init__(self, spec: Spec, stream: IO[str]) -> None:
        self._spec, self._stream = spec, stream
        self._began = self._told = time.monotonic()

    def note(self, text: str) -> None:
        self._line(text)

    def begun(self, cohort: Cohort) -> None:
        self._line(f"{_name(cohort)}: {_lanes(cohort)}")

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        self._line(f"{_name(cohort)}: {_result(records, cohort.order.targets[-1])}")

    def update(self, cohorts: Sequence[Cohort], records: Sequence[Record], out: Path) -> None:
        if time.monotonic() - self._told < LINE_SECONDS:
            return
        table = _table(self._spec, cohorts, records, out)
        active = [row for row in table if row.lanes]
        parts = [
            f"batch size {row.batch_size} {row.phase}: {row.lanes} lanes at step {row.step}" for row in active
        ]
        self._line("; ".join([*parts, _footer(table, time.monotonic() - self._began)]))

    def close(self) -> None:
        pass

    def _line(self, text: str) -> None:
        self._told = time.monotonic()
        print(f"[{self._told - self._began:7.1f} s] {text}", file=self._stream, flush=True)


class Live:
    """A table that is drawn over itself."""

    def __init__(self, spec: Spec) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._spec = spec
        self._console = Console(stderr=True)
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._began = time.monotonic()
        self._drawn = 0.0

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def begun(self, cohort: Cohort) -> None:
        pass

    def ended(self, cohort: Cohort, records: Sequence[Record]) -> None:
        failed = [record for record in records if record.status == "failed"]
        if failed:
            self.note(f"{_name(cohort)}: {_result(records, cohort.order.targets[-1])}")

    def update(self, cohorts: Sequence[Cohort], records: Sequence[Record], out: Path) -> None:
        now = time.monotonic()
        if now - self._drawn < LIVE_SECONDS:
            return
        self._drawn = now
        from rich.table import Table

        table = _table(self._spec, cohorts, records, out)
        target = self._spec.sweep.targets[-1]
        shown = Table(caption=_footer(table, now - self._began), caption_justify="left")
        for heading in (
            "batch size",
            "phase",
            "lanes",
            "step",
            "best rate",
            f"steps to {target:g}",
            "examples",
        ):
            shown.add_column(heading, justify="left" if heading == "phase" else "right")
        for row in table:
            shown.add_row(
                f"{row.batch_size}",
                row.phase,
                str(row.lanes or ""),
                str(row.step or ""),
                "" if row.lr is None else f"{row.lr:.3g}",
                "" if row.steps is None else f"{row.steps:.4g}",
                short(row.examples) if row.examples else "",
                style="bold" if row.lanes else "dim" if row.phase == "waiting" else "",
            )
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        self._live.stop()


def _table(spec: Spec, cohorts: Sequence[Cohort], records: Sequence[Record], out: Path) -> list[Row]:
    sweep = spec.sweep
    # Where the sweep chooses, those that were begun.
    sizes = sweep.batch_sizes or sorted({record.trial.batch_size for record in records})
    return rows(sizes, sweep.targets[-1], sweep.seeds, cohorts, records, ResultsPaths(out).trials)


def _footer(table: Sequence[Row], elapsed: float) -> str:
    left = seconds_left(table, elapsed)
    examples = short(sum(row.examples for row in table))
    forecast = f", about {duration(left)} left" if left is not None else ""
    return f"{examples} examples trained in {duration(elapsed)}{forecast}"


def _name(cohort: Cohort) -> str:
    return f"batch size {cohort.batch_size} {cohort.order.role}"


def _lanes(cohort: Cohort) -> str:
    rates = sorted({trial.lr for trial in cohort.trials})
    if len(rates) == 1:
        return f"{len(cohort.trials)} seed{'s' * (len(cohort.trials) > 1)} at rate {rates[0]:.3g}"
    return f"{len(rates)} rates from {rates[0]:.3g} to {rates[-1]:.3g}"


def _result(records: Sequence[Record], target: float) -> str:
    counts = Counter(record.status for record in records)
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    failed = next((record for record in records if record.status == "failed"), None)
    if failed is not None:
        return f"{listed}: {failure(failed)}"
    found = best(records, target)
    arrived = f"; rate {found[0]:.3g} needs {found[1]:.4g} steps to {target:g}" if found else ""
    return f"{listed}{arrived}"
