"""Orders to cohorts: trials of one batch size that train side by side, each of them a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bscrit.noise_settings import NoiseSettings
from bscrit.trial import Trial

Role = Literal["search", "measure"]


@dataclass(frozen=True)
class Order:
    """Role, targets, limits and settings of one cohort; they change what a run costs, never its curve.

    Attributes:
        role: "search" lanes try rates on one seed, "measure" lanes repeat one rate on fresh seeds.
        round: counts the cohorts of the same role at this batch size, from 0.
        lanes: (learning rate, seed) of every lane of the cohort, so that any one folder can restore it.
        targets: values of the goal's metric to reach, the hardest last.
        max_steps: budget of a lane in steps.
        cap_steps: where a lane is stopped although budget is left, 0 for never.
        cap_seeds: seeds on whose runs the cap rests: a single one may have been lucky.
        least_steps: a measured lane trains at least so far, where it is averaged with seeds whose curves end there.
        raced: whether a race settled the rate that is measured, beyond whose edges nothing is left to try.
        incumbents: fewest steps so far to each target, none while a target was not reached; a search lane
            that passes them all cannot win any more.
        noise: how the noise scale is measured, None for not at all.
        engine: "vmap" or "loop": lanes are trained vectorised, or one after the other.
        execution: "replay", "eager" or "compile", how it executes a step.
        micro_batch: examples whose activations fit into memory, 0 for the whole batch.
        device: as torch names it.
        splits: whether parts of a batch may be accumulated, should memory run out.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a file with more was written by another version

    role: Role
    round: int
    lanes: tuple[tuple[float, int], ...]
    targets: tuple[float, ...]
    max_steps: int
    cap_steps: int = 0
    cap_seeds: int = 0
    least_steps: int = 0
    raced: bool = False
    incumbents: tuple[float, ...] = ()
    noise: NoiseSettings | None = None
    engine: str = "loop"
    execution: str = "replay"
    micro_batch: int = 0
    device: str = "cpu"
    splits: bool = True


@dataclass(frozen=True)
class Cohort:
    """Trials of one batch size that train in lockstep.

    Attributes:
        trials: one per lane, in the order of `order.lanes` without those that failed too often.
        order: what all of them train to.
    """

    trials: tuple[Trial, ...]
    order: Order

    @property
    def batch_size(self) -> int:
        return self.trials[0].batch_size
