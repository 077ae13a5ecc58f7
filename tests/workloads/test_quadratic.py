"""The simulated noisy quadratic against its closed form."""

import math

import numpy as np
import pytest
import torch
from exact import power_law

from bscrit.engine.lanes import Lanes
from bscrit.workloads.quadratic import Quadratic

SGD = {"use": "sgd"}


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_mean_over_many_lanes_is_the_expected_loss(momentum):
    """256 lanes of different seeds: four standard errors are at most 6 %."""
    workload = Quadratic()
    seeds = range(256)
    optimizer = {"use": "sgd", "momentum": momentum}
    lanes = Lanes(workload, seeds=seeds, lrs=[0.5] * 256, batch_size=16, optimizer=optimizer)
    assert lanes.evaluate() == pytest.approx([2.5936887588] * 256, rel=1e-6)
    for step in range(60):
        lanes.step(16 * step, 1.0)
        if step + 1 in (1, 10, 60):
            losses = lanes.evaluate()
            exact = power_law().loss(0.5, 16, step + 1, momentum=momentum)
            error = losses.std(ddof=1) / math.sqrt(len(losses))
            assert abs(losses.mean() - exact) < 4 * error
            assert error < 0.015 * exact


def test_noise_is_fresh_in_every_step_seed_and_batch_size_and_the_same_when_asked_again():
    workload = Quadratic(dimensions=50)
    drawn = [
        workload.batch(seed, start, size)
        for start in (0, 1, 4, 252, 256, 259, 260, 2800)
        for seed in (0, 1)
        for size in (1, 4)
    ]
    assert len({tuple(row.flatten().tolist()) for row in drawn}) == len(drawn)
    again = Quadratic(dimensions=50)
    for start in (2800, 0, 259, 256):
        assert torch.equal(again.batch(1, start, 4), workload.batch(1, start, 4))


def test_noise_has_the_variance_of_the_mean_of_a_batch():
    workload = Quadratic(dimensions=20, noise=3.0, noise_power=0.5)
    rows = np.concatenate([workload.batch(0, 8 * step, 8).numpy() for step in range(6400)])
    assert rows.var(axis=0) == pytest.approx(power_law(20, noise=3.0, noise_power=0.5).noise / 8, rel=0.08)
    assert rows.mean(axis=0) == pytest.approx(np.zeros(20), abs=0.05)
    assert np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1] == pytest.approx(0, abs=0.05)


def test_its_gradient_is_the_true_one_and_the_noise():
    workload = Quadratic(dimensions=5)
    lanes = Lanes(workload, seeds=[3], lrs=[0.1], batch_size=4, optimizer=SGD, dtype="float64")
    expected = torch.from_numpy(power_law(5).curvature) + workload.batch(3, 28, 4)[0].double()
    torch.testing.assert_close(lanes.gradients(28)["theta"][0], expected)


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    Quadratic().batch(0, 0, 4)
    Quadratic().model(0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 2.5}, "dimensions"),
        ({"power": "1"}, "power"),
        ({"noise": -1}, "noise"),
        ({"start": 0}, "start"),
        ({"start": math.nan}, "start"),
    ],
)
def test_a_wrong_setting_is_named(settings, key):
    with pytest.raises(ValueError, match=key):
        Quadratic(**settings)
