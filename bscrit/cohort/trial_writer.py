"""A trial's folder while its worker trains: its streams, cut back to where the run goes on, and its end."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bscrit.cohort.evaluations import Evaluations
from bscrit.cohort.judge import Ending
from bscrit.curve import curve_header, curve_line
from bscrit.errors import in_short
from bscrit.files import explaining, whole_lines, write_text
from bscrit.frozen_noise import HEADER as FROZEN_HEADER
from bscrit.frozen_noise import FrozenNoise, frozen_lines
from bscrit.noise import HEADER as NOISE_HEADER
from bscrit.noise import noise_line
from bscrit.order import Order
from bscrit.paths import TrialPaths
from bscrit.position import Position
from bscrit.record import end, read_record
from bscrit.trial import Trial


@dataclass(eq=False)
class TrialWriter:
    """The one writer of a trial's folder.

    Attributes:
        ending: how the trial ended, None while it trains.
        evaluations: its curve so far.
    """

    folder: Path
    trial: Trial
    order: Order
    ending: Ending | None = None
    evaluations: Evaluations = field(default_factory=Evaluations)
    _streams: dict[Path, IO[str]] = field(default_factory=dict)

    @property
    def paths(self) -> TrialPaths:
        return TrialPaths(self.folder)

    @classmethod
    def read(cls, folder: Path) -> TrialWriter:
        """The writer of a folder as it is, which has opened nothing yet."""
        record = read_record(folder)
        assert record is not None, "the sweep begins a folder before it hands it over"
        ending = Ending(record.status, record.reason) if record.finished else None
        return cls(folder, record.trial, record.order, ending, Evaluations(record.curve))

    def begin(self, step: int, files: contextlib.ExitStack) -> None:
        """Open the streams, cut back to what was known before update number `step`."""
        self.evaluations = Evaluations(self.evaluations.until(step))
        headers = {self.paths.curve: (curve_header(self.trial.goal), step)}
        if self.order.noise is not None:
            headers[self.paths.noise] = (NOISE_HEADER, step - 1)
            if self.order.noise.losses:
                headers[self.paths.frozen] = (FROZEN_HEADER, step)
        for path, (header, last) in headers.items():
            self._streams[path] = files.enter_context(stream(path, header, last))

    def evaluated(self, position: Position, value: float, lr: float, seconds: float) -> None:
        """Add an evaluation; `lr` is the rate of the update before it."""
        steps, examples = position.steps, position.examples
        self.evaluations.add(steps, examples, value, seconds)
        line = curve_line(steps, examples, value, self.trial.batch_size, lr, seconds)
        write(self._streams[self.paths.curve], line, self.paths.curve)

    def noise(self, position: Position, metric: str, sample: tuple[float, float, float, float]) -> None:
        """Add a noise sample."""
        line = noise_line(position.steps, position.examples, metric, *sample)
        write(self._streams[self.paths.noise], line, self.paths.noise)

    def frozen(self, measurements: Sequence[FrozenNoise]) -> None:
        """Add measurements at frozen parameters, all of them or none."""
        lines = "".join(map(frozen_lines, measurements))
        write(self._streams[self.paths.frozen], lines, self.paths.frozen)

    def sync(self) -> None:
        """Bring to the disk what was written."""
        for file in self._streams.values():
            sync(file)

    def end(self, ending: Ending, facts: Mapping[str, Any]) -> None:
        """Close the folder."""
        self.sync()
        end(self.folder, ending.status, ending.reason, facts)

    def fail(self, error: Exception) -> None:
        """Close the folder after an exception of this trial's own."""
        self.ending = Ending("failed", in_short(error))
        with explaining(self.folder), self.paths.log.open("a", encoding="utf-8") as log:
            log.writelines(traceback.format_exception(error))
        end(self.folder, self.ending.status, self.ending.reason, {})


@contextlib.contextmanager
def stream(path: Path, header: str, step: float) -> Any:
    """A file to append to, holding the header and its whole lines up to `step`."""
    kept = [line for line in whole_lines(path)[1:] if _step(line) <= step]
    write_text(path, "\n".join([header, *kept]) + "\n")
    with path.open("a", buffering=1, encoding="utf-8") as opened:
        yield opened


def write(file: IO[str], line: str, path: Path) -> None:
    with explaining(path):
        file.write(line)


def sync(file: IO[str]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _step(line: str) -> float:
    try:
        return float(line.partition(",")[0])
    except ValueError:
        return float("inf")
