"""Micro-batches that hold the same data: no noise lies between them, and none is reported."""

from __future__ import annotations

import warnings

import pytest
import torch
from metered import accumulate, cut, data, mean_loss, mlp, shifted
from torch import nn

from bscrit.meter.noise_meter import NoiseMeter
from bscrit.meter.ranks import fingerprint, twins


@pytest.mark.parametrize("fresh", [False, True], ids=["one batch for ever", "new ones each step"])
@pytest.mark.parametrize("scaled", [1.0, 1 + 1e-6], ids=["to the bit", "but for rounding"])
def test_copies_give_no_sample_and_are_named(fresh, scaled):
    model = mlp()
    meter = NoiseMeter(model, every=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(5):
            x, y = data(8, seed=step if fresh else 0)
            accumulate(model, meter, [(x, y), (x * scaled, y), (x, y)])
    assert [str(warning.message) for warning in caught if "hold the same data" in str(warning.message)]
    assert len(caught) == 1
    reading = meter.result()
    assert (reading.samples, reading.same, reading.dropped, reading.alone) == (0, 5, 0, 0)
    assert "5 measured steps gave no sample" in str(reading)
    assert "DistributedSampler" in str(reading)


def test_two_pairs_of_copies_are_half_the_data():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    first, second, third, _ = cut(data(16), [4] * 4)
    accumulate(model, meter, [first, second, second, first])
    accumulate(model, meter, [first, second, third, first])
    assert meter.result().same == 2
    accumulate(model, meter, [*cut(data(4, seed=7), [4]), *cut(data(16), [4] * 4), first])
    assert meter.result().samples == 1, "two of six: a sampler with replacement may draw that"


def test_parts_of_a_batch_that_holds_everything_twice():
    model, (x, y) = mlp(), data(8)
    meter = NoiseMeter(model, every=1)
    assert meter.measure(mean_loss, (torch.cat([x, x]), torch.cat([y, y])), parts=2)
    meter.step()
    assert meter.result().same == 1


def test_data_that_differ_by_little_are_measured():
    """Relative differences of 1e-4: ten times what counts as the same."""
    model = mlp()
    meter = NoiseMeter(model, every=1)
    x, y = shifted(8)
    accumulate(model, meter, [(x, y), (x, y * (1 + 1e-4)), (x, y * (1 - 1e-4))])
    assert meter.result().samples == 1


def test_one_accident_is_no_warning():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(8):
            batches = cut(data(8, seed=step), [4, 4])
            accumulate(model, meter, batches[:1] * 2 if step in (1, 3, 6) else batches)
    assert (meter.result().same, meter.result().samples) == (3, 5)


def test_gradients_of_nothing_but_zeros_are_no_copies():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    accumulate(model, meter, cut(data(8), [4, 4]), scale=0.0)
    assert meter.result().same == 0


def test_white_noise_in_many_dimensions_is_told_apart_by_its_small_parameters():
    """Of 1e6 dimensions, squares scatter by 0.14 % and coincide by chance; those of a bias do not."""
    parameters = [nn.Parameter(torch.zeros(10**6)), nn.Parameter(torch.zeros(10))]
    like = fingerprint([1e6, 10.0], parameters)
    assert twins([like, fingerprint([1e6 + 1, 10.0], parameters)]) == 2
    assert twins([like, fingerprint([1e6 + 0.1, 9.9], parameters)]) == 0
    assert twins([like, fingerprint([1.001e6, 10.0], parameters)]) == 0


def test_the_state_keeps_the_count():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    accumulate(model, meter, cut(data(4), [4]) * 2)
    assert NoiseMeter(model, state=meter.state_dict()).result().same == 1
