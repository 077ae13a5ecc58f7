"""How fast a worker was: from that the sweep guesses whether a cohort should be split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Pace:
    """Of one cohort, or of one shard of it.

    Attributes:
        steps: [steps, seconds of training and evaluating them] by the number of lanes that trained.
        waits: evaluations, and seconds that it waited there for its mates.
    """

    steps: dict[int, list[float]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=lambda: [0, 0.0])

    def trained(self, lanes: int, steps: int, seconds: float) -> None:
        pace = self.steps.setdefault(lanes, [0, 0.0])
        pace[0] += steps
        pace[1] += seconds

    def waited(self, seconds: float) -> None:
        self.waits[0] += 1
        self.waits[1] += seconds

    def to_dict(self) -> dict[str, Any]:
        return {"paces": [[lanes, *pace] for lanes, pace in self.steps.items()], "waits": self.waits}
