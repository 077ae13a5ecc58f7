"""Batch sizes that a sweep chooses itself: three to begin with, then one at a time where it tells most.

The next one is that of fit/design.py, by which a fit advises too; here its budget, the data set and batch sizes
where runs were in vain limit the candidates, and a precision ends the sweep.

    choice = choose(spec, preflight, records)
    choice.batch_size, choice.reason        256, "" or None, "the precision of 0.1 is reached: ..."
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bscrit.fit.core import fit_table
from bscrit.fit.crossings import from_records
from bscrit.fit.design import next_batch_size
from bscrit.fit.hyperbola import FEWEST as FITTED
from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.words import compact, plural

if TYPE_CHECKING:
    from bscrit.fit.hyperbola import Hyperbola
    from bscrit.fit.result import Fit
    from bscrit.spec import Spec

MOST = 20  # batch sizes
FEWEST = 5  # with fewer, an interval that looks narrow may be a matter of luck
MENDED = {"few-batch-sizes", "hangs-on-one", "power-law"}  # serious caveats that further batch sizes can lift
STEP = math.log(4)  # from every batch size that was tried, while nothing is fitted
MARGIN = 1.25  # on the predicted steps, for a seed without luck
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
    """The batch size to add once every active one is measured, to know B_crit at the hardest target that is reached.

    Args:
        records: of this spec's trials, at whatever batch size.
    """
    mine = sorted(records, key=lambda record: record.trial.name)
    choice = Choice(None, "no target was reached")
    for target in reversed(spec.sweep.targets):
        measured = _Measured(spec, preflight, _fit(mine, target), active(spec, preflight, mine), mine)
        if measured.reached or (target == spec.sweep.targets[0] and len(measured.tried) < FEWEST):
            choice = measured.choice()
        if choice.batch_size is not None or len(measured.reached) >= FITTED:
            break  # otherwise an easier target may still be had
    return choice


def _fit(records: Sequence[Record], target: float) -> Fit | None:
    fits = fit_table(from_records(records, [target])).fits
    return fits[0] if fits else None


@dataclass(frozen=True)
class _Measured:
    """The state at one target when the next batch size is chosen.

    Attributes:
        fit: at that target, None where nothing reached it.
        tried: batch sizes, ascending, with those of which no run has ended yet.
        records: of all batch sizes.
    """

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
        """Half-width of the 95 % interval of ln B_crit; infinite where B_crit is not identified."""
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
        predicted = self._curve.steps(size).scaled(size).value if self._curve else None
        return self._spent / sum(runs) * (predicted or max(runs))

    def _best(self, pool: Sequence[int]) -> int | None:
        """The candidate to try next, None where none would tell anything."""
        if self.fit is None or self.fit.curve is None:
            return self._away([size for size in pool if size & (size - 1) == 0] or list(pool))
        rises = any(caveat.code == "steps-rise" for caveat in self.fit.caveats)  # larger ones would not help
        verdict = "identified" if rises else self.fit.verdict
        chosen = next_batch_size(self.reached, math.exp(self.fit.curve.beta), verdict, pool)
        return None if chosen is None else int(chosen)

    def _away(self, pool: Sequence[int]) -> int | None:
        """A step away from everything that was tried, or as far as there is room."""

        def preference(size: int) -> tuple[float, float, int]:
            distance = min(abs(math.log(size / other)) for other in self.tried)
            return -min(distance, STEP - CLOSE), distance, size

        return min(pool, key=preference, default=None)

    def _why_none(self) -> str:
        lowest, highest = self._window()
        missed = " and ".join(f"{size:g}" for size in (lowest, highest) if 0 < size < math.inf)
        if missed:
            return f"no candidate is left, for the target is out of reach at batch size {missed}"
        verdict = self.fit.verdict if self.fit else ""
        beyond = {"lower bound": "larger ", "upper bound": "smaller "}.get(verdict, "further ")
        return f"there is no {beyond}batch size to try"
