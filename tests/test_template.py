"""Texts with expressions in braces: right values in digits that trainers read, a sentence for anything else."""

import argparse
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bscrit.errors import UserError
from bscrit.template import fill, fill_partly, names, number

VALUES = {
    "batch_size": 64,
    "lr": 1e-5,
    "seed": 3,
    "micro_batch": 16,
    "accumulation": 2,
    "ranks": 2,
    "steps": 500,
}
YAML_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*)\.[0-9_]*([eE][-+][0-9]+)?")  # of YAML 1.1, as PyYAML reads it


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--lr={lr}", "--lr=1.0e-05"),
        ("{lr * 4}", "4.0e-05"),
        ("{ batch_size }/{seed}", "64/3"),
        ("{accumulation * ranks}", "4"),
        ("{batch_size / 64}", "1.0"),
        ("{dir}/log.txt", "/r/a b/log.txt"),
        ('{{"lr": {lr}, "n": {{}}}}', '{"lr": 1.0e-05, "n": {}}'),
        ("{{{seed}}}", "{3}"),
        ("$HOME `x` 'y' \n", "$HOME `x` 'y' \n"),
        ("", ""),
    ],
)
def test_values(text, filled):
    assert fill(text, {**VALUES, "dir": "/r/a b"}) == filled


@given(st.floats(1e-300, 1e300))
def test_a_float_is_one_to_any_reader(value):
    text = number(value)
    assert float(text) == value
    assert YAML_FLOAT.fullmatch(text)


def test_a_whole_number_is_one_to_argparse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    assert parser.parse_args(["--n", number(2**40)]).n == 2**40


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["{lr}", "{seed + steps}", "{dir}", "{{", "}}", "x", " "]), max_size=8))
def test_what_is_filled_in_two_goes_is_what_is_filled_in_one(parts):
    text = "".join(parts)
    first = fill_partly(text, {"lr": 1e-5, "seed": 3})
    assert names(first) <= {"seed", "steps", "dir"} - {"lr"}
    rest = {**VALUES, "dir": "{odd}"}
    assert fill(first, rest) == fill(text, rest)


def test_a_json_file_may_be_filled():
    assert json.loads(fill('{{"train": {{"lr": {lr}, "steps": {steps}}}}}', VALUES)) == {
        "train": {"lr": 1e-5, "steps": 500}
    }


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("{lr", "holds a { without its like", "double"),
        ("lr}", "holds a } without its like", "double"),
        ("{}", "holds empty braces", "double"),
        ("{learning_rate}", "'learning_rate' is not known", "known: accumulation"),
        ('{"a": 1}', '{"a": 1}: ', "doubled: {{ }}"),
        ("{dir / 2}", "'dir' is not known", "doubled"),
        ("{os.system(1)}", "is not arithmetic", "write a number"),
    ],
)
def test_what_cannot_be_read(text, what, remedy):
    with pytest.raises(UserError) as caught:
        names(text)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_what_has_no_value():
    with pytest.raises(UserError, match="needs horizon"):
        fill("{horizon}", VALUES)
    with pytest.raises(UserError, match="divides by zero"):
        fill("{1 / (seed - 3)}", VALUES)
