"""The algebra of the gradient noise scale: squared norms in, signal and noise out.

A squared gradient norm over B examples has the mean E|G_B|^2 = |G|^2 + tr(Sigma)/B, so two batch sizes give
both unknowns. Sums are stored, the ratio tr(Sigma)/|G|^2 is formed once, when it is reported: a mean of
ratios, or one of clamped estimates, is off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.files import whole_lines

MIN_SAMPLES = 4
LARGEST = 1e100  # beyond it, no squared norm can be squared once more
MOST_BLOCKS = 24
HEADER = "step,examples,metric,n_small,sq_small,n_big,sq_big"
FROZEN_HEADER = "step,ahead,examples,loss,metric,block,block_examples,n_small,sq_small,n_big,sq_big,dot"


@dataclass(frozen=True)
class NoiseSamples:
    """Noise samples of one run in one metric, ascending in steps; every array has shape (n,).

    Attributes:
        steps, examples: when the sample was taken.
        n_small, sq_small: examples behind the small-batch gradients, and their mean squared norm.
        n_big, sq_big: the same for the large batch.
        metric: geometry of the norms, "identity" gives B_simple.
        dropped: non-finite samples that were left out.
        data: examples of the training set, inf where they are drawn without end. Batches without replacement
            have the covariance Sigma (1/B - 1/data) about the gradient of the whole set.
    """

    steps: Floats
    examples: Floats
    n_small: Floats
    sq_small: Floats
    n_big: Floats
    sq_big: Floats
    metric: str = "identity"
    dropped: int = 0
    data: float = inf

    @classmethod
    def of(cls, table: Floats, metric: str, dropped: int, data: float = inf) -> NoiseSamples:
        """From columns as in noise.csv, without the metric: shape (6, n)."""
        steps, examples, n_small, sq_small, n_big, sq_big = table
        return cls(steps, examples, n_small, sq_small, n_big, sq_big, metric, dropped, data)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def signal(self) -> Floats:
        """Unbiased |G|^2 of each sample; single values may well be negative."""
        noise, signal = two_sizes(self.n_small, self.sq_small, self.n_big, self.sq_big)
        return np.asarray(signal + noise / self.data)

    @property
    def noise(self) -> Floats:
        """Unbiased tr(Sigma) of each sample."""
        return np.asarray(two_sizes(self.n_small, self.sq_small, self.n_big, self.sq_big)[0])

    def until(self, step: float) -> NoiseSamples:
        return self._only(self.steps <= step)

    def between(self, low: float, high: float) -> NoiseSamples:
        """Samples at low <= step < high."""
        return self._only((self.steps >= low) & (self.steps < high))

    def from_data_of(self, examples: float | None) -> NoiseSamples:
        """The same samples, drawn from a training set of this many examples."""
        return replace(self, data=examples or inf)

    def _only(self, keep: np.ndarray) -> NoiseSamples:
        table = np.stack([self.steps, self.examples, self.n_small, self.sq_small, self.n_big, self.sq_big])
        return NoiseSamples.of(table[:, keep], self.metric, self.dropped, self.data)


@dataclass(frozen=True)
class FrozenNoise:
    """A measurement at frozen parameters on fresh data, in blocks of equal size; every array has shape (blocks,).

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

    @property
    def noise_and_signal(self) -> tuple[float, float]:
        """tr(Sigma) and |G|^2, each unbiased."""
        noise, signal = self._solved(self.dot.sum(), len(self.dot), self.sq_small.mean(), self._alone.mean(1))
        return float(noise), float(signal)

    @property
    def without_each_block(self) -> Floats:
        """(2, blocks): the same without each block."""
        n = len(self.dot)
        squares = (self.sq_small.sum() - self.sq_small) / (n - 1)
        alone = (self._alone.sum(1, keepdims=True) - self._alone) / (n - 1)
        solutions = self._solved(self.dot.sum() - 2 * self.dot, n - 1, squares, alone)
        return np.stack(np.broadcast_arrays(*solutions))

    @property
    def _alone(self) -> Floats:
        """(2, blocks): tr(Sigma) and |G|^2 of each block by itself."""
        return np.stack(two_sizes(self.n_small, self.sq_small, self.n_big, self.sq_big))

    def _solved(self, products: Any, blocks: int, squares: Any, alone: Any) -> tuple[Any, Any]:
        """tr(Sigma) and |G|^2 from the sum of products of so many blocks, and the mean small squared norm."""
        if np.isnan(self.dot).any():
            noise, signal = alone
        else:
            signal = products / (blocks * (blocks - 1))
            noise = (squares - signal) * self.n_small.mean()
        return noise, signal + noise / self.data

    @property
    def measured_on(self) -> float:
        """Examples that the measurement took."""
        return float(self.block_examples.sum())

    def scale(self) -> Estimate:
        """tr(Sigma)/|G|^2 with a delete-one-block jackknife.

        |G|^2 is the mean product of two blocks (a U-statistic), E|g_small|^2 = |G|^2 + tr(Sigma)/n_small;
        without products each block is a sample of its own.
        """
        if len(self.dot) < MIN_SAMPLES:
            return Estimate(None)
        return _scale(*self.noise_and_signal, *self.without_each_block)

    def from_data_of(self, examples: float | None) -> FrozenNoise:
        return replace(self, data=examples or inf)


NO_NOISE = NoiseSamples.of(np.empty((6, 0)), "identity", 0)


def read_noise(path: Path) -> dict[str, NoiseSamples]:
    """Read noise.csv up to its last whole line, per metric; the last writing of a step holds."""
    rows: dict[str, dict[float, list[float]]] = {}
    for cells in _rows(path, HEADER):
        try:
            row = [float(cell) for cell in (*cells[:2], *cells[3:])]
        except ValueError:
            continue
        rows.setdefault(cells[2], {})[row[0]] = row
    samples = {}
    for metric, by_step in rows.items():
        table = np.array([by_step[step] for step in sorted(by_step)]).reshape(-1, 6)
        finite = (
            (np.abs(table) < LARGEST).all(axis=1)
            & (table[:, 0] >= 0)
            & (table[:, 4] > table[:, 2])
            & (table[:, 2] > 0)
        )
        samples[metric] = NoiseSamples.of(table[finite].T, metric, int((~finite).sum()))
    return samples


def read_frozen(path: Path) -> tuple[FrozenNoise, ...]:
    """Read frozen.csv, ascending in steps: one measurement per step, loss and metric."""
    groups: dict[tuple[float, float, float, str], dict[float, list[float]]] = {}
    for cells in _rows(path, FROZEN_HEADER):
        try:
            step, ahead, _, loss, block, *_, dot = row = [float(cell) for cell in (*cells[:4], *cells[5:])]
        except ValueError:
            continue
        if (
            all(abs(value) < LARGEST for value in row[:-1])
            and not abs(dot) >= LARGEST
            and step >= 0
            and loss > 0
        ):
            groups.setdefault((step, ahead, loss, cells[4]), {})[block] = row
    measurements = []
    for (step, ahead, loss, metric), blocks in sorted(groups.items()):
        _, _, examples, _, _, *columns = np.array(list(blocks.values())).T
        measurements.append(
            replace(FrozenNoise(step, float(examples[0]), loss, metric, *columns), ahead=ahead)
        )
    return tuple(measurements)


def noise_scale(runs: Sequence[NoiseSamples]) -> Estimate:
    """One noise scale from all samples of several runs: the ratio of their sums.

    The interval is a delete-one-block jackknife in ln(ratio). Blocks are consecutive samples of one run, as
    neighbours in training resemble each other; few samples are each a block.
    """
    sums = [block for run in runs for block in _blocks(run, sum(map(len, runs)))]
    if len(sums) < MIN_SAMPLES:
        return Estimate(None)
    noise, signal, counts = np.array(sums).T
    n = counts.sum()
    return _scale(
        float(noise.sum() / n),
        float(signal.sum() / n),
        (noise.sum() - noise) / (n - counts),
        (signal.sum() - signal) / (n - counts),
    )


def two_sizes(n_small: Any, sq_small: Any, n_big: Any, sq_big: Any) -> tuple[Any, Any]:
    """tr(Sigma) and |G|^2, unbiased, from mean squared norms at two batch sizes, of data drawn without end."""
    noise = (sq_small - sq_big) / (1 / n_small - 1 / n_big)
    return noise, (n_big * sq_big - n_small * sq_small) / (n_big - n_small)


def _blocks(run: NoiseSamples, samples: int) -> list[tuple[float, float, int]]:
    """(sum of noise, sum of signal, samples) of each block of one run, about MOST_BLOCKS over all runs."""
    count = min(len(run), max(1, round(MOST_BLOCKS * len(run) / samples))) if len(run) else 0
    if samples <= MOST_BLOCKS:
        count = len(run)
    if not count:
        return []
    noise, signal = np.array_split(run.noise, count), np.array_split(run.signal, count)
    return [(float(a.sum()), float(b.sum()), len(a)) for a, b in zip(noise, signal, strict=True)]


def _scale(noise: float, signal: float, noises: Floats, signals: Floats) -> Estimate:
    """The ratio with its jackknife interval, from the whole and from what is left without each block."""
    t = quantile(len(noises) - 1)
    reach = t * sqrt(jackknife(signals))
    if signal - reach <= 0 or noise <= 0 or min(noises.min(), signals.min()) <= 0:
        resolved = signal + reach > 0 and noise > 0
        return Estimate(None, low=noise / (signal + reach) if resolved else None)
    spread = t * sqrt(jackknife(np.log(noises / signals)))
    value = noise / signal
    return Estimate(value, value * exp(-spread), value * exp(spread))


def jackknife(left: Floats) -> float:
    """Variance of an estimate, from its values without each of n parts, (n,)."""
    return (len(left) - 1) / len(left) * float(((left - left.mean()) ** 2).sum())


def quantile(freedom: float) -> float:
    """The quantile of Student's t that bounds a 95 % interval."""
    from scipy.special import stdtrit  # slow to import, and most readers of this module have no use for it

    return float(stdtrit(freedom, 0.975))


def noise_line(
    step: int, examples: int, metric: str, n_small: float, sq_small: float, n_big: float, sq_big: float
) -> str:
    return f"{step},{examples},{metric},{n_small:.10g},{sq_small:.9g},{n_big:.10g},{sq_big:.9g}\n"


def frozen_lines(measured: FrozenNoise) -> str:
    m = measured
    head = f"{m.step:.0f},{m.ahead:.0f},{m.examples:.0f},{m.loss:.9g},{m.metric}"
    columns = (m.block_examples, m.n_small, m.sq_small, m.n_big, m.sq_big, m.dot)
    return "".join(
        f"{head},{block}," + ",".join(f"{value:.12g}" for value in row) + "\n"
        for block, row in enumerate(zip(*columns, strict=True))
    )


def samples_of(noise: Mapping[str, NoiseSamples], metric: str) -> NoiseSamples:
    """The samples in one metric, none where it was not measured."""
    return noise.get(metric, replace(NO_NOISE, metric=metric))


def _rows(path: Path, header: str) -> list[list[str]]:
    """Cells of every whole line with as many of them as the header has."""
    rows = [line.split(",") for line in whole_lines(path)[1:]]
    return [row for row in rows if len(row) == header.count(",") + 1]
