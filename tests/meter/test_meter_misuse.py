"""Misuse of the meter: refused before training, dropped with one warning in it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from metered import accumulate, cut, data, mean_loss, mlp, run
from torch import nn

import bscrit.meter.noise_meter as module
from bscrit.errors import UserError
from bscrit.meter.noise_meter import NoiseMeter


def misuse_twice(model, meter):
    for _ in range(2):
        mean_loss(model, data(4)).backward()
    meter.micro_batch(8)


def misuse_open(model, _):
    mean_loss(model, data(4)).backward()


def misuse_unseen(model, meter):
    mean_loss(model, data(4)).backward()
    meter.micro_batch(4)
    meter.micro_batch(4)


def misuse_size(size, weight=None):
    def misuse(model, meter):
        mean_loss(model, data(4)).backward()
        meter.micro_batch(size, weight)

    return misuse


def misuse_batch(_, meter):
    assert not meter.measure(mean_loss, "nothing to cut")


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        (misuse_twice, "two gradients"),
        (misuse_open, "not followed by"),
        (misuse_unseen, "without a backward"),
        (misuse_size(0), "positive whole number"),
        (misuse_size(-3), "positive whole number"),
        (misuse_size(2.5), "positive whole number"),
        (misuse_size(True), "positive whole number"),
        (misuse_size(None), "positive whole number"),
        (misuse_size(4, 0.0), "positive weight"),
        (misuse_size(4, math.nan), "positive weight"),
        (misuse_size(4, "x"), "positive weight"),
        (misuse_batch, "can't cut"),
    ],
)
def test_misuse_in_the_loop_is_dropped_counted_and_warned_of_once(misuse, says):
    model = mlp()
    meter = NoiseMeter(model, every=1, weights="examples")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            misuse(model, meter)
            meter.step()
    assert len(caught) == 1
    assert says in str(caught[0].message)
    assert __file__ == caught[0].filename, "the warning points into the loop"
    assert meter.result().dropped == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accumulate(model, meter, cut(data(8), [4, 4]))
    assert meter.result().samples == 1, "the next step is as good as any"


def test_sizes_may_be_whole_numbers_of_any_library():
    model = mlp()
    meter = NoiseMeter(model)
    for batch, size in zip(cut(data(8), [4, 4]), (np.int64(4), torch.tensor(4)), strict=True):
        (mean_loss(model, batch) / 2).backward()
        meter.micro_batch(size)
    meter.step()
    assert meter.samples.n_big.tolist() == [8]


def test_a_loss_scale_that_changes_within_a_step():
    model, scaler = mlp(), torch.amp.GradScaler("cpu", init_scale=8.0)
    meter = NoiseMeter(model, scaler=scaler)
    for batch, scale in zip(cut(data(8), [4, 4]), (8.0, 16.0), strict=True):
        scaler.update(scale) if scaler._scale is not None else None
        scaler.scale(mean_loss(model, batch)).backward()
        meter.micro_batch(4)
    with pytest.warns(UserWarning, match="loss scale changed"):
        meter.step()


def test_gradients_that_are_not_finite_are_dropped_without_a_word():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accumulate(model, meter, cut(data(8), [4, 4]), scale=math.nan)
        accumulate(model, meter, cut(data(8), [4, 4]), scale=1e30)
        accumulate(model, meter, cut(data(8), [4, 4]))
    assert (meter.result().samples, meter.result().dropped) == (2, 1)


def test_an_optimizer_that_trains_something_else(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_STEPS", 3)
    model = mlp()
    meter = NoiseMeter(model, every=1, metric="adam", optimizer=torch.optim.Adam(mlp().parameters()))
    with pytest.warns(UserWarning, match="pass the one that trains"):
        run(model, meter, 6)
    assert meter.result().samples == 0


def test_a_model_that_is_sharded_later_is_left_alone():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    run(model, meter, 1)
    model[0].weight.ds_id = 0
    with pytest.warns(UserWarning, match="sharded"):
        run(model, meter, 1)
    run(model, meter, 2)
    assert meter.result().samples == 2


class FullyShardedDataParallel(nn.Linear):
    """Known by its name."""


def sharded():
    return FullyShardedDataParallel(2, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": "x"}, "model is a str"),
        ({"model": nn.Linear(2, 2).requires_grad_(False)}, "trainable"),
        ({"model": nn.Sequential(nn.BatchNorm1d(3))}, "batch norm"),
        ({"model": sharded()}, "sharded"),
        ({"model": nn.Sequential(nn.LazyLinear(3))}, "lazy"),
        ({"every": 0}, "every = 0"),
        ({"every": 2.0}, "every = 2.0"),
        ({"every": True}, "every = True"),
        ({"log": "wandb"}, "log can't be called"),
        ({"weights": "equall"}, "did you mean 'equal'"),
        ({"metric": "hesian"}, "did you mean 'hessian'"),
        ({"metric": "adam"}, "no optimizer is given"),
        ({"metric": "adam", "optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())}, "optimizer is SGD"),
        ({"scaler": 65536.0}, "get_scale"),
        ({"state": {"step": 3}}, "state is none of a meter"),
        ({"state": 3}, "state is none of a meter"),
        ({"state": {"step": 3, "examples": 1, "metric": "adam"}}, "of the metric 'adam'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_trains(arguments, says):
    arguments = {"model": mlp(), **arguments}
    with pytest.raises(UserError) as caught:
        NoiseMeter(arguments.pop("model"), **arguments)
    assert says in str(caught.value)
    assert caught.value.remedy


def test_frozen_batch_norm_is_measured():
    model = nn.Sequential(nn.Linear(5, 1), nn.BatchNorm1d(1).eval())
    meter = NoiseMeter(model)
    run(model, meter, 1)
    assert meter.result().samples == 1


@pytest.mark.parametrize(
    ("loss", "parts", "says"),
    [
        ("mse", 4, "loss can't be called"),
        (mean_loss, 1, "parts = 1"),
        (mean_loss, 4.0, "parts = 4.0"),
        (lambda model, batch: (model(batch[0]) - batch[1]).square(), 4, "single number"),
        (lambda model, batch: mean_loss(model, batch).item(), 4, "single number"),
    ],
)
def test_wrong_arguments_of_measure(loss, parts, says):
    with pytest.raises(UserError) as caught:
        NoiseMeter(mlp()).measure(loss, data(8), parts)
    assert says in str(caught.value)


def test_a_batch_too_small_to_cut_is_alone():
    meter = NoiseMeter(mlp(), every=1)
    for size in (1, 3):
        mean_loss(meter.model, data(size)).backward()
        meter.measure(mean_loss, data(size))
        meter.step()
    assert meter.result().alone == 1
    assert meter.samples.n_big.tolist() == [3]
    assert meter.samples.examples.tolist() == [1]


def test_batch_norm_that_is_switched_on_later():
    model = nn.Sequential(nn.Linear(5, 1), nn.BatchNorm1d(1).eval())
    meter = NoiseMeter(model, every=1)
    run(model, meter, 1)
    model[1].train()
    with pytest.warns(UserWarning, match="batch norm"):
        run(model, meter, 2)
    assert meter.measure(mean_loss, data(8))
    meter.step()
    assert (meter.result().samples, meter.result().dropped) == (1, 3)
    allowed = NoiseMeter(model, every=1, batch_norm=True)
    run(model, allowed, 1)
    assert allowed.result().samples == 1


def test_batch_norm_without_running_statistics_is_never_frozen():
    with pytest.raises(UserError, match="batch norm"):
        NoiseMeter(nn.Sequential(nn.Linear(5, 1), nn.BatchNorm1d(1, track_running_stats=False).eval()))


@pytest.mark.parametrize("weights", ["examples", "examples_per_rank"])
def test_weights_that_do_not_add_up_to_what_the_loss_was_divided_by(weights):
    model = mlp()
    meter = NoiseMeter(model, every=1, weights=weights)
    for divisor in (8, 9):
        for batch in cut(data(8), [3, 5]):
            (mean_loss(model, batch) * len(batch[0]) / divisor).backward()
            meter.micro_batch(len(batch[0]))
        if divisor == 8:
            meter.step(divisor=8)
        else:
            with pytest.warns(UserWarning, match="do not add up"):
                meter.step(divisor=9)
    assert (meter.result().samples, meter.result().dropped) == (1, 1)
