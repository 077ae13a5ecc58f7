"""The noise scale at frozen parameters, on fresh data in blocks of equal size, and the file that holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.noise import LARGEST, MIN_SAMPLES, jackknifed, rows_of, scale_of, two_sizes

HEADER = "step,ahead,examples,loss,metric,block,block_examples,n_small,sq_small,n_big,sq_big,dot"


@dataclass(frozen=True)
class FrozenNoise:
    """A measurement at frozen parameters on fresh data, in blocks of equal size; every array has shape (blocks,).

    |G|^2 is the mean product of two blocks (a U-statistic), E|g_small|^2 = |G|^2 + tr(Sigma)/n_small; without
    products each block is a sample of its own.

    Attributes:
        step, examples, loss: of the run when it passed a loss of the settings, and that loss.
        metric: geometry of the norms.
        block_examples: that each block took.
        n_small, sq_small: examples behind the small-batch gradients of a block, and their mean squared norm.
        n_big, sq_big: the same for its large batches.
        dot: sum of the products of a block's mean gradient with those of all other blocks; NaN where the metric
            differs from block to block (its Hessian is estimated, too), so that blocks can't be multiplied.
        ahead: steps from there to where the parameters were frozen.
        data: examples of the training set, inf where they are drawn without end.
    """

    step: float
    examples: float
    loss: float
    metric: str
    block_examples: Floats
    n_small: Floats
    sq_small: Floats
    n_big: Floats
    sq_big: Floats
    dot: Floats
    ahead: float = 0.0
    data: float = inf

    @cached_property
    def noise_and_signal(self) -> Floats:
        """(2, 1 + blocks): tr(Sigma) and |G|^2, each unbiased, of all blocks and then without each of them."""
        blocks = len(self.dot) - np.array([0, *np.ones_like(self.dot)])
        if np.isnan(self.dot).any():
            alone = two_sizes(self.n_small, self.sq_small, self.n_big, self.sq_big)
            noise, signal = (_without_each(part) / blocks for part in alone)
        else:
            signal = (self.dot.sum() - 2 * np.array([0, *self.dot])) / (blocks * (blocks - 1))
            noise = (_without_each(self.sq_small) / blocks - signal) * self.n_small.mean()
        return np.stack([noise, signal + noise / self.data])

    @property
    def measured_on(self) -> float:
        """Examples that the measurement took."""
        return float(self.block_examples.sum())

    def scale(self) -> Estimate:
        """tr(Sigma)/|G|^2 with a delete-one-block jackknife."""
        if len(self.dot) < MIN_SAMPLES:
            return Estimate(None)
        (noise, signal), left = self.noise_and_signal[:, 0], self.noise_and_signal[:, 1:]
        return scale_of(float(noise), float(signal), *jackknifed(*left), len(self.dot) - 1)

    def from_data_of(self, examples: float | None) -> FrozenNoise:
        return replace(self, data=examples or inf)


def _without_each(values: Floats) -> Floats:
    """(1 + n): the sum of n values, and the sums without each of them."""
    return np.asarray(values.sum() - np.array([0, *values]))


def read_frozen(path: Path) -> tuple[FrozenNoise, ...]:
    """Read frozen.csv, ascending in steps: one measurement per step, loss and metric."""
    groups: dict[tuple[float, float, float, str], dict[float, list[float]]] = {}
    for metric, (step, ahead, examples, loss, block, *norms) in rows_of(path, HEADER):
        sound = all(abs(value) < LARGEST for value in (step, ahead, examples, loss, block, *norms[:-1]))
        if sound and not abs(norms[-1]) >= LARGEST and step >= 0:
            groups.setdefault((step, ahead, loss, metric), {})[block] = [examples, *norms]
    measurements = []
    for (step, ahead, loss, metric), blocks in sorted(groups.items()):
        columns = np.array(list(blocks.values())).T
        measured = FrozenNoise(step, float(columns[0, 0]), loss, metric, *columns[1:])
        measurements.append(replace(measured, ahead=ahead))
    return tuple(measurements)


def frozen_lines(measured: FrozenNoise) -> str:
    m = measured
    head = f"{m.step:.0f},{m.ahead:.0f},{m.examples:.0f},{m.loss:.9g},{m.metric}"
    columns = (m.block_examples, m.n_small, m.sq_small, m.n_big, m.sq_big, m.dot)
    return "".join(
        f"{head},{block}," + ",".join(f"{value:.12g}" for value in row) + "\n"
        for block, row in enumerate(zip(*columns, strict=True))
    )
