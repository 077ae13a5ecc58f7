"""Linear regression by autograd against its exact recursion and noise scales."""

import math

import numpy as np
import pytest
import torch
from exact import regression

from bscrit.engine.lanes import Lanes
from bscrit.workloads.least_squares import LeastSquares


def test_mean_over_many_lanes_is_the_exact_recursion():
    workload = LeastSquares(dimensions=10)
    lanes = Lanes(workload, seeds=range(200), lrs=[0.2] * 200, batch_size=4, optimizer={"use": "sgd"})
    exact = regression(10).losses(0.2, 4, 30)
    assert lanes.evaluate() == pytest.approx([exact[0]] * 200, rel=1e-6)
    for step in range(30):
        lanes.step(4 * step, 1.0)
        if step + 1 in (1, 5, 30):
            losses = lanes.evaluate()
            error = losses.std(ddof=1) / math.sqrt(len(losses))
            assert abs(losses.mean() - exact[step + 1]) < 4 * error
            assert error < 0.06 * exact[step + 1]


def test_autograd_agrees_with_the_noise_scales_by_hand():
    workload = LeastSquares(dimensions=6, label_noise=0.5, start=2.0)
    features, labels = workload.batch(0, 0, 200_000)
    gradients = ((features @ torch.zeros(6) - labels)[:, None] * features).double().numpy()
    model = workload.model(0)
    (mean,) = torch.autograd.grad(workload.losses(model, (features, labels)).mean(), list(model.parameters()))
    assert mean[0].numpy() == pytest.approx(gradients.mean(axis=0), rel=1e-3)
    problem = regression(6, label_noise=0.5, start=2.0)
    h, g, covariance = problem.variances, gradients.mean(axis=0), np.cov(gradients.T)
    assert np.trace(covariance) / (g @ g) == pytest.approx(problem.b_simple(problem.start), rel=0.03)
    ratio = np.trace(np.diag(h) @ covariance) / (g @ (h * g))
    assert ratio == pytest.approx(problem.b_noise(problem.start), rel=0.03)


def test_batches_are_fresh_and_repeatable():
    workload = LeastSquares()
    keys = [(0, 0, 4), (0, 4, 4), (1, 0, 4), (0, 0, 8)]
    first = [workload.batch(*key)[0][:4] for key in keys]
    assert len({tuple(batch.flatten().tolist()) for batch in first}) == 4
    assert torch.equal(LeastSquares().batch(0, 4, 4)[0], first[1])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"dimensions": True}, "dimensions"),
        ({"label_noise": -0.1}, "label_noise"),
        ({"power": math.inf}, "power"),
        ({"start": 0.0}, "start"),
    ],
)
def test_a_wrong_setting_is_named(settings, key):
    with pytest.raises(ValueError, match=key):
        LeastSquares(**settings)
