"""Options as a command line and as Python give them."""

from __future__ import annotations

import pytest

from bscrit.errors import UserError
from bscrit.tables.options import as_columns, as_direction, as_paths, as_targets, as_unit


def test_targets():
    assert as_targets("0.5, 0.3") == (0.5, 0.3)
    assert as_targets(None) is None


@pytest.mark.parametrize("text", ["0.5;0.3", "", ",", " , ", "nan", "inf,0.3", "1e400"])
def test_targets_that_are_none(text):
    with pytest.raises(UserError, match="--targets"):
        as_targets(text)


def test_units():
    assert as_unit(None) is None
    assert as_unit(" sequence of 512 tokens ") == "sequence of 512 tokens"
    for text in ("", " ", "a\nb", "a\x1b[31mb", "x" * 61):
        with pytest.raises(UserError, match="--unit"):
            as_unit(text)


def test_columns():
    assert as_columns(["steps=iter,lr=rate", "batch_size=b"]) == {
        "steps": "iter",
        "lr": "rate",
        "batch_size": "b",
    }
    with pytest.raises(UserError, match="role=column"):
        as_columns(["steps"])
    with pytest.raises(UserError, match="steps has a column already"):
        as_columns(["steps=a", "lr=rate, steps=b"])


def test_direction():
    assert as_direction("up") == "up"
    with pytest.raises(UserError, match="direction"):
        as_direction("sideways")


def test_a_mapping_says_the_same():
    assert as_columns({"steps": "iter"}) == as_columns("steps=iter") == {"steps": "iter"}
    for wrong in ({"steps": 3}, 7):
        with pytest.raises(UserError, match="--columns"):
            as_columns(wrong)


def test_paths():
    assert as_paths(["a.csv, b.csv", "c.csv"]) == ("a.csv", "b.csv", "c.csv")
