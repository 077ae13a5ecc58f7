"""One batch size of a plan: its records, and the cohorts that can be ordered there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bscrit.noise_settings import NoiseSettings
from bscrit.order import Cohort, Order, Role
from bscrit.preflight import Preflight
from bscrit.rate_law import RateEstimate
from bscrit.record import Record
from bscrit.trial import Trial

if TYPE_CHECKING:
    from bscrit.spec import Spec

SEARCH_SEED = 500_000  # above those of the measurement, so that none is tuned on and measured on
SEEDS_AGAIN = 3  # of a search that is repeated since the seed of the first one was lucky
APART = 1_000_000  # between the seeds of searches


@dataclass(frozen=True)
class BatchSize:
    """The part that search and measurement at one batch size share.

    Attributes:
        targets: those that smaller batch sizes reached, the hardest last.
        records: of this batch size alone.
        given_up: names of trials that failed too often to be tried again now.
        predicted: the rate by the law of other batch sizes, for the hardest target.
        smaller_steps: that smaller batch sizes took to the hardest target.
    """

    spec: Spec
    preflight: Preflight
    batch_size: int
    targets: tuple[float, ...]
    records: Sequence[Record]
    given_up: Collection[str] = ()
    predicted: RateEstimate | None = None
    smaller_steps: Sequence[float] = ()

    @property
    def hardest(self) -> float:
        return self.targets[-1]

    def asked_with(self, target: float) -> tuple[float, ...]:
        """Targets of a cohort that is made for one: the hardest is asked together with all easier ones."""
        return self.targets if target == self.hardest else (target,)

    @property
    def max_steps(self) -> int:
        return self.spec.max_steps_at(self.batch_size)

    def search_seeds(self, again: bool) -> tuple[int, ...]:
        """Seeds of the search, or of its repetition.

        They differ between batch sizes: what flatters a rate at one size shall not do so at the next.
        """
        first = self.spec.sweep.first_seed + SEARCH_SEED + self.batch_size
        return tuple(first + number * APART for number in (range(1, SEEDS_AGAIN + 1) if again else [0]))

    def searched(self, target: float, again: bool) -> dict[float, list[Record]]:
        """Rate -> finished records of the search, or of its repetition, that serve a target."""
        seeds = self.search_seeds(again)
        mine = [r for r in self.records if r.role == "search" and r.trial.seed in seeds]
        done = [r for r in mine if r.finished and self._serves(r, target)]
        # A rate that fails where others train is a wall, like one that diverges.
        failed = [r for r in mine if done and r.status == "failed" and r.trial.name in self.given_up]
        rates: dict[float, list[Record]] = defaultdict(list)
        for record in done + failed:
            rates[record.trial.lr].append(record)
        return {
            lr: runs
            for lr, runs in rates.items()
            if len(runs) == len(seeds) or any(r.status == "failed" for r in runs)
        }

    def is_searched_again(self, target: float) -> bool:
        """Whether the search is repeated: its steps were those of a lucky run, which most repeats did not match."""
        seeds = self.search_seeds(True)
        return self.cut_short(target) > 0 or any(
            r.role == "search" and r.trial.seed in seeds and self._serves(r, target) for r in self.records
        )

    def measured(self, target: float) -> list[Record]:
        """Measured records that serve a target, oldest round first; those made for it alone, if there are any."""
        serving = self.serving(target)
        own = [r for r in serving if r.order.targets[-1] == target]
        return sorted(
            own if own or target != self.hardest else serving, key=lambda r: (r.order.round, r.trial.seed)
        )

    def serving(self, target: float) -> list[Record]:
        """Measured records whose order asked for a target at least this hard, without those that were cut short."""
        return [r for runs in self._repeats(target) if not _most_are_stopped(runs) for r in runs]

    def cut_short(self, target: float) -> int:
        """On how many seeds a cap rested that most repeats at some rate met: it was too low. 0 where none did."""
        cut = [r for runs in self._repeats(target) if _most_are_stopped(runs) for r in runs]
        return max((r.order.cap_seeds for r in cut), default=0)

    def _repeats(self, target: float) -> Iterable[list[Record]]:
        """Measured records that serve a target, by their rate."""
        rates: dict[float, list[Record]] = defaultdict(list)
        for record in self.records:
            if record.role == "measure" and record.finished and self._serves(record, target):
                rates[record.trial.lr].append(record)
        return rates.values()

    def _serves(self, record: Record, target: float) -> bool:
        """Whether a record was ordered for a target this hard, with today's budget."""
        if record.status == "diverged":
            return True
        short = record.status == "exhausted" and record.order.max_steps < self.max_steps
        return record.trial.goal.reached(record.order.targets[-1], target) and not short

    def trial(self, lr: float, seed: int) -> Trial:
        return self.spec.trial(self.batch_size, lr, seed, self.preflight.fingerprint)

    def is_given_up(self, lr: float, seed: int) -> bool:
        return self.trial(lr, seed).name in self.given_up

    def cohort(
        self,
        role: Role,
        lanes: Sequence[tuple[float, int]],
        targets: tuple[float, ...],
        *,
        cap_steps: int,
        cap_seeds: int = 0,
        least_steps: int = 0,
        incumbents: tuple[float, ...] = (),
        noise: NoiseSettings | None = None,
    ) -> Cohort:
        """A new cohort, with the budget of this batch size and the settings that preflight found."""
        compute = self.spec.compute
        order = Order(
            role=role,
            round=max((r.order.round for r in self.records if r.role == role), default=-1) + 1,
            lanes=tuple(lanes),
            targets=targets,
            max_steps=self.max_steps,
            cap_steps=cap_steps,
            cap_seeds=cap_seeds,
            least_steps=least_steps,
            raced=role == "measure" and self.spec.learning_rate.tune == "race",
            incumbents=incumbents,
            noise=noise,
            engine=self.preflight.engine_at(self.batch_size) if len(lanes) > 1 else "loop",
            execution=compute.execution,
            micro_batch=compute.micro_batch or 0,
            device=self.preflight.device,
            splits=self.preflight.splits,
        )
        return Cohort(tuple(self.trial(lr, seed) for lr, seed in lanes), order)

    def begun(self) -> list[Cohort]:
        """Cohorts that were begun and have not ended; they go on as they were ordered."""
        waiting = [r.order for r in self.records if not r.finished and r.trial.name not in self.given_up]
        return [
            Cohort(tuple(self.trial(*lane) for lane in order.lanes if not self.is_given_up(*lane)), order)
            for order in dict.fromkeys(waiting)
            if self._is_current(order)
        ]

    def _is_current(self, order: Order) -> bool:
        """Whether an order still fits the spec; one that does not is forgotten, its trials planned anew."""
        alone = len(order.targets) == 1 and order.targets[0] in self.targets
        wanted = (alone or order.targets == self.targets) and order.max_steps == self.max_steps
        # A device that is gone, or a micro-batch that did not fit: going on in the old way would fail again.
        micro_batch = self.spec.compute.micro_batch or 0
        return wanted and order.device == self.preflight.device and order.micro_batch == micro_batch


def _most_are_stopped(runs: Sequence[Record]) -> bool:
    stopped = sum(r.status == "stopped" and r.order.cap_seeds > 0 for r in runs)
    return 2 * stopped > len(runs)
