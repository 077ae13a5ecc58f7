"""Squared gradient norms from micro-batches, against independent sums and a known noise scale."""

import numpy as np
import pytest
import torch
from torch import nn

from bscrit.measure.sources import micro_batches
from bscrit.train.lanes import Lanes
from bscrit.workloads.classifier import Classifier
from bscrit.workloads.least_squares import LeastSquares
from bscrit.workloads.quadratic import Quadratic

SGD = {"use": "sgd", "momentum": 0.9}
BACKENDS = ("vmap", "loop")


def test_norms_of_hand_made_gradients():
    parts = [
        [torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([0.0, 2.0])],
        [torch.tensor([[1.0, 0.0], [1.0, 2.0]]), torch.tensor([2.0, 0.0])],
    ]
    assert micro_batches(parts, size=3) == [(3, (25 + 5) / 2, 6, 4 + 4 + 1), (3, (5 + 5) / 2, 6, 1 + 1 + 1)]


def test_sums_are_float64():
    tiny = [[torch.full((1, 10**4), 1e-4)], [torch.full((1, 10**4), 1e-4)]]
    ((_, small, _, big),) = micro_batches(tiny, size=1)
    assert small == pytest.approx(10**4 * float(np.float32(1e-4)) ** 2, rel=1e-14)
    assert big == pytest.approx(small, rel=1e-14)


def network(workload, seed, dtype):
    return workload.model(seed).to(dtype)


def squared_norm(model, inputs, labels) -> float:
    loss = nn.functional.cross_entropy(model(inputs), labels)
    return sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_norms_equal_those_of_single_models(backend, micro_batch):
    workload = Classifier(hidden=8)
    lanes = Lanes(
        workload, seeds=[0, 1], lrs=[0.1, 0.2], batch_size=12, optimizer=SGD, backend=backend,
        dtype="float64", micro_batch=micro_batch,
    )  # fmt: skip
    for seed, (n_small, small, n_big, big) in enumerate(lanes.noise(3, parts=4)):
        model = network(workload, seed, torch.float64)
        inputs, labels = workload.batch(seed, 3, 12)
        inputs = inputs.double()
        pieces = zip(inputs.split(3), labels.split(3), strict=True)
        expected = np.mean([squared_norm(model, x, y) for x, y in pieces])
        assert (n_small, n_big) == (3, 12)
        assert small == pytest.approx(expected, rel=1e-12)
        assert big == pytest.approx(squared_norm(model, inputs, labels), rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_measuring_changes_nothing(backend):
    def train(measure: bool):
        lanes = Lanes(
            Classifier(hidden=8), seeds=[0, 1], lrs=[0.1, 0.2], batch_size=8, optimizer=SGD, backend=backend
        )
        for step in range(4):
            if measure:
                lanes.noise(step, parts=4)
            lanes.step(step, 1.0)
        return lanes

    random = torch.get_rng_state()
    with_it, without = train(True), train(False)
    assert torch.equal(torch.get_rng_state(), random)
    for name, tensor in with_it.parameters.items():
        assert torch.equal(tensor, without.parameters[name])


def noise_scale(samples) -> float:
    """tr(Sigma)/|G|^2 from sums over samples: a ratio of means."""
    n, small, m, big = np.mean(samples, axis=0)
    return float((small - big) / (1 / n - 1 / m) / ((m * big - n * small) / (m - n)))


def test_ratio_of_means_is_the_exact_noise_scale_of_least_squares():
    """Standard error of the ratio is 1.5 %; the mean of 3,200 ratios would be off by far more."""
    workload = LeastSquares(dimensions=20, label_noise=2.0)
    lanes = Lanes(workload, seeds=range(8), lrs=[0.0] * 8, batch_size=32, optimizer={"use": "sgd"})
    samples = [sample for step in range(400) for sample in lanes.noise(step, parts=8)]
    exact = workload.exact.b_simple(workload.exact.start)
    assert noise_scale(samples) == pytest.approx(exact, rel=0.05)
    assert abs(np.mean([noise_scale([sample]) for sample in samples]) / exact - 1) > 0.1


def test_parts_divide_the_batch():
    lanes = Lanes(LeastSquares(), seeds=[0], lrs=[0.1], batch_size=12, optimizer={})
    assert [lanes.noise(0, parts)[0][0] for parts in (2, 4, 5, 8, 12, 100)] == [6, 3, 3, 2, 1, 1]


def test_what_cannot_be_cut_is_refused_with_the_reason():
    lanes = Lanes(Quadratic(), seeds=[0], lrs=[0.1], batch_size=12, optimizer={})
    with pytest.raises(ValueError, match="not a sum over examples"):
        lanes.noise(0, parts=4)
    for batch_size in (1, 7):
        lanes = Lanes(LeastSquares(), seeds=[0], lrs=[0.1], batch_size=batch_size, optimizer={})
        with pytest.raises(ValueError, match=f"batch of {batch_size}"):
            lanes.noise(0, parts=4)
