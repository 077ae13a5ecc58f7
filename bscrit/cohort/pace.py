"""The pace of a worker: from it an executor guesses whether a cohort should be split."""

from __future__ import annotations

from dataclasses import dataclass, field

from bscrit.request import Stretch, Waits


@dataclass
class Pace:
    """The pace of one cohort, or of one shard of it, while it trains.

    Attributes:
        by_lanes: what was trained, by the number of lanes that trained side by side.
        waits: evaluations at which it waited for its peers.
    """

    by_lanes: dict[int, Stretch] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        return tuple(self.by_lanes.values())

    def trained(self, lanes: int, steps: int, seconds: float) -> None:
        before = self.by_lanes.get(lanes, Stretch(lanes, 0, 0.0))
        self.by_lanes[lanes] = Stretch(lanes, before.steps + steps, before.seconds + seconds)

    def waited(self, seconds: float) -> None:
        self.waits = Waits(self.waits.evaluations + 1, self.waits.seconds + seconds)
