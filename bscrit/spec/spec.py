"""The tables of a sweep together, and what they are at each batch size."""

from __future__ import annotations

import copy

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import SkipJsonSchema

from bscrit.goal import Goal
from bscrit.recipe import OptimizerTable, ScheduleTable
from bscrit.recipe.optimizers import Sgd
from bscrit.recipe.schedules import Constant
from bscrit.spec.errors import Source
from bscrit.spec.noise import NoiseTable
from bscrit.spec.tables import ComputeTable, LearningRateTable, Race, SweepTable, WorkloadTable
from bscrit.trial import Trial
from bscrit.values import MOST

FEWEST_STEPS = 10  # in the budget of a run at a batch size that the sweep may choose
BEGINNING = (8, 4)  # smallest of the first three batch sizes, and the factor from one to the next


class Spec(BaseModel):
    """A sweep as declared; made by `read_spec` or `parse_spec`, which also check what no table can alone.

    Attributes:
        name: of the sweep: the file's, without its ending.
        source: where the values came from, for errors that are found later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: WorkloadTable
    optimizer: OptimizerTable = Sgd()
    schedule: ScheduleTable = Constant()
    sweep: SweepTable
    learning_rate: LearningRateTable = Race()
    noise: NoiseTable = NoiseTable()
    compute: ComputeTable = ComputeTable()
    name: SkipJsonSchema[str]
    source: SkipJsonSchema[Source]

    @property
    def goal(self) -> Goal:
        """The metric that targets refer to, and its direction."""
        return Goal(self.sweep.metric, self.sweep.direction)

    def candidates(self, examples: int | None = None) -> tuple[int, ...]:
        """Batch sizes that the sweep may train at, ascending: those listed, or those from which it chooses.

        These are powers of the square root of two up to the data set's size, where the budget of a run leaves
        room for a few steps and for the schedule.

        Args:
            examples: the data set's size; None where data are drawn without end, or not known.
        """
        if not self.sweep.auto:
            return self.sweep.batch_sizes
        largest = min(self.sweep.max_examples // FEWEST_STEPS, examples or MOST)
        powers = range(2 * largest.bit_length())
        sizes = sorted({round(2 ** (power / 2)) for power in powers})
        return tuple(size for size in sizes if size <= largest and self._has_room(size))

    def _has_room(self, batch_size: int) -> bool:
        warmup = self.schedule.warmup_at(batch_size)
        return warmup <= self.max_steps_at(batch_size) and warmup < self.schedule.horizon_at(batch_size)

    def beginning(self, examples: int | None = None) -> tuple[int, ...]:
        """Batch sizes that are trained whatever comes of them: those listed, or three that are cheap."""
        if not self.sweep.auto:
            return self.sweep.batch_sizes
        powers = [size for size in self.candidates(examples) if size & (size - 1) == 0]
        first, ratio = BEGINNING
        while powers and first > powers[0] and first * ratio**2 > powers[-1]:
            first //= 2
        if powers and first * ratio**2 > powers[-1]:
            ratio = 2
        first = max(first, powers[0]) if powers else first
        return tuple(size for size in (first, first * ratio, first * ratio**2) if size in powers)

    def first_guess(self) -> float:
        """The learning rate from which a race starts at the smallest batch size."""
        guess = self.learning_rate.guess if self.learning_rate.tune == "race" else None
        return self.optimizer.first_guess(self.beginning()[0]) if guess is None else guess

    def max_steps_at(self, batch_size: int) -> int:
        """Budget of one trial in steps."""
        steps = self.sweep.max_examples // batch_size
        return steps if self.sweep.max_steps is None else min(steps, self.sweep.max_steps)

    def asks_for(self, trial: Trial, fingerprint: str) -> bool:
        """Whether a trial is of this spec and of these data, at a batch size that is listed or left open."""
        listed = self.sweep.auto or trial.batch_size in self.sweep.batch_sizes
        return listed and self.describes(trial, fingerprint)

    def describes(self, trial: Trial, fingerprint: str) -> bool:
        """Whether a trial is of this spec and of these data, at whatever batch size, rate and seed."""
        # By key: 1 and 1.0 are equal in Python, but make two trials.
        return trial.key == self.trial(trial.batch_size, trial.lr, trial.seed, fingerprint).key

    def trial(self, batch_size: int, lr: float, seed: int, fingerprint: str = "") -> Trial:
        """The trial of this spec at one batch size, learning rate and seed."""
        return Trial(
            workload=self.workload.use,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            goal=self.goal,
            fingerprint=fingerprint,
            settings=copy.deepcopy(self.workload.settings),
            optimizer=self.optimizer.at(batch_size),
            schedule=self.schedule.declared(),
            dtype=self.compute.dtype,
            validation_examples=self.sweep.validation_examples,
        )
