"""The likelihood of a frontier: two levels of scatter, runs that were censored, gaps between logged points.

With x = ln B and y = ln S, run j at batch size i obeys

    y_ij = m_i + t_i + e_ij,   m_i = a + ln(1 + b_crit / B_i),   t_i ~ N(0, tau^2),   e_ij ~ N(0, sigma^2)

where a = ln s_min, tau is what tuning leaves between batch sizes and sigma what seeds leave within one
(SCIENCE of McCandlish et al. 2018, section 2; both in natural-log units of steps). Runs whose crossing is
known enter by their number, mean and sum of squares, so a hundred thousand of them cost no more than ten.
A run censored at T contributes Phi((m + t - ln T) / sigma), integrated over t by Gauss-Hermite quadrature. A
crossing that is only known to lie between two logged points carries the variance of a uniform distribution
over that gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NODES = 8


@dataclass(frozen=True)
class Sample:
    """A frontier summed up per batch size, ascending: k batch sizes, c censored groups of runs.

    Attributes:
        x: (k,) ln(batch size).
        n: (k,) runs with a known crossing.
        mean: (k,) mean of their ln(steps); 0 where there are none.
        ss: (k,) sum of their squares about that mean.
        gap: (k,) variance of ln(steps) that logging gaps add to the mean.
        cell: (c,) index of the batch size that a censored group belongs to.
        bound: (c,) ln(steps) beyond which the crossing lies.
        side: (c,) +1 where it lies above the bound, -1 where it lies below.
        count: (c,) runs in the group.
    """

    x: Floats
    n: Floats
    mean: Floats
    ss: Floats
    gap: Floats
    cell: NDArray[np.intp]
    bound: Floats
    side: Floats
    count: Floats

    def __len__(self) -> int:
        return len(self.x)

    @property
    def runs(self) -> Floats:
        """(k,) runs per batch size, censored ones included."""
        return self.n + np.bincount(self.cell, self.count, len(self.x))

    @property
    def replicated(self) -> bool:
        """Whether any batch size has a second run, so that seeds and tuning can be told apart."""
        return bool((self.runs > 1).any())

    @property
    def means(self) -> Sample:
        """The known means alone, as if each were one run."""
        part = self.only(self.n > 0)
        k, none = len(part), np.empty(0)
        zero = np.zeros(k)
        return Sample(part.x, np.ones(k), part.mean, zero, zero, part.cell[:0], none, none, none)

    def only(self, keep: NDArray[np.bool_]) -> Sample:
        """The part at the batch sizes where `keep`, shape (k,), is true."""
        cells = keep[self.cell]
        place = np.cumsum(keep) - 1
        return Sample(
            self.x[keep],
            self.n[keep],
            self.mean[keep],
            self.ss[keep],
            self.gap[keep],
            place[self.cell[cells]],
            self.bound[cells],
            self.side[cells],
            self.count[cells],
        )


class Terms(NamedTuple):
    """Per batch size, shape (..., k): log likelihood, its slope in m, and minus its second derivative."""

    value: Floats
    slope: Floats
    information: Floats


def terms(sample: Sample, m: Floats, sigma: Floats, tau: Floats) -> Terms:
    """Log likelihood of each batch size at location m, shape (..., k); sigma, tau broadcast to (..., 1)."""
    s2, t2 = sigma * sigma, tau * tau
    met = sample.n > 0
    variance = np.where(met, t2 + s2 / np.maximum(sample.n, 1) + sample.gap, 1.0)
    residual = np.where(met, sample.mean - m, 0.0)
    slope = residual / variance
    information = np.broadcast_to(met / variance, slope.shape).copy()
    value = -0.5 * (np.log(variance) + residual * slope)
    if sample.replicated:
        value = value - np.maximum(sample.n - 1, 0) * np.log(sigma) - sample.ss / (2 * s2)
    if not len(sample.cell):
        return Terms(value, slope, information)
    mixed = sample.n[sample.cell] > 0
    if not mixed.all():
        at = sample.cell[~mixed]
        alone = _unseen(sample, ~mixed, m[..., at], s2, t2)
        value[..., at] += alone.value
        slope[..., at] += alone.slope
        information[..., at] += alone.information
    if mixed.any():
        at = np.unique(sample.cell[mixed])
        pull = (t2 / variance)[..., at]
        spread = np.sqrt(np.maximum(t2 * (1 - pull), 0.0))
        extra = _partly_seen(sample, mixed, at, m[..., at] + pull * residual[..., at], sigma, spread)
        value[..., at] += extra.value
        slope[..., at] += (1 - pull) * extra.slope
        information[..., at] += (1 - pull) ** 2 * extra.information
    return Terms(value, slope, information)


def _unseen(sample: Sample, which: NDArray[np.bool_], m: Floats, s2: Floats, t2: Floats) -> Terms:
    """Batch sizes at which every run is censored, (..., number of them), at locations m.

    The least of c runs is taken for normal with its exact mean and variance: for c = 1 that is exact, and
    otherwise right in the limit where tuning scatters more than seeds.
    """
    moments = np.array([_least_of(int(count)) for count in sample.count[which]])
    side, bound = sample.side[which], sample.bound[which]
    scale = side / np.sqrt(t2 + s2 * moments[:, 1])
    z = (m - bound + side * np.sqrt(s2) * moments[:, 0]) * scale
    tail, mills = _tail(z)
    # d/dz (ln Phi)'' = -mills (mills + z); the small shift of z with sigma is no function of m
    return Terms(tail, mills * scale, mills * (mills + z) * scale * scale)


def _partly_seen(
    sample: Sample, which: NDArray[np.bool_], at: NDArray[np.intp], m: Floats, sigma: Floats, spread: Floats
) -> Terms:
    """Censored runs beside known ones at the batch sizes `at`, (..., len(at)), located at N(m, spread^2).

    Known runs hold t to within sigma, so the integrand is smooth on the scale of the nodes.
    """
    nodes, weights = _quadrature()
    location = m[..., None] + spread[..., None] * nodes
    cell, bound = sample.cell[which], sample.bound[which][:, None]
    place = np.searchsorted(at, cell)
    scale = (sample.side[which] / sigma)[..., None]
    z = (location[..., place, :] - bound) * scale
    tail, mills = _tail(z)
    count = sample.count[which][:, None]
    value, slope, bend = count * tail, count * mills * scale, -count * mills * (mills + z) * scale * scale
    if len(at) < len(place):
        into = (place == np.arange(len(at))[:, None]).astype(float)
        value, slope, bend = into @ value, into @ slope, into @ bend
    value = value + weights
    top = value.max(axis=-1, keepdims=True)
    share = np.exp(value - top)
    total = share.sum(axis=-1, keepdims=True)
    share /= total
    mean = (share * slope).sum(axis=-1)
    second = (share * (bend + slope * slope)).sum(axis=-1)
    return Terms((top + np.log(total))[..., 0], mean, mean * mean - second)


def _tail(z: Floats) -> tuple[Floats, Floats]:
    """ln Phi(z) and its derivative phi(z) / Phi(z)."""
    from scipy.special import erfcx, log_ndtr

    return log_ndtr(z), np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2))


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Floats, Floats]:
    """Nodes of the standard normal distribution and the logarithms of their weights, shape (NODES,) each."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, np.log(weights / weights.sum())


@lru_cache(maxsize=256)
def _least_of(count: int) -> tuple[float, float]:
    """Mean and variance of the least of `count` standard normal numbers."""
    from scipy.special import log_ndtr

    z = np.linspace(-10.0, 10.0, 4001)
    density = np.exp(-0.5 * z * z + (count - 1) * log_ndtr(-z))
    mean = float(np.average(z, weights=density))
    return mean, float(np.average((z - mean) ** 2, weights=density))
