"""The noise scale of lanes: known answers in every source and metric, and nothing changed by measuring."""

import numpy as np
import pytest
import torch
from exact import power_law, regression
from torch import nn

from bscrit.engine.lanes import Lanes
from bscrit.engine.seeding import generator
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.noise import NoiseSamples, noise_scale
from bscrit.noise_settings import NoiseSettings
from bscrit.train.noise import NoiseSampler
from bscrit.workloads.classifier import Classifier
from bscrit.workloads.least_squares import LeastSquares
from bscrit.workloads.quadratic import Quadratic

SGD = {"use": "sgd", "momentum": 0.9}
ADAM = {"use": "adam", "beta2": 0.9, "eps": 0.1}
ENGINES = ("vmap", "loop")
METRICS = ("identity", "hessian", "adam")
RUNS = 600


class NoisyExamples(Workload):
    """The noisy quadratic with the noise of each example drawn by itself."""

    def __init__(self):
        self.exact = power_law(12, noise=3.0)
        self.h = torch.from_numpy(self.exact.curvature).float()
        self.deviation = torch.from_numpy(self.exact.noise).sqrt().float()

    def model(self, seed):  # noqa: ARG002
        layer = nn.Linear(12, 1, bias=False)
        nn.init.ones_(layer.weight)
        return layer

    def batch(self, seed, start, size):
        return torch.randn(size, 12, generator=generator(seed, start, size)) * self.deviation

    def losses(self, model, batch):
        return model(batch).squeeze(-1) + (self.h * model.weight.square()).sum() / 2

    def evaluate(self, model):
        return (self.h * model.weight.square()).sum() / 2


def lanes_of(workload, *, engine="vmap", seeds=(0, 1), batch_size=12, optimizer=SGD, **options):
    rates = [0.1] * len(seeds)
    return Lanes(
        workload, seeds=seeds, lrs=rates, batch_size=batch_size, optimizer=optimizer, engine=engine,
        **options,
    )  # fmt: skip


def samples(lanes, steps, how):
    """Per metric and lane, samples of frozen parameters at these steps."""
    sampler, found = NoiseSampler(how), {metric: [[] for _ in range(len(lanes))] for metric in how.metrics}
    for step in steps:
        for metric, row in sampler.sums(lanes, lanes.batch_size * step).samples().items():
            for lane, sample in enumerate(row):
                found[metric][lane].append((step, step, *sample))
    return {
        metric: [NoiseSamples(*np.array(rows).T, metric) for rows in lanes] for metric, lanes in found.items()
    }


def exact_scales(workload, lanes):
    """(lanes,) per metric: tr(P Sigma)/(G'PG) with the eigenvalues of the metric P."""
    theta = next(iter(lanes.parameters.values())).double().reshape(len(lanes), -1).numpy()
    if isinstance(workload, LeastSquares):
        h, delta = regression(12).variances, theta - 1.0
        residual = (h * delta**2).sum(1, keepdims=True) + 1.0
        gradient, sigma = h * delta, h * residual + (h * delta) ** 2
    else:
        h = workload.exact.curvature
        gradient, sigma = h * theta, np.broadcast_to(workload.exact.noise, theta.shape)
    square = lanes.optimizer.moments["square"][0].double().reshape(len(lanes), -1).numpy()
    adam = 1 / (np.sqrt(square / 0.1) + 0.1)
    return {
        metric: (p * sigma).sum(1) / (p * gradient**2).sum(1)
        for metric, p in {"identity": 1.0, "hessian": h, "adam": adam}.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("source", ["micro_batches", "examples"])
@pytest.mark.parametrize("workload", [LeastSquares(12), NoisyExamples()], ids=["least squares", "quadratic"])
def test_the_exact_noise_scale_lies_in_the_interval_in_every_metric(workload, source):
    lanes = lanes_of(workload, seeds=range(RUNS), optimizer=ADAM)
    lanes.step(0, 0.0)  # Adam's moments, without a move
    how = NoiseSettings(source=source, metrics=METRICS, parts=3)
    exact = exact_scales(workload, lanes)
    if isinstance(workload, LeastSquares):
        problem = regression(12)
        assert exact["identity"][0] == pytest.approx(problem.b_simple(problem.start))
        assert exact["hessian"][0] == pytest.approx(problem.b_noise(problem.start))
    for metric, runs in samples(lanes, range(1, 31), how).items():
        scales = [noise_scale([run]) for run in runs]
        resolved = [(s, b) for s, b in zip(scales, exact[metric], strict=True) if s.value is not None]
        assert len(resolved) > 0.95 * RUNS
        held = np.mean([scale.low <= true <= scale.high for scale, true in resolved])
        assert 0.93 <= held <= 0.97, metric
        ratios = [scale.value / true for scale, true in resolved]
        assert np.median(ratios) == pytest.approx(1, abs=0.03), metric


@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("batch_size", "sizes"), [(12, [3, 3, 3, 3]), (7, [2, 2, 2, 1])])
def test_norms_equal_those_of_single_models(engine, micro_batch, batch_size, sizes):
    workload = Classifier(hidden=8)
    lanes = lanes_of(workload, engine=engine, batch_size=batch_size, dtype="float64", micro_batch=micro_batch)
    for seed, (n_small, small, n_big, big) in enumerate(
        NoiseSampler(NoiseSettings()).sums(lanes, 3 * batch_size).samples()["identity"]
    ):
        model = workload.model(seed).double()
        inputs, labels = workload.batch(seed, 3 * batch_size, batch_size)
        pieces = zip(inputs.double().split(sizes), labels.split(sizes), strict=True)
        norms = [squared_norm(model, x, y) for x, y in pieces]
        assert (n_small, n_big) == pytest.approx((batch_size / 4, batch_size))
        assert small == pytest.approx(np.average(norms, weights=sizes), rel=1e-12)
        assert big == pytest.approx(squared_norm(model, inputs.double(), labels), rel=1e-12)


def squared_norm(model, inputs, labels) -> float:
    loss = nn.functional.cross_entropy(model(inputs), labels)
    return sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("source", ["micro_batches", "examples"])
def test_a_lane_measures_what_it_would_measure_alone(source, engine):
    how = NoiseSettings(source=source, metrics=METRICS)
    together = lanes_of(Classifier(hidden=8), seeds=(0, 1, 2), optimizer=ADAM, engine=engine)
    together.step(0, 1.0)
    found = NoiseSampler(how).sums(together, 12).samples()
    for place, seed in enumerate((0, 1, 2)):
        alone = lanes_of(Classifier(hidden=8), seeds=(seed,), optimizer=ADAM, engine="loop")
        alone.step(0, 1.0)
        for metric, (expected,) in NoiseSampler(how).sums(alone, 12).samples().items():
            assert found[metric][place] == pytest.approx(expected, rel=2e-4), metric


@pytest.mark.parametrize("engine", ENGINES)
def test_the_hessian_is_that_of_other_examples(engine):
    workload = LeastSquares(5)
    lanes = lanes_of(workload, engine=engine, seeds=(4,), dtype="float64")
    how = NoiseSettings(metrics=("hessian",), parts=2)
    ((_, small, _, big),) = NoiseSampler(how).sums(lanes, 24).samples()["hessian"]
    x, y = (tensor.double() for tensor in workload.batch(4, 24, 12))
    residual = -y  # theta = 0
    parts = [(x[a:b] * residual[a:b, None]).mean(0) for a, b in ((0, 6), (6, 12))]
    other, _ = workload.batch(4 + 1_000_000_007, 24, 12)
    h = other.double().T @ other.double() / 12
    mean = (parts[0] + parts[1]) / 2
    assert small == pytest.approx(float(sum(g @ h @ g for g in parts)) / 2, rel=1e-10)
    assert big == pytest.approx(float(mean @ h @ mean), rel=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("source", ["micro_batches", "examples"])
def test_measuring_changes_nothing(source, engine):
    how = NoiseSettings(source=source, metrics=METRICS, losses=(0.5,), max_examples=128)

    def train(measure: bool):
        lanes = lanes_of(Classifier(hidden=8), optimizer=ADAM, batch_size=8, engine=engine)
        sampler = NoiseSampler(how)
        for step in range(4):
            if measure:
                sampler.sums(lanes, 8 * step).samples()
            lanes.step(8 * step, 1.0)
        return lanes

    random = torch.get_rng_state()
    with_it, without = train(True), train(False)
    assert torch.equal(torch.get_rng_state(), random)
    one, other = with_it.state_dict(), without.state_dict()
    for kind in ("parameters", "buffers"):
        assert all(torch.equal(one[kind][name], other[kind][name]) for name in one[kind])
    for kind, moments in one["optimizer"]["moments"].items():
        pairs = zip(moments, other["optimizer"]["moments"][kind], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_parts_are_as_equal_as_can_be():
    lanes = lanes_of(LeastSquares(), batch_size=12)

    def small(parts):
        return NoiseSampler(NoiseSettings(parts=parts)).sums(lanes, 0).samples()["identity"][0][0]

    assert [small(parts) for parts in (2, 4, 5, 12, 100)] == pytest.approx([6, 3, 12 / 5, 1, 1])


def test_before_the_first_update_adam_has_no_metric():
    lanes = lanes_of(LeastSquares(), optimizer=ADAM)
    ((_, small, _, big), _) = NoiseSampler(NoiseSettings(metrics=("adam",))).sums(lanes, 0).samples()["adam"]
    assert np.isnan([small, big]).all()


def test_the_metric_of_an_optimizer_that_corrects_no_start_is_that_of_its_moments_as_they_are():
    lanes = lanes_of(LeastSquares(), optimizer={"use": "rmsprop"})
    lanes.step(0, 1.0)
    small, big = NoiseSampler(NoiseSettings(metrics=("adam",))).sums(lanes, 12).samples()["adam"][0][1::2]
    gradient = next(iter(lanes.gradients(12).values()))[0].double()
    square = lanes.optimizer.moments["square"][0][0].double()
    assert big == pytest.approx(float((gradient**2 / (square.sqrt() + 1e-5)).sum()), rel=1e-6)
    assert small > 0


def test_what_is_no_sum_over_examples_is_refused_with_the_remedy():
    lanes = lanes_of(Quadratic())
    with pytest.raises(UserError, match="not a sum over examples") as error:
        NoiseSampler(NoiseSettings()).sums(lanes, 0)
    assert "none" in error.value.remedy


@pytest.mark.parametrize("metric", ["identity", "hessian"])
def test_frozen_parameters_on_fresh_data(metric):
    workload = LeastSquares(12)
    lanes = lanes_of(workload, seeds=(0,))
    how = NoiseSettings(metrics=(metric,), precision=0.1, max_examples=800_000)
    (found,) = NoiseSampler(how).frozen(lanes, (0, 0, 1.0))
    scale = found.scale()
    problem = regression(12)
    exact = problem.b_simple if metric == "identity" else problem.b_noise
    assert scale.low <= exact(problem.start) <= scale.high
    assert scale.high / scale.low <= np.exp(0.4) * (1 + 1e-9), "twice what four together are to have"


def test_a_data_set_is_used_up_once_at_most():
    workload = Classifier(hidden=8)
    (found,) = NoiseSampler(NoiseSettings(precision=1e-9, max_examples=10**6)).frozen(
        lanes_of(workload, seeds=(0,)), (0, 0, 2.3)
    )
    assert 0.9 * workload.examples < found.measured_on <= workload.examples


def test_of_a_whole_data_set_the_signal_is_the_norm_of_its_gradient():
    """Sigma (1/B - 1/D): corrected for the finite set, measured on all of it, |G|^2 is that of the set."""
    workload = Classifier(hidden=8)
    lanes = lanes_of(workload, seeds=(0,), dtype="float64")
    (found,) = NoiseSampler(NoiseSettings(precision=1e-9, max_examples=10**6)).frozen(lanes, (0, 0, 2.3))
    used = int(found.measured_on)
    scale = found.from_data_of(used).scale()
    model = workload.model(0).double()
    size = int(found.block_examples[0])
    batches = [workload.batch(1_000_000_007 + 4 * 12, start, size) for start in range(0, used, size)]
    inputs, labels = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    signal = squared_norm(model, inputs.double(), labels)
    apart = found.dot.sum() / (16 * 15)
    noise = (found.sq_small.mean() - apart) * found.n_small.mean()
    assert noise / scale.value == pytest.approx(signal, rel=0.01)
    assert apart < 0.97 * signal, "uncorrected, it would be that of the source of the data"
