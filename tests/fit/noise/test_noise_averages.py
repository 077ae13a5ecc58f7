"""Averages along the runs of the toy trainer, whose integrals are known: values, coverage, what is not resolved."""

from __future__ import annotations

import numpy as np
import pytest
from exact import ToyTrainer, power_law
from toy_runs import TOY, grid, progress, runs, sampled, scales

from bscrit.estimate import Estimate
from bscrit.fit.noise.averages import (
    along,
    average,
    e_min,
    end_of,
    forecast,
    over_progress,
    over_steps,
    ratio,
    s_min,
    start_of,
)
from bscrit.fit.noise.windows import Runs, windows
from bscrit.noise import NoiseSamples

AVERAGES = {"progress": over_progress, "steps": over_steps, "s_min": s_min, "e_min": e_min}


def truth(batch_size: float, toy: ToyTrainer = TOY) -> dict[str, float]:
    """S_min and B_crit are in closed form; the average over steps is integrated on a fine grid."""
    edges = np.linspace(0, toy.steps(batch_size), 20_001)
    over = scales(toy, batch_size, (edges[1:] + edges[:-1]) / 2).mean()
    return {
        "progress": toy.b_crit,
        "steps": float(over),
        "s_min": toy.progress,
        "e_min": toy.b_crit * toy.progress,
    }


def test_the_toy_follows_its_own_frontier():
    for batch_size in (16.0, 1024.0):
        (s,) = progress(TOY, batch_size, np.array([TOY.steps(batch_size)]))
        assert s == pytest.approx(TOY.progress)


@pytest.mark.parametrize("batch_size", [4.0, 64.0, 1024.0, 16384.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_without_scatter_every_average_is_its_integral(batch_size, power):
    """At any batch size the runs of one predict S_min = s*, E_min and B_crit: the frontier is one curve."""
    toy = ToyTrainer(scale=200.0 * 2000.0**-power, power=power, progress=2000.0)
    at = grid(toy.steps(batch_size))
    exact, one = scales(toy, batch_size, at), np.ones(len(at))
    signal = np.exp(-2 * at / at[-1])
    run = NoiseSamples(
        at,
        at * batch_size,
        one * batch_size / 4,
        signal * (1 + 4 * exact / batch_size),
        one * batch_size,
        signal * (1 + exact / batch_size),
    )
    found = windows(Runs(batch_size, toy.steps(batch_size), (run,) * 5))
    expected = truth(batch_size, toy)
    for name, of in AVERAGES.items():
        assert average(found, batch_size, of).value == pytest.approx(expected[name], rel=0.015), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "seeds", "decay"),
    [(16.0, 5, 0.0), (64.0, 5, 3.0), (64.0, 1, 0.0), (1024.0, 5, 0.0), (1024.0, 3, 3.0)],
)
def test_intervals_cover(batch_size, seeds, decay):
    """93 to 97 %, to within two binomial errors of 300 simulated sets of runs."""
    random, expected = np.random.default_rng(5), truth(batch_size)
    held: dict[str, list[bool]] = {name: [] for name in AVERAGES}
    for _ in range(300):
        found = windows(runs(batch_size, seeds, random, decay=decay))
        for name, of in AVERAGES.items():
            one = average(found, batch_size, of)
            assert one.value is not None
            held[name].append(one.low <= expected[name] <= one.high)
    for name, inside in held.items():
        assert 0.905 <= np.mean(inside) <= 0.99, (name, np.mean(inside))


def test_intervals_cover_quickly():
    random, inside = np.random.default_rng(6), []
    for _ in range(100):
        one = average(windows(runs(256.0, 3, random, every=60)), 256.0, over_progress)
        inside.append(one.low <= TOY.b_crit <= one.high)
    assert 0.88 <= np.mean(inside) <= 0.99


def test_runs_that_differ_as_wholes_widen_the_interval():
    """Five runs whose scales differ by 20 % say no more than five numbers do."""
    random, inside = np.random.default_rng(7), []
    for _ in range(60):
        one = average(windows(runs(1024.0, 5, random, every=60, unlike=0.2)), 1024.0, over_progress)
        inside.append(one.low <= TOY.b_crit <= one.high)
    assert np.mean(inside) > 0.86


def test_no_phase_with_large_gradients_drowns_the_others():
    """|G|^2 falls by e^8 along the run; pooled sums would say what its beginning was."""
    random = np.random.default_rng(8)
    found = runs(256.0, 5, random, decay=8.0)
    sums = np.array([[one.noise.sum(), one.signal.sum()] for one in found.samples]).sum(0)
    assert sums[0] / sums[1] < 0.5 * TOY.b_crit
    one = along(found)
    assert one.mean.value == pytest.approx(TOY.b_crit, rel=0.06)
    assert one.mean_steps.value == pytest.approx(truth(256.0)["steps"], rel=0.06)


def test_start_and_target():
    """At the start N is next to 0, at the target scale s*^power, and on average over the last fifth a little less."""
    one = along(runs(256.0, 5, np.random.default_rng(9)))
    steps = TOY.steps(256.0)
    last = scales(TOY, 256.0, np.linspace(0.8 * steps, steps, 1000)).mean()
    assert one.at_target.low < last < one.at_target.high
    assert one.at_target.value == pytest.approx(last, rel=0.1)
    first = scales(TOY, 256.0, grid(0.02 * steps)).mean()
    assert one.start.value == pytest.approx(first, rel=0.1)
    assert one.samples == 5 * len(grid(steps))


def test_the_start_takes_more_samples_only_while_they_are_early():
    random = np.random.default_rng(10)
    single = runs(256.0, 1, random, every=10)
    assert start_of([single]).value is not None
    late = runs(256.0, 1, random, every=1000)
    assert start_of([late]) == Estimate(None)


def unresolved(random: np.random.Generator) -> Runs:
    """A noise scale of 10,000 at batch size 8: |G|^2 of one sample is negative as often as not."""
    at = grid(3000)
    return Runs(8.0, 3000.0, tuple(sampled(np.full(len(at), 1e4), 8.0, at, random) for _ in range(3)))


def test_what_is_not_resolved_has_a_bound_and_no_number():
    random, below = np.random.default_rng(11), []
    for _ in range(40):
        found = unresolved(random)
        assert 0.3 < np.mean(found.samples[0].signal < 0) < 0.7
        one = along(found)
        if one.mean.value is not None:
            continue
        assert one.mean.high is None
        assert forecast(found, Estimate(100.0, 90.0, 110.0)) is None
        below.append(one.mean.low is None or one.mean.low < 1e4)
    assert len(below) > 25
    assert np.mean(below) > 0.9


def test_a_gradient_of_zero_is_resolved_by_accident_alone():
    """With |G|^2 = 0 one interval of forty lies above it."""
    random, numbers, at = np.random.default_rng(12), 0, grid(3000, 40)
    for _ in range(100):
        samples = []
        for _ in range(4):
            one = sampled(np.full(len(at), 1e9), 8.0, at, random)
            samples.append(one)
        numbers += average(windows(Runs(8.0, 3000.0, tuple(samples))), 8.0, over_progress).value is not None
    assert numbers <= 8


def test_few_samples_say_nothing():
    assert along(Runs(64.0, 100.0, ())).mean == Estimate(None)
    one = sampled(np.ones(1), 64.0, np.zeros(1), np.random.default_rng(0))
    found = along(Runs(64.0, 100.0, (one,)))
    assert (found.mean, found.mean_steps, found.start, found.at_target) == (Estimate(None),) * 4
    assert end_of([Runs(64.0, 100.0, (one,))]) == Estimate(None)


def test_a_uniform_factor_in_all_gradients_changes_nothing():
    """A loss that is summed instead of averaged, or scaled for mixed precision."""
    found = runs(64.0, 3, np.random.default_rng(13))
    louder = tuple(
        NoiseSamples(s.steps, s.examples, s.n_small, 1e12 * s.sq_small, s.n_big, 1e12 * s.sq_big)
        for s in found.samples
    )
    a, b = along(found), along(Runs(found.batch_size, found.steps, louder))
    assert b.mean.value == pytest.approx(a.mean.value, rel=1e-9)
    assert b.at_target.high == pytest.approx(a.at_target.high, rel=1e-9)


def test_a_finite_data_set_is_corrected_for():
    """Batches without replacement from 512 examples: the covariance is Sigma (1/B - 1/512)."""
    at, b, one = grid(1000), 256.0, np.ones(len(grid(1000)))
    small, big = (1 + 50 * (1 / n - 1 / 512) for n in (b / 4, b))
    run = NoiseSamples(at, at * b, one * b / 4, one * small, one * b, one * big)
    plain, exact = (along(Runs(b, 1000.0, (run.from_data_of(data),) * 5)).mean.value for data in (None, 512))
    assert exact == pytest.approx(50, rel=1e-6)
    assert plain == pytest.approx(50 / (1 - 50 / 512), rel=1e-6)


class TestForecast:
    @pytest.mark.parametrize("batch_size", [16.0, 64.0, 1024.0])
    def test_one_batch_size_predicts_the_frontier(self, batch_size):
        told = forecast(runs(batch_size, 5, np.random.default_rng(14)), Estimate(TOY.b_crit, 80.0, 100.0))
        assert told.batch_size == batch_size
        for found, exact in (
            (told.s_min, TOY.progress),
            (told.e_min, TOY.b_crit * TOY.progress),
            (told.b_crit, TOY.b_crit),
        ):
            assert found.low < exact < found.high
        assert told.error.low < 1 < told.error.high
        # S = S_min (1 + B_crit/B) goes through the steps that the runs took
        assert told.s_min.value * (1 + told.b_crit.value / batch_size) == pytest.approx(
            TOY.steps(batch_size), rel=0.01
        )

    def test_the_error_of_the_steps_counts(self):
        found = runs(256.0, 5, np.random.default_rng(15))
        rough = Runs(found.batch_size, found.steps, found.samples, ln_error=0.1)
        narrow, wide = (forecast(one, Estimate(None)) for one in (found, rough))
        assert np.log(wide.s_min.high / wide.s_min.low) / 2 == pytest.approx(0.196, rel=0.05)
        assert wide.b_crit == narrow.b_crit
        assert narrow.error == Estimate(None)


def test_ratios_carry_both_errors_to_their_own_sides():
    found = ratio(Estimate(20.0, 10.0, 30.0), Estimate(10.0, 9.0, 20.0))
    assert found.value == 2
    assert found.low == pytest.approx(2 / np.exp(np.hypot(np.log(2), np.log(2))))
    assert found.high == pytest.approx(2 * np.exp(np.hypot(np.log(1.5), np.log(10 / 9))))
    assert ratio(Estimate(None, 3.0), Estimate(1.0)) == Estimate(None)
    assert ratio(Estimate(2.0), Estimate(1.0)) == Estimate(2.0)


@pytest.mark.parametrize(
    ("batch_size", "b_noise", "b_simple"), [(64.0, 0.552, 1.258), (1024.0, 0.772, 1.885)]
)
def test_the_exact_quadratic_at_its_tuned_rate(batch_size, b_noise, b_simple):
    """B_crit is 59.295. Along tuned runs of a constant rate neither scale is that, and B_noise is nearer to it at
    large batch; the ratios are integrals of the exact moments on a grid of 4000 steps."""
    problem = power_law()
    lr, steps = problem.tuned(0.1, batch_size)
    h, c, one = problem.curvature, problem.noise, np.ones(int(steps) + 1)
    at = np.arange(len(one), dtype=float)
    moments = [problem.moments(lr, batch_size, step) for step in at]
    for noise, weights, expected in ((h @ c, h**3, b_noise), (c.sum(), h**2, b_simple)):
        signal = np.array([weights @ m for m in moments])
        small, big = (signal + noise / n for n in (batch_size / 4, batch_size))
        run = NoiseSamples(at, at * batch_size, one * batch_size / 4, small, one * batch_size, big)
        found = average(windows(Runs(batch_size, steps, (run,) * 3)), batch_size, over_progress)
        fine = [problem.moments(lr, batch_size, step) for step in np.linspace(0, steps, 4000)]
        scale = noise / np.array([weights @ m for m in fine])
        exact = np.average(scale, weights=1 / (1 + scale / batch_size))
        assert exact / 59.295 == pytest.approx(expected, abs=0.002)
        assert found.value == pytest.approx(exact, rel=0.06)
