"""The algebra of the gradient noise scale: two squared norms in, signal and noise out.

A squared gradient norm over B examples has the mean E|G_B|^2 = |G|^2 + tr(Sigma)/B, so two batch sizes give
both unknowns. Sums are stored, the ratio tr(Sigma)/|G|^2 is formed once, when it is reported: a mean of
ratios, or one of clamped estimates, is off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bscrit.curve import Floats
from bscrit.files import whole_lines

MIN_SAMPLES = 4
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
    """

    steps: Floats
    examples: Floats
    n_small: Floats
    sq_small: Floats
    n_big: Floats
    sq_big: Floats
    metric: str = "identity"
    dropped: int = 0

    @classmethod
    def of(cls, table: Floats, metric: str, dropped: int) -> NoiseSamples:
        """From columns as in noise.csv, without the metric: shape (6, n)."""
        steps, examples, n_small, sq_small, n_big, sq_big = table
        return cls(steps, examples, n_small, sq_small, n_big, sq_big, metric, dropped)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def signal(self) -> Floats:
        """Unbiased |G|^2 of each sample; single values may well be negative."""
        return (self.n_big * self.sq_big - self.n_small * self.sq_small) / (self.n_big - self.n_small)

    @property
    def noise(self) -> Floats:
        """Unbiased tr(Sigma) of each sample."""
        return (self.sq_small - self.sq_big) / (1 / self.n_small - 1 / self.n_big)

    def until(self, step: float) -> NoiseSamples:
        return self._only(self.steps <= step)

    def between(self, low: float, high: float) -> NoiseSamples:
        return self._only((self.steps >= low) & (self.steps <= high))

    def _only(self, keep: np.ndarray) -> NoiseSamples:
        table = np.stack([self.steps, self.examples, self.n_small, self.sq_small, self.n_big, self.sq_big])
        return NoiseSamples.of(table[:, keep], self.metric, self.dropped)


NO_NOISE = NoiseSamples.of(np.empty((6, 0)), "identity", 0)


def read_noise(path: Path) -> NoiseSamples:
    """Read noise.csv up to its last whole line; the last writing of a step holds."""
    rows: dict[float, list[float]] = {}
    metric = NO_NOISE.metric
    for line in whole_lines(path)[1:]:
        cells = line.split(",")
        if len(cells) != 7:
            continue
        try:
            row = [float(cell) for cell in (*cells[:2], *cells[3:])]
        except ValueError:
            continue
        metric = cells[2]
        rows[row[0]] = row
    table = np.array([rows[step] for step in sorted(rows)]).reshape(-1, 6)
    finite = np.isfinite(table).all(axis=1) & (table[:, 4] > table[:, 2]) & (table[:, 2] > 0)
    return NoiseSamples.of(table[finite].T, metric, int((~finite).sum()))


@dataclass(frozen=True)
class NoiseScale:
    """A noise scale tr(Sigma)/|G|^2 with its 95 % interval, in the unit of the examples.

    Attributes:
        value: None where the signal is not resolved: its interval holds 0.
        low, high: the interval; without a value `low` alone, the noise scale is at least that.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


def noise_scale(runs: Sequence[NoiseSamples]) -> NoiseScale:
    """One noise scale from all samples of several runs: the ratio of their sums.

    The interval is a delete-one jackknife in ln(ratio) over samples (each drawn from its own batch).
    """
    from scipy.special import stdtrit  # slow to import, and most readers of this module have no use for it

    noise = np.concatenate([run.noise for run in runs] or [np.empty(0)])
    signal = np.concatenate([run.signal for run in runs] or [np.empty(0)])
    n = len(noise)
    if n < MIN_SAMPLES:
        return NoiseScale(None)
    quantile = float(stdtrit(n - 1, 0.975))
    highest_signal = signal.mean() + quantile * signal.std(ddof=1) / np.sqrt(n)
    lowest_signal = signal.mean() - quantile * signal.std(ddof=1) / np.sqrt(n)
    others = (noise.sum() - noise) / (n - 1), (signal.sum() - signal) / (n - 1)
    if lowest_signal <= 0 or noise.mean() <= 0 or min(others[0].min(), others[1].min()) <= 0:
        at_least = noise.mean() / highest_signal if highest_signal > 0 and noise.mean() > 0 else None
        return NoiseScale(None, low=at_least)
    logs = np.log(others[0] / others[1])
    error = quantile * np.sqrt((n - 1) / n * ((logs - logs.mean()) ** 2).sum())
    value = noise.mean() / signal.mean()
    return NoiseScale(float(value), float(value * np.exp(-error)), float(value * np.exp(error)))


def noise_line(
    step: int, examples: int, metric: str, n_small: int, sq_small: float, n_big: int, sq_big: float
) -> str:
    return f"{step},{examples},{metric},{n_small},{sq_small:.9g},{n_big},{sq_big:.9g}\n"
