"""Closed forms against independent numbers: SCIENCE-grade known answers, simulation and limits."""

import math

import numpy as np
import pytest
from exact import LeastSquares, NoisyQuadratic, ToyTrainer, hyperbola, power_law

FIXTURE = power_law()
TUNED = [
    (1, 1718.105),
    (4, 441.036),
    (16, 123.730),
    (64, 50.073),
    (256, 34.115),
    (1024, 29.448),
    (4096, 28.091),
]


def test_toy_trainer():
    toy = ToyTrainer(scale=3, power=0.5, progress=2000)
    assert toy.steps(16) == pytest.approx(13180.33989, abs=1e-5)
    assert toy.steps(128) == pytest.approx(3397.54249, abs=1e-5)
    assert toy.steps(1024) == pytest.approx(2174.69281, abs=1e-5)
    assert toy.b_crit == pytest.approx(89.4427, abs=1e-4)


def test_expected_loss_and_noise_scales_of_the_noisy_quadratic():
    assert FIXTURE.loss_of(FIXTURE.start) == pytest.approx(2.5936887588, abs=1e-10)
    losses = [FIXTURE.loss(0.5, 16, steps) for steps in (1, 10, 100)]
    assert losses == pytest.approx([1.9392210455, 0.9316128414, 0.1524508319], abs=1e-10)
    assert FIXTURE.b_noise(FIXTURE.start) == pytest.approx(1.3602111761, abs=1e-10)
    assert FIXTURE.b_simple(FIXTURE.start) == pytest.approx(3.1727392038, abs=1e-10)


@pytest.mark.parametrize(("batch_size", "steps"), TUNED)
def test_tuned_steps_to_a_target(batch_size, steps):
    lr, found = FIXTURE.tuned(0.1, batch_size)
    assert found == pytest.approx(steps, abs=6e-4)
    assert FIXTURE.steps_to(0.1, 1.02 * lr, batch_size) > found
    assert FIXTURE.steps_to(0.1, 0.98 * lr, batch_size) > found


def test_hyperbola_through_the_tuned_steps():
    s_min, e_min, b_crit = hyperbola(*zip(*TUNED, strict=True))
    assert (s_min, e_min, b_crit) == pytest.approx((27.398, 1624.55, 59.295), rel=2e-5)


@pytest.mark.parametrize("b_crit", [0.01, 3.0, 1e5])
def test_hyperbola_finds_what_made_the_points(b_crit):
    sizes = [8, 32, 128, 512]
    assert hyperbola(sizes, [7 * (1 + b_crit / size) for size in sizes]) == pytest.approx(
        (7, 7 * b_crit, b_crit)
    )


def test_along_the_tuned_run_at_b_crit_the_noise_scale_is_half_of_it_and_the_simple_one_above():
    lr, steps = FIXTURE.tuned(0.1, 59.295)
    path = [FIXTURE.moments(lr, 59.295, step) for step in range(int(steps))]
    assert 0.45 < np.mean([FIXTURE.b_noise(moments) for moments in path]) / 59.295 < 0.6
    assert 1.2 < np.mean([FIXTURE.b_simple(moments) for moments in path]) / 59.295 < 1.9


def test_a_rate_too_large_never_arrives():
    assert FIXTURE.steps_to(0.1, 2.01, 64) == math.inf
    assert FIXTURE.steps_to(0.1, 1.9, 1, most=10**5) == math.inf
    assert FIXTURE.steps_to(3.0, 0.1, 1) == 0.0


def simulate(problem: NoisyQuadratic, lr, batch_size, momentum, steps, runs=20000):
    generator = np.random.default_rng(0)
    theta = np.sqrt(problem.start) * np.ones((runs, 1))
    change = np.zeros_like(theta)
    for _ in range(steps):
        noise = generator.normal(size=theta.shape) * np.sqrt(problem.noise / batch_size)
        change = momentum * change - lr * (problem.curvature * theta + noise)
        theta = theta + change
    return float(0.5 * (theta**2 @ problem.curvature).mean())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_expected_loss_equals_a_simulated_mean(momentum):
    problem = power_law(dimensions=5, noise=2.0)
    exact = problem.loss(0.2, 4, 20, momentum=momentum)
    assert simulate(problem, 0.2, 4, momentum, 20) == pytest.approx(exact, rel=0.02)


def test_heavy_ball_without_momentum_is_the_closed_form():
    path = FIXTURE.heavy_ball(0.5, 16, 0.0, 100)
    assert path[[1, 10, 100]] == pytest.approx([FIXTURE.loss(0.5, 16, k) for k in (1, 10, 100)], rel=1e-12)


def test_momentum_helps_at_large_batch_and_not_at_small():
    problem = power_law(dimensions=30)
    ratios = [problem.tuned_heavy_ball(0.1, b, 0.5)[1] / problem.tuned(0.1, b)[1] for b in (4, 1024)]
    assert ratios[0] > 0.95
    assert ratios[1] < 0.8


def test_isotropic_with_greedy_rates_scales_perfectly():
    problem = NoisyQuadratic(np.full(10, 0.3), np.full(10, 2.0), np.ones(10))
    path = problem.greedy(batch_size=8, steps=30)
    scales = [problem.b_noise(moments) for moments in path]
    assert scales == pytest.approx([scales[0] + 8 * k for k in range(31)])


def test_isotropic_with_a_small_constant_share_of_the_best_rate_follows_its_formula():
    h, sigma2, d, eta, ratio = 0.3, 2.0, 10, 0.01, 20.0
    problem = NoisyQuadratic(np.full(d, h), np.full(d, sigma2), np.ones(d))
    first = problem.loss_of(problem.start)
    target, kappa = first / ratio, 2 * eta - eta**2
    sizes = [4.0, 16.0, 64.0, 256.0]
    steps = []
    for size in sizes:
        moments, count, losses = problem.start, 0, [first]
        while losses[-1] > target:
            best = (h**2 * moments.sum()) / (h**3 * moments.sum() + h * d * sigma2 / size)
            moments = (1 - eta * best * h) ** 2 * moments + (eta * best) ** 2 * sigma2 / size
            losses.append(problem.loss_of(moments))
            count += 1
        steps.append(count - (target - losses[-1]) / (losses[-2] - losses[-1]))
    s_min, _, b_crit = hyperbola(sizes, steps)
    assert s_min == pytest.approx(math.log(ratio) / kappa, rel=0.02)
    expected = d * sigma2 / (2 * h) * (1 / target - 1 / first) / math.log(ratio)
    assert b_crit == pytest.approx(expected, rel=0.02)


def test_least_squares_recursion_and_scales_equal_simulation():
    problem = LeastSquares(np.array([1.0, 0.5, 0.25]), 0.5, np.array([1.0, 4.0, 0.25]))
    generator = np.random.default_rng(0)
    runs, size, lr = 20000, 2, 0.2
    delta = np.sqrt(problem.start) * np.ones((runs, 1))
    for _ in range(10):
        x = generator.normal(size=(runs, size, 3)) * np.sqrt(problem.variances)
        residual = np.einsum("rbi,ri->rb", x, delta) + generator.normal(size=(runs, size)) * math.sqrt(0.5)
        delta = delta - lr * np.einsum("rb,rbi->ri", residual, x) / size
    exact = problem.losses(lr, size, 10)
    assert 0.5 * (delta**2 @ problem.variances).mean() == pytest.approx(exact[-1], rel=0.03)
    assert exact[0] == pytest.approx(problem.loss_of(problem.start))
    assert problem.steps_to(exact[5], lr, size, 10) == pytest.approx(5)

    x = generator.normal(size=(400000, 3)) * np.sqrt(problem.variances)
    residual = x @ np.sqrt(problem.start) + generator.normal(size=400000) * math.sqrt(0.5)
    gradients = residual[:, None] * x
    mean, covariance = gradients.mean(axis=0), np.cov(gradients.T)
    assert problem.b_simple(problem.start) == pytest.approx(np.trace(covariance) / (mean @ mean), rel=0.02)
    ratio = np.trace(np.diag(problem.variances) @ covariance) / (mean @ (problem.variances * mean))
    assert problem.b_noise(problem.start) == pytest.approx(ratio, rel=0.02)
