"""Workloads by name: built-in, the user's own, and what users get wrong."""

import itertools

import pytest
import torch
from own import write_module

from bscrit.engine.loading import load_workload
from bscrit.errors import UserError

_numbers = itertools.count()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module that no other test has imported; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text=None, **inside):
        name = f"own_{next(_numbers)}"
        if text is None:
            write_module(tmp_path, name, **inside)
        else:
            (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_settings_reach_the_workload():
    assert load_workload("quadratic", {"dimensions": 7}).batch(0, 0, 4).shape == (1, 7)


def test_a_class_with_the_four_methods_alone_gets_the_rest_of_the_contract(write):
    workload = load_workload(f"{write()}:Mine", {"dimensions": 3})
    assert (workload.unit, workload.examples, workload.sums_over_examples) == ("point", None, True)
    assert workload.fingerprint() == ""
    workload.prepare("cpu")
    assert workload.losses(workload.model(0), workload.batch(0, 0, 6)).shape == (6,)
    assert isinstance(workload.evaluate(workload.model(0)), torch.Tensor)


def test_a_function_that_makes_a_workload_is_as_good(write):
    name = write(top="def make(size: int = 2):\n    return Mine(size)")
    assert load_workload(f"{name}:make", {"size": 4}).dimensions == 4


FULL = "def model(self, seed): ...\n    def batch(self, *a): ...\n    def losses(self, *a): ...\n"
WHOLE = f"class Mine:\n    {FULL}    def evaluate(self, *a): ...\n    "


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("def broken(:", {}, "cannot be imported: SyntaxError"),
        ("import nothing_of_this_name", {}, "cannot be imported: ModuleNotFoundError"),
        ("raise RuntimeError('no data')", {}, "cannot be imported: RuntimeError: no data"),
        ("x = 1", {}, "cannot be imported: AttributeError"),
        (f"class Mine:\n    {FULL}", {}, "has no method 'evaluate'"),
        (
            f"from bscrit.engine.workload import Workload\nclass Mine(Workload):\n    {FULL}",
            {},
            "has no method 'evaluate'",
        ),
        (f"{WHOLE}x = 1", {"dept": 1}, "is not a setting of"),
        (f"{WHOLE}def __init__(self, depth): ...", {"dept": 1}, "did you mean 'depth'"),
        (f"{WHOLE}def __init__(self, depth): ...", {}, "needs a key 'depth'"),
        (f"{WHOLE}def __init__(self, depth): int('x')", {"depth": 1}, "invalid literal for int()"),
        (f"{WHOLE}def __init__(self, file): open(file)", {"file": "/no/data"}, "No such file"),
    ],
)
def test_what_users_get_wrong_is_a_sentence(write, text, settings, expected):
    name = write(text)
    with pytest.raises(UserError) as caught:
        load_workload(f"{name}:Mine", settings)
    assert expected in str(caught.value)
    assert caught.value.remedy


def test_nothing_of_a_class_without_the_methods_runs(tmp_path):
    trace = tmp_path / "trace"
    with pytest.raises(UserError, match="has no method 'model'"):
        load_workload("subprocess:Popen", {"args": ["touch", str(trace)]})
    assert not trace.exists()


def test_any_settings_go_to_a_class_that_takes_any(write):
    name = write(top="class Any(object):\n    pass")
    text = f"from {name} import Mine\nclass Theirs(Mine):\n    def __init__(self, **k): super().__init__()"
    assert load_workload(f"{write(text)}:Theirs", {"whatever": 1}).unit == "point"


def test_a_key_of_the_sweep_among_those_of_the_workload_is_sent_there():
    with pytest.raises(UserError, match=r"metric belongs in \[sweep\]"):
        load_workload("quadratic", {"metric": "accuracy"})


def test_validation_examples_reach_a_class_that_names_them_and_no_other():
    assert load_workload("classifier", {}, validation_examples=7).validation_examples == 7
    with pytest.raises(UserError, match="has no effect on 'quadratic'"):
        load_workload("quadratic", {}, validation_examples=7)


def test_for_the_training_loss_nothing_need_be_evaluated(write):
    text = "class Mine:\n    def model(self, seed): ...\n    def batch(self, *_): ...\n    def losses(self, *_): ...\n"
    name = write(text)
    assert load_workload(f"{name}:Mine", {}, "train_loss").unit == "example"
    with pytest.raises(UserError, match="has no method 'evaluate'"):
        load_workload(f"{name}:Mine", {})


@pytest.mark.parametrize(
    ("error", "what"), [("ValueError('no\\nroom')", "no"), ("TypeError('a\\nb')", "TypeError: a")]
)
def test_an_error_of_many_lines_is_one(write, error, what):
    with pytest.raises(UserError) as caught:
        load_workload(f"{write(init=f'raise {error}')}:Mine", {})
    assert caught.value.what == what
