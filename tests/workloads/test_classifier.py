"""Handwritten digits: the split, the models, and that they learn."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from bscrit.engine.lanes import Lanes
from bscrit.engine.self_test import accumulation_test, self_test
from bscrit.errors import UserError
from bscrit.workloads.classifier import Classifier

SGD = {"use": "sgd", "momentum": 0.9}


@pytest.fixture(scope="module")
def digits():
    return Classifier()


def test_training_and_validation_are_all_the_digits_once(digits):
    pixels, labels = load_digits(return_X_y=True)
    inputs, targets, held_out, held_targets = digits._data()
    assert (len(inputs), len(held_out), digits.examples) == (1437, 360, 1437)
    together = torch.cat([inputs, held_out]).flatten(1).mul(16).numpy()
    both = torch.cat([targets, held_targets]).numpy()
    rows = sorted(map(tuple, np.column_stack([together, both]).tolist()))
    assert rows == sorted(map(tuple, np.column_stack([pixels, labels]).astype(float).tolist()))
    assert np.bincount(held_targets).min() > 20


def test_an_epoch_of_batches_is_the_training_set_once(digits):
    sums = torch.cat([digits.batch(0, start, 479)[0].flatten(1).sum(1) for start in (0, 479, 958)])
    expected = digits._data()[0].flatten(1).sum(1)
    torch.testing.assert_close(sums.sort().values, expected.sort().values)
    inputs, labels = digits.batch(0, 35, 7)
    assert (inputs.shape, labels.shape) == ((7, 1, 8, 8), (7,))
    with pytest.raises(ValueError, match="1437"):
        digits.batch(0, 0, 1438)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_parameters_are_a_function_of_the_seed_alone(model):
    workload = Classifier(model=model)
    before = torch.get_rng_state()
    first, again, other = (workload.model(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        assert not torch.equal(tensor, other[name])
    count = {"mlp": 64 * 64 + 64 + 650, "cnn": 80 + 8 * 9 * 16 + 16 + 64 * 64 + 64 + 650}
    assert sum(tensor.numel() for tensor in first.values()) == count[model]


@pytest.mark.parametrize(("model", "steps"), [("mlp", 300), ("cnn", 250)])
def test_it_learns(digits, model, steps):
    workload = Classifier(model=model)
    workload._tensors = digits._data()
    lanes = Lanes(workload, seeds=[0, 1], lrs=[0.05, 0.05], batch_size=32, optimizer=SGD)
    start = lanes.evaluate()
    assert start == pytest.approx([np.log(10)] * 2, abs=0.2)
    for step in range(steps):
        lanes.step(32 * step, 1.0)
    assert (lanes.evaluate() < 0.35).all()


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_lanes_of_it_can_be_trusted(digits, model):
    workload = Classifier(model=model)
    workload._tensors = digits._data()
    assert self_test(workload, 16, SGD) == ""
    assert accumulation_test(workload, 16, SGD) == ""


def test_evaluation_is_the_mean_loss_on_the_validation_set(digits):
    model = digits.model(0)
    _, _, inputs, labels = digits._data()
    losses = torch.stack(
        [digits.losses(model, (inputs[i : i + 1], labels[i : i + 1]))[0] for i in range(360)]
    )
    torch.testing.assert_close(digits.evaluate(model), losses.mean())


def test_fingerprint_is_that_of_the_data(digits):
    other = Classifier(model="cnn", hidden=8)
    other._tensors = tuple(tensor.clone() for tensor in digits._data())
    assert other.fingerprint() == digits.fingerprint()
    other._tensors[1][0] += 1
    assert other.fingerprint() != digits.fingerprint()


def test_a_missing_package_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r"pip install 'bscrit\[digits\]'"):
        Classifier().prepare("cpu")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": "digts"}, "data = 'digts'.*digits"),
        ({"model": "mpl"}, "model = 'mpl'.*mlp"),
        ({"hidden": 0}, "hidden = 0"),
        ({"hidden": "64"}, "hidden = '64'"),
    ],
)
def test_a_wrong_setting_is_named(settings, words):
    with pytest.raises(ValueError, match=words):
        Classifier(**settings)
