"""The algebra of the gradient noise scale: squared norms in, signal and noise out.

A squared gradient norm over B examples has the mean E|G_B|^2 = |G|^2 + tr(Sigma)/B, so two batch sizes give
both unknowns. Sums are stored, the ratio tr(Sigma)/|G|^2 is formed once, when it is reported: a mean of
ratios, or one of clamped estimates, is off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.files import whole_lines

MIN_SAMPLES = 4
LARGEST = 1e100  # beyond it, no squared norm can be squared once more
MOST_BLOCKS = 24
HEADER = "step,examples,metric,n_small,sq_small,n_big,sq_big"


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
        kept = {name: value[self.steps <= step] for name, value in vars(self).items() if np.ndim(value)}
        return replace(self, **kept)

    def from_data_of(self, examples: float | None) -> NoiseSamples:
        """The same samples, drawn from a training set of this many examples."""
        return replace(self, data=examples or inf)


NO_NOISE = NoiseSamples(*np.empty((6, 0)))


def two_sizes(n_small: Any, sq_small: Any, n_big: Any, sq_big: Any) -> tuple[Any, Any]:
    """tr(Sigma) and |G|^2, unbiased, from mean squared norms at two batch sizes, of data drawn without end."""
    noise = (sq_small - sq_big) / (1 / n_small - 1 / n_big)
    return noise, (n_big * sq_big - n_small * sq_small) / (n_big - n_small)


def noise_scale(runs: Sequence[NoiseSamples]) -> Estimate:
    """One noise scale from all samples of several runs: the ratio of their sums.

    The interval is a delete-one-block jackknife in ln(ratio). Blocks are consecutive samples of one run, as
    neighbours in training resemble each other; few samples are each a block.
    """
    samples = sum(map(len, runs))
    sums = [block for run in runs if len(run) for block in _blocks(run, samples)]
    if len(sums) < MIN_SAMPLES:
        return Estimate(None)
    noise, signal, counts = np.array(sums).T
    n = counts.sum()
    left = [(part.sum() - part) / (n - counts) for part in (noise, signal)]
    return scale_of(float(noise.sum() / n), float(signal.sum() / n), *jackknifed(*left), len(sums) - 1)


def _blocks(run: NoiseSamples, samples: int) -> Iterator[tuple[float, float, int]]:
    """(sum of noise, sum of signal, samples) of each block of one run, about MOST_BLOCKS over all runs."""
    share = len(run) if samples <= MOST_BLOCKS else round(MOST_BLOCKS * len(run) / samples)
    parts = np.array_split(np.stack([run.noise, run.signal]), min(max(share, 1), len(run)), axis=1)
    for noise, signal in parts:
        yield float(noise.sum()), float(signal.sum()), len(noise)


def scale_of(noise: float, signal: float, of_ratio: float, of_signal: float, freedom: float) -> Estimate:
    """noise/signal with its interval; a lower bound alone where the signal is not distinguishable from 0.

    Args:
        noise, signal: tr(Sigma) and |G|^2.
        of_ratio, of_signal: variances of ln(noise/signal), inf where it has none, and of the signal.
    """
    t = quantile(freedom)
    reach, spread = t * sqrt(of_signal), t * sqrt(of_ratio)
    if noise <= 0 or signal + reach <= 0:
        return Estimate(None)
    if signal - reach <= 0 or spread == inf:
        return Estimate(None, low=noise / (signal + reach))
    value = noise / signal
    return Estimate(value, value * exp(-spread), value * exp(spread))


def jackknifed(noises: Floats, signals: Floats) -> tuple[float, float]:
    """Variances of ln(noise/signal) and of the signal, from both without each of n parts, (n,)."""
    positive = min(noises.min(), signals.min()) > 0
    return jackknife(np.log(noises / signals)) if positive else inf, jackknife(signals)


def jackknife(left: Floats) -> float:
    """Variance of an estimate, from its values without each of n parts, (n,)."""
    return (len(left) - 1) / len(left) * float(((left - left.mean()) ** 2).sum())


def quantile(freedom: float) -> float:
    """The quantile of Student's t that bounds a 95 % interval."""
    from scipy.special import stdtrit  # slow to import, and most readers of this module have no use for it

    return float(stdtrit(freedom, 0.975))


def read_noise(path: Path) -> dict[str, NoiseSamples]:
    """Read noise.csv up to its last whole line, per metric; the last writing of a step holds."""
    rows: dict[str, dict[float, list[float]]] = {}
    for metric, row in rows_of(path, HEADER):
        rows.setdefault(metric, {})[row[0]] = row
    samples = {}
    for metric, by_step in rows.items():
        table = np.array([by_step[step] for step in sorted(by_step)])
        step, _, n_small, _, n_big, _ = table.T
        sound: NDArray[np.bool_] = (np.abs(table) < LARGEST).all(axis=1)
        sound &= (step >= 0) & (n_big > n_small) & (n_small > 0)
        kept = NoiseSamples(*table[sound].T)
        samples[metric] = replace(kept, metric=metric, dropped=int((~sound).sum()))
    return samples


def rows_of(path: Path, header: str) -> Iterator[tuple[str, list[float]]]:
    """The metric and the numbers of every whole line that has a cell for each name of the header."""
    names = header.split(",")
    for line in whole_lines(path)[1:]:
        cells = line.split(",")
        if len(cells) == len(names):
            metric = cells.pop(names.index("metric"))
            try:
                yield metric, [float(cell) for cell in cells]
            except ValueError:
                continue


def noise_line(
    step: int, examples: int, metric: str, n_small: float, sq_small: float, n_big: float, sq_big: float
) -> str:
    return f"{step},{examples},{metric},{n_small:.10g},{sq_small:.9g},{n_big:.10g},{sq_big:.9g}\n"


def samples_of(noise: Mapping[str, NoiseSamples], metric: str) -> NoiseSamples:
    """The samples in one metric, none where it was not measured."""
    return noise.get(metric, replace(NO_NOISE, metric=metric))
