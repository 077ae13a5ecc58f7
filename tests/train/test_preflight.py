"""What a worker finds out before anything trains, and what it refuses."""

import itertools
import json
from dataclasses import replace

import pytest
from own import write_module

from bscrit.engine.self_test import Choice
from bscrit.errors import UserError
from bscrit.preflight import read_preflight
from bscrit.request import Setup
from bscrit.train.preflight import preflight, resolve_device

_numbers = itertools.count()
SGD = {"use": "sgd", "momentum": 0.0}


def setup(use="quadratic", sizes=(1, 4, 16), **keys):
    return replace(
        Setup(
            use=use,
            settings={},
            device="cpu",
            dtype="float32",
            lanes="auto",
            execution="replay",
            micro_batch=None,
            first_seed=0,
            optimizers=tuple((size, SGD) for size in sizes),
        ),
        **keys,
    )


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Preflight of a user's workload with this code in its methods."""
    monkeypatch.syspath_prepend(tmp_path)

    def own(sizes=(1, 4, 16), name="", first_seed=0, **inside):
        name = name or f"preflown_{next(_numbers)}"
        write_module(tmp_path, name, **inside)
        return preflight(setup(f"{name}:Mine", sizes, first_seed=first_seed))

    return own


def test_facts_of_a_workload_with_a_known_start():
    facts = preflight(setup(settings={"dimensions": 100}))
    assert facts.untrained_value == pytest.approx(2.5936887588, rel=1e-6)
    assert (facts.unit, facts.examples, facts.parameters, facts.splits) == ("example", None, 100, False)
    assert set(facts.engines) == {1, 4, 16}
    assert facts.problems == ()
    assert facts.versions["torch"]


def test_facts_survive_json(tmp_path):
    facts = preflight(setup())
    (tmp_path / "p.json").write_text(json.dumps(facts.to_dict()))
    assert read_preflight(tmp_path / "p.json") == facts


def test_a_user_s_workload(own):
    facts = own()
    assert (facts.unit, facts.parameters, facts.splits, facts.problems) == ("point", 6, True, ())


def test_the_untrained_model_identifies_the_trials_and_the_spec_s_choices_do_not(own, monkeypatch):
    monkeypatch.setenv("WIDTH", "1")
    model = {"model": "return nn.Linear(self.dimensions, int(os.environ['WIDTH']))"}
    evaluate = {"evaluate": "loss = loss * float(os.environ.get('SCALE', 1))"}
    first = own(name="preflown_same", **model, **evaluate).fingerprint
    assert own((16,), name="preflown_same", first_seed=3, **model, **evaluate).fingerprint == first
    monkeypatch.setenv("SCALE", "0.9")
    scaled = own(name="preflown_same", **model, **evaluate).fingerprint
    monkeypatch.setenv("WIDTH", "2")
    assert len({first, scaled, own(name="preflown_same", **model, **evaluate).fingerprint}) == 3


def test_batch_sizes_beyond_the_data_are_left_to_the_spec_s_checks():
    facts = preflight(setup("classifier", (8, 5000), settings={"data": "digits"}))
    assert 5000 > facts.examples > 1000
    assert set(facts.engines) == {8}


@pytest.mark.parametrize(("lanes", "expected"), [("loop", "loop"), ("vmap", "vmap")])
def test_the_engine_that_was_asked_for(lanes, expected):
    assert set(preflight(setup(lanes=lanes)).engines.values()) == {expected}


def test_lanes_that_cannot_be_vectorised_run_one_after_the_other(own):
    facts = own(losses="if losses.sum() > 1e9: losses = losses * 2")
    assert set(facts.engines.values()) == {"loop"}
    assert any("can't be vectorised" in note for note in facts.notes)


def test_losses_that_are_no_sum_over_examples_are_found_out(own):
    facts = own(losses="losses = losses * losses.mean()")
    assert not facts.splits
    assert not facts.problems
    assert "batches are never split" in facts.notes[-1]


def test_evaluation_may_return_a_plain_number(own):
    assert own(evaluate="loss = float(loss)").untrained_value == pytest.approx(own().untrained_value)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"evaluate": "loss = loss.repeat(2)"}, "returned shape (2,), expected a scalar"),
        ({"evaluate": "loss = None"}, "returned NoneType, expected a scalar"),
        ({"losses": "losses = losses.mean()"}, "returned shape (), expected (1,): one loss per example"),
        ({"losses": "losses = 1.0"}, "returned float, expected (1,): one loss per example"),
        ({"losses": "losses = losses[:, None]"}, "returned shape (1, 1), expected (1,)"),
        ({"model": "return nn.Flatten()"}, "has no parameters that require a gradient"),
        ({"model": "return None"}, "fails on its first batch: AttributeError"),
        ({"batch": "return 3"}, "fails on its first batch: TypeError"),
        ({"batch": "raise OSError('no data')"}, "fails on its first batch: OSError: no data"),
    ],
)
def test_what_users_get_wrong_is_a_sentence(own, inside, expected):
    with pytest.raises(UserError) as caught:
        own(**inside)
    assert expected in str(caught.value)


def test_a_batch_of_another_size_is_refused(own):
    with pytest.raises(UserError, match=r"returned 1 examples where 4 were asked for"):
        own(batch="size = 1", sizes=(4, 16))


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"batch": "import os; start = int.from_bytes(os.urandom(4))"}, "draws another batch each time"),
        ({"batch": "start = 7"}, "the same batch at every step"),
        ({"batch": "seed = 7"}, "the same batches at every seed"),
        ({"losses": "losses = losses / 0"}, "not finite before training: the gradient of 'weight'"),
        ({"model": "import os; seed = int.from_bytes(os.urandom(4)); return nn.Linear(5, 1).apply("
          "lambda m: nn.init.constant_(m.weight, seed))"}, "differs from call to call"),
    ],
)  # fmt: skip
def test_what_cannot_be_repeated_is_a_problem(own, inside, expected):
    assert any(expected in problem for problem in own(**inside).problems)


@pytest.mark.parametrize("sizes", [(1,), (1, 4, 16)])
def test_a_batch_of_few_distinct_examples_is_not_refused_by_chance(own, sizes):
    rows = "x = torch.eye(5)[torch.randint(5, (size,), generator=generator(seed, start, size))]; return x, x.sum(1)"
    for seed in range(20):  # at batch size 1 four of them begin with the same row twice
        assert own(sizes, name="preflown_rows", first_seed=seed, batch=rows).problems == ()


COMPLEX = "class Net(nn.Linear):\n    def __init__(self, kind):\n        super().__init__(5, 1)\n        "


def test_complex_parameters_are_refused_by_name_and_complex_buffers_stay_complex(own):
    top = COMPLEX + "kind(self, torch.ones(2, dtype=torch.cfloat))\n"
    with pytest.raises(UserError, match="parameter 'phase' is complex64"):
        own(top=top, model="return Net(lambda m, t: m.register_parameter('phase', nn.Parameter(t)))")
    keeps = "assert dict(model.named_buffers())['phase'].dtype == torch.complex64"
    assert (
        own(top=top, model="return Net(lambda m, t: m.register_buffer('phase', t))", losses=keeps).problems
        == ()
    )


def test_a_lazy_module_is_refused_by_name(own):
    with pytest.raises(UserError, match="parameter 'weight' has no shape before the first batch"):
        own(model="return nn.LazyLinear(1)")


SPARSE = """
class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight):
        return weight.sum() / 2

    @staticmethod
    def backward(ctx, gradient):
        return torch.sparse_coo_tensor([[0], [0]], gradient.reshape(1) / 2, (3, 2))
"""


@pytest.mark.parametrize(
    "lookup", ["model.table(torch.zeros(1).long()).sum()", "Halved.apply(model.table.weight)"]
)
def test_sparse_gradients_are_refused_by_name_wherever_they_come_from(own, lookup):
    model = "model = nn.Linear(5, 1); model.table = nn.Embedding(3, 2, sparse=True); return model"
    with pytest.raises(UserError, match=r"parameter 'table\.weight'.* has sparse gradients"):
        own(top=SPARSE, model=model, losses=f"losses = losses + {lookup}")


def test_a_model_of_another_type_is_noted(own):
    (note,) = own(model="return nn.Linear(5, 1).double()", losses="model.weight.float()").notes
    assert "'weight' of the model is float64 and is trained in float32, as [compute] dtype" in note
    assert own().notes == ()


def test_an_error_of_types_names_the_key_and_one_of_many_lines_is_short(own):
    with pytest.raises(UserError) as caught:
        own(losses="losses = nn.functional.linear(x.double(), model.weight)[:, 0]")
    assert "[compute] dtype" in caught.value.remedy
    with pytest.raises(UserError) as caught:
        own(batch="raise RuntimeError('no kernel\\nFile a.cu\\nFile b.cu')")
    assert str(caught.value).endswith("RuntimeError: no kernel")


def test_torch_s_own_random_numbers_are_seeded_for_the_user(own):
    facts = own(
        batch="x = torch.randn(size, self.dimensions); return x, x.sum(1)", model="return nn.Linear(5, 1)"
    )
    assert facts.problems == ()


def test_batch_norm_is_named_and_never_split(own):
    facts = own(
        model="return nn.Sequential(nn.BatchNorm1d(self.dimensions), nn.Linear(self.dimensions, 1))",
        sizes=(4, 16),
    )
    assert not facts.splits
    assert facts.problems == ()
    assert "BatchNorm1d mixes the examples of a batch" in facts.notes[-1]


def test_a_batch_size_of_one_alone(own):
    assert own(sizes=(1,)).problems == ()


def test_devices():
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") in ("cpu", "cuda")
    if resolve_device("auto") == "cpu":
        with pytest.raises(UserError, match="'cuda:3' is not there"):
            resolve_device("cuda:3")


def test_to_compile_where_torch_cannot_is_refused(monkeypatch):
    def broken(_):
        def call(_):
            raise RuntimeError("backend='inductor' raised:\nno C++ compiler was found")

        return call

    monkeypatch.setattr("torch.compile", broken)
    assert preflight(setup(execution="replay")).engines
    with pytest.raises(UserError) as error:
        preflight(setup(execution="compile"))
    assert "no C++ compiler was found" in error.value.what
    assert "replay" in error.value.remedy


@pytest.mark.parametrize(("speedup", "timed"), [(3.0, [16]), (1.5, [16, 4, 1])])
def test_where_vectorising_is_clearly_faster_smaller_batches_are_not_timed(monkeypatch, speedup, timed):
    seen = []

    def choice(_, size, *__, **___):
        seen.append(size)
        return Choice("vmap", "", speedup)

    monkeypatch.setattr("bscrit.train.preflight.choose_engine", choice)
    assert preflight(setup(lanes="auto")).engines == {1: "vmap", 4: "vmap", 16: "vmap"}
    assert seen == timed


def test_what_an_evaluation_costs_is_bounded_and_the_training_loss_is_free(own):
    slow = own(evaluate="time.sleep(0.05)").evaluation_share
    assert own().evaluation_share < 0.9 < slow < 1
    free = preflight(setup(metric="train_loss"))
    assert free.evaluation_share == 0
    assert free.untrained_value == pytest.approx(preflight(setup()).untrained_value, rel=0.5)
