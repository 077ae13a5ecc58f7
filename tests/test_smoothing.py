"""Local lines in ln(step): exact where a curve is a line, and never without two points."""

from math import inf, log

import numpy as np
import pytest

from bscrit.smoothing import ahead, error_of_crossing, first_below

X = np.log(np.arange(1.0, 201.0))


@pytest.mark.parametrize("steps", [2.5, 40.0, 199.5])
def test_a_line_is_met_where_it_is(steps):
    assert first_below(X, log(steps) - X) == pytest.approx(log(steps))
    assert ahead(X, log(2 * steps + 200) - X) == pytest.approx(log(2 * steps + 200))


def test_a_line_that_rises_or_stays_above_is_never_met():
    assert first_below(X, X + 1) == ahead(X, X) == ahead(X[:1], X[:1]) == inf


def test_one_point_below_a_noisy_curve_is_no_crossing():
    gap = np.ones(200)
    gap[100] = -0.5
    assert first_below(X, gap) == inf
    assert first_below(X[:101], gap[:101]) == inf


def test_the_error_of_a_crossing_is_the_scatter_of_crossings():
    random = np.random.default_rng(0)
    x, center = np.log(np.arange(1.0, 401.0)), log(200.0)
    gaps = center - x + random.normal(0, 0.02, (200, 400))
    errors = [error_of_crossing(x, gap, center) for gap in gaps]
    crossings = [first_below(x, gap) for gap in gaps]
    assert np.mean(errors) == pytest.approx(np.std(crossings), rel=0.35)
    assert error_of_crossing(x, center - x, center) == pytest.approx(0, abs=1e-9)


def test_where_nothing_falls_the_error_has_no_end():
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    assert error_of_crossing(X, X - log(50.0) + noise, log(50.0)) == inf
