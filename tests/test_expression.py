"""Expressions of the batch size: right values, and a sentence for everything else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bscrit.errors import UserError
from bscrit.expression import LONGEST, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3.0),
        ("1e-4", 1e-4),
        (" 0.9 ", 0.9),
        ("1_000", 1000.0),
        ("+2", 2.0),
        ("batch_size", 64.0),
        ("-batch_size + 1", -63.0),
        ("2 * (batch_size - 4) / 3", 40.0),
        ("2 ** 3 ** 2", 512.0),
        ("-2 ** 2", -4.0),
        ("0.95 ** (batch_size / 64)", 0.95),
        ("sqrt(batch_size) + log(1)", 8.0),
        ("min(1, batch_size / 128, 7)", 0.5),
        ("max(0.1, 1 - 1 / batch_size)", 63 / 64),
    ],
)
def test_values(text, value):
    assert parse(text).at(64) == value


def test_a_number_is_a_constant_expression():
    assert parse(1e-4).at(1) == parse(1e-4).at(4096) == 1e-4
    assert parse(1e-4).is_constant
    assert not parse("0.5 * batch_size").is_constant


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil(512 / batch_size)", 6),
        ("max(5, round(80 / sqrt(batch_size)))", 8),
        ("floor(lr * 1000) * 2 - 1", 1),
        ("batch_size / 50", 2.0),
        ("2 * lr", 0.002),
        ("2 ** 3", 8.0),
    ],
)
def test_whole_numbers_stay_whole(text, value):
    computed = parse(text, ("batch_size", "lr")).value({"batch_size": 100, "lr": 0.001})
    assert (computed, type(computed)) == (value, type(value))


def test_an_expression_names_what_it_depends_on():
    assert parse("max(lr, 1) * batch_size", ("batch_size", "lr", "seed")).names == {"lr", "batch_size"}
    with pytest.raises(UserError, match="arithmetic in lr and seed"):
        parse("[1]", ("lr", "seed"))


def test_negative_zero_is_zero():
    assert math.copysign(1, parse("-0.0").at(1)) == 1


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("", "neither a number nor an expression", "arithmetic in batch_size"),
        ("0.9 0.8", "neither a number nor an expression", "arithmetic in batch_size"),
        ("0.9\x00", "neither a number nor an expression", "arithmetic in batch_size"),
        ("batchsize * 2", "'batchsize' is not known", "did you mean 'batch_size'?"),
        ("nan", "'nan' is not known", "known: batch_size"),
        ("sqr(2)", "no function 'sqr'", "did you mean 'sqrt'?"),
        ("__import__('os').system('true')", "is not arithmetic", "arithmetic in batch_size"),
        ("__import__('os')", "no function '__import__'", "known: ceil"),
        ("batch_size.real", "is not arithmetic", "arithmetic in batch_size"),
        ("batch_size ^ 2", "is not arithmetic", "**"),
        ("batch_size // 2", "is not arithmetic", "arithmetic in batch_size"),
        ("1 if batch_size else 2", "is not arithmetic", "arithmetic in batch_size"),
        ("batch_size > 2", "is not arithmetic", "arithmetic in batch_size"),
        ("[1]", "is not arithmetic", "arithmetic in batch_size"),
        ("True", "True is not arithmetic", "arithmetic in batch_size"),
        ("2j", "2j is not arithmetic", "arithmetic in batch_size"),
        ("'3'", "is not arithmetic", "arithmetic in batch_size"),
        ("(x := 3)", "is not arithmetic", "arithmetic in batch_size"),
        ("sqrt(1, 2)", "sqrt of 2 values", "takes one value"),
        ("min(1)", "min of 1 values", "takes two values or more"),
        ("max(*[1, 2], 3)", "is not arithmetic", "arithmetic in batch_size"),
        ("sqrt(x=3)", "is not arithmetic", "arithmetic in batch_size"),
        ("1 + " * 100 + "1", "401 characters", f"at most {LONGEST}"),
    ],
)
def test_what_cannot_be_read(text, what, remedy):
    with pytest.raises(UserError) as caught:
        parse(text)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / (batch_size - 64)", "divides by zero"),
        ("0 ** -1", "divides by zero"),
        ("(-batch_size) ** 0.5", "not a real number"),
        ("sqrt(-1)", "not a real number"),
        ("log(0)", "not a real number"),
        ("1e999", "too large"),
        ("1e300 * 1e300", "too large"),
        ("10 ** batch_size ** 3", "too large"),
    ],
)
def test_what_has_no_value(text, what):
    expression = parse(text)
    with pytest.raises(UserError) as caught:
        expression.at(64)
    assert what in caught.value.what
    assert caught.value.remedy


def test_a_tower_of_powers_is_refused_before_it_is_built():
    """As whole numbers it would fill any memory."""
    with pytest.raises(UserError, match="too large"):
        parse("9 ** 9 ** 9 ** 9 ** 9").at(64)


@pytest.mark.parametrize("text", ["(" * 99 + "1" + ")" * 99, "-" * (LONGEST - 1) + "1"])
def test_deep_nests_end_in_a_value(text):
    assert abs(parse(text).at(64)) == 1


@given(
    st.text(alphabet="0123456789.eE+-*/() ,batch_sizesqrtlogmn'\"[]\\", max_size=60) | st.text(max_size=40)
)
def test_any_text_is_a_number_or_a_sentence(text):
    try:
        value = parse(text).at(8)
    except UserError as error:
        found = error
    else:
        found = None
        assert math.isfinite(value)
    assert found is None or (found.what and found.remedy)
