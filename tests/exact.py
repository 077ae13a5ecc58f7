"""Problems whose answers are known in closed form: what a sweep must find, to as many digits as one likes.

Noisy quadratic (G. Zhang et al. 2019, 1907.04164), least squares with Gaussian features, and a toy trainer
that follows the model of McCandlish et al. 2018 exactly. No torch: numbers in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ToyTrainer:
    """A run that needs `progress` noiseless steps, with B_noise(s) = scale * s^power on the way.

    S(B) = s* + (scale/B) s*^(power + 1)/(power + 1), hence a perfect hyperbola.
    """

    scale: float
    power: float
    progress: float

    @property
    def b_crit(self) -> float:
        """[examples]: the average of B_noise over the progress."""
        return float(self.scale * self.progress**self.power / (self.power + 1))

    def steps(self, batch_size: float) -> float:
        """Steps to the end of the run."""
        return self.progress * (1 + self.b_crit / batch_size)


@dataclass(frozen=True)
class NoisyQuadratic:
    """L = 1/2 sum h_i theta_i^2, gradient of one example h theta + xi with Var xi_i = c_i.

    Attributes:
        curvature: (d,) h, eigenvalues of the Hessian.
        noise: (d,) c, variances of the gradient of one example.
        start: (d,) E theta_i^2 before the first update.
    """

    curvature: Floats
    noise: Floats
    start: Floats

    def moments(self, lr: float, batch_size: float, steps: float) -> Floats:
        """E theta_i^2 after updates of plain SGD at a constant rate, shape (d,); `steps` may be fractional.

        m(k) = r^2k m(0) + (lr^2 c/B)(1 - r^2k)/(1 - r^2), r = 1 - lr h.
        """
        square = (1 - lr * self.curvature) ** 2
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            power = square**steps
            series = np.where(square == 1, steps, (1 - power) / (1 - square))
            return power * self.start + lr**2 * self.noise / batch_size * series

    def loss(self, lr: float, batch_size: float, steps: float, momentum: float = 0.0) -> float:
        """E L after `steps` updates at a constant rate; whole steps where there is momentum."""
        if not momentum:
            return self.loss_of(self.moments(lr, batch_size, steps))
        return float(self.heavy_ball(lr, batch_size, momentum, int(steps))[-1])

    def loss_of(self, moments: Floats) -> float:
        """E L at given E theta_i^2."""
        return float(0.5 * self.curvature @ moments)

    def heavy_ball(self, lr: float, batch_size: float, momentum: float, steps: int) -> Floats:
        """E L after 0, 1, ..., `steps` updates, shape (steps + 1,).

        v <- momentum v + gradient, theta <- theta - lr v.
        With x = (theta, last change of theta): E xx' <- A E xx' A' + (lr^2 c/B) 11',
        A = [[1 - lr h, momentum], [-lr h, momentum]].
        """
        pull, kick = lr * self.curvature, lr**2 * self.noise / batch_size
        tt, td, dd = self.start.copy(), np.zeros_like(self.start), np.zeros_like(self.start)
        losses = [self.loss_of(tt)]
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(steps):
                new_dd = pull**2 * tt - 2 * pull * momentum * td + momentum**2 * dd + kick
                new_td = new_dd + momentum * td - pull * tt
                tt, td, dd = tt + 2 * new_td - new_dd, new_td, new_dd
                losses.append(self.loss_of(tt))
        return np.array(losses)

    def steps_to(self, target: float, lr: float, batch_size: float, most: int = 10**7) -> float:
        """Steps of plain SGD at a constant rate until E L meets the target, linear between whole steps.

        inf where that takes more than `most`.
        """
        if self.loss_of(self.start) <= target:
            return 0.0
        low, high = 0, 0
        while not self.loss(lr, batch_size, high) <= target:
            if high == most:
                return math.inf
            low, high = high, min(max(high + 1, int(high * 1.2)), most)
        while high - low > 1:
            middle = (low + high) // 2
            met = self.loss(lr, batch_size, middle) <= target
            low, high = (low, middle) if met else (middle, high)
        pair = np.array([self.loss(lr, batch_size, step) for step in (low, high)])
        return low + _first_below(pair, target)

    def tuned(self, target: float, batch_size: float) -> tuple[float, float]:
        """The best constant rate of plain SGD and the steps to the target at it."""
        largest = 2 / float(self.curvature.max())
        return _best_rate(lambda lr: self.steps_to(target, lr, batch_size), largest)

    def tuned_heavy_ball(self, target: float, batch_size: float, momentum: float) -> tuple[float, float]:
        """The best constant rate with momentum and the steps to the target at it."""
        largest = 2 * (1 + momentum) / float(self.curvature.max())
        most = math.ceil(4 * self.tuned(target, batch_size)[1]) + 100

        def steps(lr: float) -> float:
            return _first_below(self.heavy_ball(lr, batch_size, momentum, most), target)

        return _best_rate(steps, largest)

    def b_noise(self, moments: Floats) -> float:
        """tr(H Sigma)/(G'HG) = sum h c/sum h^3 m [examples]."""
        return float(self.curvature @ self.noise / (self.curvature**3 @ moments))

    def b_simple(self, moments: Floats) -> float:
        """tr(Sigma)/|G|^2 = sum c/sum h^2 m [examples]."""
        return float(self.noise.sum() / (self.curvature**2 @ moments))

    def greedy(self, batch_size: float, steps: int) -> list[Floats]:
        """E theta_i^2 after 0, 1, ..., `steps` updates, each with the rate that lowers E L the most.

        lr = A/(Q + C/B), A = sum h^2 m, Q = sum h^3 m, C = sum h c.
        """
        h, c, m = self.curvature, self.noise, self.start
        path = [m]
        for _ in range(steps):
            lr = (h**2 @ m) / (h**3 @ m + h @ c / batch_size)
            m = (1 - lr * h) ** 2 * m + lr**2 * c / batch_size
            path.append(m)
        return path


@dataclass(frozen=True)
class LeastSquares:
    """y = x theta* + e, x ~ N(0, diag lam), e ~ N(0, s2); L = 1/2 sum lam delta^2, delta = theta - theta*.

    Attributes:
        variances: (d,) lam of the features: eigenvalues of the Hessian.
        label_noise: s2, variance of the labels' noise.
        start: (d,) E delta_i^2 before the first update.
    """

    variances: Floats
    label_noise: float
    start: Floats

    def losses(self, lr: float, batch_size: int, steps: int) -> Floats:
        """E L after 0, 1, ..., `steps` updates of plain SGD on fresh data, shape (steps + 1,).

        m' = (1 - lr lam)^2 m + (lr^2/B)(lam^2 m + lam sum_j lam_j m_j + s2 lam), m = E delta^2.
        """
        lam, m = self.variances, self.start
        losses = [self.loss_of(m)]
        for _ in range(steps):
            spread = lam**2 * m + lam * (lam @ m) + self.label_noise * lam
            m = (1 - lr * lam) ** 2 * m + lr**2 / batch_size * spread
            losses.append(self.loss_of(m))
        return np.array(losses)

    def loss_of(self, squares: Floats) -> float:
        """L at given delta_i^2."""
        return float(0.5 * self.variances @ squares)

    def steps_to(self, target: float, lr: float, batch_size: int, most: int) -> float:
        """Steps until E L meets the target, linear between whole steps; inf beyond `most`."""
        return _first_below(self.losses(lr, batch_size, most), target)

    def b_simple(self, squares: Floats) -> float:
        """tr(Sigma)/|G|^2 = 1 + (2L + s2) tr(H)/|G|^2 [examples] at given delta_i^2."""
        lam = self.variances
        return float(1 + self._residual(squares) * lam.sum() / (lam**2 @ squares))

    def b_noise(self, squares: Floats) -> float:
        """tr(H Sigma)/(G'HG) = 1 + (2L + s2) tr(H^2)/(delta' H^3 delta) [examples] at given delta_i^2."""
        lam = self.variances
        return float(1 + self._residual(squares) * (lam**2).sum() / (lam**3 @ squares))

    def _residual(self, squares: Floats) -> float:
        return 2 * self.loss_of(squares) + self.label_noise


def power_law(
    dimensions: int = 100,
    power: float = 1.0,
    noise: float = 1.0,
    noise_power: float = 1.0,
    start: float = 1.0,
) -> NoisyQuadratic:
    """The noisy quadratic with h_i = i^-power, c_i = noise * i^-noise_power and theta_i = start."""
    index = np.arange(1, dimensions + 1, dtype=float)
    return NoisyQuadratic(index**-power, noise * index**-noise_power, np.full(dimensions, start**2))


def regression(
    dimensions: int = 30, power: float = 1.0, label_noise: float = 1.0, start: float = 1.0
) -> LeastSquares:
    """Least squares with lam_i = i^-power, from theta = 0 to theta* = start."""
    variances = np.arange(1, dimensions + 1, dtype=float) ** -power
    return LeastSquares(variances, label_noise, np.full(dimensions, start**2))


def hyperbola(batch_sizes: Sequence[float], steps: Sequence[float]) -> tuple[float, float, float]:
    """S_min [steps], E_min and B_crit [examples] of S = S_min (1 + B_crit/B) by least squares in ln S."""
    sizes, logs = np.asarray(batch_sizes, float), np.log(np.asarray(steps, float))

    def scatter(log_b: float) -> float:
        return float(np.var(logs - np.log1p(math.exp(log_b) / sizes)))

    low, high = math.log(sizes.min()) - 10, math.log(sizes.max()) + 10
    start = min(np.linspace(low, high, 200), key=scatter)
    b_crit = math.exp(_minimum(scatter, start - 0.2, start + 0.2))
    s_min = math.exp(float(np.mean(logs - np.log1p(b_crit / sizes))))
    return s_min, s_min * b_crit, b_crit


def _first_below(losses: Floats, target: float) -> float:
    """Steps at which the losses after 0, 1, ... steps first meet the target, linear in between."""
    below = np.flatnonzero(losses <= target)
    if not len(below):
        return math.inf
    after = int(below[0])
    if after == 0:
        return 0.0
    share = (losses[after - 1] - target) / (losses[after - 1] - losses[after])
    return float(after - 1 + share)


def _best_rate(steps: Callable[[float], float], largest: float) -> tuple[float, float]:
    """(rate, steps) at the minimum of `steps` over rates below `largest`."""
    rates = np.geomspace(largest * 1e-4, largest * 0.9999, 60)
    found = [steps(float(lr)) for lr in rates]
    best = int(np.argmin(found))
    if not math.isfinite(found[best]):
        return math.nan, math.inf
    low, high = rates[max(best - 1, 0)], rates[min(best + 1, len(rates) - 1)]
    lr = math.exp(_minimum(lambda log: steps(math.exp(log)), math.log(low), math.log(high)))
    return lr, steps(lr)


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum in [low, high] has it: golden section."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(60):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return (low + high) / 2
