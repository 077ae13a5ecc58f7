"""The deviance over (s_min, b_crit) at known scatter, and what its level sets say about any quantity.

Each quantity of the fit is a location plus a function of b_crit alone: ln s_min = a, ln e_min = a + ln b,
ln S(B) = a + ln(1 + b/B). Its profile-likelihood interval is therefore the extent, along that combination,
of the region where the deviance stays below the quantile: one walk around the region serves them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bscrit.fit.likelihood import Floats, Sample, Terms, terms

TINY = 1e-60
MOST_STEPS, LONGEST = 60, 0.7  # of Newton, and how far beta may move in one
REACH = 9.0  # natural-log units beyond the tried batch sizes at which the curve is a power law to 1e-4
GRID = 73
ARC = 48


@dataclass(frozen=True)
class Optimum:
    """Most likely (a, beta) = (ln s_min, ln b_crit), with the log likelihood and the information there.

    Attributes:
        information: (..., k) minus second derivative of each batch size's log likelihood in its location.
        log_determinant: of the 2x2 information about (a, beta).
    """

    a: Floats
    beta: Floats
    value: Floats
    information: Floats
    log_determinant: Floats


@dataclass(frozen=True)
class Surface:
    """The log likelihood of (a, beta) at fixed sigma and tau (floats, natural-log units)."""

    sample: Sample
    sigma: float
    tau: float

    @property
    def box(self) -> tuple[float, float]:
        """Smallest and largest beta worth telling apart."""
        return float(self.sample.x[0] - REACH), float(self.sample.x[-1] + REACH)

    def profile(self, beta: Floats) -> tuple[Floats, Floats]:
        """The best a for each beta, and the log likelihood there; all of shape (g,)."""
        shape = np.logaddexp(0.0, beta[:, None] - self.sample.x)
        return _best_location(self.sample, shape, np.full((1, 1), self.sigma), np.full((1, 1), self.tau))

    def edges(self, beta: Floats, level: float) -> tuple[Floats, Floats]:
        """Lowest and highest a at which the log likelihood is `level`, for each beta, shape (g,) each.

        Where even the best a stays below the level both are that best a.
        """
        a, value = self.profile(beta)
        shape = np.logaddexp(0.0, beta[:, None] - self.sample.x)
        sigma, tau = np.full((1, 1), self.sigma), np.full((1, 1), self.tau)
        depth = np.maximum(value - level, 0.0)
        curvature = terms(self.sample, a[:, None] + shape, sigma, tau).information.sum(axis=-1)
        width = np.sqrt(2 * depth / np.maximum(curvature, TINY))
        shape = np.concatenate([shape, shape])
        edge = np.concatenate([a - width, a + width])
        if not len(self.sample.cell):
            return edge[: len(a)], edge[len(a) :]
        away = np.concatenate([-np.ones(len(a)), np.ones(len(a))])
        deep = np.tile(depth > 0, 2)
        center = np.tile(a, 2)
        for _ in range(40):
            piece = terms(self.sample, edge[:, None] + shape, sigma, tau)
            slope = piece.slope.sum(axis=-1)
            downhill = deep & (slope * away < 0)
            height = piece.value.sum(axis=-1) - level
            step = np.where(downhill, height / np.where(downhill, slope, 1.0), 0.0)
            limit = np.abs(edge - center) + 1e-12
            step = np.clip(step, -limit / 2, limit)  # never past the centre, never more than double
            edge = edge - step
            if not (np.abs(step) > 1e-9).any():
                break
        return edge[: len(a)], edge[len(a) :]

    @cached_property
    def coarse(self) -> tuple[Floats, Floats, Floats]:
        """A grid over beta, the best a on it, and the log likelihood there, shape (GRID,) each."""
        grid = np.linspace(*self.box, GRID)
        return (grid, *self.profile(grid))

    def optimum(self) -> Optimum:
        """The global optimum: the best of a grid over beta, polished by Newton steps."""
        grid, a, value = self.coarse
        best = int(np.argmax(value))
        start = float(a[best]), float(grid[best])
        return climb(self.sample, np.array([self.sigma]), np.array([self.tau]), start)

    def range_of_beta(self, best: Optimum, drop: float) -> tuple[float, float]:
        """Outermost beta on either side of the best where the profile falls by `drop`; infinite if never."""
        from scipy.optimize import brentq

        level, center = float(best.value[0]) - drop, float(best.beta[0])
        grid, _, value = self.coarse

        def end(outer: Floats, heights: Floats, never: float) -> float:
            """The root between the first place within the level, from the far end on, and the one before."""
            within = [*(heights >= level).tolist(), True].index(True)
            if within == 0:
                return never
            ends = float(outer[within - 1]), float([*outer, center][within])
            return float(brentq(lambda beta: self.profile(np.array([beta]))[1][0] - level, *ends, xtol=1e-7))

        below, above = grid < center, grid > center
        low = end(grid[below], value[below], -np.inf)
        return low, end(grid[above][::-1], value[above][::-1], np.inf)

    def walk(self, best: Optimum, drop: float) -> Region:
        """Around the region where the log likelihood stays within `drop` of its best."""
        low, high = self.range_of_beta(best, drop)
        first, last = max(low, self.box[0]), min(high, self.box[1])
        angle = np.linspace(-np.pi / 2, np.pi / 2, ARC + 1)
        beta = (first + last) / 2 + (last - first) / 2 * np.sin(angle)
        bottom, top = self.edges(beta, float(best.value[0]) - drop)
        return Region(low, high, beta, bottom, top)


@dataclass(frozen=True)
class Region:
    """A level set of the likelihood, a banana in (a, beta).

    Attributes:
        low, high: range of beta; infinite where the data do not end it.
        beta: (g,) ascending, between them (and within the surface's box).
        bottom, top: (g,) range of a at each beta.
    """

    low: float
    high: float
    beta: Floats
    bottom: Floats
    top: Floats

    def extent(self, offset: Callable[[Floats], Floats], falls: bool) -> tuple[float, float]:
        """Range of a + offset(beta) over the region.

        `falls` says that the combination falls for ever towards an open end of the region, so that its range
        is open below: ln s_min does as b_crit grows, ln e_min as b_crit shrinks.
        """
        shift = offset(self.beta)
        high = _peak(self.top + shift, self.beta)
        return -np.inf if falls else -_peak(-(self.bottom + shift), self.beta), high


def climb(
    sample: Sample, sigma: Floats, tau: Floats, start: tuple[float, float], tolerance: float = 1e-12
) -> Optimum:
    """Most likely (a, beta) for each pair of scatters, shape (g,), by Newton steps from a start near it.

    The steps stop once none moves beta by more than `tolerance`; the value is then off by its square.
    """
    low, high = sample.x[0] - REACH, sample.x[-1] + REACH
    sigma, tau = sigma[:, None], tau[:, None]
    a, beta = np.full(len(sigma), start[0]), np.full(len(sigma), start[1])
    for _ in range(MOST_STEPS):
        here = _locally(sample, a, beta, sigma, tau)
        move = np.clip(here.move, -LONGEST, LONGEST)
        new = np.clip(beta + move, low, high)
        a = a + np.clip((here.slope_a - here.cross * (new - beta)) / here.bend_a, -2.0, 2.0)
        moved, beta = np.abs(new - beta).max(), new
        if moved <= tolerance:
            break
    here = _locally(sample, a, beta, sigma, tau)
    return Optimum(a, beta, here.terms.value.sum(axis=-1), here.terms.information, np.log(here.determinant))


class _Local(NamedTuple):
    """Derivatives of the log likelihood at (a, beta), shape (g,) each."""

    terms: Terms
    slope_a: Floats
    bend_a: Floats
    cross: Floats
    determinant: Floats
    move: Floats


def _locally(sample: Sample, a: Floats, beta: Floats, sigma: Floats, tau: Floats) -> _Local:
    shape = np.logaddexp(0.0, beta[:, None] - sample.x)
    here = terms(sample, a[:, None] + shape, sigma, tau)
    p = -np.expm1(-shape)
    weight = here.information
    slope_a, slope_b = here.slope.sum(axis=-1), (here.slope * p).sum(axis=-1)
    aa = np.maximum(weight.sum(axis=-1), TINY)
    ab, bb = (weight * p).sum(axis=-1), (weight * p * p).sum(axis=-1)
    # the expected information is safe far from the optimum, the observed one converges fast near it
    observed = bb - (here.slope * p * (1 - p)).sum(axis=-1)
    observed = np.where(aa * observed > 1.05 * ab * ab, observed, bb)
    steepness = np.maximum(aa * observed - ab * ab, 1e-12 * aa * bb + TINY)
    move = (aa * slope_b - ab * slope_a) / steepness
    return _Local(here, slope_a, aa, ab, np.maximum(aa * bb - ab * ab, TINY), move)


def _best_location(sample: Sample, shape: Floats, sigma: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """The a that makes a + shape, (g, k), most likely, and the log likelihood there, shape (g,) each."""
    met = sample.n > 0
    level = np.where(met, sample.mean, 0.0)
    if not met.any():
        level = np.bincount(sample.cell, sample.bound * sample.count, len(met)) / sample.runs
        met = np.ones(len(met), bool)
    a = (level - shape)[:, met].mean(axis=-1)
    for _ in range(30):
        piece = terms(sample, a[:, None] + shape, sigma, tau)
        step = piece.slope.sum(axis=-1) / np.maximum(piece.information.sum(axis=-1), TINY)
        if not len(sample.cell):
            a = a + step
            break
        step = np.clip(step, -2.0, 2.0)
        a = a + step
        if not (np.abs(step) > 1e-10).any():
            break
    return a, terms(sample, a[:, None] + shape, sigma, tau).value.sum(axis=-1)


def _peak(values: Floats, at: Floats) -> float:
    """Largest of some samples of a smooth function, with a parabola through the three around it."""
    i = int(np.argmax(values))
    if i in (0, len(values) - 1):
        return float(values[i])
    left, here, right = values[i - 1 : i + 2]
    x1, x2 = at[i - 1] - at[i], at[i + 1] - at[i]
    if not (x1 < 0 < x2):
        return float(here)
    slope1, slope2 = (left - here) / x1, (right - here) / x2
    bend = (slope2 - slope1) / (x2 - x1)
    if bend >= 0:
        return float(here)
    slope = slope1 - bend * x1
    return float(here - slope * slope / (4 * bend))
