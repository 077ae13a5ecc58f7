"""A small model, its data, and noise samples of it by hand."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn


def shifted(n, seed=1):
    """Data with a signal that 64 examples resolve."""
    x, y = data(n, seed)
    return x, y + 3


def mlp(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).to(dtype)


def data(n, seed=1, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=draw).to(dtype), torch.randn(n, 1, generator=draw).to(dtype)


def mean_loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def cut(batch, sizes):
    return list(zip(*(tensor.split(sizes) for tensor in batch), strict=True))


def by_hand(model, batches, loss=mean_loss):
    """(groups, numbers) float64: mean gradients, one by one, of a copy without hooks; complex numbers as pairs."""
    copied = copy.deepcopy(model)
    wanted = [p for p in copied.parameters() if p.requires_grad]
    rows = []
    for batch in batches:
        grads = torch.autograd.grad(loss(copied, batch), wanted, allow_unused=True)
        grads = [
            torch.zeros_like(p) if g is None else g.to_dense() for g, p in zip(grads, wanted, strict=True)
        ]
        grads = [torch.view_as_real(g) if g.is_complex() else g for g in grads]
        rows.append(torch.cat([g.double().reshape(-1) for g in grads]))
    return torch.stack(rows)


def expected(gradients, sizes, weights=None, metric=1.0):
    """n_small, sq_small, n_big, sq_big from the whole set of gradients, in float64."""
    g, m = gradients.numpy(), np.asarray(sizes, float)
    w = m if weights is None else np.asarray(weights, float)
    w = w / w.sum()
    mean = w @ g
    return 1 / (w / m).sum(), w @ (metric * g**2).sum(1), 1 / (w**2 / m).sum(), (metric * mean**2).sum()


def accumulate(model, meter, batches, scale=1.0, loss=mean_loss):
    for batch in batches:
        (scale * loss(model, batch) / len(batches)).backward()
        meter.micro_batch(len(batch[0]))
    meter.step()


def newest(meter):
    s = meter.samples
    return s.n_small[-1], s.sq_small[-1], s.n_big[-1], s.sq_big[-1]


def run(model, meter, steps, first=0):
    for step in range(first, first + steps):
        accumulate(model, meter, cut(data(8, seed=step), [4, 4]))
