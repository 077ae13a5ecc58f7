"""When a value is given, and when only a bound or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from frontiers import Design, simulate

from bscrit.crossing import Crossing, CrossingTable
from bscrit.estimate import Estimate
from bscrit.fit.core import fit_table
from bscrit.fit.frontier import summarise
from bscrit.fit.hyperbola import fit_hyperbola
from bscrit.fit.identify import Answer, answer, judge
from bscrit.fit.robust import belongs

# Noisy quadratic, d = 100, h_i = c_i = 1/i, target 0.1, best constant rate: exact steps; b_crit 59.3
QUADRATIC = {1: 1718.105, 4: 441.036, 16: 123.730, 64: 50.073, 256: 34.115, 1024: 29.448, 4096: 28.091}


def verdict(steps: dict[int, float]):
    (fit,) = fit_table(CrossingTable(tuple(Crossing(float(b), s) for b, s in steps.items()))).fits
    return fit


def curve(design: Design, seed: int = 0):
    rows = simulate(design, np.random.default_rng(seed))
    return fit_hyperbola(summarise(rows, belongs(rows)))


def test_the_whole_range_is_identified():
    fit = verdict(QUADRATIC)
    assert fit.verdict == "identified"
    assert fit.b_crit.value == pytest.approx(59.295, rel=0.01)
    assert fit.s_min.value == pytest.approx(27.398, rel=0.01)
    assert fit.e_min.value == pytest.approx(1624.55, rel=0.01)


def test_a_good_fit_far_below_the_knee_is_no_identification():
    """Exact steps below b_crit / 4: a hyperbola fits to 1 %, and its b_crit is wrong by about two."""
    left = {1: 1718.105, 2: 867.5, 4: 441.036, 8: 229.2, 16: 123.730}
    fit = verdict(left)
    assert fit.sigma.value < 0.02
    assert fit.verdict == "lower bound"
    assert fit.b_crit.value is None
    assert fit.b_crit.high is None
    assert fit.b_crit.low <= 59.3
    assert fit.s_min.value is None
    assert fit.e_min.value == pytest.approx(1624.55, rel=0.05)


def test_a_plateau_is_an_upper_bound():
    fit = verdict({b: s for b, s in QUADRATIC.items() if b >= 256} | {512: 31.0, 2048: 28.6})
    assert fit.verdict == "upper bound"
    assert fit.b_crit.value is fit.b_crit.low is None
    assert fit.b_crit.high >= 59.3
    assert fit.e_min.value is None
    assert fit.s_min.value == pytest.approx(27.398, rel=0.05)


def test_noise_over_a_narrow_range_decides_nothing():
    random = np.random.default_rng(3)
    steps = {b: 1000 * (1 + 64 / b) * np.exp(0.3 * random.standard_normal()) for b in (48, 56, 64, 72, 80)}
    fit = verdict(steps)
    assert fit.verdict == "not identified"
    assert fit.b_crit.value is fit.s_min.value is fit.e_min.value is None


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7])
def test_a_knee_within_the_range_is_identified(place):
    assert judge(curve(Design(7, 3, 0.05, place=place))) == "identified"


def test_a_knee_at_the_end_of_the_range_needs_precision():
    precise = [judge(curve(Design(11, 3, 0.02, place=0.95), seed)) for seed in range(20)]
    noisy = [judge(curve(Design(5, 1, 0.15, place=1.05), seed)) for seed in range(20)]
    assert set(precise) == {"identified"}
    assert noisy.count("lower bound") > 10


def test_the_three_bounds_of_a_start_that_takes_one_step_agree():
    """Every batch size takes one step: nothing is known below the smallest one, 4 examples."""
    fit = verdict({4: 1.0, 64: 0.9999, 1024: 1.0001})
    assert fit.verdict == "upper bound"
    assert fit.b_crit.high == pytest.approx(4.8)
    assert 4.8 <= fit.e_min.high < 5


def test_the_three_bounds_of_perfect_scaling_agree():
    fit = verdict({4: 1000.0, 16: 250.1, 64: 62.5, 256: 15.62})
    assert fit.verdict == "lower bound"
    assert fit.s_min.high >= fit.e_min.high / fit.b_crit.low


def test_a_bound_stays_within_what_was_tried():
    found = curve(Design(11, 3, 0.02, place=1.4))
    assert found.b_crit.low > 4096
    assert answer(found, judge(found)).b_crit == Estimate(None, pytest.approx(4096 / 1.2), None)


@pytest.mark.parametrize("place", [0.97, 1.03])
def test_bounds_near_the_edge_of_the_range_hold(place):
    """Of frontiers whose knee lies within 20 % of the largest or smallest batch size."""
    for at in (place, 1 - place):
        design, bounds = Design(7, 1, 0.15, place=at), []
        for seed in range(60):
            fitted = curve(design, seed)
            if (verdict := judge(fitted)) in ("lower bound", "upper bound"):
                bounds.append(answer(fitted, verdict).b_crit)
        held = sum((b.low or 0) <= design.b_crit <= (b.high or np.inf) for b in bounds)
        assert len(bounds) > 10
        assert held >= 0.95 * len(bounds)


def test_three_batch_sizes_of_one_run_each_identify_nothing():
    exact = {16: 17_000.0, 256: 2000.0, 4096: 1062.5}
    assert verdict(exact).verdict != "identified"
    repeated = tuple(Crossing(float(b), s, seed=str(i)) for b, s in exact.items() for i in range(2))
    (fit,) = fit_table(CrossingTable(repeated)).fits
    assert fit.verdict == "identified"


def test_a_plateau_above_an_observed_mean_identifies_nothing():
    fitted = curve(Design(7, 3, 0.02))
    assert judge(fitted) == "identified"
    raised = replace(fitted, best=replace(fitted.best, a=fitted.best.a + 0.2))
    assert judge(raised) == "not identified"
    assert answer(raised, "not identified") == Answer()


def test_no_curve():
    assert judge(None) == "not identified"
    assert answer(None, "not identified") == Answer()


def test_scaled():
    assert Estimate(10.0, 5.0, None).scaled(0.2) == Estimate(2.0, 1.0, None)


FIRST, LAST = np.log(16.0), np.log(4096.0)


@pytest.mark.parametrize(
    ("low", "beta", "high", "expected"),
    [
        (LAST - 2.0, LAST - 1.0, LAST + np.log(1.99), "identified"),
        (LAST - 2.0, LAST - 1.0, LAST + np.log(2.01), "lower bound"),
        (FIRST - np.log(1.99), FIRST + 1.0, FIRST + 2.0, "identified"),
        (FIRST - np.log(2.01), FIRST + 1.0, FIRST + 2.0, "upper bound"),
        (LAST - 0.5, LAST + np.log(1.19), LAST + 0.3, "identified"),
        (LAST - 0.5, LAST + np.log(1.21), LAST + 0.3, "lower bound"),
        (FIRST - 0.3, FIRST - np.log(1.19), FIRST + 0.5, "identified"),
        (FIRST - 0.3, FIRST - np.log(1.21), FIRST + 0.5, "upper bound"),
        (FIRST + 1.0, FIRST + 2.0, FIRST + 1.0 + np.log(29.9), "identified"),
        (FIRST + 1.0, FIRST + 2.0, FIRST + 1.0 + np.log(30.1), "not identified"),
        (FIRST - 1.0, FIRST + 2.0, LAST + 1.0, "not identified"),
    ],
)
def test_the_verdict_at_its_edges(low, beta, high, expected):
    """An interval may reach a factor 2 beyond what was tried, the knee 1.2; a factor 30 is no measurement."""
    found = curve(Design(7, 1, 0.02))
    best, region = replace(found.best, beta=np.array([beta])), replace(found.region, low=low, high=high)
    assert judge(replace(found, best=best, region=region)) == expected
