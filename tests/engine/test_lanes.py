"""Lanes against each other and against ordinary training."""

import io

import numpy as np
import pytest
import torch
from small import NETWORKS, Counting, Regression, dropout, mlp, regression
from torch import nn

from bscrit.engine.evaluation import measuring
from bscrit.engine.lanes import Lanes
from bscrit.engine.memory import tune_allocator
from bscrit.engine.seeding import seeded
from bscrit.engine.streams import moved
from bscrit.errors import UserError
from bscrit.goal import TRAIN_LOSS
from bscrit.workloads.quadratic import Quadratic

SGD = {"use": "sgd", "momentum": 0.9}
ADAM = {"use": "adam"}
RMSPROP = {"use": "rmsprop", "momentum": 0.9}
CLIPPED = {**SGD, "clip": 1.8}
SEEDS, LRS = (0, 1, 0, 2, 1), (0.01, 0.02, 0.03, 0.005, 0.01)
ENGINES = ("vmap", "loop")
CASES = [(name, engine) for name in NETWORKS for engine in ENGINES]


def lanes_of(workload, rows=range(5), engine="vmap", optimizer=SGD, dtype="float32", **keywords) -> Lanes:
    return Lanes(
        workload,
        seeds=[SEEDS[row] for row in rows],
        lrs=[LRS[row] for row in rows],
        batch_size=8,
        optimizer=optimizer,
        engine=engine,
        dtype=dtype,
        **keywords,
    )


def train(lanes: Lanes, first: int, last: int) -> Lanes:
    for step in range(first, last):
        lanes.step(8 * step, 1 / (1 + step % 2))
    return lanes


def tensors(lanes: Lanes) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in {**lanes.parameters, **lanes.stack.buffers}.items()}


def assert_rows(lanes: Lanes, rows, whole: Lanes) -> None:
    """Bitwise, evaluation included."""
    for name, tensor in tensors(lanes).items():
        assert torch.equal(tensor, tensors(whole)[name][list(rows)]), name
    assert lanes.evaluate().tolist() == whole.evaluate()[list(rows)].tolist()


def assert_rows_as_promised(lanes: Lanes, rows, whole: Lanes, name: str) -> None:
    """Vectorised batch norm sums over examples in columns of all lanes: its promise is rounding."""
    if (name, lanes.engine.name) != ("batch norm", "vmap"):
        assert_rows(lanes, rows, whole)
    else:
        for key, tensor in tensors(lanes).items():
            torch.testing.assert_close(tensor, tensors(whole)[key][list(rows)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_a_lane_depends_neither_on_their_number_nor_on_its_place(name, engine):
    whole = train(lanes_of(regression(name), engine=engine), 0, 6)
    for rows in ([3], [2, 0], [4, 3, 1]):
        assert_rows_as_promised(train(lanes_of(regression(name), rows, engine), 0, 6), rows, whole, name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lane_without_numbers_leaves_its_neighbours_bitwise_unchanged(engine):
    whole = train(lanes_of(regression("cnn"), engine=engine), 0, 6)
    spoiled = train(lanes_of(regression("cnn"), engine=engine), 0, 3)
    for tensor in spoiled.parameters.values():
        tensor[1] = float("nan")
    train(spoiled, 3, 6)
    losses = spoiled.evaluate()
    assert np.isnan(losses[1])
    spoiled.keep([0, 2, 3, 4])
    assert_rows(spoiled, [0, 2, 3, 4], whole)


@pytest.mark.parametrize("optimizer", [SGD, ADAM, RMSPROP, CLIPPED])
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_lanes_that_are_left_go_on_bitwise_as_if_none_had_gone(name, engine, optimizer):
    whole = train(lanes_of(regression(name), engine=engine, optimizer=optimizer), 0, 6)
    fewer = train(lanes_of(regression(name), engine=engine, optimizer=optimizer), 0, 2)
    fewer.keep([4, 0, 1])
    train(fewer, 2, 4)
    fewer.keep([2, 1])
    assert (fewer.stack.seeds, len(fewer)) == ((SEEDS[1], SEEDS[0]), 2)
    assert fewer.optimizer.lrs.tolist() == [LRS[1], LRS[0]]
    assert_rows_as_promised(train(fewer, 4, 6), [1, 0], whole, name)


def single(workload, row, steps, dtype=torch.float32, clip=float("inf")):
    """Plain training of one lane with torch.optim; the model, and how many updates were clipped."""
    model, clipped = workload.model(SEEDS[row]).to(dtype), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=LRS[row], momentum=0.9)
    for step in range(steps):
        batch = {k: v.to(dtype) for k, v in workload.batch(SEEDS[row], 8 * step, 8).items()}
        optimizer.param_groups[0]["lr"] = LRS[row] / (1 + step % 2)
        optimizer.zero_grad()
        workload.losses(model, batch).mean().backward()
        if clip < float("inf"):
            clipped += bool(nn.utils.clip_grad_norm_(model.parameters(), clip) > clip)
        optimizer.step()
    return model, clipped


@pytest.mark.parametrize("name", NETWORKS)
def test_a_lane_follows_its_single_run_in_float64(name):
    workload = regression(name)
    lanes = train(lanes_of(workload, dtype="float64"), 0, 100)
    for row in (1, 3):
        state = single(workload, row, 100, torch.float64)[0].state_dict()
        for key, tensor in tensors(lanes).items():
            torch.testing.assert_close(tensor[row], state[key], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_clipping_is_that_of_a_loop_by_hand_of_the_whole_batch_and_counted(engine, micro_batch):
    workload = regression("mlp")
    lanes = lanes_of(workload, engine=engine, optimizer=CLIPPED, dtype="float64", micro_batch=micro_batch)
    shares = train(lanes, 0, 30).optimizer.clipped_shares()
    for row in (1, 3):
        model, clipped = single(workload, row, 30, torch.float64, clip=1.8)
        assert shares[row] == clipped / 30
        assert 0 < clipped < 30
        for key, tensor in tensors(lanes).items():
            torch.testing.assert_close(tensor[row], model.state_dict()[key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_loop_is_bitwise_plain_training(name):
    workload = regression(name)
    lanes = train(lanes_of(workload, engine="loop"), 0, 20)
    losses = lanes.evaluate()
    for row in (1, 3):
        model, _ = single(workload, row, 20)
        state = model.state_dict()
        for key, tensor in tensors(lanes).items():
            assert torch.equal(tensor[row], state[key]), key
        with torch.no_grad():
            assert losses[row] == float(workload.evaluate(model.eval()).double())


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_saved_and_loaded_lanes_go_on_bitwise(name, engine, optimizer):
    def build(rows=range(5)):
        return lanes_of(regression(name), rows, engine, optimizer)

    whole = train(build(), 0, 6)
    saved = train(build(), 0, 3)
    stream = io.BytesIO()
    torch.save(saved.state_dict(), stream)
    train(saved, 3, 5)
    stream.seek(0)
    loaded = build()
    loaded.load_state_dict(torch.load(stream, weights_only=True))
    assert_rows(train(loaded, 3, 6), range(5), whole)


def test_lanes_saved_one_by_one_go_on_together_in_any_order():
    whole = train(lanes_of(regression("mlp"), optimizer=ADAM), 0, 6)
    saved = train(lanes_of(regression("mlp"), optimizer=ADAM), 0, 3)
    states = [saved.state_dict([row]) for row in (3, 1, 4)]
    loaded = lanes_of(regression("mlp"), [0], optimizer=ADAM)
    loaded.load_state_dict(*states)
    assert loaded.optimizer.lrs.tolist() == [LRS[3], LRS[1], LRS[4]]
    assert_rows(train(loaded, 3, 6), [3, 1, 4], whole)
    ahead = saved.state_dict([0])
    train(saved, 3, 4)
    with pytest.raises(ValueError, match="updates"):
        loaded.load_state_dict(ahead, saved.state_dict([1]))


@pytest.mark.parametrize("engine", ENGINES)
def test_micro_batches_add_up_to_the_batch_also_with_an_uneven_last_one(engine):
    whole = lanes_of(regression("cnn"), engine=engine, dtype="float64").gradients(0)
    for size in (1, 3, 4, 8, 100):
        parts = lanes_of(regression("cnn"), engine=engine, dtype="float64", micro_batch=size).gradients(0)
        for name, gradient in parts.items():
            torch.testing.assert_close(gradient, whole[name], rtol=1e-12, atol=1e-14)


class Hungry(Regression):
    """Runs out of memory above three examples at once."""

    def losses(self, model, batch):
        if len(batch["x"]) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return super().losses(model, batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_out_of_memory_halves_the_micro_batch_and_never_the_batch(engine):
    hungry = lanes_of(Hungry(mlp), engine=engine, dtype="float64")
    fed = lanes_of(Regression(mlp), engine=engine, dtype="float64")
    assert hungry.micro_batch is None
    for lanes in (hungry, fed):
        train(lanes, 0, 2)
    assert (hungry.micro_batch, hungry.batch_size) == (2, 8)
    for name, tensor in hungry.parameters.items():
        torch.testing.assert_close(tensor, fed.parameters[name], rtol=1e-12, atol=1e-14)
    whole = Hungry(mlp)
    whole.sums_over_examples = False
    with pytest.raises(torch.OutOfMemoryError):
        lanes_of(whole, engine=engine).step(0, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluation_changes_nothing(engine):
    lanes = train(lanes_of(regression("batch norm"), engine=engine), 0, 2)
    before, random = tensors(lanes), torch.get_rng_state()
    first = lanes.evaluate()
    assert first.shape == (5,)
    assert first.dtype == np.float64
    assert lanes.evaluate().tolist() == first.tolist()
    assert torch.equal(torch.get_rng_state(), random)
    for name, tensor in tensors(lanes).items():
        assert torch.equal(tensor, before[name])
    untouched = train(lanes_of(regression("batch norm"), engine=engine), 0, 4)
    assert_rows(train(lanes, 2, 4), range(5), untouched)


class Stubborn(Regression):
    """Its evaluation can't be vectorised, and updates a buffer."""

    def evaluate(self, model):
        value = super().evaluate(model)
        model.seen += 1
        return value + 0.0 * float(value) + 0.0 * model.seen


def stubborn_model():
    model = mlp()
    model.register_buffer("seen", torch.zeros(()))
    return model


def test_an_evaluation_that_cannot_be_vectorised_goes_lane_by_lane():
    stubborn, plain = lanes_of(Stubborn(stubborn_model)), lanes_of(Regression(stubborn_model))
    assert stubborn.evaluate() == pytest.approx(plain.evaluate(), rel=1e-6)
    assert stubborn.stack.buffers["seen"].tolist() == [0.0] * 5


def test_an_evaluation_of_all_lanes_that_does_not_fit_goes_lane_by_lane(monkeypatch):
    lanes = lanes_of(regression("mlp"))
    expected = lanes.evaluate()

    def exhausted(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("bscrit.engine.vectorised.vmap", exhausted)
    assert lanes.evaluate() == pytest.approx(expected, rel=1e-6)


def test_loop_keeps_a_buffer_that_forward_replaces():
    lanes = train(lanes_of(Regression(Counting), engine="loop"), 0, 3)
    assert lanes.stack.buffers["count"].tolist() == [3.0] * 5
    lanes.keep([2])
    train(lanes, 3, 4)
    assert lanes.stack.buffers["count"].tolist() == [4.0]


def test_dropout_in_a_loop_is_a_function_of_seed_and_step():
    whole = train(lanes_of(Regression(dropout), engine="loop"), 0, 4)
    torch.manual_seed(123)
    torch.rand(7)
    random = torch.get_rng_state()
    other = train(lanes_of(Regression(dropout), [3, 1], engine="loop"), 0, 4)
    assert torch.equal(torch.get_rng_state(), random)
    assert_rows(other, [3, 1], whole)
    with pytest.raises(RuntimeError, match="random"):
        lanes_of(Regression(dropout)).step(0, 1.0)


def test_a_model_that_draws_from_the_global_state_is_a_function_of_the_seed():
    class Careless(Regression):
        def model(self, seed):  # noqa: ARG002
            return mlp()

    first = lanes_of(Careless(mlp))
    with seeded(torch.device("cpu"), 5):
        second = lanes_of(Careless(mlp))
    assert first.evaluate().tolist() == second.evaluate().tolist()
    assert first.evaluate()[0] != first.evaluate()[1]


def test_frozen_parameters_stay():
    def frozen():
        model = mlp()
        model[1].weight.requires_grad_(False)
        return model

    for engine in ENGINES:
        lanes = lanes_of(Regression(frozen), engine=engine)
        before = tensors(lanes)
        train(lanes, 0, 2)
        assert torch.equal(lanes.stack.buffers["1.weight"], before["1.weight"])
        assert not torch.equal(lanes.parameters["1.bias"], before["1.bias"])
        train(lanes, 2, 3).keep([0])
        lanes.load_state_dict(lanes.state_dict())
        train(lanes, 3, 4)
        assert list(lanes.parameters) == ["1.bias", "3.weight", "3.bias"]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_workload_raises_comes_through(engine):
    class Broken(Regression):
        def losses(self, *_):
            raise ZeroDivisionError("mine")

        def evaluate(self, *_):
            raise KeyError("mine too")

    lanes = lanes_of(Broken(mlp), engine=engine)
    with pytest.raises(ZeroDivisionError, match="mine"):
        lanes.step(0, 1.0)
    with pytest.raises(KeyError, match="mine too"):
        lanes.evaluate()


@pytest.mark.parametrize("engine", ENGINES)
def test_losses_that_are_averaged_already_are_refused(engine):
    class Averaged(Regression):
        def losses(self, model, batch):
            return super().losses(model, batch).mean()

        def evaluate(self, model):
            return super().evaluate(model).reshape(1)

    lanes = lanes_of(Averaged(mlp), engine=engine)
    with pytest.raises(UserError, match=r"shape \(\), expected \(8,\)"):
        lanes.step(0, 1.0)
    with pytest.raises(UserError, match="scalar"):
        lanes.evaluate()


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match="2 seeds and 1 rates"):
        Lanes(Quadratic(), seeds=[0, 1], lrs=[0.1], batch_size=4, optimizer={})
    with pytest.raises(ValueError, match="vmap or loop"):
        Lanes(Quadratic(), seeds=[0], lrs=[0.1], batch_size=4, optimizer={}, engine="map")
    with pytest.raises(UserError, match="no parameters"):
        lanes_of(Regression(torch.nn.Flatten))


def test_the_allocator_can_be_tuned_more_than_once():
    tune_allocator()
    tune_allocator()


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_gpu_the_same_curve_to_rounding(engine):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    here = train(lanes_of(regression("cnn"), engine=engine, dtype="float64"), 0, 20)
    there = lanes_of(regression("cnn"), engine=engine, dtype="float64", device="cuda")
    there.workload.held_out = tuple(tensor.cuda() for tensor in there.workload.held_out)
    train(there, 0, 20)
    assert there.evaluate() == pytest.approx(here.evaluate(), rel=1e-9)
    saved = there.state_dict()
    there.load_state_dict(saved)
    assert next(iter(there.parameters.values())).is_cuda


class Shared(nn.Module):
    """Two parameters that are only added to one another have one gradient."""

    def __init__(self):
        super().__init__()
        self.layer, self.a, self.b = (
            nn.Linear(72, 3),
            nn.Parameter(torch.zeros(3)),
            nn.Parameter(torch.zeros(3)),
        )

    def forward(self, x):
        return self.layer(x.flatten(1)) + (self.a + self.b)


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_of_a_batch_add_up_where_parameters_share_a_gradient(engine):
    workload = Regression(Shared)
    whole, parts = (lanes_of(workload, [0], engine, micro_batch=size) for size in (None, 3))
    for name, gradient in whole.gradients(0).items():
        torch.testing.assert_close(parts.gradients(0)[name], gradient)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_training_loss_is_the_mean_of_batch_losses_since_the_last_evaluation(engine, micro_batch):
    workload = measuring(regression("mlp"), TRAIN_LOSS)
    lanes = lanes_of(workload, engine=engine, dtype="float64", micro_batch=micro_batch)
    plain = lanes_of(regression("mlp"), engine="loop", dtype="float64")

    def loss_of_batch(step):
        losses = []
        for row, seed in enumerate(SEEDS):
            model = regression("mlp").model(seed).double()
            model.load_state_dict({name: tensor[row] for name, tensor in plain.parameters.items()})
            batch = moved(regression("mlp").batch(seed, 8 * step, 8), torch.device("cpu"), torch.float64)
            losses.append(float(workload.losses(model, batch).mean().detach()))
        return np.array(losses)

    np.testing.assert_allclose(lanes.evaluate(), loss_of_batch(0), rtol=1e-9)
    expected = []
    for step in range(3):
        expected.append(loss_of_batch(step))
        train(lanes, step, step + 1)
        train(plain, step, step + 1)
    saved = lanes.state_dict([3, 1])
    np.testing.assert_allclose(lanes.evaluate(), np.mean(expected, axis=0), rtol=1e-9)
    other = lanes_of(workload, engine=engine, dtype="float64", micro_batch=micro_batch)
    other.load_state_dict(saved)
    other.keep([1])
    np.testing.assert_allclose(other.evaluate(), np.mean(expected, axis=0)[[1]], rtol=1e-9)
    np.testing.assert_allclose(train(other, 3, 4).evaluate(), loss_of_batch(3)[[1]], rtol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_training_loss_in_another_precision_is_that_of_its_batches(engine):
    losses = [
        train(lanes_of(measuring(regression("mlp"), TRAIN_LOSS), engine=engine, dtype=dtype), 0, 1).evaluate()
        for dtype in ("float32", "bfloat16")
    ]
    np.testing.assert_allclose(*losses, rtol=0.05)
    assert (losses[0] != losses[1]).any()
