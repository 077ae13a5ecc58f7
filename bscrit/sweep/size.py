"""One batch size of a plan: what its records ask for next.

search    lanes of one seed race at several rates, round after round, until the rate is settled (tune.py)
measure   fresh seeds at that rate; their mean curve is what the fit sees
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from bscrit.order import Cohort, Measurement, Order
from bscrit.preflight import Preflight
from bscrit.rate_law import Known, Place, law
from bscrit.record import Record
from bscrit.sweep.evidence import apart, lane_of
from bscrit.sweep.tune import (
    OWN_ERROR,
    Infeasible,
    Lane,
    Try,
    Tuned,
    first_rates,
    predicted_rates,
    rates_around,
    tune,
)
from bscrit.trial import Trial

if TYPE_CHECKING:
    from bscrit.spec import Spec

SEARCH_SEED = 500_000  # above those of the measurement, so that none is tuned on and measured on
NOISE_SAMPLES = 7  # of a run at least
CAP = 1.7  # times the steps of the search: a repeat beyond it wanders at the edge of stability
PATIENCE = 1.6  # times the steps of a smaller batch size: a larger one never needs more
SHARED = 0.04  # ln(steps) that an easier target may lose by runs that were made for a harder one
RETREAT = 1.35  # factor between the rates, and so at most between the steps, of a retreat
MAX_RETREATS = 3


@dataclass(frozen=True)
class Settled:
    """The steps of a batch size, and what it says about the law of the rate: the next batch size may start.

    Attributes:
        known: None where no rate reaches the hardest target.
        unreachable: targets for which the budget of examples was too small.
    """

    known: Known | None
    steps: float
    unreachable: tuple[float, ...] = ()


@dataclass(frozen=True)
class BatchSize:
    """The part of the plan at one batch size, for the targets that smaller ones reached."""

    spec: Spec
    preflight: Preflight
    batch_size: int
    targets: tuple[float, ...]
    records: Sequence[Record]
    given_up: Collection[str]
    known: tuple[Known, ...]
    slowest: float

    def plan(self) -> tuple[list[Cohort], Settled | None]:
        """Cohorts to train now, and the settled rate, None while it is still searched."""
        targets = self.targets
        begun = self._begun()
        rates = {target: self._rate(target) for target in reversed(targets)}
        hardest = rates[targets[-1]]
        for target, rate in rates.items():
            if isinstance(rate, Try):
                asked = targets if target == targets[-1] else (target,)
                return begun or self._search(rate, asked), None
        settled = replace(self._settled(hardest), unreachable=self._unreachable(rates))
        if begun:
            return begun, settled
        # One target after the other, the hardest first: its runs, where they end up, may serve the easier ones.
        failed: list[float] = []
        for target, rate in rates.items():
            if not isinstance(rate, Tuned) or (rate is not hardest and self._is_served(target, rate, failed)):
                continue
            failed += [] if self._measured(target) else [rate.lr]
            cohorts = self._measure(rate, targets if rate is hardest else (target,))
            if cohorts:
                return cohorts, settled
        return [], settled

    def _is_served(self, target: float, rate: Tuned, failed: Sequence[float]) -> bool:
        """Whether runs to a harder target have this rate, to within a few per cent of the steps.

        Runs that failed, at the rates `failed`, will serve once what made them fail is mended.
        """
        if self._measured(target):
            return False
        if self._retreated_to() <= rate.lr:
            return True
        others = {r.order.targets[-1] for r in self._serving(target) if r.order.targets[-1] < target}
        lrs = [*failed, *(self._measured(other)[-1].trial.lr for other in others)]
        return any(self._shares(rate, lr) for lr in lrs)

    def _retreated_to(self) -> float:
        """The rate to which runs to the hardest target had to go down; infinite where its search was right.

        The searches of all targets share their seed, so an easier one was misled as well.
        """
        runs = self._measured(self.targets[-1])
        if not runs or any(r.status != "reached" for r in runs if r.trial.lr == runs[-1].trial.lr):
            return math.inf
        return runs[-1].trial.lr if runs[-1].trial.lr < runs[0].trial.lr else math.inf

    def _shares(self, rate: Tuned, lr: float) -> bool:
        """Whether runs at `lr` to a harder target serve this one, to within a few per cent of its steps."""
        return lr > 0 and rate.loss_at(lr) <= SHARED

    def _settled(self, hardest: Tuned | Try | Infeasible) -> Settled:
        """What others learn: from the search, whether or not its measurement has ended by now."""
        for rate in (self._searched_rate(self.targets[-1]), hardest):
            if isinstance(rate, Tuned):
                place = rate.place or Place(math.log(rate.lr), OWN_ERROR)
                return Settled(Known(self.batch_size, place), rate.steps)
        return Settled(None, math.inf)

    def _unreachable(self, rates: Mapping[float, Tuned | Try | Infeasible]) -> tuple[float, ...]:
        """Targets for which the budget of examples was too small."""
        by_examples = (
            self.spec.max_steps_at(self.batch_size) == self.spec.sweep.max_examples // self.batch_size
        )
        lacking = (t for t, rate in rates.items() if isinstance(rate, Infeasible) and rate.exhausted)
        return tuple(lacking) if by_examples else ()

    def _begun(self) -> list[Cohort]:
        """Cohorts that were begun and have not ended go on as they were ordered."""
        waiting = {
            r.order: None for r in self.records if not r.finished and r.trial.name not in self.given_up
        }
        return [
            Cohort(tuple(t for t in self._trials(order.lanes) if t.name not in self.given_up), order)
            for order in waiting
            if self._current(order)
        ]

    def _current(self, order: Order) -> bool:
        """Whether an order still fits the spec; one that does not is forgotten, its trials planned anew."""
        targets = self.targets
        asked = order.targets == targets or (len(order.targets) == 1 and order.targets[0] in targets)
        asked = asked and order.max_steps == self.spec.max_steps_at(self.batch_size)
        # A device that is gone, or a micro-batch that did not fit: going on in the old way would fail again.
        fits = order.device == self.preflight.device and order.micro_batch == (
            self.spec.compute.micro_batch or 0
        )
        return asked and fits

    def _rate(self, target: float) -> Tuned | Try | Infeasible:
        """The rate that fits a target: the measured one, or what the search says."""
        measured = self._measured(target)
        return Tuned(measured[-1].trial.lr, math.inf) if measured else self._searched_rate(target)

    def _searched_rate(self, target: float) -> Tuned | Try | Infeasible:
        settings = self.spec.learning_rate
        if settings.tune == "rule":
            assert settings.base is not None
            assert settings.base_batch_size is not None
            power = {"linear": 1.0, "sqrt": 0.5}[settings.scaling]
            return Tuned(settings.base * (self.batch_size / settings.base_batch_size) ** power, math.inf)
        lanes = [lane_of(record, target) for record in self._searched(target)]
        if settings.tune == "grid":
            step = self._grid(lanes)
        else:
            first = self._first(lanes)
            hardest = target == self.targets[-1]
            step = Try(first) if first else tune(lanes, fine=hardest, law=self._law if hardest else None)
        if isinstance(step, Try):
            rates = tuple(lr for lr in step.rates if not self._lost(lr))
            return Try(rates) if rates else Infeasible("the rates that are left failed")
        return step

    def _grid(self, lanes: Sequence[Lane]) -> Tuned | Try | Infeasible:
        """Every rate of a fixed grid once; the best of them, as it stands."""
        done = {lane.lr for lane in lanes}
        rates = self.spec.learning_rate.rates or ()
        missing = tuple(lr for lr in rates if lr not in done)
        met = [lane for lane in lanes if lane.kind == "met"]
        if missing and not all(self._lost(lr) for lr in missing):
            return Try(missing)
        if not met:
            return Infeasible("no rate of the grid arrives within the budget")
        best = min(met, key=lambda lane: lane.steps)
        return Tuned(best.lr, best.steps)

    def _first(self, lanes: Sequence[Lane]) -> tuple[float, ...]:
        """Rates to begin a search with: around what an easier target measured here, or from other batch sizes.

        None where it has begun. For a target that was added later, lanes that diverged are no beginning.
        """
        before = [r for r in self.records if r.role == "measure" and r.finished]
        if before and all(lane.kind == "diverged" for lane in lanes):
            hardest = min(before, key=lambda r: (r.order.targets[-1], -r.order.round))
            tried = {lane.lr for lane in lanes}
            return tuple(lr for lr in rates_around(hardest.trial.lr, 1.25).rates if lr not in tried)
        if lanes:
            return ()
        return (predicted_rates(self._law) if self._law else first_rates(self.spec.first_guess())).rates

    @cached_property
    def _law(self) -> Place | None:
        """The rate that the other batch sizes predict here, for the hardest target."""
        power = 1.0 if self.spec.optimizer_at(self.batch_size)["use"] == "sgd" else 0.5
        return law(self.known, self.batch_size, power) if self.known else None

    def _search(self, rates: Try, targets: tuple[float, ...]) -> list[Cohort]:
        lanes = tuple((lr, self._search_seed) for lr in rates.rates)
        rounds = [record.order.round for record in self.records if record.role == "search"]
        best = tuple(self._incumbent(target) for target in targets)
        incumbents = best if all(math.isfinite(steps) for steps in best) else ()
        order = self._order("search", max(rounds, default=-1) + 1, lanes, targets, incumbents)
        return self._cohort(self._capped(order, PATIENCE * self.slowest))

    def _measure(self, rate: Tuned, targets: tuple[float, ...]) -> list[Cohort]:
        """Fresh seeds at the tuned rate; at a lower one where a seed was lost at the edge of stability."""
        lr, steps = rate.lr, rate.steps
        done = self._measured(targets[-1])
        last = [record for record in done if record.trial.lr == done[-1].trial.lr]
        lost = any(r.status in ("diverged", "stopped") for r in last) or apart(last, targets[-1])
        retreats = max(len({record.trial.lr for record in done}) - 1, 0)
        if lost and retreats < MAX_RETREATS and self.spec.learning_rate.tune == "race":
            lr = float(f"{last[0].trial.lr / RETREAT:.3g}")
            last, retreats = [], retreats + 1
        elif last:
            lr = last[0].trial.lr
        # Runs at this rate to a harder target serve as well: to ask the same trials again for this one would undo them.
        have = {record.trial.seed for record in self._serving(targets[-1]) if record.trial.lr == lr}
        first = self.spec.sweep.first_seed
        seeds = [seed for seed in range(first, first + self.spec.sweep.seeds) if seed not in have]
        lanes = tuple((lr, seed) for seed in seeds if self._trial(lr, seed).name not in self.given_up)
        if not lanes:
            return []
        if not math.isfinite(steps):
            steps = self._incumbent(targets[-1])
        order = self._order("measure", done[-1].order.round + 1 if done else 0, lanes, targets, ())
        order = replace(order, noise=self._measurement(steps))
        return self._cohort(self._capped(order, CAP * steps * RETREAT**retreats))

    def _measurement(self, steps: float) -> Measurement | None:
        """How noise is measured here; not where a batch has no parts between which it could be seen.

        A run that is expected to take few steps takes its samples closer together.
        """
        noise = self.spec.noise
        if noise.source == "none" or not self.preflight.splits or self.batch_size < 2:
            return None
        several = math.ceil(steps / NOISE_SAMPLES) if math.isfinite(steps) else noise.every
        return Measurement(
            source=noise.source,
            metrics=noise.metric,
            parts=noise.parts,
            every=min(noise.every, max(several, 1)),
            spacing=noise.spacing,
            losses=tuple(sorted(noise.at_losses, reverse=True)),
            precision=noise.precision,
            max_examples=noise.max_examples,
        )

    def _order(
        self,
        role: str,
        number: int,
        lanes: tuple[tuple[float, int], ...],
        targets: tuple[float, ...],
        incumbents: tuple[float, ...],
    ) -> Order:
        return Order(
            role=role,  # type: ignore[arg-type]
            round=number,
            lanes=lanes,
            targets=targets,
            max_steps=self.spec.max_steps_at(self.batch_size),
            incumbents=incumbents,
            backend=self.preflight.backends.get(self.batch_size, "loop") if len(lanes) > 1 else "loop",
            execution=self.spec.compute.execution,
            micro_batch=self.spec.compute.micro_batch or 0,
            device=self.preflight.device,
            splits=self.preflight.splits,
        )

    def _capped(self, order: Order, steps: float) -> Order:
        """The order with a cap at these steps, where that is less than the budget."""
        return replace(order, cap_steps=math.ceil(steps) + 10) if steps + 10 < order.max_steps else order

    def _cohort(self, order: Order) -> list[Cohort]:
        return [Cohort(self._trials(order.lanes), order)]

    def _trials(self, lanes: Iterable[tuple[float, int]]) -> tuple[Trial, ...]:
        return tuple(self._trial(lr, seed) for lr, seed in lanes)

    def _trial(self, lr: float, seed: int) -> Trial:
        return self.spec.trial(self.batch_size, lr, seed, self.preflight.fingerprint)

    def _lost(self, lr: float) -> bool:
        return self._trial(lr, self._search_seed).name in self.given_up

    @property
    def _search_seed(self) -> int:
        """One of its own at each batch size: what flatters a rate at one size shall not do so at the next."""
        return self.spec.sweep.first_seed + SEARCH_SEED + self.batch_size

    def _covers(self, record: Record, target: float) -> bool:
        """Whether a record was asked for a target this hard, with today's budget."""
        if record.status == "diverged":
            return True
        short = record.status == "exhausted" and record.order.max_steps < self.spec.max_steps_at(
            self.batch_size
        )
        return record.order.targets[-1] <= target and not short

    def _searched(self, target: float) -> list[Record]:
        """Records of the search that tell about a target."""
        mine = [r for r in self.records if r.role == "search" and r.trial.seed == self._search_seed]
        done = [r for r in mine if r.finished and self._covers(r, target)]
        # A rate that fails where others train is a wall, like one that diverges.
        return done + [r for r in mine if done and r.status == "failed" and r.trial.name in self.given_up]

    def _measured(self, target: float) -> list[Record]:
        """Measured records that serve a target, oldest round first; those made for it alone, if there are any."""
        serving = self._serving(target)
        own = [r for r in serving if r.order.targets[-1] == target]
        hardest = target == self.targets[-1]
        return sorted(own if own or not hardest else serving, key=lambda r: (r.order.round, r.trial.seed))

    def _serving(self, target: float) -> list[Record]:
        """Measured records that were asked for a target at least this hard."""
        return [r for r in self.records if r.role == "measure" and r.finished and self._covers(r, target)]

    def _incumbent(self, target: float) -> float:
        """Steps of the best lane of the search so far."""
        lanes = [lane_of(record, target) for record in self._searched(target)]
        return min((lane.steps for lane in lanes if lane.kind == "met"), default=math.inf)
