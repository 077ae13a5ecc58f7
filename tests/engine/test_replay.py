"""Replayed training against training whose every call is ordinary."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from small import NETWORKS, Counting, Recurrent, Regression, dropout, mlp, regression
from torch import nn
from torch.utils.checkpoint import checkpoint

from bscrit.engine.calls import Inputs, form, layout
from bscrit.engine.lanes import Lanes
from bscrit.engine.proof import same
from bscrit.engine.replay import (
    AGAIN,
    ENOUGH,
    MOST_RECORDINGS,
    OFTEN,
    Replay,
    replay_of,
    replayable,
)
from bscrit.engine.workload import Workload

NEVER = float("inf")
ENGINES = ("vmap", "loop")
ORDINARY = {**NETWORKS, "dropout": dropout, "counting": Counting, "lstm": Recurrent}


def trained(
    workload, engine, replay, steps=8, dtype="float32", rows=3, optimizer="sgd", size=8, clip=0.0
) -> Lanes:
    lanes = Lanes(
        workload,
        seeds=[0, 1, 0][:rows],
        lrs=[0.01, 0.02, 0.03][:rows],
        batch_size=size,
        optimizer={"use": optimizer, "clip": clip} if clip else {"use": optimizer},
        engine=engine,
        dtype=dtype,
        replay=replay,
    )
    losses = []
    for step in range(steps):
        lanes.step(lanes.batch_size * step, 1.0)
        losses.append(lanes.evaluate())
    lanes.losses = np.array(losses)
    return lanes


def serving(replay: Replay) -> list:
    """Keys of the recordings that have taken over for some module."""
    return [key for key, recorded in replay._recorded.items() if any(map(recorded.serves, recorded.compared))]


def replayed(replay: Replay) -> list[str]:
    """Of what kinds of calls recordings have taken over."""
    return sorted(key[0].split("._")[1] for key in serving(replay))


def assert_same(found: Lanes, expected: Lanes) -> None:
    assert np.array_equal(found.losses, expected.losses)
    for kind in ("parameters", "buffers"):
        for name, tensor in getattr(expected.stack, kind).items():
            assert torch.equal(getattr(found.stack, kind)[name], tensor), name


@pytest.mark.parametrize("engine", ENGINES)
def test_replayed_gradients_are_clipped_as_others(engine):
    workload = regression("mlp")
    replay = Replay(workload, 0)
    clipped = trained(workload, engine, replay, clip=1.8)
    assert replayed(replay)
    assert_same(clipped, trained(workload, engine, Replay(workload, NEVER), clip=1.8))
    assert any(0 < share < 1 for share in clipped.optimizer.clipped_shares())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_replayed_training_has_the_same_bits(name, engine, dtype, rows):
    if (name, engine, dtype) == ("batch norm", "vmap", "bfloat16"):
        pytest.skip("torch can't vectorise it")
    workload = regression(name)
    replay = Replay(workload, often=2)
    found = trained(workload, engine, replay, dtype=dtype, rows=rows)
    assert_same(found, trained(workload, engine, Replay(workload, NEVER), dtype=dtype, rows=rows))
    # Lane by lane, torch's fast path for encoders in evaluation may be replayed or not: bits are what counts.
    assert "gradients" in replayed(replay)


@pytest.mark.parametrize("name", ["dropout", "counting", "lstm"])
def test_what_only_the_loop_can_train_trains_the_same(name):
    workload = Regression(ORDINARY[name])
    replay = Replay(workload, often=2)
    found = trained(workload, "loop", replay)
    assert_same(found, trained(workload, "loop", Replay(workload, NEVER)))
    # The first forward pass of an LSTM after an evaluation renews a list of its weights, which shows as a change.
    assert ("gradients" in replayed(replay)) == (name != "lstm")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class Odd(nn.Module):
    """Two layers, and between them what `act(self, x)` makes of the first one's output."""

    def __init__(self, act, first=None):
        super().__init__()
        self.act, self.first, self.second = act, first or nn.Linear(72, 8), nn.Linear(8, 3)
        self.seen = torch.zeros(8)

    def forward(self, x):
        return self.second(self.act(self, self.first(x.flatten(1))))


def remembered(model, x):
    """Changes an attribute that is no buffer, which only the evaluation reads."""
    if model.training:
        model.seen = 0.9 * model.seen + x.detach().mean(0)
        return x
    return x + model.seen


ODD = {
    "own function": lambda: Odd(lambda _, x: Square.apply(x)),
    "noise": lambda: Odd(lambda _, x: x + torch.randn_like(x)),
    "mask": lambda: Odd(lambda _, x: x.masked_fill(x > 0.1, 0.0)[:, torch.arange(8).flip(0)]),
    "spectral norm": lambda: Odd(
        lambda _, x: x.tanh(), nn.utils.parametrizations.spectral_norm(nn.Linear(72, 8))
    ),
    "checkpoint": lambda: Odd(lambda _, x: checkpoint(torch.tanh, x, use_reentrant=False)),
    "a tensor that is no buffer": lambda: Odd(remembered),
    "a size that depends on values": lambda: Odd(lambda _, x: x * (1 + x[x > 0].mean())),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_models_train_the_same(name):
    found, expected = (
        trained(workload, "loop", Replay(workload, often), steps=10)
        for workload, often in ((Regression(ODD[name]), 2), (Regression(ODD[name]), NEVER))
    )
    assert_same(found, expected)


def test_lanes_that_leave_and_other_batch_sizes_have_recordings_of_their_own():
    workload = regression("batch norm")
    replay = Replay(workload, often=1)
    for number, size in enumerate((8, 5), 1):
        found, expected = (
            trained(workload, "vmap", one, size=size) for one in (replay, Replay(workload, NEVER))
        )
        for lanes in (found, expected):
            lanes.keep([0, 2])
            for step in range(8, 12):
                lanes.step(lanes.batch_size * step, 0.5)
            lanes.losses = lanes.evaluate()
        assert_same(found, expected)
        assert (
            sum(
                "gradients" in key[0] and recorded.run is not None
                for key, recorded in replay._recorded.items()
            )
            == 2 * number
        )


def test_parts_of_a_batch_are_replayed_too():
    workload = regression("mlp")

    def parts(replay):
        lanes = Lanes(
            workload, seeds=[0, 1], lrs=[0.1, 0.2], batch_size=8, optimizer={"use": "adam"}, micro_batch=3,
            replay=replay,
        )  # fmt: skip
        for step in range(6):
            lanes.step(lanes.batch_size * step, 1.0)
        lanes.losses = lanes.evaluate()
        return lanes

    replay = Replay(workload, often=1)
    found = parts(replay)
    assert_same(found, parts(Replay(workload, NEVER)))
    sizes = {key[-1][1][1][0][0][1] for key in serving(replay) if "gradients" in key[0]}
    assert sizes == {3, 2}


class Watched(Regression):
    """Losses that depend on something besides their arguments, or change it."""

    def __init__(self, how):
        super().__init__(mlp)
        self.how, self.calls, self.weight, self.log = how, 0, 1.0, []

    def batch(self, seed, start, size):
        if self.how == "curriculum":
            self.weight = 1.0 if start < 6 * size else 0.5
        return super().batch(seed, start, size)

    def losses(self, model, batch):
        losses = super().losses(model, batch)
        if self.how == "attribute":
            self.calls += 1
        elif self.how == "list":
            self.log.append(0)
        elif self.how == "python":
            losses = losses * (1 + (random.random() < 2))
        elif self.how == "numpy":
            losses = losses * (1 + (np.random.rand() < 2))
        elif self.how == "module":
            model.seen = getattr(model, "seen", 0) + 1
        elif self.how == "branch" and batch["x"].mean() > 10:
            losses = losses * 2
        elif self.how == "data":
            losses = losses * float(batch["x"].numpy().std())
        elif self.how == "curriculum":
            losses = losses * self.weight
        return losses


@pytest.mark.parametrize("how", ["attribute", "list", "python", "numpy", "module", "branch", "data"])
def test_losses_with_side_effects_are_not_replayed(how):
    workload = Watched(how)
    replay = Replay(workload, often=2)
    found = trained(workload, "loop", replay)
    assert "gradients" not in replayed(replay)
    assert workload.calls == (24 if how == "attribute" else 0)
    assert_same(found, trained(Watched(how), "loop", Replay(workload, NEVER)))


def test_another_attribute_of_the_workload_is_noticed():
    workload = Watched("curriculum")
    replay = Replay(workload, often=1)
    found = trained(workload, "loop", replay, steps=12)
    assert_same(found, trained(Watched("curriculum"), "loop", Replay(workload, NEVER), steps=12))


class Scheduled(Regression):
    """Losses by what `batch` leaves in an attribute."""

    def __init__(self, schedule, structure=None):
        super().__init__(mlp)
        self.schedule, self.structure, self.value = schedule, structure, None

    def batch(self, seed, start, size):
        self.value = self.schedule(start // size)
        batch = super().batch(seed, start, size)
        return batch if self.structure is None else self.structure(start // size, batch)

    def losses(self, model, batch):
        if self.structure is not None:
            x, y = batch.values()
            return super().losses(model, {"x": x, "y": y} if x.dim() == 4 else {"x": y, "y": x})
        losses = super().losses(model, batch)
        return losses * self.value if self.value <= 1 else losses.clamp(max=self.value)


SCHEDULES = {
    "new numbers at old addresses": Scheduled(lambda step: 0.5 ** (step // 10)),
    "what the batch that proved it did not need": Scheduled(lambda step: 1e9 if step < 10 else 1.1),
    "the same tensors under other names": Scheduled(
        lambda _: 1.0, lambda step, batch: batch if step < 15 else {"y": batch["y"], "x": batch["x"]}
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_in_attributes_and_other_batches_are_noticed(name, engine):
    workload = SCHEDULES[name]
    found, expected = (trained(workload, engine, Replay(workload, often), steps=30) for often in (2, NEVER))
    assert_same(found, expected)


def test_hooks_of_parameters_are_called_at_every_step():
    def hooked():
        model = mlp()
        model[1].weight.register_hook(lambda gradient: gradient.clamp(-0.02, 0.02))
        return model

    found, expected = (
        trained(workload, "loop", Replay(workload, often), steps=12)
        for workload, often in ((Regression(hooked), 2), (Regression(hooked), NEVER))
    )
    assert_same(found, expected)


class ErrorRate(Regression):
    """Evaluated by another library."""

    def evaluate(self, model):
        x, y = self.held_out
        return float((model(x).numpy().argmax(1) != y.numpy().argmax(1)).mean())


def test_an_evaluation_by_another_library_is_not_frozen():
    workload = ErrorRate(mlp)
    replay = Replay(workload, often=2)
    found = trained(workload, "loop", replay, steps=10, rows=1)
    assert "evaluation" not in replayed(replay)
    assert_same(found, trained(workload, "loop", Replay(workload, NEVER), steps=10, rows=1))


def test_sparse_batches_are_left_alone():
    class Sparse(Regression):
        def batch(self, seed, start, size):
            batch = super().batch(seed, start, size)
            return {"x": batch["x"].flatten(1).to_sparse(), "y": batch["y"]}

        def losses(self, model, batch):
            return (torch.sparse.mm(batch["x"], model[1].weight.T)[:, :3] - batch["y"]).square().mean(1)

    workload = Sparse(mlp)
    found = trained(workload, "loop", Replay(workload, often=2), rows=1)
    assert_same(found, trained(workload, "loop", Replay(workload, NEVER), rows=1))


def test_only_a_class_that_says_so_is_replayed():
    class Says(Regression):
        replayable = True

    class Derived(Says):
        pass

    for kind, expected in ((Regression, False), (Says, True), (Derived, False)):
        workload = kind(mlp)
        assert replayable(workload) == expected
        lanes = trained(workload, "loop", None, steps=OFTEN + 6, rows=1)
        assert bool(replayed(replay_of(workload, "float32", "cpu"))) == expected
        assert len(lanes) == 1


def test_a_workload_whose_attributes_change_is_left_alone():
    workload = regression("mlp")
    replay, module, inputs = Replay(workload, often=1), nn.Identity(), Inputs({"x": torch.ones(9)})
    calls = []

    def function(_, tensors, __):
        calls.append(0)
        return [tensors["x"] + 1]

    for turns in range(3):
        workload.turn = object()
        for _ in range(5):
            replay("step", function, module, inputs)
        assert replay.refused.get("step", "").startswith("attributes") == (turns > 0)
    assert len(calls) > 10


def test_modules_that_share_a_recording_prove_it_each():
    replay, inputs = Replay(regression("mlp"), often=1), Inputs({"x": torch.ones(9)})
    factors = {nn.Identity(): 2.0, nn.Identity(): 3.0}

    def function(module, tensors, _):
        return [tensors["x"] * factors[module]]

    for module, factor in factors.items():
        for _ in range(4):
            assert replay("step", function, module, inputs)[0].tolist() == [factor] * 9
    assert "other results" in replay.refused["step"]


def test_a_call_that_fails_fails_as_ever():
    def function(*_):
        raise ValueError("no")

    replay = Replay(regression("mlp"), often=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            replay("step", function, nn.Identity(), Inputs({"x": torch.ones(2)}))


def test_recordings_are_kept_with_their_workload_and_their_number_is_limited():
    workload = regression("mlp")
    replay = replay_of(workload, "float32", "cpu")
    assert replay is replay_of(workload, "float32", "cpu")
    assert replay is not replay_of(workload, "float64", "cpu")
    assert replay is not replay_of(workload, "float32", "cpu", "eager")
    for key in range(2 * MOST_RECORDINGS):
        replay("step", lambda *_: [], nn.Identity(), Inputs({}), settings=(key,))
    assert len(replay._recorded) == MOST_RECORDINGS


def test_a_workload_that_cannot_be_a_key_is_replayed_too():
    class Unhashable(Regression):
        __hash__ = None

    workload = Unhashable(mlp)
    found = trained(workload, "vmap", None, steps=OFTEN + 6)
    assert_same(found, trained(workload, "vmap", Replay(workload, NEVER), steps=OFTEN + 6))


def test_form_tells_structures_apart():
    x, y = torch.ones(2), torch.ones(2)
    forms = [form(nest) for nest in (x, (x, y), [x, y], {"x": x, "y": y}, {"y": x, "x": y}, {"x": (x, y)})]
    assert len(set(forms)) == len(forms)
    assert form((x, y)) == form((y, x))


def test_layout_tells_memory_orders_apart():
    assert layout([torch.ones(2, 3)]) != layout([torch.ones(3, 2).T])
    assert layout([torch.ones(2)]) != layout([torch.ones(2, dtype=torch.float64)])


def test_eager_execution_never_replays():
    workload = Watched("attribute")
    trained(workload, "loop", replay_of(workload, "float32", "cpu", "eager"), steps=30, rows=1)
    assert workload.calls == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch norm", "dropout"])
def test_compiled_training_is_the_same_to_rounding_and_goes_on_with_the_same_bits(name):
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    workload = Regression(ORDINARY[name])
    workload.sums_over_examples = name != "batch norm"

    def lanes(replay):
        return Lanes(
            workload, seeds=[0, 1], lrs=[0.1, 0.2], batch_size=8, optimizer={"use": "sgd"}, engine="loop",
            replay=replay,
        )  # fmt: skip

    def further(lanes, first, last):
        for step in range(first, last):
            lanes.step(lanes.batch_size * step, 1.0)
        lanes.losses = lanes.evaluate()
        return lanes

    def compiling():
        return Replay(workload, compiles=True, rounding=1e-4)

    replay = compiling()
    whole = further(lanes(replay), 0, 6)
    assert set(replayed(replay)) == {"evaluation", "gradients"}
    ordinary = further(lanes(Replay(workload, NEVER)), 0, 6)
    np.testing.assert_allclose(whole.losses, ordinary.losses, rtol=1e-4)
    resumed = lanes(compiling())
    resumed.load_state_dict(further(lanes(compiling()), 0, 3).state_dict())
    assert_same(further(resumed, 3, 6), whole)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_gpu_to_rounding(engine):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    workload = regression("cnn")
    found, expected = (
        Lanes(
            workload, seeds=[0, 1], lrs=[0.01, 0.02], batch_size=8, optimizer={"use": "sgd"}, engine=engine,
            device="cuda", replay=Replay(workload, often),
        )
        for often in (1, NEVER)
    )  # fmt: skip
    for step in range(6):
        found.step(8 * step, 1.0)
        expected.step(8 * step, 1.0)
    np.testing.assert_allclose(found.evaluate(), expected.evaluate(), rtol=1e-4)


class Unrecordable(Workload):
    """Honest losses, of their arguments alone, that read values below the dispatcher."""

    replayable = True
    unit = "image"

    def __init__(self, name):
        self.name, self.inner = name, Regression(mlp)
        self.held_out = self.inner.held_out

    def model(self, seed):
        return self.inner.model(seed)

    def batch(self, seed, start, size):
        return self.inner.batch(seed, start, size)

    def evaluate(self, model):
        return self.inner.evaluate(model)

    def losses(self, model, batch):
        return self.inner.losses(model, batch) * BELOW[self.name](batch["x"])


def read_elsewhere(x):
    with ThreadPoolExecutor(1) as reader:
        return reader.submit(lambda: float(x.std())).result()


BELOW = {
    "tensor_split": lambda x: x.flatten().tensor_split((x > 0).sum().reshape(1))[0].std(),
    "apply_": lambda x: x.detach().clone().apply_(lambda value: value * value).mean(),
    "dlpack": lambda x: float(np.from_dlpack(x.detach()).std()),
    "numpy": lambda x: float(x.detach().numpy().std()),
    "another thread": read_elsewhere,
    "cond": lambda x: torch.cond(x.mean() > 0, lambda x: x.std(), lambda x: 2 * x.std(), (x,)),
}


@pytest.mark.parametrize("name", BELOW)
def test_losses_that_read_values_below_the_dispatcher_train_right(name):
    workload = Unrecordable(name)
    found = trained(workload, "loop", replay_of(workload, "float32", "cpu"), steps=OFTEN // 3 + 6)
    assert_same(found, trained(workload, "loop", Replay(workload, NEVER), steps=OFTEN // 3 + 6))
    facts = found.facts(0)
    assert facts["replayed"] == 0
    assert facts["not_replayed"].startswith("step: ")


@pytest.mark.parametrize("engine", ENGINES)
def test_another_divisor_is_another_recording(engine):
    workload = regression("mlp")
    lanes = Lanes(
        workload, seeds=[0, 1], lrs=[0.1, 0.2], batch_size=8, optimizer={"use": "sgd"}, engine=engine,
        replay=Replay(workload, often=1),
    )  # fmt: skip
    batches = lanes.batches(0)
    for _ in range(5):
        whole = lanes.mean_gradients(batches, 8, 0)
    for gradient, half in zip(whole, lanes.mean_gradients(batches, 16, 0), strict=True):
        assert torch.equal(gradient / 2, half)
    assert "gradients" in replayed(lanes._replay)


def test_the_share_of_replayed_steps_is_counted_and_a_recording_is_proved_again_at_growing_intervals():
    replay, module, inputs = Replay(regression("mlp"), often=1), nn.Identity(), Inputs({"x": torch.ones(9)})
    factor, ordinary = [2.0], []

    def function(_, tensors, __):
        ordinary.append(1)
        return [tensors["x"] * factor[0]]

    def ordinary_calls(steps):
        del ordinary[:]
        for _ in range(steps):
            replay("step", function, module, inputs)
        return len(ordinary)

    # One call is counted, one is recorded (which is a call more), one proves, and one is replayed.
    assert ordinary_calls(4) == 4
    assert replay.facts(0, 0) == {"replayed": 0.25}
    assert ordinary_calls(AGAIN) == 1
    assert ordinary_calls(4 * AGAIN) == 1
    factor[0] = 3.0
    assert ordinary_calls(20 * AGAIN) > 1
    assert replay("step", function, module, inputs)[0].tolist() == [3.0] * 9
    assert "other results" in replay.facts(0, 0)["not_replayed"]


def test_few_numbers_must_agree_more_than_once():
    replay, module, inputs = Replay(regression("mlp"), often=0), nn.Identity(), Inputs({"x": torch.ones(1)})
    calls = []

    def function(_, tensors, __):
        calls.append(1)
        return [tensors["x"] * (2.0 if len(calls) < ENOUGH else 3.0)]

    results = [replay("step", function, module, inputs)[0].item() for _ in range(2 * ENOUGH)]
    assert results == [2.0] * (ENOUGH - 2) + [3.0] * (ENOUGH + 2)


@pytest.mark.parametrize(("off", "alike"), [(1e-6, True), (5e-4, False)])
def test_small_entries_are_compared_on_their_own_scale(off, alike):
    expected = torch.tensor([1.0, 1e-1])
    assert same([expected + torch.tensor([0.0, off])], [expected], allowed=1e-3) == alike
    assert not same([expected + torch.tensor([0.0, 1e-6])], [expected], allowed=0.0)
