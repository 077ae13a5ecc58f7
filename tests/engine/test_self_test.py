"""Checks that must catch what they are for."""

import pytest
import torch
from small import NETWORKS, Counting, Padded, Recurrent, Regression, batch_norm, dropout, mlp, regression

from bscrit.engine.self_test import accumulation_test, choose_engine, self_test
from bscrit.workloads.quadratic import Quadratic

SGD = {"use": "sgd", "momentum": 0.9}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_passes_for_models_that_vectorise(name, dtype):
    assert self_test(regression(name), 8, SGD, dtype=dtype) == ""


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Counting, "buffer count"),
        (Padded, "gradient of embedding.weight"),
        (Recurrent, "can't be vectorised: RuntimeError"),
        (dropout, "random"),
    ],
)
def test_names_what_vmap_gets_wrong(network, words):
    difference = self_test(Regression(network), 8, SGD)
    assert words in difference
    assert "\n" not in difference
    # So many seconds that no step on a busy machine is too slow to be looked at; nothing is timed for them.
    choice = choose_engine(Regression(network), 8, 4, optimizer=SGD, seconds=100)
    assert (choice.engine, choice.reason) == ("loop", difference)


def test_an_error_of_the_workload_is_not_blamed_on_vmap():
    class Broken(Regression):
        def losses(self, *_):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        self_test(Broken(mlp), 8, SGD)


@pytest.mark.parametrize("size", [1, 2, 5, 7, 9, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accumulation_agrees_for_sums_over_examples(size, dtype):
    for network in (mlp, Recurrent, dropout):
        assert accumulation_test(Regression(network), size, SGD, dtype=dtype) == ""


class MeanOfMeans(Regression):
    """Examples weighted by what else is in their part."""

    def losses(self, model, batch):
        losses = super().losses(model, batch)
        return losses * (losses.detach() / losses.detach().mean())


@pytest.mark.parametrize("workload", [Regression(batch_norm), MeanOfMeans(mlp)])
def test_accumulation_catches_losses_that_depend_on_their_neighbours(workload):
    assert "8 examples at once and in parts of 4" in accumulation_test(workload, 8, SGD)


def test_accumulation_is_not_asked_of_batches_that_are_never_split():
    assert accumulation_test(Quadratic(), 8, SGD) == ""
    assert accumulation_test(regression("batch norm"), 8, SGD) == ""


def test_accumulation_cannot_be_tested_where_losses_are_random():
    class Noisy(Regression):
        def losses(self, model, batch):
            return super().losses(model, batch) * torch.rand(len(batch["x"]))

    assert accumulation_test(Noisy(mlp), 8, SGD) == ""


def test_the_faster_engine_is_chosen(monkeypatch):
    seconds = {"loop": 0.002, "vmap": 0.001}
    monkeypatch.setattr(
        "bscrit.engine.self_test._seconds_of_step",
        lambda lanes, step: (1 + step % 3) * seconds[lanes.engine.name],
    )
    choice = choose_engine(Regression(mlp), 8, 8, optimizer=SGD)
    assert choice.engine == "vmap"
    assert choice.speedup == pytest.approx(8)
    seconds["vmap"] = 0.007
    choice = choose_engine(Regression(mlp), 8, 8, optimizer=SGD)
    assert choice.engine == "loop"
    assert "1.1 times as fast" in choice.reason


def test_one_lane_and_long_steps_go_to_the_loop(monkeypatch):
    assert choose_engine(Quadratic(), 8, 1, optimizer=SGD).engine == "loop"
    monkeypatch.setattr("bscrit.engine.self_test._seconds_of_step", lambda *_: 1.0)
    assert "0.5 s" in choose_engine(Quadratic(), 8, 8, optimizer=SGD).reason


def test_time_that_recording_takes_does_not_count(monkeypatch):
    class Replayed(Regression):
        replayable = True

    clock = [0.0]

    def pretended(lanes, step):
        before = lanes._replay.replayed
        lanes.step(lanes.batch_size * step, 0.0)
        replayed = lanes._replay.replayed > before
        seconds = 0.002 if replayed else 0.02
        clock[0] += seconds if replayed else 20.0
        return seconds

    monkeypatch.setattr("bscrit.engine.self_test._seconds_of_step", pretended)
    monkeypatch.setattr("bscrit.engine.self_test.time.perf_counter", lambda: clock[0])
    choice = choose_engine(Replayed(mlp), 8, 8, optimizer=SGD)
    assert choice.engine == "vmap"
    assert choice.speedup == pytest.approx(4)
