"""Intervals and region against their definition: constrained least squares, and the likelihood itself."""

from __future__ import annotations

import numpy as np
import pytest
from frontiers import Design, simulate
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from bscrit.fit.core import joint_region
from bscrit.fit.frontier import summarise
from bscrit.fit.hyperbola import Hyperbola, fit_hyperbola
from bscrit.fit.likelihood import terms

# Zhang et al. 2024, 85M parameters: steps to a validation loss of 3.42
X = np.log(64.0 * 2 ** np.arange(9))
Y = np.log([46000, 23000, 13282, 7000, 3840, 2528, 1917, 1600, 1600])
OFFSETS = {
    "s_min": lambda beta: 0.0 * beta,
    "e_min": lambda beta: beta,
    "steps at 500": lambda beta: np.logaddexp(0.0, beta - np.log(500.0)),
}


def fitted(y=Y) -> Hyperbola:
    from bscrit.fit.frontier import Rows

    rows = Rows(X, np.arange(9), np.asarray(y, float), np.zeros(9), np.zeros(9))
    return fit_hyperbola(summarise(rows, np.ones(9, bool)))


def squares(a: float, beta: float) -> float:
    return float(((Y - a - np.logaddexp(0.0, beta - X)) ** 2).sum())


def profiled(psi: float, offset) -> float:
    """Least sum of squares with a + offset(beta) held at psi."""
    return minimize_scalar(lambda beta: squares(psi - offset(beta), beta), bracket=(7, 8), tol=1e-12).fun


@pytest.mark.parametrize("name", OFFSETS)
def test_profile_interval_by_constrained_least_squares(name):
    curve, offset = fitted(), OFFSETS[name]
    found = curve.steps(500.0) if name == "steps at 500" else getattr(curve, name)
    best = float(curve.best.a[0]) + offset(curve.beta)
    least = squares(float(curve.best.a[0]), curve.beta)
    limit = least * (1 + t_distribution.ppf(0.975, 7) ** 2 / 7)
    low, high = (
        brentq(lambda psi: profiled(psi, offset) - limit, best, best + side, xtol=1e-10)
        for side in (-0.5, 0.5)
    )
    assert (found.low, found.high) == pytest.approx((np.exp(low), np.exp(high)), rel=3e-5)


def test_joint_region_is_where_the_sum_of_squares_meets_the_f_quantile():
    curve = fitted()
    least = squares(float(curve.best.a[0]), curve.beta)
    limit = least * (1 + 2 / 7 * f_distribution.ppf(0.95, 2, 7))
    assert len(joint_region(curve)) > 50
    for s_min, b_crit in joint_region(curve):
        assert squares(np.log(s_min), np.log(b_crit)) == pytest.approx(limit, rel=1e-3)


def test_intervals_follow_the_likelihood_where_runs_are_censored():
    """At each end of the interval of b_crit the best log likelihood has fallen by t^2/2."""
    rows = simulate(Design(9, 3, 0.1, tuning=1.0, censored=0.3), np.random.default_rng(4))
    curve = fit_hyperbola(summarise(rows, np.ones(27, bool)))
    sigma, tau = np.array([[curve.scatter.sigma]]), np.array([[curve.scatter.tau]])

    def likelihood(a, beta):
        shape = np.logaddexp(0.0, beta - curve.sample.x)
        return float(terms(curve.sample, (a + shape)[None, :], sigma, tau).value.sum())

    def profile(beta):
        return -minimize_scalar(lambda a: -likelihood(a, beta), bracket=(6, 7), tol=1e-10).fun

    best = likelihood(float(curve.best.a[0]), curve.beta)
    quantile = t_distribution.ppf(0.975, curve.scatter.freedom)
    for end in (curve.b_crit.low, curve.b_crit.high):
        fall = best - profile(np.log(end))
        assert fall == pytest.approx(quantile**2 / 2, rel=1e-3)


def test_steps_at_b_crit_are_twice_the_fewest():
    curve = fitted()
    assert curve.steps(curve.b_crit.value).value == pytest.approx(2 * curve.s_min.value)


def test_open_intervals_have_no_ends():
    line = fitted(20 - X)
    assert line.b_crit.high is None
    assert line.s_min.low is None
    assert line.e_min.high == pytest.approx(np.exp(20), rel=1e-3)
    flat = fitted(np.full(9, 5.0))
    assert flat.b_crit.low is None
    assert flat.e_min.low is None
    assert flat.s_min.value == pytest.approx(np.exp(5), rel=1e-3)
    assert joint_region(line) == joint_region(flat) == ()
