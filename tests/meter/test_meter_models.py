"""The meter on models of all kinds, and in mixed precision."""

from __future__ import annotations

import math

import pytest
import torch
from metered import accumulate, by_hand, cut, data, expected, mean_loss, mlp, newest
from torch import nn
from torch.utils.checkpoint import checkpoint

from bscrit.meter.noise_meter import NoiseMeter


class Zoo(nn.Module):
    """Shared, frozen, unused and half-used parameters, sparse and complex ones, a buffer and an LSTM."""

    def __init__(self, sparse=False):
        super().__init__()
        self.embed = nn.Embedding(6, 4, sparse=sparse)
        self.head = nn.Linear(4, 6, bias=False)
        if not sparse:
            self.head.weight = self.embed.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.sometimes = nn.Parameter(torch.ones(4))
        self.complex = nn.Parameter(torch.ones(4, dtype=torch.complex64))
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.frozen(self.embed(tokens)))
        if int(tokens[0, 0]) % 2:
            hidden = hidden * self.sometimes
        return self.head((hidden * self.complex).abs())


def next_token(model, tokens):
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("sparse", [False, True])
def test_shared_frozen_unused_sparse_and_complex_parameters(sparse):
    torch.manual_seed(0)
    model = Zoo(sparse)
    batches = list(torch.randint(0, 6, (9, 5), generator=torch.Generator().manual_seed(2)).split([2, 3, 4]))
    for i, batch in enumerate(batches):
        batch[0, 0] = i  # even and odd: one of the parameters is used in some only
    meter = NoiseMeter(model)
    for batch in batches:
        (next_token(model, batch) / 3).backward()
        meter.micro_batch(len(batch))
    meter.step()
    want = expected(by_hand(model, batches, next_token), [2, 3, 4], [1] * 3)
    assert newest(meter) == pytest.approx(want, rel=1e-5)
    model.zero_grad()
    own = NoiseMeter(model)
    assert own.measure(next_token, torch.cat(batches), parts=3)
    own.step()
    want = expected(by_hand(model, torch.cat(batches).split(3), next_token), [3] * 3)
    assert newest(own) == pytest.approx(want, rel=1e-5)


def test_half_precision_is_squared_in_full():
    model = mlp(dtype=torch.bfloat16)
    batches = cut(data(8, dtype=torch.bfloat16), [4, 4])
    meter = NoiseMeter(model)
    accumulate(model, meter, batches)
    assert newest(meter) == pytest.approx(expected(by_hand(model, batches), [4, 4]), rel=0.02)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self, twice):
            super().__init__()
            self.first, self.block = nn.Linear(5, 5), nn.Linear(5, 5)
            self.rounds = 2 if twice else 1

        def forward(self, x):
            x = self.first(x)
            for _ in range(self.rounds):
                x = checkpoint(lambda v: self.block(v).tanh(), x, use_reentrant=reentrant)
            return x.sum(1, keepdim=True)

    batches = cut(data(8), [4, 4])
    model = Checkpointed(twice=False)
    meter = NoiseMeter(model)
    accumulate(model, meter, batches)
    plain = [torch.autograd.grad(mean_loss_plain(model, b), list(model.parameters())) for b in batches]
    rows = torch.stack([torch.cat([g.double().reshape(-1) for g in row]) for row in plain])
    assert newest(meter) == pytest.approx(expected(rows, [4, 4]), rel=1e-5)

    model = Checkpointed(twice=True)
    meter = NoiseMeter(model)
    if reentrant:
        with pytest.warns(UserWarning, match="use_reentrant=False"):
            accumulate(model, meter, batches)
        assert meter.result().dropped == 1
    else:
        accumulate(model, meter, batches)
        assert meter.result().samples == 1


def mean_loss_plain(model, batch):
    x, y = batch
    return (model.block(model.first(x)).tanh().sum(1, keepdim=True) - y).square().mean()


@pytest.mark.slow
def test_compiled_models():
    model = mlp()
    batches = cut(data(12), [4, 4, 4])
    compiled = torch.compile(model, backend="aot_eager")
    meter = NoiseMeter(compiled, every=1)
    for _ in range(3):
        accumulate(compiled, meter, batches)
    want = expected(by_hand(model, batches), [4] * 3)
    assert newest(meter) == pytest.approx(want, rel=1e-5)
    own = NoiseMeter(compiled)
    assert own.measure(mean_loss, data(12), parts=3)
    own.step()
    assert newest(own) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x, y: {"x": x, "y": [y, torch.tensor(3.0), "name"]},
        lambda x, y: (x, (y, None)),
        lambda x, y: [x, y],
    ],
)
def test_parts_of_nested_batches(wrap):
    def loss(model, batch):
        x, y = batch.values() if isinstance(batch, dict) else batch
        y = y[0] if isinstance(y, list | tuple) else y
        return mean_loss(model, (x, y))

    model = mlp()
    meter = NoiseMeter(model)
    assert meter.measure(loss, wrap(*data(10)), parts=4)
    meter.step()
    sizes = [2, 3, 2, 3]
    assert newest(meter) == pytest.approx(expected(by_hand(model, cut(data(10), sizes)), sizes), rel=1e-5)


# mixed precision


@pytest.mark.parametrize("before", [True, False])
def test_a_loss_scaler_is_undone_and_skipped_updates_are_no_steps(before):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    meter = NoiseMeter(model, every=1, scaler=scaler)
    batches = cut(data(8), [4, 4])
    for round_ in range(8):
        poison = math.inf if round_ in (2, 5) else 1.0
        for batch in batches:
            scaler.scale(mean_loss(model, batch) * poison / 2).backward()
            meter.micro_batch(4)
        if before:
            meter.step()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if not before:
            meter.step()
    assert scaler.get_scale() == 2.0**38
    taken = meter.samples
    assert taken.dropped == 2
    assert taken.steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert taken.examples.tolist() == [0, 8, 16, 24, 32, 40]
    want = expected(by_hand(model, batches), [4, 4])
    for i in range(6):
        found = taken.n_small[i], taken.sq_small[i], taken.n_big[i], taken.sq_big[i]
        assert found == pytest.approx(want, rel=1e-5)
