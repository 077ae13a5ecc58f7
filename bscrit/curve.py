"""A curve: loss against steps and examples, and the file that holds it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bscrit.files import whole_lines

LARGEST = 2**53  # a step that a float holds exactly
HEADER = "step,examples,loss,batch_size,lr,seconds"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Evaluations of one run, ascending in steps.

    Attributes:
        steps: (n,) applied optimizer updates.
        examples: (n,) consumed by those updates, in the workload's unit.
        loss: (n,) evaluated on the fixed evaluation set; not finite where the run diverged.
        seconds: (n,) since the trial began, training and evaluation.
    """

    steps: Floats
    examples: Floats
    loss: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: float) -> Curve:
        """The part of the curve up to and including `step`."""
        return self._only(self.steps <= step)

    def finite(self) -> Curve:
        """The curve without evaluations that are not finite."""
        return self._only(np.isfinite(self.loss))

    def _only(self, keep: NDArray[np.bool_]) -> Curve:
        return Curve(self.steps[keep], self.examples[keep], self.loss[keep], self.seconds[keep])


EMPTY = Curve(*(np.empty(0) for _ in range(4)))


def read_curve(path: Path) -> Curve:
    """Read curve.csv; a torn last line, at whatever byte, costs only that line.

    A run that was killed and resumed may have written a step twice: the last writing holds.
    """
    rows: dict[int, tuple[float, float, float, float]] = {}
    for line in whole_lines(path)[1:]:
        cells = line.split(",")
        if len(cells) != 6:
            continue
        try:
            step = int(cells[0])
            examples, loss, seconds = (float(cells[place]) for place in (1, 2, 5))
        except ValueError:
            continue
        if 0 <= step < LARGEST:
            rows[step] = (step, examples, loss, seconds)
    if not rows:
        return EMPTY
    table = np.array([rows[step] for step in sorted(rows)])
    return Curve(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def curve_line(step: int, examples: int, loss: float, batch_size: int, lr: float, seconds: float) -> str:
    """One line of curve.csv, with all the digits of the loss."""
    shown = repr(float(loss)) if math.isfinite(loss) else "nan"
    return f"{step},{examples},{shown},{batch_size},{lr:.9g},{seconds:.3f}\n"
