"""Evaluations of a run that goes on: the steps at which they fall, and the curve that they are so far."""

from __future__ import annotations

import math

import numpy as np

from bscrit.curve import EMPTY, Curve, Floats

RESOLUTION = 0.02


def evaluation_after(step: int) -> int:
    """The next evaluation: a grid that is relative, the same at every batch size.

    >>> [evaluation_after(step) for step in (0, 1, 49, 50, 1000)]
    [1, 2, 50, 51, 1020]
    """
    return max(step + 1, math.ceil(step * (1 + RESOLUTION)))


class Evaluations:
    """The evaluations of a run that goes on: a curve that grows, of which parts are views and not copies."""

    def __init__(self, curve: Curve = EMPTY) -> None:
        self._table = np.empty((4, 2 * len(curve) + 64))
        self._count = len(curve)
        self._goal = curve.goal
        columns = (curve.steps, curve.examples, curve.loss, curve.seconds)
        for row, column in zip(self._table, columns, strict=True):
            row[: self._count] = column

    def __len__(self) -> int:
        return self._count

    def add(self, step: float, examples: float, value: float, seconds: float) -> None:
        """Append an evaluation of the metric later than those there are."""
        if self._count == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.empty_like(self._table)], axis=1)
        self._table[:, self._count] = (step, examples, self._goal.falls(value), seconds)
        self._count += 1

    def until(self, step: float) -> Curve:
        """The curve up to and including `step`."""
        count = self._count
        if self.last > step:
            count = int(np.searchsorted(self._table[0, :count], step, side="right"))
        steps, examples, loss, seconds = self._table[:, :count]
        return Curve(steps, examples, loss, seconds, self._goal)

    @property
    def losses(self) -> Floats:
        return self._table[2, : self._count]

    @property
    def last(self) -> float:
        """The last step, -1 where there is none yet."""
        return float(self._table[0, self._count - 1]) if self._count else -1.0
