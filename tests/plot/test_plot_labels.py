from __future__ import annotations

from dataclasses import replace

import pytest
from plotted import NOTHING, make_fit

from bscrit.estimate import Estimate
from bscrit.fit.result import Verdict
from bscrit.plot import labels


def test_a_value_comes_with_interval_and_unit() -> None:
    assert labels.b_crit(make_fit(), "sequence") == "$B_{crit}$ = 2,190 (1,970–2,410) sequences"


@pytest.mark.parametrize(
    ("verdict", "estimate", "text"),
    [
        ("lower bound", Estimate(None, 210.4, None), "$B_{crit}$ at least 210 images"),
        ("upper bound", Estimate(None, None, 12345.0), "$B_{crit}$ at most 12,300 images"),
        ("not identified", Estimate(None, 3.0, 4.0), "$B_{crit}$ not identified"),
        ("lower bound", NOTHING, "$B_{crit}$ not identified"),
    ],
)
def test_without_a_value_the_verdict_is_said(verdict: Verdict, estimate: Estimate, text: str) -> None:
    assert labels.b_crit(replace(make_fit(verdict=verdict), b_crit=estimate), "image") == text


def test_a_half_open_interval_names_its_side() -> None:
    fit = replace(make_fit(), b_crit=Estimate(100.0, 50.0, None))
    assert labels.b_crit(fit, "token") == "$B_{crit}$ = 100 (at least 50) tokens"


def test_fits_are_named_by_what_tells_them_apart() -> None:
    fits = [
        make_fit(group={"model": "85M", "optimizer": "adamw"}),
        make_fit(group={"model": "1B", "optimizer": "adamw"}),
    ]
    assert labels.name(fits[0], fits) == "model 85M, target 3.42"
    assert labels.name(fits[0], fits[:1]) == "target 3.42"
    assert labels.name(make_fit(target=None), [make_fit(target=None)]) == "fit"


def test_units_are_safe_to_typeset() -> None:
    assert labels.plural("token") == "tokens"
    assert labels.plural("frames") == "frames"
    assert labels.plural("sequence of 512 tokens") == "sequences of 512 tokens"
    assert labels.plural("a$b$") == r"a\$b\$s"
    assert len(labels.plural("x" * 100)) == 36
    assert "\n" not in labels.safe("two\nlines")
