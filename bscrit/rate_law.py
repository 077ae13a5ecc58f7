"""The best learning rate as a law of the batch size: what some sizes say about the next one.

lr*(B) = lr_max / (1 + b/B)^power (McCandlish et al. 2018, eq. 2.7; power 1 for SGD, 0.5 for Adam). The posterior
over ln b says how sure the prediction is, and so how far apart the first rates stand, and how many they are.

    place = law(known, 256, power=1.0)
    place.at, place.error        ln of the rate, and its standard error
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SURE = 0.2  # standard error, in ln(rate), below which two first rates are enough and an edge may hold the best one
MISFIT = 0.1  # of the law itself, in ln(rate)
BEYOND = 4.0  # in ln(batch size), from the known sizes to the farthest b


@dataclass(frozen=True)
class Place:
    """Where a best rate is thought to be: ln of the rate, with a standard error."""

    at: float
    error: float

    def combined(self, other: Place) -> Place:
        """What this and an independent one say together."""
        own, its = 1 / self.error**2, 1 / other.error**2
        return Place((self.at * own + other.at * its) / (own + its), 1 / math.sqrt(own + its))


@dataclass(frozen=True)
class Known:
    """What the search at one batch size says by itself, whatever the law says there."""

    batch_size: int
    place: Place


def law(known: Sequence[Known], batch_size: float, power: float) -> Place:
    """The best rate at a batch size from those at others, at least one of them."""
    sizes, x = np.log([one.batch_size for one in known]), math.log(batch_size)
    rates = np.array([one.place.at for one in known])
    weight = 1 / (np.array([one.place.error for one in known]) ** 2 + MISFIT**2)
    b = np.linspace(min(sizes.min(), x) - BEYOND, max(sizes.max(), x) + BEYOND, 400)[:, None]
    shape = -power * np.log1p(np.exp(b - sizes))
    level = (rates - shape) @ weight / weight.sum()
    misfit = (rates - level[:, None] - shape) ** 2 @ weight
    likely = np.exp(-0.5 * (misfit - misfit.min()))
    likely /= likely.sum()
    guess = level - power * np.log1p(np.exp(b[:, 0] - x))
    mean = float(likely @ guess)
    spread = float(likely @ (guess - mean) ** 2) + 1 / float(weight.sum()) + MISFIT**2
    return Place(mean, math.sqrt(spread))
