"""S = s_min (1 + b_crit / B), E = e_min (1 + B / b_crit): the fit of one frontier, with its intervals.

McCandlish et al. 2018, equation 2.11. The fit is made in ln S, never in S: with the scatter of real runs a
linear fit is off several times. Intervals are profile likelihoods, their limits quantiles of Student's t
with the degrees of freedom that the scatter was estimated with. With one uncensored run per batch size all
this is ordinary least squares of ln S on (ln s_min, ln b_crit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf, sqrt

import numpy as np

from bscrit.estimate import CONFIDENCE, Estimate
from bscrit.fit.likelihood import Floats, Sample
from bscrit.fit.scatter import Scatter, estimate
from bscrit.fit.surface import Optimum, Region, Surface

UNBOUNDED = 40.0  # natural-log units from the value: with hardly a degree of freedom intervals have no end
FEWEST = 3  # batch sizes with a known crossing; fewer leave nothing to judge the scatter by


@dataclass(frozen=True)
class Hyperbola:
    """The fitted curve of one frontier.

    Attributes:
        sample: what was fitted.
        scatter: of seeds and tuning.
        best: most likely (ln s_min, ln b_crit).
        region: where the likelihood is within the 95 % limit of a single quantity.
    """

    sample: Sample
    scatter: Scatter
    best: Optimum
    region: Region
    surface: Surface = field(repr=False, compare=False)

    @property
    def beta(self) -> float:
        """ln b_crit."""
        return float(self.best.beta[0])

    @property
    def s_min(self) -> Estimate:
        return self._estimate(lambda beta: np.zeros_like(beta), falls=self.region.high == inf)

    @property
    def e_min(self) -> Estimate:
        return self._estimate(lambda beta: beta, falls=self.region.low == -inf)

    @property
    def b_crit(self) -> Estimate:
        return _estimate(self.beta, self.region.low, self.region.high)

    def steps(self, batch_size: float) -> Estimate:
        """S at any batch size."""
        x = float(np.log(batch_size))
        return self._estimate(lambda beta: np.logaddexp(0.0, beta - x))

    @property
    def spread(self) -> float:
        """Scatter of a batch size's mean ln(steps) about the curve, from seeds and tuning together."""
        seeds = self.scatter.sigma**2 * float((1 / self.sample.runs).mean())
        return sqrt(self.scatter.tau**2 + seeds)

    def _estimate(self, offset: Callable[[Floats], Floats], falls: bool = False) -> Estimate:
        low, high = self.region.extent(offset, falls)
        value = float(self.best.a[0]) + float(offset(self.best.beta)[0])
        return _estimate(value, min(low, value), max(high, value))


def fit_hyperbola(sample: Sample) -> Hyperbola | None:
    """Fit a frontier; None where fewer than three batch sizes have a known crossing."""
    if (sample.n > 0).sum() < FEWEST:
        return None
    scatter = estimate(sample)
    surface = Surface(sample, scatter.sigma, scatter.tau)
    best = surface.optimum()
    region = surface.walk(best, single_drop(scatter.freedom))
    return Hyperbola(sample, scatter, best, region, surface)


def single_drop(freedom: float) -> float:
    """Fall of the log likelihood at the ends of a 95 % interval: half the square of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) ** 2 / 2


def _estimate(value: float, low: float, high: float) -> Estimate:
    """An estimate from logarithms; an end that is open, or beyond all reason, is None."""
    ends = (exp(end) if abs(end - value) < UNBOUNDED else None for end in (low, high))
    return Estimate(exp(value), *ends)
