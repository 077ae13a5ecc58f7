"""The meter against noise samples computed by hand, and against the training that it must not disturb."""

from __future__ import annotations

import itertools
import random
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from metered import accumulate, by_hand, cut, data, expected, mean_loss, mlp, newest
from torch import nn

from bscrit.meter.noise_meter import NoiseMeter

DOCUMENT = (Path(__file__).parents[2] / "docs" / "meter.md").read_text("utf-8")


# what is measured


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [1, 7, 3], [2, 2]])
def test_micro_batches_that_count_alike(sizes):
    model = mlp()
    batches = cut(data(sum(sizes)), sizes)
    meter = NoiseMeter(model)
    accumulate(model, meter, batches)
    assert newest(meter) == pytest.approx(
        expected(by_hand(model, batches), sizes, [1] * len(sizes)), rel=1e-6
    )
    update = sum(float(p.grad.double().square().sum()) for p in model.parameters())
    assert newest(meter)[3] == pytest.approx(update, rel=1e-6), "the signal is that of the update"


def test_losses_that_are_sums_over_examples_or_over_tokens():
    sizes, tokens = [2, 5, 1], [40, 31, 9]
    batches = cut(data(8), sizes)
    for weights, given in ((sizes, [None] * 3), (tokens, tokens)):
        model = mlp()
        meter = NoiseMeter(model, weights="examples")
        for batch, size, weight, passed in zip(batches, sizes, weights, given, strict=True):
            (mean_loss(model, batch) * weight / sum(weights)).backward()
            meter.micro_batch(size, weight=passed)
        meter.step()
        assert newest(meter) == pytest.approx(expected(by_hand(model, batches), sizes, weights), rel=1e-6)
        update = sum(float(p.grad.double().square().sum()) for p in model.parameters())
        assert newest(meter)[3] == pytest.approx(update, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-15, 1e-3, 1e6])
def test_the_scale_does_not_know_the_factor_of_the_loss(factor):
    batches = cut(data(12), [3, 4, 5])
    samples = []
    for scale in (1.0, factor):
        model = mlp()
        meter = NoiseMeter(model)
        accumulate(model, meter, batches, scale)
        samples.append(meter.samples)
    plain, scaled = samples
    assert scaled.noise / scaled.signal == pytest.approx(plain.noise / plain.signal, rel=1e-4)
    assert scaled.noise == pytest.approx(plain.noise * factor**2, rel=1e-4)


def test_every_split_has_the_same_mean_over_all_ways_to_split():
    """Over all ways to split eight examples, signal and noise are those of their U-statistic, exactly."""
    dtype = torch.float64
    model, batch = mlp(dtype=dtype), data(8, dtype=dtype)
    g = by_hand(model, cut(batch, [1] * 8)).numpy()
    products = g @ g.T
    signal = (products.sum() - np.trace(products)) / 56
    noise = np.trace(products) / 8 - signal
    pairs = [[(0, a), *rest] for a in range(1, 8) for rest in _pairings([i for i in range(1, 8) if i != a])]
    ways = {
        "2 + 6": [[s, _rest(s)] for s in itertools.combinations(range(8), 2)],
        "4 + 4": [[s, _rest(s)] for s in itertools.combinations(range(8), 4) if 0 in s],
        "2 + 2 + 2 + 2": pairs,
    }
    assert [len(splits) for splits in ways.values()] == [28, 35, 105]
    for splits in ways.values():
        taken = []
        for split in splits:
            with closing(NoiseMeter(model, weights="examples")) as meter:
                for group in split:
                    part = [tensor[list(group)] for tensor in batch]
                    (mean_loss(model, part) * len(group) / 8).backward()
                    meter.micro_batch(len(group))
                meter.step()
                taken.append((meter.samples.signal[0], meter.samples.noise[0]))
        assert np.mean(taken, axis=0) == pytest.approx((signal, noise), rel=1e-9)


def _rest(some):
    return tuple(i for i in range(8) if i not in some)


def _pairings(items):
    if not items:
        return [[]]
    first, *others = items
    return [[(first, b), *rest] for b in others for rest in _pairings([i for i in others if i != b])]


def test_a_split_in_two_orders_is_one_sample():
    model, batches = mlp(), cut(data(12), [3, 4, 5])
    found = []
    for order in (batches, batches[::-1]):
        meter = NoiseMeter(model)
        accumulate(model, meter, order)
        found.append(newest(meter))
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_clipping_and_the_optimizer_may_come_before_or_after():
    batches = cut(data(12), [4, 4, 4])
    found = []
    for first in (True, False):
        model = mlp()
        meter = NoiseMeter(model)
        for batch in batches:
            (mean_loss(model, batch) / 3).backward()
            meter.micro_batch(4)
        if first:
            meter.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        torch.optim.SGD(model.parameters(), lr=0.5).step()
        if not first:
            meter.step()
        found.append(newest(meter))
    assert found[0] == found[1] == pytest.approx(expected(by_hand(mlp(), batches), [4] * 3), rel=1e-6)


# the training that must not notice


@pytest.mark.parametrize("how", ["micro_batches", "measure", "hessian", "adam"])
def test_training_is_bit_identical_with_and_without(how):
    def train(measured):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        metric = how if how in ("hessian", "adam") else "identity"
        meter = (
            NoiseMeter(model, every=2, batch_norm=True, metric=metric, optimizer=optimizer)
            if measured
            else None
        )
        for step in range(20):
            batches = cut(data(16, seed=step), [8, 8])
            if meter and how in ("measure", "hessian"):
                meter.measure(mean_loss, data(16, seed=step))
            for batch in batches:
                (mean_loss(model, batch) / 2).backward()
                if meter:
                    meter.micro_batch(8)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            if meter:
                meter.step()
        if meter:
            assert len(meter.samples) == 10
            assert meter.result().dropped == 0
        moments = [value for state in optimizer.state.values() for value in state.values()]
        return [*model.state_dict().values(), *moments, torch.get_rng_state()]

    with_it, without = train(True), train(False)
    assert len(with_it) == len(without)
    assert all(torch.equal(a, b) for a, b in zip(with_it, without, strict=True))


def test_passes_of_the_meters_own_leave_no_trace():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x + 0.1 * torch.rand_like(x) + random.random() + np.random.rand())

    model = Noisy()
    touched = []
    model.layer.weight.register_hook(lambda grad: touched.append(grad) or grad * 0)
    buffer = model.calls
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    meter = NoiseMeter(model)
    assert meter.measure(mean_loss, data(8))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])
    assert model.calls is buffer
    assert float(buffer) == 0
    assert not touched
    assert all(p.grad is None for p in model.parameters())
    meter.step()
    assert meter.samples.signal[0] != 0


def test_hooks_are_there_on_measured_steps_only():
    model = mlp()
    steps, hooks = [], []
    meter = NoiseMeter(model, every=3, log=lambda _, step: steps.append(step))
    for _ in range(100):
        hooks.append(bool(model[0].weight._backward_hooks))
        assert meter.measuring == hooks[-1]
        accumulate(model, meter, cut(data(4), [2, 2]))
    assert steps == [i for i, hook in enumerate(hooks) if hook]
    assert steps[:4] == [0, 3, 6, 9]
    gaps = np.diff(steps)
    assert max(gaps) == 4, "5 % of the steps so far"
    assert meter.samples.examples.tolist() == [4 * step for step in steps]


def test_closing_takes_the_hooks_off_and_keeps_what_was_measured():
    model = mlp()
    with closing(NoiseMeter(model, every=1)) as meter:
        accumulate(model, meter, cut(data(4), [2, 2]))
        assert model[0].weight._backward_hooks
    assert not model[0].weight._backward_hooks
    accumulate(model, meter, cut(data(4), [2, 2]))
    assert len(meter.samples) == 1
    again = NoiseMeter(model)
    assert model[0].weight._backward_hooks
    del again
    assert not model[0].weight._backward_hooks


# the document


def blocks():
    return re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


def needs_extras(block):
    return "lightning" in block or "transformers" in block


@pytest.mark.parametrize("block", [b for b in blocks() if not needs_extras(b)])
def test_the_documents_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/meter.md", "exec"), {"__name__": "document"})
