"""Numbers and units as people read them."""

import re
from random import Random

import pytest

from bscrit.estimate import Estimate
from bscrit.words import compact, duration, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (float("inf"), "-"),
        (-2e6, "-2M"),
        (1, "1"),
        (87.5, "87.5"),
        (1024, "1,024"),
        (9_999, "9,999"),
        (10_000, "10k"),
        (16_384, "16,384"),
        (99_999, "99,999"),
        (99_999.9, "100k"),
        (131_072, "131k"),
        (999_900, "1M"),
        (1_048_576, "1.05M"),
        (2e9, "2bn"),
        (3e12, "3tn"),
        (1e15, "1e15"),
        (2.5e16, "2.5e16"),
        (0.05, "0.05"),
        (0.001, "0.001"),
        (3e-5, "3e-5"),
    ],
)
def test_numbers_in_a_few_characters(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12345.0, "12,300"), (99_960, "100k"), (10_000, "10k"), (1.234, "1.23")]
)
def test_three_digits_in_a_few_characters(value, text):
    assert compact(value, 3) == text


def printed(text: str) -> list[float]:
    return [float(part) for part in re.findall(r"[-+]?[\d.]+(?:e[-+]?\d+)?", text.replace(",", ""))]


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_a_value_is_printed_inside_its_own_interval(digits):
    """Also where the ends are as near as the last digits, at every magnitude and across powers of ten."""
    random = Random(digits)
    for _ in range(4000):
        value = 10 ** random.uniform(-7, 18)
        if random.random() < 0.3:
            value = 10.0 ** random.randint(-7, 17) * (1 + random.uniform(-1, 1) * 10**-digits)
        reach = 10 ** random.uniform(-6, 0.5)
        text = shown(Estimate(value, value * (1 - min(reach, 0.9)), value * (1 + reach)), digits)
        at, low, high = printed(text.replace(", ", " "))
        assert low <= at <= high, text
