"""A trial's folder while its worker trains: its streams, cut back to where the run goes on, and its end."""

from __future__ import annotations

import contextlib
import os
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from bscrit.curve import HEADER, Curve
from bscrit.files import explaining, whole_lines, write_text
from bscrit.noise import FROZEN_HEADER
from bscrit.noise import HEADER as NOISE_HEADER
from bscrit.record import Order, end, read_record
from bscrit.train.judge import Ending
from bscrit.trial import Trial


@dataclass
class OpenTrial:
    """One trial's folder while it is open."""

    folder: Path
    trial: Trial
    order: Order
    ending: Ending | None = None
    rows: list[tuple[float, float, float, float]] = field(default_factory=list)
    curve_file: IO[str] | None = None
    noise_file: IO[str] | None = None
    frozen_file: IO[str] | None = None

    @classmethod
    def read(cls, folder: Path) -> OpenTrial:
        record = read_record(folder)
        assert record is not None, "the sweep begins a folder before it hands it over"
        lane = cls(folder, record.trial, record.order)
        lane.ending = Ending(record.status, record.reason) if record.finished else None
        c = record.curve
        lane.rows = list(zip(c.steps, c.examples, c.loss, c.seconds, strict=True))
        return lane

    def begin(self, step: int, files: contextlib.ExitStack) -> None:
        """Open the streams, cut back to what was known before update number `step`."""
        self.rows = [row for row in self.rows if row[0] <= step]
        self.curve_file = files.enter_context(stream(self.folder / "curve.csv", HEADER, step))
        if self.order.noise is not None:
            self.noise_file = files.enter_context(stream(self.folder / "noise.csv", NOISE_HEADER, step - 1))
            if self.order.noise.losses:
                self.frozen_file = files.enter_context(
                    stream(self.folder / "frozen.csv", FROZEN_HEADER, step)
                )

    def fail(self, error: Exception) -> None:
        """Close the folder after an exception of this lane's own."""
        self.ending = Ending("failed", f"{type(error).__name__}: {error}")
        with explaining(self.folder), (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.writelines(traceback.format_exception(error))
        end(self.folder, self.ending.status, self.ending.reason, {})

    def curve(self, step: float) -> Curve:
        table = np.array([row for row in self.rows if row[0] <= step], dtype=float).reshape(-1, 4)
        return Curve(*table.T)

    @property
    def last(self) -> float:
        return self.rows[-1][0] if self.rows else -1.0


@contextlib.contextmanager
def stream(path: Path, header: str, step: float) -> Any:
    """A file to append to, holding the header and its whole lines up to `step`."""
    kept = [line for line in whole_lines(path)[1:] if _step(line) <= step]
    write_text(path, "\n".join([header, *kept]) + "\n")
    with path.open("a", buffering=1, encoding="utf-8") as opened:
        yield opened


def write(file: IO[str] | None, line: str, path: Path) -> None:
    assert file is not None
    with explaining(path):
        file.write(line)


def sync(file: IO[str] | None) -> None:
    if file is not None:
        file.flush()
        os.fsync(file.fileno())


def _step(line: str) -> float:
    try:
        return float(line.partition(",")[0])
    except ValueError:
        return float("inf")
