"""How much seeds and tuning scatter ln(steps), and how many degrees of freedom know it.

Both are estimated by restricted maximum likelihood: the likelihood of sigma and tau after (s_min, b_crit)
are integrated out by Laplace's approximation. Where nothing is censored and every batch size has as many
runs it has a closed form, the analysis of variance: tau^2 + sigma^2/n is the residual mean square between
batch sizes with k - 2 degrees of freedom, sigma^2 the mean square within.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bscrit.fit.likelihood import Floats, Sample
from bscrit.fit.surface import Optimum, Surface, climb

SMALLEST = 1e-7  # natural-log units; steps are counts, so nothing real scatters less


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
    """Sigma and tau of a frontier with at least three batch sizes."""
    within = float(np.maximum(sample.n - 1, 0).sum())
    plain = Surface(sample, 1.0, 0.0) if not sample.replicated else Surface(sample, 0.01, 1.0)
    start = float(_start(sample))
    between = _between(sample, start)
    if not sample.replicated:
        if not len(sample.cell) and not sample.gap.any():
            k = len(sample)
            return Scatter(max(between * np.sqrt(k / max(k - 2, 1)), SMALLEST), 0.0, k - 2.0)
        sigma, tau = _search(sample, start, np.log(max(between, 10 * SMALLEST)), None)
    else:
        seeds = float(np.sqrt(sample.ss.sum() / within)) if within else between
        sigma, tau = _search(sample, start, np.log(max(seeds, 10 * SMALLEST)), np.log(max(between, 10 * SMALLEST)))
    return Scatter(sigma, tau, _freedom(sample, sigma, tau, start))


def _start(sample: Sample) -> float:
    """ln b_crit that fits the known means best by least squares."""
    from dataclasses import replace

    known = sample.n > 0
    part = sample.only(known)
    flat = replace(part, n=np.ones(len(part)), ss=np.zeros(len(part)), cell=part.cell[:0], bound=part.bound[:0], side=part.side[:0], count=part.count[:0])
    best = Surface(flat, 1.0, 0.0).optimum()
    return float(best.beta[0])


def _between(sample: Sample, beta: float) -> float:
    known = sample.n > 0
    r = (sample.mean - np.logaddexp(0.0, beta - sample.x))[known]
    return float(np.sqrt(((r - r.mean()) ** 2).mean()))


def restricted(sample: Sample, sigma: Floats, tau: Floats, start: float) -> Floats:
    best = climb(sample, sigma, tau, start, tolerance=1e-6)
    return best.value - 0.5 * best.log_determinant


def _search(sample: Sample, start: float, seeds: float, tuning: float | None) -> tuple[float, float]:
    """The scatters of largest restricted likelihood: a grid that shrinks around its best point."""
    center = np.array([seeds, -np.inf if tuning is None else tuning])
    if tuning is None:
        for width in (0.5, 0.15, 0.04):
            trial = center[0] + width * np.arange(-3, 4)
            value = restricted(sample, np.exp(trial), np.zeros(7), start)
            center[0] = trial[int(np.argmax(value))]
        return float(np.exp(center[0])), 0.0
    offsets = np.arange(-2, 3)
    for width in (0.6, 0.25, 0.1, 0.04):
        s, t = np.meshgrid(center[0] + width * offsets, center[1] + width * offsets)
        value = restricted(sample, np.exp(s.ravel()), np.exp(t.ravel()), start)
        best = int(np.argmax(value))
        center, top = np.array([s.ravel()[best], t.ravel()[best]]), value[best]
    sigma0, tau0 = center
    c = seeds
    for width in (0.4, 0.12, 0.04):
        trial = c + width * np.arange(-3, 4)
        value = restricted(sample, np.exp(trial), np.zeros(7), start)
        c, top0 = trial[int(np.argmax(value))], value.max()
    if top0 >= top - 1e-3:
        return float(np.exp(c)), 0.0
    return float(np.exp(sigma0)), float(np.exp(tau0))


def _freedom(sample: Sample, sigma: float, tau: float, start: float) -> float:
    best = climb(sample, np.array([sigma]), np.array([tau]), start)
    information = best.information[0]
    seeds = sigma**2 / sample.runs
    between = max(float((information * (tau**2 + seeds + sample.gap)).sum()) - 2, 0.2)
    if not sample.replicated:
        return between
    pooled = float((information * (tau**2 + seeds + sample.gap) * sample.runs).sum()) - 2
    noise = float(seeds.mean())
    share = (noise / (tau**2 + noise)) ** 2 * min(between / 3, 1.0)
    return 1 / ((1 - share) / between + share / max(pooled, 0.2))
