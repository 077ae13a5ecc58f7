"""The noise scale beside B_crit: known noise, unresolved noise, and what is compared with what."""

from __future__ import annotations

import numpy as np
import pytest

from bscrit.curve import Curve
from bscrit.fit.compare import with_noise
from bscrit.fit.result import Estimate, Fit, Point
from bscrit.noise import NoiseSamples, noise_scale
from bscrit.record import Order, Record
from bscrit.trial import Trial


def samples(
    scale: float, batch_size: int, steps: np.ndarray, seed: int, jitter: float = 0.05
) -> NoiseSamples:
    """Squared norms of a gradient with |G|^2 = 1 and tr(Sigma) = scale, with scatter."""
    random = np.random.default_rng(seed)
    small = np.full(len(steps), batch_size / 4)
    big = np.full(len(steps), float(batch_size))
    wobble = 1 + jitter * random.standard_normal((2, len(steps)))
    return NoiseSamples(
        steps, steps * batch_size, small, (1 + scale / small) * wobble[0], big, (1 + scale / big) * wobble[1]
    )


def record(batch_size: int, seed: int, noise: NoiseSamples, lr: float = 0.1) -> Record:
    order = Order("measure", 0, ((lr, seed),), (0.1,), 10_000)
    steps = np.arange(0.0, 1001.0)
    curve = Curve(steps, steps * batch_size, 1 - steps / 1000, steps)
    return Record(Trial("quadratic", batch_size, lr, seed), order, "reached", "", curve, noise)


def fit(b_crit: float | None, sizes: tuple[int, ...] = (16, 64, 256)) -> Fit:
    value = Estimate(b_crit, b_crit and b_crit * 0.9, b_crit and b_crit * 1.1)
    points = tuple(Point(size, 500.0, 500.0 * size, lr=0.1) for size in sizes)
    verdict = "identified" if b_crit else "not identified"
    return Fit({}, 0.1, verdict, value, value, value, value, Estimate(0.05), points)


GRID = np.arange(0.0, 1000.0, 10.0)


class TestNoiseScale:
    def test_ratio_of_sums(self):
        found = noise_scale([samples(64.0, 256, GRID, seed) for seed in range(5)])
        assert found.value == pytest.approx(64.0, rel=0.1)
        assert found.low < 64.0 < found.high

    def test_intervals_cover(self):
        held = 0
        for seed in range(300):
            found = noise_scale([samples(64.0, 256, GRID[:20], seed, jitter=0.03)])
            held += found.value is not None and found.low <= 64.0 <= found.high
        assert 0.90 <= held / 300 <= 0.99

    def test_a_signal_that_may_be_zero_is_unresolved(self):
        found = noise_scale([samples(1e4, 16, GRID[:8], 3, jitter=0.1)])
        assert found.value is None
        assert found.low is None or found.low > 0

    def test_too_few_samples_say_nothing(self):
        assert noise_scale([samples(64.0, 256, GRID[:3], 0)]).value is None
        assert noise_scale([]).value is None


class TestComparison:
    def test_nothing_measured_changes_nothing(self):
        before = fit(60.0)
        assert with_noise(before, []) is before

    def test_agreement(self):
        runs = [record(64, seed, samples(66.0, 64, GRID, seed, 0.01)) for seed in range(4)]
        noise = with_noise(fit(60.0), runs).noise
        assert noise.mean.value == pytest.approx(66.0, rel=0.05)
        assert noise.ratio.value == pytest.approx(1.1, rel=0.05)
        assert noise.ratio.low < 1.1 < noise.ratio.high
        assert "agrees" in noise.text

    def test_disagreement_is_said(self):
        runs = [record(64, seed, samples(9.0, 64, GRID, seed, 0.01)) for seed in range(4)]
        text = with_noise(fit(60.0), runs).noise.text
        assert "below B_crit" in text
        assert "cannot stand in" in text

    def test_the_run_nearest_to_b_crit_is_taken(self):
        runs = [
            record(size, seed, samples(scale, size, GRID, seed, 0.01))
            for size, scale in ((16, 10.0), (64, 60.0), (256, 300.0))
            for seed in range(3)
        ]
        assert "batch size 64" in with_noise(fit(70.0), runs).noise.text
        assert "batch size 256" in with_noise(fit(300.0), runs).noise.text

    def test_the_mean_is_over_steps_and_not_over_gradients(self):
        """Gradients ten times as large in the first half would drown the second half in one pool."""
        early, late = GRID < 250, GRID >= 250
        loud, quiet = samples(10.0, 64, GRID, 1, 0.001), samples(100.0, 64, GRID, 2, 0.001)
        mixed = NoiseSamples(
            GRID,
            loud.examples,
            loud.n_small,
            np.where(early, 100 * loud.sq_small, quiet.sq_small),
            loud.n_big,
            np.where(late, quiet.sq_big, 100 * loud.sq_big),
        )
        mean = with_noise(fit(60.0), [record(64, 0, mixed)]).noise.mean.value
        # windows of a fifth of 500 steps: two at 10, two at 100, one that straddles and is loud
        assert mean == pytest.approx((2 * 10 + 2 * 100 + 10.9) / 5, rel=0.1)

    def test_without_b_crit_there_is_no_ratio(self):
        runs = [record(64, seed, samples(66.0, 64, GRID, seed, 0.01)) for seed in range(4)]
        noise = with_noise(fit(None), runs).noise
        assert noise.ratio.value is None
        assert "no B_crit" in noise.text
