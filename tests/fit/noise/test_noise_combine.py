"""Estimates combined: known weights, and intervals that grow with disagreement."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from bscrit.estimate import Estimate
from bscrit.fit.noise.combine import fit_line, pooled


def about(value: float, error: float) -> Estimate:
    """With a standard error in ln."""
    return Estimate(value, value * exp(-1.96 * error), value * exp(1.96 * error))


def test_agreeing_estimates_are_weighted_by_their_precision():
    found = pooled([about(10.0, 0.1), about(11.0, 0.2)])
    assert log(found.value) == pytest.approx((4 * log(10) + log(11)) / 5)
    assert log(found.high / found.low) / 2 == pytest.approx(1.96 / np.sqrt(125))


def test_what_they_disagree_by_widens_the_interval():
    found = pooled([about(value, 0.02) for value in (5.0, 10.0, 20.0)])
    assert found.value == pytest.approx(10.0, rel=1e-3)
    spread = np.std([log(5), log(10), log(20)], ddof=1) / np.sqrt(3)
    assert log(found.high / found.low) / 2 == pytest.approx(1.96 * spread, rel=0.01)


def test_one_and_none():
    assert pooled([about(3.0, 0.1), Estimate(None, 2.0)]) == about(3.0, 0.1)
    assert pooled([]) == Estimate(None)


def test_intervals_cover_with_and_without_scatter_between():
    random = np.random.default_rng(0)
    for between in (0.0, 0.3):
        inside = []
        for _ in range(400):
            errors = random.uniform(0.05, 0.3, 8)
            values = np.exp(between * random.standard_normal(8) + errors * random.standard_normal(8))
            found = pooled([about(v, e) for v, e in zip(values, errors, strict=True)])
            inside.append(found.low <= 1 <= found.high)
        assert 0.9 <= np.mean(inside) <= 0.985


def test_a_line_through_exact_points():
    x = np.arange(5.0)
    beta, covariance = fit_line(np.stack([np.ones(5), x], 1), 2 - 3 * x, np.full(5, 0.01))
    assert beta == pytest.approx([2, -3])
    assert covariance[1, 1] == pytest.approx(0.01 / 10)
