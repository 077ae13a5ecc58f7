"""Batch sizes that a sweep chooses itself: three to begin with, then one at a time where it tells most.

SE(ln B_crit) = sigma / sqrt(sum_i (p_i - mean p)^2) with p_i = 1/(1 + B_i/B_crit) says what a further batch
size is worth, and the hyperbola E = E_min (1 + B/B_crit) what it costs. Where the batch sizes so far bound
B_crit on one side only, the next one lies beyond them on that side.

    choice = choose(spec, preflight, records)
    choice.batch_size, choice.reason        256, "" or None, "the precision of 0.1 is reached: ..."
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bscrit.fit.core import fit_table
from bscrit.fit.crossings import from_records
from bscrit.fit.hyperbola import FEWEST as FITTED
from bscrit.fit.identify import KNEE
from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.words import compact, plural

if TYPE_CHECKING:
    from bscrit.fit.hyperbola import Hyperbola
    from bscrit.fit.likelihood import Floats
    from bscrit.fit.result import Fit
    from bscrit.spec import Spec

MOST = 20  # batch sizes
FEWEST = 5  # with fewer, an interval that looks narrow may be a matter of luck
MENDED = {"few-batch-sizes", "hangs-on-one", "power-law"}  # serious caveats that further batch sizes can lift
STEP, LEAP = math.log(4), math.log(8)  # beyond the tried batch sizes: near the knee, and far from it
FAR = 0.1  # share of the steps: this near to the plateau or to perfect scaling, the knee is far away
MARGIN = 1.25  # on the predicted steps, for a seed without luck
WORTH = 0.9  # of the best per example: among batch sizes as good as that, the largest takes fewest steps
HALF_STEP = 0.5  # a power of sqrt(2) waits until it is worth so much more than every power of two
CLOSE = 1e-9


@dataclass(frozen=True)
class Choice:
    """The batch size to add; None where the sweep ends, with the reason in words."""

    batch_size: int | None
    reason: str = ""


def active(spec: Spec, preflight: Preflight, records: Iterable[Record]) -> tuple[int, ...]:
    """Batch sizes of this spec's records, ascending; with those to begin with while there are too few."""
    begun = {record.trial.batch_size for record in records}
    beginning = spec.beginning(preflight.examples)
    return tuple(sorted(begun if len(begun) >= len(beginning) else begun.union(beginning)))


def choose(spec: Spec, preflight: Preflight, records: Iterable[Record]) -> Choice:
    """What to add once every active batch size is measured, to know B_crit at the hardest target that is reached.

    Args:
        records: of this spec's trials, at whatever batch size.
    """
    mine = sorted(records, key=lambda record: record.trial.name)
    choice = Choice(None, "no target was reached")
    for target in reversed(spec.sweep.targets):
        known = _Known(spec, preflight, _fit(mine, target), active(spec, preflight, mine), mine)
        if known.reached or (target == spec.sweep.targets[0] and len(known.tried) < FEWEST):
            choice = known.choice()
        if choice.batch_size is not None or len(known.reached) >= FITTED:
            break  # otherwise an easier target may still be had
    return choice


def _fit(records: Sequence[Record], target: float) -> Fit | None:
    fits = fit_table(from_records(records, [target])).fits
    return fits[0] if fits else None


@dataclass(frozen=True)
class _Known:
    """What is known at one target when the next batch size is chosen."""

    spec: Spec
    preflight: Preflight
    fit: Fit | None
    tried: Sequence[int]
    records: Sequence[Record]

    def choice(self) -> Choice:
        if self._is_precise():
            return Choice(
                None, f"the precision of {self.spec.sweep.precision:g} is reached: {self._so_far()}"
            )
        if len(self.tried) >= MOST:
            return Choice(None, f"{MOST} batch sizes are the most that are tried: {self._so_far()}")
        candidates = self.spec.candidates(self.preflight.examples)
        pool = [size for size in candidates if size not in self.tried and self._can_reach(size)]
        chosen, budget = self._best(pool), self.spec.sweep.max_total_examples
        if chosen is None:
            return Choice(None, f"{self._why_none()}: {self._so_far()}")
        if budget is not None and self._spent + self._cost(chosen) > budget:
            chosen = self._best([size for size in pool if self._spent + self._cost(size) <= budget])
        if chosen is None:
            units = f"{compact(budget or 0)} {plural(self.preflight.unit)}"
            return Choice(None, f"max_total_examples, {units}, holds no further batch size: {self._so_far()}")
        return Choice(chosen)

    @property
    def reached(self) -> list[float]:
        """Batch sizes at which some run met the target, ascending."""
        points = self.fit.points if self.fit else ()
        return [point.batch_size for point in points if point.censored < point.runs]

    @property
    def _curve(self) -> Hyperbola | None:
        return self.fit.curve if self.fit else None

    @property
    def _spent(self) -> float:
        return sum(record.examples for record in self.records)

    def _is_precise(self) -> bool:
        """Whether the interval is narrow enough, and no matter of luck."""
        if self.fit is None or len(self.reached) < FEWEST:
            return False
        doubtful = any(caveat.serious and caveat.code in MENDED for caveat in self.fit.caveats)
        return self._half_width() <= self.spec.sweep.precision and not doubtful

    def _half_width(self) -> float:
        """Of the 95 % interval of ln B_crit; infinite where B_crit is not identified."""
        b_crit = self.fit.b_crit if self.fit else None
        if b_crit is None or not b_crit.value or not b_crit.low or not b_crit.high:
            return math.inf
        return math.log(b_crit.high / b_crit.low) / 2

    def _so_far(self) -> str:
        if self.fit is None or not self.reached:
            return "no target was reached"
        width = self._half_width()
        said = f"known to +-{width:.2g}" if math.isfinite(width) else self.fit.verdict
        return f"ln B_crit at target {self.fit.target:g} is {said}"

    def _can_reach(self, size: int) -> bool:
        """Whether the target can be expected to be met there, by where it was not and by the fit."""
        lowest, highest = self._window()
        if self._curve is None or self._half_width() == math.inf:
            return lowest < size < highest
        steps = MARGIN * (self._curve.steps(size).value or 0)
        return lowest < size < highest and steps <= self.spec.max_steps_at(size)

    def _window(self) -> tuple[float, float]:
        """Batch sizes between which no run was in vain: too many steps below them, too many examples above."""
        reached = self.reached
        missed = [size for size in self.tried if size not in reached]
        if reached:
            below, above = ([s for s in missed if s < reached[0]], [s for s in missed if s > reached[-1]])
        else:
            most = self.spec.sweep.max_examples
            above = [size for size in missed if self.spec.max_steps_at(size) == most // size]
            below = [size for size in missed if size not in above]
        return max(below, default=0), min(above, default=math.inf)

    def _cost(self, size: int) -> float:
        """Examples that a batch size takes, its search included: as many times the predicted run as so far."""
        if self.fit is None or not self.reached:
            return self._spent / len(self.tried)
        runs = [point.examples for point in self.fit.points if point.batch_size in self.reached]
        predicted = self._curve.examples(size).value if self._curve else None
        return self._spent / sum(runs) * (predicted or max(runs))

    def _best(self, pool: Sequence[int]) -> int | None:
        """The candidate to try next, None where none would tell anything."""
        curve, reached, verdict = self._curve, self.reached, self.fit.verdict if self.fit else ""
        powers = [size for size in pool if _is_power(size)] or list(pool)
        if curve is None:
            return self._apart(powers)
        first, last = math.log(reached[0]), math.log(reached[-1])
        if verdict == "lower bound":
            larger = [size for size in powers if size > reached[-1]]
            if larger or curve.beta > last + KNEE:
                return _nearest(larger, last + (LEAP if curve.p[-1] > 1 - FAR else STEP))
        if verdict == "upper bound":
            smaller = [size for size in powers if size < reached[0]]
            if smaller or curve.beta < first - KNEE:
                return _nearest(smaller, first - (LEAP if curve.p[0] < FAR else STEP))
        return self._worth_most(pool, min(max(curve.beta, first - STEP), last + STEP))

    def _apart(self, pool: Sequence[int]) -> int | None:
        """A step away from everything that was tried, or as far as there is room."""

        def preference(size: int) -> tuple[float, float, int]:
            distance = min(abs(math.log(size / other)) for other in self.tried)
            return -min(distance, STEP - CLOSE), distance, size

        return min(pool, key=preference, default=None)

    def _worth_most(self, pool: Sequence[int], beta: float) -> int | None:
        """The candidate that narrows the interval of ln B_crit = beta most per example."""
        if not pool:
            return None
        p, new = _share(self.reached, beta), _share(pool, beta)
        gain = len(p) / (len(p) + 1) * (new - p.mean()) ** 2
        worth = gain * new  # a batch size costs 1 + B/B_crit = 1/p
        worth *= [1.0 if _is_power(size) else HALF_STEP for size in pool]
        return max(size for size, one in zip(pool, worth, strict=True) if one >= WORTH * worth.max())

    def _why_none(self) -> str:
        lowest, highest = self._window()
        missed = " and ".join(f"{size:g}" for size in (lowest, highest) if 0 < size < math.inf)
        if missed:
            return f"no candidate is left, for the target is out of reach at batch size {missed}"
        verdict = self.fit.verdict if self.fit else ""
        beyond = {"lower bound": "larger ", "upper bound": "smaller "}.get(verdict, "further ")
        return f"there is no {beyond}batch size to try"


def _share(sizes: Sequence[float], beta: float) -> Floats:
    """1/(1 + B/B_crit), the share of the steps that is owed to noise."""
    return np.asarray(1 / (1 + np.asarray(sizes, float) / math.exp(beta)))


def _nearest(pool: Sequence[int], wanted: float) -> int | None:
    return min(pool, key=lambda size: (abs(math.log(size) - wanted), size), default=None)


def _is_power(size: int) -> bool:
    """Whether a batch size is a power of two."""
    return size & (size - 1) == 0
