"""Numbers and units as people read them."""

from math import inf

import pytest

from bscrit.words import compact, duration


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1k"), (1.5e9, "1.5G"), (2e12, "2T"), (inf, "-")]
)
def test_counts(count, text):
    assert compact(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
