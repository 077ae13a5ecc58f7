"""A curve: the metric of a goal against steps and examples, and the file that holds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bscrit.files import whole_lines
from bscrit.goal import LOSS, Goal

LARGEST = 2**53  # a step that a float holds exactly
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Evaluations of one run, ascending in steps.

    Attributes:
        steps: (n,) applied optimizer updates.
        examples: (n,) consumed by those updates, in the workload's unit.
        loss: (n,) the metric on the fixed evaluation set, as `goal.falls` has it: it always gets better downwards; not
            finite where the run diverged.
        seconds: (n,) since the trial began, training and evaluation.
        goal: the metric and its direction.
    """

    steps: Floats
    examples: Floats
    loss: Floats
    seconds: Floats
    goal: Goal = LOSS

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: float) -> Curve:
        """The part of the curve up to and including `step`."""
        return self._only(self.steps <= step)

    def finite(self) -> Curve:
        """The curve without evaluations that are not finite."""
        return self._only(np.isfinite(self.loss))

    def _only(self, keep: NDArray[np.bool_]) -> Curve:
        return Curve(self.steps[keep], self.examples[keep], self.loss[keep], self.seconds[keep], self.goal)


EMPTY = Curve(np.empty(0), np.empty(0), np.empty(0), np.empty(0))


def read_curve(path: Path, goal: Goal = LOSS) -> Curve:
    """Read curve.csv, which holds the metric itself; a torn last line, at whatever byte, costs only that line.

    A run that was killed and resumed may have written a step twice: the last writing holds.
    """
    rows: dict[int, tuple[float, float, float, float]] = {}
    for line in whole_lines(path)[1:]:
        cells = line.split(",")
        if len(cells) != 6:
            continue
        try:
            step = int(cells[0])
            examples, value, seconds = (float(cells[place]) for place in (1, 2, 5))
        except ValueError:
            continue
        if 0 <= step < LARGEST:
            rows[step] = (step, examples, value, seconds)
    if not rows:
        return replace(EMPTY, goal=goal)
    table = np.array([rows[step] for step in sorted(rows)])
    return Curve(table[:, 0], table[:, 1], goal.falls(table[:, 2]), table[:, 3], goal)


def averaged(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Common steps (> 0) and the losses of every curve there, finite, shape (curves, steps)."""
    finite = [curve.finite() for curve in curves]
    end = min((curve.steps[-1] for curve in finite if len(curve)), default=0.0)
    cut = [curve.until(end) for curve in finite]
    if not cut or not all(map(len, cut)):  # nothing there, or one ends before another begins
        return np.empty(0), np.empty((len(curves), 0))
    if any(len(a) != len(b) or (a.steps != b.steps).any() for a, b in pairwise(cut)):
        finest = max(cut, key=len).steps
        grid = finest[(finest >= max(curve.steps[0] for curve in cut)) & (finest > 0)]
        start = min(
            0.5, *(float(c.steps[c.steps > 0].min(initial=1.0)) / 2 for c in cut)
        )  # of a point at step 0
        losses = np.stack([np.interp(np.log(grid), np.log(np.maximum(c.steps, start)), c.loss) for c in cut])
        return grid, losses
    keep = cut[0].steps > 0
    return cut[0].steps[keep], np.stack([c.loss[keep] for c in cut])


def curve_header(goal: Goal = LOSS) -> str:
    """The first line of curve.csv."""
    return f"step,examples,{goal.metric},batch_size,lr,seconds"


def curve_line(step: int, examples: int, value: float, batch_size: int, lr: float, seconds: float) -> str:
    """One line of curve.csv, with all the digits of the metric."""
    shown = repr(float(value)) if math.isfinite(value) else "nan"
    return f"{step},{examples},{shown},{batch_size},{lr:.9g},{seconds:.3f}\n"
