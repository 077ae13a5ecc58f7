"""Flat real numbers: chunks of parameters, squares piece by piece, scalars read together."""

from __future__ import annotations

import pytest
import torch
from metered import accumulate, by_hand, cut, data, expected, mlp, newest
from torch import nn

from bscrit.meter import flat
from bscrit.meter.noise_meter import NoiseMeter


def parameters(*sizes, dtypes=()):
    kinds = [*dtypes, *[torch.float32] * (len(sizes) - len(dtypes))]
    return [nn.Parameter(torch.ones(n, dtype=kind)) for n, kind in zip(sizes, kinds, strict=True)]


@pytest.mark.parametrize(
    ("sizes", "dtypes", "expected"),
    [
        ((4, 4, 4), (), [[0, 1], [2]]),
        ((4, 6, 1), (), [[0, 1], [2]]),
        ((20, 1, 1), (), [[0], [1, 2]]),
        ((2, 2, 2), (torch.float32, torch.float64), [[0], [1], [2]]),
        ((2, 2), (torch.bfloat16, torch.float16), [[0, 1]]),  # both are added in float32
    ],
)
def test_chunks_are_neighbours_of_one_type(monkeypatch, sizes, dtypes, expected):
    monkeypatch.setattr(flat, "CHUNK", 10)
    assert list(flat.chunks(parameters(*sizes, dtypes=dtypes))) == expected


def test_squares_are_added_piece_by_piece(monkeypatch):
    monkeypatch.setattr(flat, "PIECE", 3)
    values, weight = torch.arange(8.0).view(2, 4), torch.arange(8.0, 0.0, -1).view(2, 4)
    assert flat.squared_norm(values).item() == 140
    assert flat.squared_norm(values, weight).item() == (weight * values**2).sum()
    assert flat.squared_norm(flat.real(torch.tensor([3 + 4j, 1j]))).item() == 26


def test_a_step_of_many_chunks_is_the_same_sample(monkeypatch):
    monkeypatch.setattr(flat, "CHUNK", 8)
    monkeypatch.setattr(flat, "PIECE", 3)
    model, batches = mlp(), cut(data(12), [3, 4, 5])
    meter = NoiseMeter(model)
    accumulate(model, meter, batches)
    assert newest(meter) == pytest.approx(expected(by_hand(model, batches), [3, 4, 5], [1] * 3), rel=1e-5)


def test_scalars_are_read_in_their_order():
    assert flat.read([torch.tensor(2.0), torch.tensor(1.0), torch.tensor(3.0)]) == [2.0, 1.0, 3.0]
    assert flat.read([]) == []
