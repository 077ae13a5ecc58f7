"""The pace of a worker: from it an executor guesses whether a cohort should be split."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bscrit.request import Stretch, Waits


@dataclass
class Pace:
    """The clock of one cohort, or of one shard of it, while it trains.

    Attributes:
        by_lanes: what was trained, by the number of lanes that trained side by side.
        waits: evaluations at which it waited for its peers.
        evaluation_seconds, noise_seconds: of evaluating and of measuring noise, since the run began.
    """

    by_lanes: dict[int, Stretch] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    evaluation_seconds: float = 0.0
    noise_seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _noted: tuple[int, float] = (0, 0.0)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        return tuple(self.by_lanes.values())

    @property
    def seconds(self) -> float:
        """Seconds of training and evaluation since the run began."""
        return time.monotonic() - self._began

    def times(self) -> dict[str, float]:
        """By name, for a checkpoint or a record."""
        kinds = ("seconds", "evaluation_seconds", "noise_seconds")
        return {kind: getattr(self, kind) for kind in kinds}

    def resume(self, steps: int, times: Mapping[str, float]) -> None:
        """The run goes on where it was after so many steps."""
        self._began, self._noted = time.monotonic() - times["seconds"], (steps, times["seconds"])
        self.evaluation_seconds, self.noise_seconds = times["evaluation_seconds"], times["noise_seconds"]

    def note(self, lanes: int, steps: int) -> float:
        """Note that so many lanes have trained to this step; the seconds since the run began."""
        seconds, (steps_before, seconds_before) = self.seconds, self._noted
        before = self.by_lanes.get(lanes, Stretch(lanes, 0, 0.0))
        trained = before.steps + steps - steps_before, before.seconds + seconds - seconds_before
        self.by_lanes[lanes], self._noted = Stretch(lanes, *trained), (steps, seconds)
        return seconds

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.evaluation_seconds += time.monotonic() - began

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Seconds of waiting for peers count apart."""
        began = time.monotonic()
        yield
        self.waits = Waits(self.waits.evaluations + 1, self.waits.seconds + self._left_out(began))

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Seconds of measuring noise count apart."""
        began = time.monotonic()
        yield
        self.noise_seconds += self._left_out(began)

    def _left_out(self, began: float) -> float:
        """The seconds since then, which are none of the run's."""
        seconds = time.monotonic() - began
        self._began += seconds
        return seconds
