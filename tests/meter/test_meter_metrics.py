"""The meter's metrics and intervals against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from exact import LeastSquares
from metered import accumulate, by_hand, cut, data, expected, mean_loss, mlp, newest
from torch import nn

from bscrit.meter.noise_meter import NoiseMeter


@pytest.mark.parametrize("first", [True, False])
def test_adams_metric(first):
    model = mlp()
    optimizer = torch.optim.AdamW(
        [
            {"params": model[0].parameters(), "betas": (0.8, 0.9)},
            {"params": model[2].parameters(), "eps": 0.1},
        ]
    )
    batches = cut(data(12), [2, 4, 6])
    meter = NoiseMeter(model, every=1, metric="adam", optimizer=optimizer)
    own = NoiseMeter(model, every=1, metric="adam", optimizer=optimizer)
    for step in range(3):
        weights = []
        for group, beta2, eps in zip(optimizer.param_groups, (0.9, 0.999), (1e-8, 0.1), strict=True):
            for p in group["params"]:
                if step:
                    v = optimizer.state[p]["exp_avg_sq"].double() / (1 - beta2**step)
                    weights.append(1 / (v.sqrt() + eps).reshape(-1))
        rows = by_hand(model, batches)
        own.measure(mean_loss, data(12), parts=3)
        own_rows = by_hand(model, cut(data(12), [4, 4, 4]))
        for batch in batches:
            (mean_loss(model, batch) / 3).backward()
            meter.micro_batch(len(batch[0]))
        if first:
            meter.step()
            own.step()
        optimizer.step()
        optimizer.zero_grad()
        if not first:
            meter.step()
            own.step()
        if step:
            metric = torch.cat(weights).numpy()
            assert newest(meter) == pytest.approx(expected(rows, [2, 4, 6], [1] * 3, metric), rel=1e-5)
            assert newest(own) == pytest.approx(expected(own_rows, [4] * 3, None, metric), rel=1e-5)
    assert meter.samples.steps.tolist() == [1, 2], "before the first update there are no moments"
    assert meter.samples.metric == "adam"


def test_the_hessians_metric_is_that_of_the_other_half():
    """Least squares: H of a half is X'X/n, its gradients are linear; all by hand in float64."""
    torch.manual_seed(0)
    model = nn.Linear(5, 1, bias=False).double()
    x, y = data(12, dtype=torch.float64)
    meter = NoiseMeter(model, metric="hessian")
    assert meter.measure(mean_loss, (x, y), parts=4)
    meter.step()
    solved = []
    for mine, other in ((slice(0, 6), slice(6, 12)), (slice(6, 12), slice(0, 6))):
        hessian = 2 * (x[other].T @ x[other]).numpy() / 6
        g = by_hand(model, cut((x[mine], y[mine]), [3, 3])).numpy()
        small = np.mean([v @ hessian @ v for v in g])
        big = g.mean(0) @ hessian @ g.mean(0)
        noise = (small - big) / (1 / 3 - 1 / 6)
        solved.append((big - noise / 6, noise))
    signal, noise = np.mean(solved, axis=0)
    assert meter.samples.signal[0] == pytest.approx(signal, rel=1e-9)
    assert meter.samples.noise[0] == pytest.approx(noise, rel=1e-9)


def test_attention_and_dead_parameters_have_a_hessian():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out, self.dead = nn.Linear(5, 8), nn.Linear(8, 1), nn.Parameter(torch.ones(2))

        def forward(self, x):
            h = self.inner(x).reshape(-1, 1, 1, 8).expand(-1, 1, 3, 8)
            return self.out(nn.functional.scaled_dot_product_attention(h, h, h)).mean((1, 2))

    meter = NoiseMeter(Attends(), metric="hessian")
    assert meter.measure(mean_loss, data(16))
    meter.step()
    assert np.isfinite(meter.samples.signal).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "runs", "steps"), [("identity", 400, 12), ("own", 300, 12), ("hessian", 300, 12)]
)
def test_the_interval_holds_the_closed_form(metric, runs, steps):
    """Least squares with Gaussian features: coverage over whole runs of the meter, within binomial error of 95 %."""
    exact = LeastSquares(np.array([1.0, 0.6, 0.4, 0.3]), 0.5, np.full(4, 0.8))
    truth = exact.b_noise(exact.start) if metric == "hessian" else exact.b_simple(exact.start)
    model = nn.Linear(4, 1, bias=False)
    nn.init.constant_(model.weight, math.sqrt(0.8))
    root = torch.from_numpy(exact.variances).sqrt().float()
    draw = torch.Generator().manual_seed(5)

    def loss(model, batch):
        x, e = batch
        return (model(x) - e).square().mean() / 2

    held, values = 0, []
    for _ in range(runs):
        meter = NoiseMeter(model, every=1, metric="hessian" if metric == "hessian" else "identity")
        for _ in range(steps):
            batch = (
                torch.randn(64, 4, generator=draw) * root,
                math.sqrt(0.5) * torch.randn(64, 1, generator=draw),
            )
            if metric == "identity":
                accumulate(model, meter, cut(batch, [16] * 4), loss=loss)
            else:
                meter.measure(loss, batch, parts=4)
                meter.step()
        scale = meter.result().scale
        held += scale.value is not None and scale.low <= truth <= scale.high
        values.append(scale.value)
    model.zero_grad()
    error = math.sqrt(0.95 * 0.05 / runs)
    assert 0.93 - 2 * error <= held / runs <= 0.97 + 2 * error
    assert np.median([value for value in values if value]) == pytest.approx(truth, rel=0.05)
