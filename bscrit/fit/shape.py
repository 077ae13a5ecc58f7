"""Curves that are no hyperbola: steps that rise again at large batch, another knee, another slope at small batch.

    S = s_min (1 + (b_crit/B)^q)^(1/q)     q, the sharpness of the knee; both arms are the hyperbola's
    S = s_min (1 + (b_crit/B)^p)           p, the exponent of the fall at small batch; 1 is perfect scaling

Systematic misfit is no scatter: residuals that a further parameter takes away say that the curve has another
form, and then b_crit is that of the wrong form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from bscrit.estimate import CONFIDENCE
from bscrit.fit.frontier import Rows, summarise
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.likelihood import Floats, Sample
from bscrit.fit.surface import Surface

Knee = Callable[[Floats, float], Floats]
LEAST_RISE = log(1.1)
ERRORS = 3.0  # standard errors of a difference, above which steps rise
SLOWEST, STEEPEST = log(0.25), log(16.0)
POOLED = 0.2  # p value of the lack of fit, above which seeds stand in for the scatter between batch sizes
NEGLIGIBLE = 0.1  # share of the seeds' variance
FEWEST = 4  # batch sizes


@dataclass(frozen=True)
class Shape:
    """A freed exponent, 1 for the hyperbola.

    Attributes:
        value, low, high: with the 95 % interval; an open end is None.
        p: of the F test of 1 against it.
        b_crit: of the curve with that exponent.
    """

    value: float
    low: float | None
    high: float | None
    p: float
    b_crit: float


def hyperbola(u: Floats) -> Floats:
    """ln(S/s_min) at u = ln(b_crit/B)."""
    return np.asarray(np.logaddexp(0.0, u))


def sharpness(u: Floats, q: float) -> Floats:
    """ln(S/s_min) at u = ln(b_crit/B) of a knee of sharpness q."""
    return np.asarray(np.logaddexp(0.0, q * u) / q)


def steepness(u: Floats, p: float) -> Floats:
    """ln(S/s_min) at u = ln(b_crit/B) of a fall with exponent p."""
    return np.asarray(np.logaddexp(0.0, p * u))


def freed(curve: Hyperbola, knee: Knee) -> Shape | None:
    """The exponent that fits best, by the F test against the scatter that it leaves; None for too few batch sizes.

    Seeds tell that scatter too where nothing beyond them is seen.
    """
    from scipy.optimize import brentq, minimize_scalar
    from scipy.special import fdtrc, fdtri

    sample = curve.sample.only(curve.sample.n > 0)
    x, y, freedom = sample.x, sample.mean, len(sample) - 3.0
    if len(x) < FEWEST:
        return None
    grid = np.linspace(SLOWEST, STEEPEST, 25)

    def fitted(weight: Floats) -> tuple[Callable[[float], float], float]:
        """The sum of squares as a function of the logarithm of the exponent, and where it is least."""

        def squares(ln_power: float) -> float:
            return least_squares(x, y, weight, lambda u: knee(u, exp(ln_power)))[0]

        near = int(np.argmin([squares(ln_power) for ln_power in grid]))
        ends = float(grid[max(near - 1, 0)]), float(grid[min(near + 1, len(grid) - 1)])
        return squares, float(minimize_scalar(squares, bounds=ends, method="bounded").x)

    weight, within = sample.n, float((sample.n - 1).sum())
    squares, best = fitted(weight)
    error = squares(best) / freedom
    seeds = float(sample.ss.sum()) / within if within else 0.0
    if seeds and sample.gap.mean() < NEGLIGIBLE * seeds and fdtrc(freedom, within, error / seeds) > POOLED:
        error = (error * freedom + seeds * within) / (freedom + within)
        freedom += within
    else:
        weight = 1 / (curve.scatter.tau**2 + curve.scatter.sigma**2 / sample.n + sample.gap)
        squares, best = fitted(weight)
        error = squares(best) / freedom
    limit = squares(best) + error * float(fdtri(1, freedom, CONFIDENCE))

    def end(away: Floats) -> float | None:
        """The root between the last place on a grid within the limit, from the best on, and the next."""
        inside = best
        for outside in away.tolist():
            if squares(outside) > limit:
                return exp(brentq(lambda ln_power: squares(ln_power) - limit, inside, outside, xtol=1e-5))
            inside = outside
        return None

    f = (squares(0.0) - squares(best)) / error if error else 0.0
    b_crit = exp(least_squares(x, y, weight, lambda u: knee(u, exp(best)))[1])
    low, high = end(grid[grid < best][::-1]), end(grid[grid > best])
    return Shape(exp(best), low, high, float(fdtrc(1, freedom, max(f, 0.0))), b_crit)


def least_squares(
    x: Floats, y: Floats, weight: Floats, knee: Callable[[Floats], Floats]
) -> tuple[float, float]:
    """Least weighted sum of squares about a curve, and its ln b_crit, on grids that shrink."""
    beta = np.linspace(x[0] - 6, x[-1] + 6, 61)
    for _ in range(3):
        rest = y - knee(beta[:, None] - x)
        residual = rest - (rest @ weight / weight.sum())[:, None]
        squares = residual * residual @ weight
        best, spacing = int(np.argmin(squares)), beta[1] - beta[0]
        answer = float(squares[best]), float(beta[best])
        beta = np.linspace(beta[best] - spacing, beta[best] + spacing, 17)
    return answer


def turning_point(rows: Rows, keep: NDArray[np.bool_]) -> int | None:
    """The point of fewest steps where steps rise beyond it by more than they scatter, else None."""
    sample = summarise(rows, keep)
    every = _with_bounds(sample)
    seen = np.flatnonzero(sample.n > 0)
    if len(seen) < 3:
        return None
    least = int(seen[np.argmin(sample.mean[seen])])
    beyond = every[least + 1 :]
    if not len(beyond):
        return None
    rise = float(beyond.max()) - float(sample.mean[least])
    place = np.unique(rows.point[keep])[least]
    return int(place) if rise > max(LEAST_RISE, ERRORS * sqrt(2) * _error(sample, least)) else None


def _with_bounds(sample: Sample) -> Floats:
    """Mean ln(steps) of each batch size; where every run is censored from above the bound, else as low as can be."""
    bounds = np.full(len(sample), -np.inf)
    above = sample.side > 0
    np.maximum.at(bounds, sample.cell[above], sample.bound[above])
    return np.where(sample.n > 0, sample.mean, bounds)


def scatter_of_means(sample: Sample) -> float:
    """Standard deviation of mean ln(steps) about the curve through them; infinite for fewer than four."""
    means = sample.means
    if len(means) < FEWEST:
        return inf
    return sqrt(-2 * float(Surface(means, 1.0, 0.0).optimum().value[0]) / (len(means) - 2))


def _error(sample: Sample, least: int) -> float:
    """Standard error of a batch size's mean ln(steps): of seeds, or of the curve through those up to the minimum.

    Where those are too few, of a parabola through all.
    """
    within = float(np.maximum(sample.n - 1, 0).sum())
    seeds = sqrt(float(sample.ss.sum()) / within / float(sample.n[sample.n > 0].mean())) if within else 0.0
    falling = scatter_of_means(sample.only(np.arange(len(sample)) <= least))
    every = sample.means
    if falling < inf:
        return max(seeds, falling)
    if len(every) <= FEWEST:
        return seeds or LEAST_RISE
    rest = every.mean - np.polyval(np.polyfit(every.x, every.mean, 2), every.x)
    return max(seeds, sqrt(float((rest**2).sum()) / (len(every) - 3)))
