"""A fit before its caveats are written: what they look at."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Crossing, CrossingTable
from bscrit.fit import design
from bscrit.fit.frontier import Frontier, Rows
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.identify import Answer, is_another_curve
from bscrit.fit.result import Point, Verdict
from bscrit.fit.shape import Shape
from bscrit.words import size, sizes


@dataclass(frozen=True)
class Draft:
    """A fit before its caveats are written.

    Attributes:
        frontier, rows: the runs, and as arrays.
        sound: which of them belong; `keep` are those of them that the curve is fitted to.
        curve: None where nothing could be fitted.
        knee, fall: sharpness of the knee, exponent of the fall at small batch.
        turn: point of fewest steps, beyond which they rise; None where they do not.
        answer: estimates, as far as the verdict allows.
        points: as the report has them.
        diagnostics: as in diagnostics.py.
        table: what was fitted is a part of it.
        widest: ratio of an interval's ends that is a serious caveat.
    """

    frontier: Frontier
    rows: Rows
    sound: NDArray[np.bool_]
    keep: NDArray[np.bool_]
    curve: Hyperbola | None
    knee: Shape | None
    fall: Shape | None
    turn: int | None
    verdict: Verdict
    answer: Answer
    points: Sequence[Point]
    diagnostics: Mapping[str, Any]
    table: CrossingTable
    widest: float

    @property
    def tried(self) -> list[float]:
        return [point.batch_size for point in self.frontier.points]

    @property
    def reached(self) -> list[float]:
        """Batch sizes at which some run that takes part met the target, ascending."""
        met = np.unique(self.rows.point[self.keep & (self.rows.side == 0)])
        return [self.frontier.points[int(point)].batch_size for point in met]

    @property
    def fitted(self) -> list[Crossing]:
        """Runs that take part."""
        runs = [run for point in self.frontier.points for run in point.runs]
        return [run for run, kept in zip(runs, self.keep.tolist(), strict=True) if kept]

    @property
    def scatter(self) -> float:
        """Standard deviation of a batch size's ln(steps) about the curve; 0 where there is no curve."""
        return 0.0 if self.curve is None else self.curve.spread

    @property
    def of_another_curve(self) -> bool:
        """Whether steps do not fall as a hyperbola does."""
        return self.curve is not None and is_another_curve(self.curve, self.knee, self.fall)

    @property
    def additions(self) -> list[float]:
        """Batch sizes worth adding, those that were not tried yet."""
        return [wanted for wanted in self._wanted() if wanted not in self.tried]

    def expected(self, run: int) -> float | None:
        """ln(steps) of the other runs at a run's batch size, or of the curve where there are none."""
        beside = self.keep & (self.rows.point == self.rows.point[run]) & (self.rows.side == 0)
        if beside.any():
            return float(self.rows.y[beside].mean())
        batch_size = exp(float(self.rows.x[self.rows.point[run]]))
        return None if self.curve is None else log(self.curve.steps(batch_size).value or 1.0)

    def add(self) -> str:
        """The next step when further batch sizes would help."""
        new = self.additions
        if not new:
            return "repeat the batch sizes with more seeds"
        return f"add batch size {sizes(new)}{self.command(new)}"

    @property
    def swept(self) -> bool:
        """Whether the runs are of a sweep of ours, so that its commands are a remedy."""
        return any(run.role for point in self.frontier.points for run in point.runs)

    def command(self, new: Sequence[float]) -> str:
        """The option by which a sweep trains these batch sizes, too; "" for somebody else's runs."""
        listed = ",".join(size(batch_size) for batch_size in sorted({*self.tried, *new}))
        setting = shlex.quote(f"sweep.batch_sizes=[{listed}]")
        return f", by the same `bscrit sweep` with --set {setting}" if self.swept else ""

    def _wanted(self) -> list[float]:
        if self.curve is not None and self.reached:
            # larger batch sizes would not help where steps rise
            verdict = self.verdict if self.turn is None else "identified"
            best = [design.next_batch_size(self.reached, exp(self.curve.beta), verdict)]
        else:
            tried = self.tried
            sides: tuple[Verdict, Verdict] = ("upper bound", "lower bound")
            best = [design.next_batch_size(tried, sqrt(tried[0] * tried[-1]), side) for side in sides]
        return [size for size in best if size is not None]
