"""The rate law: the best learning rate as a function of the batch size.

lr*(B) = lr_max / (1 + b/B)^power (McCandlish et al. 2018, eq. 2.7; power 1 for SGD, 0.5 for Adam, whose updates do
not shrink with the gradient). The sweep predicts with it where a search begins, and the report draws it. How sure
a prediction is follows from the posterior of ln b, which is flat over the tried batch sizes and somewhat beyond.

    law = fit_law([BestRate(8, RateEstimate(log(0.02))), BestRate(64, RateEstimate(log(0.1)))], power=1.0)
    law.at(256).rate, law.at(256).error        the best rate at 256, and the standard error of its logarithm
    law.lr_max, law.b                          the most likely curve
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bscrit.curve import Floats

ONE_SEARCH = 0.15  # standard error, in ln(rate), of a rate that the lanes of one seed settled
MISFIT = 0.1  # of the law itself, in ln(rate)
BEYOND = 4.0  # in ln(batch size), from the tried sizes to the farthest b


@dataclass(frozen=True)
class RateEstimate:
    """An estimate of the best learning rate.

    Attributes:
        ln_rate: its logarithm.
        error: standard error of that.
    """

    ln_rate: float
    error: float = ONE_SEARCH

    @property
    def rate(self) -> float:
        return math.exp(self.ln_rate)

    def combined(self, other: RateEstimate) -> RateEstimate:
        """The mean of two independent estimates, weighted by their precision."""
        own, its = 1 / self.error**2, 1 / other.error**2
        return RateEstimate(
            (self.ln_rate * own + other.ln_rate * its) / (own + its), 1 / math.sqrt(own + its)
        )


@dataclass(frozen=True)
class BestRate:
    """The best rate at one batch size as the runs there show it by themselves, without the law."""

    batch_size: float
    estimate: RateEstimate


@dataclass(frozen=True)
class RateLaw:
    """The law through the best rates at some batch sizes.

    Attributes:
        points: what it was fitted to.
        power: of 1 + b/B.
    """

    points: tuple[BestRate, ...]
    power: float

    def at(self, batch_size: float) -> RateEstimate:
        """The best rate at a batch size: mean and standard deviation over the posterior of ln b."""
        x = math.log(batch_size)
        ln_b = self._candidates(x)
        level, misfit, precision = self._fits(ln_b)
        posterior = np.exp(-0.5 * (misfit - misfit.min()))
        posterior /= posterior.sum()
        ln_rate = level - self.power * np.log1p(np.exp(ln_b - x))
        mean = float(posterior @ ln_rate)
        variance = float(posterior @ (ln_rate - mean) ** 2) + 1 / precision + MISFIT**2
        return RateEstimate(mean, math.sqrt(variance))

    @property
    def lr_max(self) -> float:
        """The rate of very large batches, on the most likely curve."""
        return self._most_likely[0]

    @property
    def b(self) -> float:
        """The batch size at which the rate is (1/2)^power of `lr_max`, on the most likely curve."""
        return self._most_likely[1]

    def curve(self, batch_sizes: Floats) -> Floats:
        """The most likely curve: the best rate at each batch size, of the same shape."""
        rates: Floats = self.lr_max / (1 + self.b / np.asarray(batch_sizes, dtype=float)) ** self.power
        return rates

    @cached_property
    def _most_likely(self) -> tuple[float, float]:
        ln_b = self._candidates(self._sizes[0])
        for _ in range(2):
            level, misfit, _ = self._fits(ln_b)
            best, spacing = int(np.argmin(misfit)), ln_b[1] - ln_b[0]
            answer = math.exp(level[best]), math.exp(ln_b[best])
            ln_b = np.linspace(ln_b[best] - spacing, ln_b[best] + spacing, 101)
        return answer

    @cached_property
    def _sizes(self) -> Floats:
        return np.log([point.batch_size for point in self.points])

    def _candidates(self, x: float) -> Floats:
        """Values of ln b among which the prediction at ln(batch size) = x is made."""
        return np.linspace(min(self._sizes.min(), x) - BEYOND, max(self._sizes.max(), x) + BEYOND, 400)

    def _fits(self, ln_b: Floats) -> tuple[Floats, Floats, float]:
        """The best ln(lr_max) at each ln b, the weighted sum of squares that it leaves, and the sum of weights."""
        rates = np.array([point.estimate.ln_rate for point in self.points])
        weight = 1 / (np.array([point.estimate.error for point in self.points]) ** 2 + MISFIT**2)
        shape = -self.power * np.log1p(np.exp(ln_b[:, None] - self._sizes))
        level = (rates - shape) @ weight / weight.sum()
        return level, (rates - level[:, None] - shape) ** 2 @ weight, float(weight.sum())


def fit_law(points: Iterable[BestRate], power: float) -> RateLaw:
    """The rate law through the best rates at some batch sizes, at least one of them."""
    return RateLaw(tuple(points), power)
