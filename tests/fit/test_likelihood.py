"""The likelihood against direct integration, and the scatters that it yields."""

from __future__ import annotations

import numpy as np
import pytest
from frontiers import Design, simulate
from scipy.integrate import quad
from scipy.stats import norm

from bscrit.fit.frontier import Rows, summarise
from bscrit.fit.likelihood import Sample, terms
from bscrit.fit.scatter import degrees_of_freedom, estimate
from bscrit.fit.surface import Surface


def sample(y: list[list[float]], bounds: list[list[float]] | None = None) -> Sample:
    """A sample from ln(steps) and bounds per batch size."""
    bounds = bounds or [[] for _ in y]
    rows = [(i, v, side) for side, table in ((0, y), (1, bounds)) for i, row in enumerate(table) for v in row]
    point, value, side = (np.array(column) for column in zip(*rows, strict=True))
    rows = Rows(np.log(4.0) * np.arange(len(y)), point, value, side.astype(float), np.zeros(len(point)))
    return summarise(rows, np.ones(len(point), bool))


def value(data: Sample, m: float, sigma: float, tau: float) -> float:
    """Log likelihood of the first batch size at location m."""
    at = np.full((1, len(data)), m)
    return float(terms(data, at, np.array([[sigma]]), np.array([[tau]])).value[0, 0])


def integral(known: list[float], bounds: list[float], m: float, sigma: float, tau: float) -> float:
    """The same by integration over the deviation of the batch size."""

    def density(t: float) -> float:
        seen = np.prod(norm.pdf(known, m + t, sigma)) if known else 1.0
        return norm.pdf(t, 0, tau) * seen * np.prod(norm.sf(bounds, m + t, sigma))

    return float(np.log(quad(density, -8 * tau, 8 * tau, epsabs=1e-14, limit=400)[0]))


@pytest.mark.parametrize("tau", [0.03, 0.1, 0.3])
@pytest.mark.parametrize(
    ("known", "bounds"),
    [([0.1], []), ([0.1, -0.2, 0.15], []), ([0.1], [0.2]), ([0.1, 0.05], [0.2, 0.3])],
)
def test_both_levels_by_integration(known, bounds, tau):
    """Differences between locations, as the constant does not matter."""
    data = sample([known, [0.0]], [bounds, []])
    found = [value(data, m, 0.1, tau) for m in (0.0, 0.3)]
    expected = [integral(known, bounds, m, 0.1, tau) for m in (0.0, 0.3)]
    assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], abs=2e-3)


def test_one_censored_run_alone_is_exact():
    data = sample([[], [0.0, 0.1]], [[0.2], []])
    assert value(data, 0.1, 0.1, 0.2) == pytest.approx(norm.logcdf(-0.1 / np.hypot(0.1, 0.2)), abs=1e-12)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_several_censored_runs_alone(count):
    """The least of them is taken for normal: right to a few per cent where it matters."""
    data = sample([[], [0.0, 0.1]], [[0.2] * count, []])
    for m in (0.1, 0.2, 0.4):
        assert value(data, m, 0.1, 0.2) == pytest.approx(integral([], [0.2] * count, m, 0.1, 0.2), abs=0.03)


def test_derivatives():
    data = sample([[0.1], [0.0, 0.2], []], [[0.2, 0.3], [], [0.1]])
    m, sigma, tau, h = np.array([[0.05, 0.1, 0.2]]), np.array([[0.1]]), np.array([[0.15]]), 1e-4
    low, here, high = (terms(data, m + d, sigma, tau) for d in (-h, 0.0, h))
    assert here.slope == pytest.approx((high.value - low.value) / (2 * h), rel=1e-5)
    assert here.information == pytest.approx(-(high.slope - low.slope) / (2 * h), rel=1e-5)


def test_balanced_scatter_is_the_analysis_of_variance():
    rows = simulate(Design(11, 3, 0.05, tuning=3.0), np.random.default_rng(1))
    data = summarise(rows, np.ones(len(rows.y), bool))
    found = estimate(data)
    rest = data.mean - np.logaddexp(0.0, Surface(data.means, 1.0, 0.0).optimum().beta - data.x)
    between = ((rest - rest.mean()) ** 2).sum() / 9
    within = data.ss.sum() / 22
    assert found.sigma**2 == pytest.approx(within, rel=0.1)
    assert found.tau**2 + found.sigma**2 / 3 == pytest.approx(between, rel=0.1)
    assert found.freedom == pytest.approx(9, abs=0.5)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0])
def test_degrees_of_freedom_between_those_of_tuning_and_of_seeds(ratio):
    """Balanced and uncensored: 1/f = (1 - s)/(k - 2) + s/(k n - 2), s the seeds' share to the power 3/2."""
    k, n, sigma = 8, 4, 0.1
    data = summarise(simulate(Design(k, n, sigma), np.random.default_rng(2)), np.ones(k * n, bool))
    tau = sigma * np.sqrt(ratio / n)
    share = (1 / (1 + ratio)) ** 1.5
    expected = 1 / ((1 - share) / (k - 2) + share / (k * n - 2))
    best = Surface(data, sigma, tau).optimum()
    freedom = degrees_of_freedom(data, sigma, tau, (float(best.a[0]), float(best.beta[0])))
    assert freedom == pytest.approx(expected, rel=1e-9)


def test_single_runs_have_k_minus_two_degrees_of_freedom():
    rows = simulate(Design(7, 1, 0.05), np.random.default_rng(1))
    found = estimate(summarise(rows, np.ones(7, bool)))
    assert (found.tau, found.freedom) == (0.0, 5.0)


def test_scatter_of_censored_runs_is_found():
    sigmas, taus = [], []
    for seed in range(40):
        rows = simulate(Design(11, 3, 0.1, tuning=1.5, censored=0.3), np.random.default_rng(seed))
        found = estimate(summarise(rows, np.ones(len(rows.y), bool)))
        sigmas.append(found.sigma)
        taus.append(found.tau)
    assert np.median(sigmas) == pytest.approx(0.1, rel=0.1)
    assert np.median(taus) == pytest.approx(0.15, rel=0.2)


def test_information_left_by_censoring_lowers_the_degrees_of_freedom():
    rows = simulate(Design(7, 1, 0.05, censored=0.4), np.random.default_rng(1))
    found = estimate(summarise(rows, np.ones(7, bool)))
    assert 1 < found.freedom < 4


def test_summary_of_rows():
    data = sample([[1.0, 3.0], [2.0]], [[4.0], []])
    assert data.n.tolist() == [2, 1]
    assert data.mean.tolist() == [2.0, 2.0]
    assert data.ss.tolist() == [2.0, 0.0]
    assert data.runs.tolist() == [3, 1]
    assert (data.bound.tolist(), data.cell.tolist()) == ([4.0], [0])


def test_where_all_are_censored_the_largest_bound_counts():
    data = sample([[], [2.0], [1.0]], [[4.0, 5.0, 5.0], [], []])
    assert (data.bound.tolist(), data.count.tolist()) == ([5.0], [2.0])


def test_many_bounds_are_told_apart_forty_at_a_time():
    """A thousand bounds of their own cost what forty do, and leave the likelihood where it is."""
    random = np.random.default_rng(0)
    known, bounds = random.normal(0.0, 0.2, 500), random.normal(-0.2, 0.2, 1000)
    data = sample([known.tolist(), [0.0]], [bounds.tolist(), []])
    assert len(data.cell) == 40
    assert data.count.sum() == 1000

    def exact(m: float) -> float:
        return float(norm.logpdf(known, m, 0.2).sum() + norm.logsf(bounds, m, 0.2).sum())

    for m in (-0.1, 0.1, 0.2):
        assert value(data, m, 0.2, 1e-6) - value(data, 0.0, 0.2, 1e-6) == pytest.approx(
            exact(m) - exact(0.0), abs=0.5
        )
