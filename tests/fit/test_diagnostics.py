"""Diagnostics against known curves, and the design formula against the fits that it predicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import f

from bscrit.crossing import Crossing, CrossingTable
from bscrit.fit.core import fit_table

SIZES = [16 * 2**i for i in range(9)]
X = np.array(SIZES, float)


def fit(steps, sizes=SIZES):
    (found,) = fit_table(
        CrossingTable(tuple(Crossing(float(b), float(s)) for b, s in zip(sizes, steps, strict=True)))
    ).fits
    return found


def noise(scatter: float, seed: int = 0):
    return np.exp(scatter * np.random.default_rng(seed).standard_normal(len(X)))


@pytest.mark.parametrize("q", [0.7, 1.0, 1.3, 1.6])
def test_sharpness_of_the_knee(q):
    found = fit(1000 * (1 + (256 / X) ** q) ** (1 / q) * noise(0.004)).diagnostics["knee_sharpness"]
    assert found["value"] == pytest.approx(q, rel=0.08)
    assert found["low"] <= q * 1.05
    assert found["high"] >= q / 1.05


def test_sharpness_of_exact_curves_is_found_between_grid_points():
    for q in (0.83, 1.0, 1.37):
        found = fit(1000 * (1 + (256 / X) ** q) ** (1 / q)).diagnostics["knee_sharpness"]
        assert found["value"] == pytest.approx(q, rel=2e-3)


def test_ends_of_the_sharpness_are_where_the_fit_is_worse_by_the_quantile():
    """The sum of squares there is that of the best q times 1 + F(1, k - 3)/(k - 3), by another minimiser."""
    steps = 1000 * (1 + (256 / X) ** 1.2) ** (1 / 1.2) * noise(0.03, 2)
    found = fit(steps).diagnostics["knee_sharpness"]

    def least(q):
        def squares(beta):
            rest = np.log(steps) - np.logaddexp(0, q * (beta - np.log(X))) / q
            return ((rest - rest.mean()) ** 2).sum()

        return minimize_scalar(squares, bounds=(0, 12), method="bounded", options={"xatol": 1e-9}).fun

    limit = least(found["value"]) * (1 + f.ppf(0.95, 1, len(X) - 3) / (len(X) - 3))
    assert least(found["low"]) == pytest.approx(limit, rel=2e-3)
    assert least(found["high"]) == pytest.approx(limit, rel=2e-3)
    assert found["low"] < found["value"] < found["high"]


def test_published_knee():
    """Zhang et al. 2024, 151M parameters: SCIENCE gives 1.2 to 1.4 for published data."""
    steps = (96000, 49000, 24000, 12000, 7128, 4350, 2940, 2400, 2300)
    q = fit(steps, [64 * 2**i for i in range(9)]).diagnostics["knee_sharpness"]
    assert 1.2 < q["value"] < 1.5


def test_power_law_and_hyperbola_are_told_apart():
    curved = fit(1000 * (1 + 256 / X) * noise(0.02)).diagnostics["power_law"]
    straight = fit(1e5 * X**-0.4 * noise(0.02)).diagnostics["power_law"]
    assert curved["aic_difference"] > 10
    assert straight["aic_difference"] < -10
    assert straight["exponent"] == pytest.approx(0.4, abs=0.02)


def test_power_law_by_hand():
    """AIC of two least-squares fits with two parameters each: k ln(ratio of sums of squares)."""
    steps = 1000 * (1 + 256 / X) * noise(0.02)
    y = np.log(steps)
    straight = np.polyfit(np.log(X), y, 1, full=True)[1][0]
    found = fit(steps)
    curved = (found.sigma.value**2) * (len(X) - 2)
    assert found.diagnostics["power_law"]["aic_difference"] == pytest.approx(
        9 * np.log(straight / curved), rel=1e-2
    )


def test_leaving_one_out():
    steps = 1000 * (1 + 256 / X) * noise(0.03)
    found = fit(steps).diagnostics["leave_one_out"]
    every = [fit(np.delete(steps, i), np.delete(X, i)).curve.b_crit.value for i in range(len(X))]
    assert found["low"] == pytest.approx(min(every), rel=1e-4)
    assert found["high"] == pytest.approx(max(every), rel=1e-4)
    assert found["without_high"] == SIZES[int(np.argmax(every))]


def test_nothing_without_a_curve():
    assert fit([100, 50], [1, 2]).diagnostics == {}
