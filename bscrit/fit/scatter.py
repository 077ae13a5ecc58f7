"""How much seeds and tuning scatter ln(steps), and how many degrees of freedom know it.

Both are estimated by restricted maximum likelihood: the likelihood of sigma and tau once (s_min, b_crit)
are integrated out, by Laplace's approximation. Where nothing is censored and every batch size has as many
runs that is the analysis of variance: tau^2 + sigma^2/n is the mean square about the curve with k - 2
degrees of freedom, sigma^2 the mean square within batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np

from bscrit.fit.likelihood import Floats, Sample
from bscrit.fit.surface import Surface, climb

SMALLEST = 1e-7  # natural-log units; steps are counts, so nothing real scatters less
FEWEST_FREEDOM = 0.2
ENOUGH = 2.5  # degrees of freedom between batch sizes, above which seeds may stand in for them in full
WORTH = 1e-3  # log likelihood that tau must gain to be told from 0
ONE, TWO = (0.5, 0.15, 0.04), (0.6, 0.25, 0.1, 0.04)  # spacings of the shrinking grids, natural-log units


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of ln(steps).

    Attributes:
        sigma: of seeds within a batch size; of everything together where no batch size was repeated.
        tau: between batch sizes beyond that; 0 where it can't be told apart.
        freedom: degrees of freedom behind the error of a batch size's mean.
    """

    sigma: float
    tau: float
    freedom: float


def estimate(sample: Sample) -> Scatter:
    """Sigma and tau of a frontier with at least three batch sizes whose crossing is known."""
    means = sample.means
    best = Surface(means, 1.0, 0.0).optimum()
    start, squares = (float(best.a[0]), float(best.beta[0])), -2 * float(best.value[0])
    if not sample.replicated and not len(sample.cell) and not sample.gap.any():
        k = len(sample)
        return Scatter(max(sqrt(squares / (k - 2)), SMALLEST), 0.0, k - 2.0)
    between = max(sqrt(squares / len(means)), SMALLEST)
    within = float(np.maximum(sample.n - 1, 0).sum())
    seeds = max(sqrt(float(sample.ss.sum()) / within), SMALLEST) if within else between

    tuning = between if sample.replicated else 0.0
    nearer = climb(sample, np.array([seeds]), np.array([tuning]), start, tolerance=1e-3)
    start = float(nearer.a[0]), float(nearer.beta[0])

    def score(logarithms: Floats) -> Floats:
        """Restricted log likelihood of (ln sigma, ln tau) pairs, shape (g, 2) -> (g,)."""
        sigma, tau = np.exp(logarithms).T
        curve = climb(sample, sigma, tau, start, tolerance=1e-3)
        return curve.value - 0.5 * curve.log_determinant

    (sigma, tau), top = _zoom(score, (log(seeds), -inf), (1.0, 0.0), ONE)
    if sample.replicated:
        apart, gained = _zoom(score, (log(seeds), log(between)), (1.0, 1.0), TWO)
        sigma, tau = apart if gained > top + WORTH else (sigma, tau)
    return Scatter(exp(sigma), exp(tau), degrees_of_freedom(sample, exp(sigma), exp(tau), start))


def _zoom(
    score: Callable[[Floats], Floats],
    center: tuple[float, float],
    along: tuple[float, float],
    spacings: Sequence[float],
) -> tuple[tuple[float, float], float]:
    """The pair of highest score, and that, on shrinking grids around the best; `along` says what moves."""
    offsets = np.array([(i, j) for i in range(-3, 4) for j in (range(-3, 4) if along[1] else (0,))], float)
    best, top = np.array(center), -inf
    for spacing in spacings:
        trial = best + spacing * np.where(offsets != 0, offsets * along, 0.0)
        value = score(np.maximum(trial, [log(SMALLEST), -inf]))
        chosen = int(np.argmax(value))
        best, top = trial[chosen], float(value[chosen])
    return (max(float(best[0]), log(SMALLEST)), float(best[1])), top


def degrees_of_freedom(sample: Sample, sigma: float, tau: float, start: tuple[float, float]) -> float:
    """Degrees of freedom of the variance tau^2 + sigma^2/n of a batch size's mean.

    A batch size counts by the information that it holds relative to one without censoring: k - 2 in all
    where tuning scatters most, all runs less 2 where only seeds do, and between them by the share of the
    seeds to the power 3/2. With very few batch sizes that share is itself not known well enough, and
    seeds count for less: simulated frontiers show which of these rules keeps 95 % intervals true.
    """
    curve = climb(sample, np.array([sigma]), np.array([tau]), start)
    seeds = sigma**2 / sample.runs
    held = curve.information[0] * (tau**2 + seeds + sample.gap)
    between = max(float(held.sum()) - 2, FEWEST_FREEDOM)
    if not sample.replicated:
        return between
    pooled = max(float((held * sample.runs).sum()) - 2, between)
    noise = float(seeds.mean())
    share = float((noise / (tau**2 + noise)) ** 1.5) * min(between / ENOUGH, 1.0)
    return 1 / ((1 - share) / between + share / pooled)
