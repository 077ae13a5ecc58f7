"""The best learning rate against the batch size: lr*(B) = lr_max / (1 + b/B)^power.

Power 1 for SGD and momentum (McCandlish et al. 2018, eq. 2.7), 0.5 for Adam-like optimizers, whose updates do
not shrink with the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bscrit.curve import Floats


@dataclass(frozen=True)
class RateLaw:
    """lr_max is the rate of very large batches; b [unit] is where the rate is (1/2)^power of it."""

    lr_max: float
    b: float
    power: float

    def __call__(self, batch_size: Floats) -> Floats:
        """The best rate at each batch size, of the same shape."""
        return self.lr_max / (1 + self.b / np.asarray(batch_size, dtype=float)) ** self.power


def fit_rates(batch_sizes: Sequence[float], rates: Sequence[float], power: float) -> RateLaw | None:
    """Least squares in ln(rate); None with fewer than three batch sizes."""
    if len(set(batch_sizes)) < 3:
        return None
    x, y = np.log(batch_sizes), np.log(rates)
    grid = np.linspace(x.min() - 7, x.max() + 7, 2000)[:, None]
    shape = -power * np.log1p(np.exp(grid - x))
    level = (y - shape).mean(1)
    best = int(np.argmin(((y - level[:, None] - shape) ** 2).sum(1)))
    return RateLaw(float(np.exp(level[best])), float(np.exp(grid[best, 0])), power)
