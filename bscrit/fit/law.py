"""Laws across fits: how b_crit moves with loss, parameters or data.

ln b_crit = ln scale + exponent ln x. Against loss it is Kaplan's law, B_crit(L) = B*/L^(1/alpha_B) (Kaplan et
al. 2020, equation 5.3), against data or parameters the power laws of Zhang et al. 2024. Each fit
counts by its own interval, and what scatters beyond those is estimated (restricted maximum likelihood of a
random-effects regression), so that a few precise fits that disagree do not fake a precise law.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Literal

import numpy as np

from bscrit.errors import UserError
from bscrit.estimate import CONFIDENCE, Estimate
from bscrit.fit.likelihood import Floats
from bscrit.fit.result import Fit

Against = Literal["loss", "parameters", "data"]
FEWEST = 3
NORMAL = 1.959963984540054
LARGEST_SCATTER = 3.0  # natural-log units; beyond it there is no law


@dataclass(frozen=True)
class Law:
    """b_crit = scale * x^exponent.

    Attributes:
        against: what x is: "loss", "parameters" or "data".
        exponent: with its 95 % interval; for loss it is -1/alpha_B.
        scale: b_crit at x = 1, in the fits' unit; for loss it is B*.
        scatter: of ln b_crit about the law beyond the fits' own intervals.
        points: (x, b_crit) of the fits that it rests on, ascending in x.
        left_out: fits without a value of b_crit, with a finite interval, or without x.
    """

    against: Against
    exponent: Estimate
    scale: Estimate
    scatter: float
    points: tuple[tuple[float, float], ...]
    left_out: int

    @property
    def alpha(self) -> Estimate:
        """Kaplan's alpha_B = -1/exponent; only a lower end where the exponent may be 0."""
        value, low, high = self.exponent.value, self.exponent.low, self.exponent.high
        if value is None or low is None or high is None or low >= 0:
            return Estimate(None)
        if high >= 0:
            return Estimate(None, -1 / low)
        return Estimate(-1 / value, -1 / low, -1 / high)


def fit_law(fits: Iterable[Fit], against: Against, sizes: Mapping[int, float] | None = None) -> Law:
    """Fit a law across fits.

    Args:
        fits: those without a value of b_crit, or with an open interval, are left out and counted.
        against: "loss" takes each fit's target; for "parameters" and "data" the values are given.
        sizes: position of a fit -> its parameters or data.

    Raises:
        UserError: fewer than three fits, or no two different x, are left.
    """
    every = list(fits)
    x = [fit.target if against == "loss" else (sizes or {}).get(i) for i, fit in enumerate(every)]
    usable = [
        (float(value), fit.b_crit)
        for value, fit in zip(x, every, strict=True)
        if value is not None and value > 0 and fit.b_crit.ln_half_width < inf
    ]
    usable.sort(key=lambda pair: pair[0])
    if len(usable) < FEWEST or usable[0][0] == usable[-1][0]:
        what = f"{len(usable)} of {len(every)} fits have a B_crit with an interval and a value of {against!r}"
        if len(usable) >= FEWEST:
            what = f"all {len(usable)} fits that have a B_crit with an interval have the same {against}"
        raise UserError(f"--law {against}", what, f"a law needs {FEWEST} fits at different values")
    return _regress(usable, against, len(every) - len(usable))


def _regress(usable: Sequence[tuple[float, Estimate]], against: Against, left_out: int) -> Law:
    from scipy.special import stdtrit

    x = np.log([value for value, _ in usable])
    y = np.log([estimate.value or 1.0 for _, estimate in usable])
    error = np.array([estimate.ln_half_width for _, estimate in usable]) / NORMAL
    scatter = _scatter(x, y, error)
    weight = 1 / (error**2 + scatter**2 + 1e-24)
    center, level, slope = _line(x, y, weight)
    rest = y - level - slope * (x - center)
    freedom = len(x) - 2
    # Knapp and Hartung: the residuals rescale the variance, and t replaces the normal distribution
    scale = max(float((weight * rest * rest).sum()) / freedom, 1.0)
    slope_variance = scale / (weight * (x - center) ** 2).sum()
    quantile = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
    wide = quantile * sqrt(slope_variance)
    at_one = level - slope * center
    far = quantile * sqrt(scale / weight.sum() + center * center * slope_variance)
    return Law(
        against=against,
        exponent=Estimate(slope, slope - wide, slope + wide),
        scale=Estimate(exp(at_one), exp(at_one - far), exp(at_one + far)),
        scatter=scatter,
        points=tuple((value, estimate.value or 0.0) for value, estimate in usable),
        left_out=left_out,
    )


def _line(x: Floats, y: Floats, weight: Floats) -> tuple[float, float, float]:
    """(center, level there, slope) of the weighted least-squares line."""
    center = float((weight * x).sum() / weight.sum())
    level = float((weight * y).sum() / weight.sum())
    slope = float((weight * (x - center) * (y - level)).sum() / (weight * (x - center) ** 2).sum())
    return center, level, slope


def _scatter(x: Floats, y: Floats, error: Floats) -> float:
    """Restricted maximum likelihood of the scatter about the line, on a grid."""
    grid = np.concatenate([[0.0], np.geomspace(1e-3, LARGEST_SCATTER, 80)])

    def score(scatter: float) -> float:
        weight = 1 / (error**2 + scatter**2 + 1e-24)
        center, level, slope = _line(x, y, weight)
        rest = y - level - slope * (x - center)
        information = log(weight.sum()) + log((weight * (x - center) ** 2).sum())
        return float(np.log(weight).sum() - (weight * rest * rest).sum() - information)

    return float(grid[int(np.argmax([score(scatter) for scatter in grid]))])
