"""Steps and examples of somebody's loop, as its meter counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bscrit.noise_settings import NoiseSettings


class Scaler(Protocol):
    """torch.amp.GradScaler, or whatever else knows what losses are multiplied by."""

    def get_scale(self) -> float: ...


@dataclass
class Count:
    """
    Attributes:
        cadence: how far measured steps lie apart.
        scaler: of the loop: a scale that falls tells that the last update was skipped, and was none.
        step: updates so far.
        examples: of all ranks, up to the last measured step; `here` those of this rank since then.
        calls: steps of the loop, with those that were skipped; `due` is the next one that is measured.
    """

    cadence: NoiseSettings
    scaler: Scaler | None
    step: int = 0
    examples: int = 0
    calls: int = 0
    due: int = 0
    here: int = 0

    def __post_init__(self) -> None:
        self._before = 0
        self._scale = self.scale()

    def scale(self) -> float:
        return 1.0 if self.scaler is None else float(self.scaler.get_scale())

    def advance(self, examples: int) -> None:
        """A step of the loop, of so many examples on this rank."""
        self._before = examples
        self.here += examples
        self.calls += 1
        self.step += 1
        self.take_back_skipped()

    def plan_next(self, ready: bool) -> None:
        """When to measure next; at once where this step gave nothing as it came too early."""
        self.due = self.cadence.after(self.calls) if ready else self.calls + 1

    def take_back_skipped(self) -> None:
        scale = self.scale()
        if scale < self._scale and self.step:
            self.step -= 1
            self.here -= self._before
        self._scale = scale

    def state(self, ranks: int) -> dict[str, int]:
        examples = self.examples + self.here * ranks
        return {"step": self.step, "examples": examples, "calls": self.calls, "due": self.due}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.step, self.examples = int(state["step"]), int(state["examples"])
        self.calls = int(state.get("calls", self.step))
        self.due = int(state.get("due", self.calls))
