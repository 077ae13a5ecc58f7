"""The training loop: interrupted anywhere, it ends bit for bit as if it had not been."""

import itertools
import json
import resource
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from cohorts import MEASURE, NETWORK, ORDER, begun, told, workload
from exact import power_law
from small import Regression, mlp, regression

from bscrit.cohort import trial_writer
from bscrit.curve import read_curve
from bscrit.engine.evaluation import measuring
from bscrit.errors import UserError
from bscrit.goal import TRAIN_LOSS, Goal
from bscrit.record import begin, read_record
from bscrit.train import loop
from bscrit.train.loop import train
from bscrit.train.noise import FROZEN_STEPS


class Killed(Exception):
    """A process that ends between two instructions."""


def after(steps):
    """Told to leave after so many steps."""
    count = itertools.count()
    return lambda: next(count) >= steps


@pytest.fixture(scope="module", params=["loop", "vmap"])
def engine(request):
    return request.param


def test_what_a_race_leaves(tmp_path, engine):
    folders = begun(tmp_path, replace(ORDER, engine=engine))
    assert train(folders, workload(), {"unit": "example"})
    records = [read_record(folder) for folder in folders]
    assert [record.status for record in records] == ["reached", "stopped", "stopped", "diverged"]
    for record in records:
        assert record.curve.steps[0] == 0
        assert record.curve.loss[0] == pytest.approx(power_law(30).loss_of(np.ones(30)))
        assert (record.curve.examples == 4 * record.curve.steps).all()
        assert record.facts["steps"] == record.curve.steps[-1]
        assert record.facts["unit"] == "example"
        assert record.facts["engine"] == engine
    assert not list(tmp_path.glob("*/checkpoint.pt"))


@pytest.mark.parametrize("order", [ORDER, MEASURE], ids=["search", "measure"])
@pytest.mark.parametrize("steps", [0, 1, 2, 17, 60, 61, 110, 113])
def test_told_to_leave_at_any_step_it_goes_on_bit_for_bit(tmp_path, engine, order, steps):
    order = replace(order, engine=engine)
    undisturbed, folders = begun(tmp_path / "a", order), begun(tmp_path / "b", order)
    train(undisturbed, workload(), {})
    assert not train(folders, workload(), {}, after(steps))
    assert any(read_record(folder).status == "running" for folder in folders)
    while not train(folders, workload(), {}, after(29)):
        pass
    assert told(folders) == told(undisturbed)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_network_with_momentum_clipping_and_noise_samples_goes_on_bit_for_bit(tmp_path, engine):
    sgd = {"use": "sgd", "momentum": 0.9, "weight_decay": 0.01, "clip": 1.6}
    schedule = {"use": "cosine", "warmup_steps": 5, "horizon_steps": 40}
    order = replace(NETWORK, engine=engine)
    undisturbed = begun(tmp_path / "a", order, 8, optimizer=sgd, schedule=schedule)
    train(undisturbed, regression("mlp"), {})
    record = read_record(undisturbed[0])
    assert 0 < record.facts["clipped"] < 1
    assert [len(samples) for samples in record.noise.values()] == [9, 9]
    assert len(record.frozen) == 2 * FROZEN_STEPS, "in two metrics, at the steps after the loss was passed"
    for steps in (0, 1, 7, 8, 59):
        folders = begun(tmp_path / f"b{steps}", order, 8, optimizer=sgd, schedule=schedule)
        assert not train(folders, regression("mlp"), {}, after(steps))
        train(folders, regression("mlp"), {})
        assert told(folders) == told(undisturbed)


@pytest.mark.parametrize("steps", [0, 1, 17, 59])
def test_the_training_loss_goes_on_bit_for_bit(tmp_path, engine, steps):
    goal = Goal(TRAIN_LOSS)
    order = replace(NETWORK, engine=engine, noise=None, targets=(0.01,))
    undisturbed, folders = (begun(tmp_path / name, order, 8, goal=goal) for name in "ab")
    shared = measuring(regression("mlp"), TRAIN_LOSS)
    train(undisturbed, shared, {})
    assert not train(folders, shared, {}, after(steps))
    train(folders, shared, {})
    assert told(folders) == told(undisturbed)
    assert (folders[0] / "curve.csv").read_text().startswith("step,examples,train_loss,")


@pytest.mark.parametrize("order", [ORDER, MEASURE], ids=["search", "measure"])
def test_killed_anywhere_it_goes_on_bit_for_bit(tmp_path, order, monkeypatch):
    """After any write, with old checkpoints, and with a line that the kill tore."""
    undisturbed = begun(tmp_path / "a", order)
    train(undisturbed, workload(), {})
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    for kill in range(25):
        folders = begun(tmp_path / f"b{kill}", order)
        writes, last = itertools.count(), int(rng.integers(1, 240))
        for name in ("write", "end", "sync"):
            monkeypatch.setattr(trial_writer, name, _killing(getattr(trial_writer, name), writes, last))
        with pytest.raises(Killed):
            train(folders, workload(), {})
        monkeypatch.undo()
        torn = folders[int(rng.integers(len(folders)))] / "curve.csv"
        if read_record(torn.parent).status == "running" and torn.exists():
            torn.write_bytes(torn.read_bytes() + b"61,244,0.1")
        train(folders, workload(), {})
        assert told(folders) == told(undisturbed)
        monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)


def _killing(function, writes, last):
    def write(*arguments):
        if next(writes) >= last:
            raise Killed
        return function(*arguments)

    return write


def test_a_checkpoint_torn_at_any_byte_starts_the_cohort_anew(tmp_path):
    undisturbed, folders = begun(tmp_path / "a"), begun(tmp_path / "b")
    train(undisturbed, workload(), {})
    assert not train(folders, workload(), {}, after(12))
    whole = (folders[0] / "checkpoint.pt").read_bytes()
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "b", saved)
    for length in [*range(0, len(whole) - 1, len(whole) // 12), len(whole) - 1]:
        shutil.rmtree(tmp_path / "b")
        shutil.copytree(saved, tmp_path / "b")
        (folders[0] / "checkpoint.pt").write_bytes(whole[:length])
        train(folders, workload(), {})
        assert told(folders) == told(undisturbed)


@pytest.mark.parametrize("width", [60, 600, 6000])
def test_a_checkpoint_that_does_not_fit_on_the_disk_is_a_sentence_and_the_former_one_stays(tmp_path, width):
    def wide():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, width), torch.nn.Linear(width, 3))

    order = replace(NETWORK, lanes=((1e-4, 0),), noise=None)
    folders = begun(tmp_path, order, 8)
    assert not train(folders, Regression(wide), {}, after(3))
    before = (folders[0] / "checkpoint.pt").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, hard))
    try:
        with pytest.raises(UserError, match=r"checkpoint\.pt: File too large\n  hint: "):
            train(folders, Regression(wide), {}, after(5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (folders[0] / "checkpoint.pt").read_bytes() == before
    assert len(list(folders[0].iterdir())) == 4


def test_a_checkpoint_to_which_no_curve_leads_is_not_used(tmp_path):
    """One of a former order, whose lanes were begun anew in between."""
    undisturbed, folders = begun(tmp_path / "a"), begun(tmp_path / "b")
    train(undisturbed, workload(), {})
    assert not train(folders, workload(), {}, after(12))
    for folder in folders:
        lines = (folder / "curve.csv").read_text().splitlines(keepends=True)
        (folder / "curve.csv").write_text("".join(lines[:4]))
    train(folders, workload(), {})
    assert told(folders) == told(undisturbed)


def test_lanes_that_ended_are_not_written_again(tmp_path):
    folders = begun(tmp_path)
    train(folders, workload(), {})
    begin(folders[0], read_record(folders[0]).trial, ORDER)
    times = [(folder / "status.json").stat().st_mtime_ns for folder in folders[1:]]
    train(folders, workload(), {})
    assert [(folder / "status.json").stat().st_mtime_ns for folder in folders[1:]] == times
    assert read_record(folders[0]).status == "reached"


def test_a_finished_cohort_trains_nothing(tmp_path):
    folders = begun(tmp_path)
    train(folders, workload(), {})
    before = told(folders)
    assert train(folders, None, {})
    assert told(folders) == before


@pytest.mark.parametrize("micro_batch", [1, 3, 8])
def test_micro_batches_change_the_curve_by_rounding_only(tmp_path, micro_batch):
    whole = begun(tmp_path / "a", NETWORK, 8, dtype="float64")
    parts = begun(tmp_path / "b", replace(NETWORK, micro_batch=micro_batch), 8, dtype="float64")
    train(whole, regression("mlp"), {})
    train(parts, regression("mlp"), {})
    for one, other in zip(whole, parts, strict=True):
        assert read_curve(one / "curve.csv").loss == pytest.approx(
            read_curve(other / "curve.csv").loss, rel=1e-9
        )
    assert read_record(parts[0]).facts["micro_batch"] == micro_batch


def test_lanes_do_not_change_each_other(tmp_path):
    together = begun(tmp_path / "a", MEASURE)
    train(together, workload(), {})
    alone = begun(tmp_path / "b", replace(MEASURE, lanes=MEASURE.lanes[1:2]))
    train(alone, workload(), {})
    one, other = read_record(together[1]).curve, read_record(alone[0]).curve
    shared = min(len(one), len(other))
    assert shared > 20
    assert (one.loss[:shared] == other.loss[:shared]).all()


def test_noise_samples_change_nothing(tmp_path):
    with_noise, without = (
        begun(tmp_path / "a", NETWORK, 8),
        begun(tmp_path / "b", replace(NETWORK, noise=None), 8),
    )
    train(with_noise, regression("mlp"), {})
    train(without, regression("mlp"), {})
    assert [one[5][:3] for one in told(with_noise)] == [one[5][:3] for one in told(without)]
    assert read_record(with_noise[0]).frozen
    assert not (without[0] / "noise.csv").exists()


def test_the_rate_in_a_curve_is_the_one_that_the_update_had(tmp_path):
    schedule = {"use": "constant", "warmup_steps": 4}
    folders = begun(tmp_path, replace(ORDER, lanes=((0.4, 7),), max_steps=6), schedule=schedule)
    train(folders, workload(), {})
    rows = [line.split(",") for line in (folders[0] / "curve.csv").read_text().splitlines()[1:]]
    assert [float(row[4]) for row in rows] == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_budget_of_one_step(tmp_path):
    folders = begun(tmp_path, replace(ORDER, max_steps=1))
    train(folders, workload(), {})
    assert [read_record(folder).status for folder in folders][:3] == ["exhausted"] * 3
    assert [len(read_record(folder).curve) for folder in folders] == [2] * 4


def test_a_model_that_gives_nan_from_the_start_has_diverged_at_once(tmp_path):
    class Broken(type(workload())):
        def evaluate(self, model):
            return super().evaluate(model) * float("nan")

    folders = begun(tmp_path)
    train(folders, Broken(), {})
    assert {read_record(folder).status for folder in folders} == {"diverged"}
    status = json.loads((folders[0] / "status.json").read_text())
    assert status["reason"] == "loss not finite at step 0"


def test_state_outside_of_the_model_is_the_workload_s_own_affair(tmp_path):
    """Draws from the global random state, by workload and test alike, change nothing."""

    class Careless(type(regression("mlp"))):
        def losses(self, model, batch):
            return super().losses(model, batch) + 0 * torch.rand(())

    order = replace(NETWORK, noise=None)
    folders, again = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", order, 8)
    train(folders, Careless(mlp), {})
    torch.rand(17)
    train(again, Careless(mlp), {}, after(10))
    torch.rand(3)
    train(again, Careless(mlp), {})
    assert told(again) == told(folders)


@pytest.mark.parametrize(
    ("method", "engine"), [("losses", "loop"), ("evaluate", "loop"), ("evaluate", "vmap")]
)
def test_a_lane_whose_model_makes_the_user_s_code_raise_fails_alone(tmp_path, method, engine):
    """As checks for finite numbers do at a rate that is far too high."""

    class Checked(Regression):
        def losses(self, model, batch):
            if method == "losses" and model[1].weight.detach().abs().max() > 0.3:
                raise ValueError("not finite")
            return super().losses(model, batch)

        def evaluate(self, model):
            if method == "evaluate" and model[1].weight.detach().abs().max() > 0.3:
                raise ValueError("not finite")
            return super().evaluate(model)

    order = replace(
        ORDER, lanes=((0.01, 0), (2.0, 0), (0.02, 0)), targets=(-1.0,), max_steps=12, engine=engine
    )
    folders, others = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", order, 8)
    assert train(folders, Checked(mlp), {})
    records = [read_record(folder) for folder in folders]
    assert [record.status for record in records] == ["exhausted", "failed", "exhausted"]
    assert records[1].reason == "ValueError: not finite"
    assert "ValueError: not finite" in (folders[1] / "log.txt").read_text()
    if engine == "loop":
        train([others[0], others[2]], Regression(mlp), {})
        assert [told(folders)[row][5] for row in (0, 2)] == [told(others)[row][5] for row in (0, 2)]
    with pytest.raises(ValueError, match="not finite"):
        train(folders, Checked(mlp), {})


def test_an_order_that_forbids_parts_of_a_batch_leaves_the_workload_as_it_is(tmp_path):
    shared = regression("mlp")
    order = replace(NETWORK, noise=None, max_steps=5, splits=False)
    whole, parts = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", replace(order, micro_batch=3), 8)
    train(whole, shared, {})
    train(parts, shared, {})
    assert [one[5] for one in told(parts)] == [one[5] for one in told(whole)]
    assert shared.sums_over_examples


class Calls(Regression):
    calls = 0
    replayable = True

    def losses(self, model, batch):
        type(self).calls += 1
        return super().losses(model, batch)


@pytest.mark.parametrize("execution", ["replay", "eager"])
def test_steps_are_replayed_unless_the_order_says_otherwise(tmp_path, monkeypatch, execution):
    """Of the same curves."""
    order = replace(NETWORK, noise=None, targets=(-1.0,), max_steps=40)
    alone, folders = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", order, 8)
    train(alone, regression("mlp"), {})
    monkeypatch.setattr(Calls, "calls", 0)
    for folder in folders:
        begin(folder, read_record(folder).trial, replace(order, execution=execution))
    train(folders, Calls(mlp), {})
    assert told(folders) == told(alone)
    every_step = 40 * len(folders)
    assert Calls.calls == every_step if execution == "eager" else Calls.calls < every_step / 2
