"""A baseline is refused where it is none, and compared where it is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.baseline import moved, parse_baseline, read_baseline
from bscrit.fit.export import to_dict
from bscrit.fit.report import Report
from bscrit.fit.result import Fit

NONE = Estimate(None)


def report(*b_crit: Estimate, unit: str = "image", target: float = 0.1) -> Report:
    """One fit for each B_crit, of models 0, 1, 2."""
    fits = [
        Fit(
            {"model": str(i)},
            target,
            "identified" if b.value else "lower bound",
            NONE,
            NONE,
            b,
            NONE,
            NONE,
            (),
        )
        for i, b in enumerate(b_crit)
    ]
    return Report("x.csv", unit, tuple(fits))


KNOWN = Estimate(100.0, 80.0, 125.0)


def against(now: Report, before: Report) -> list[str]:
    return moved(now, parse_baseline("--baseline old.json", to_dict(before)))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (KNOWN, None),
        (Estimate(150.0, 120.0, 190.0), None),
        (Estimate(200.0, 130.0, 250.0), "moved from 100 [80, 125] to 200 [130, 250], 2.00 times"),
        (Estimate(50.0, 40.0, 70.0), "0.50 times"),
        (Estimate(None, 300.0), "B_crit was 100 and is now lower bound"),
    ],
)
def test_what_counts_as_a_move(now: Estimate, says: str | None) -> None:
    problems = against(report(now), report(KNOWN))
    assert len(problems) == (says is not None)
    assert says is None or says in problems[0]


def test_a_bound_that_became_a_value_is_no_move() -> None:
    assert against(report(KNOWN), report(Estimate(None, 300.0))) == []


def test_a_fit_that_is_gone_is_named() -> None:
    assert against(report(KNOWN), report(KNOWN, KNOWN)) == [
        "model 1, target 0.1: is not in this report any more"
    ]


@pytest.mark.parametrize("before", [report(), report(KNOWN, target=0.2)])
def test_where_nothing_is_compared_nothing_passes(before: Report) -> None:
    assert "nothing was compared" in against(report(KNOWN), before)[0]


def test_units_must_agree() -> None:
    with pytest.raises(UserError, match="counts in 'token', and this fit in 'image'"):
        against(report(KNOWN), report(KNOWN, unit="token"))


def altered(**changes: object) -> str:
    """A fit.json with one fit, of which some parts are replaced."""
    data = to_dict(report(KNOWN))
    for key, value in changes.items():
        (data if key in data else data["fits"][0])[key] = value
    return json.dumps(data)


def estimate(value: object) -> dict[str, object]:
    return {"value": value, "low": None, "high": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "{",
        "[" * 100_000,
        '{"schema": 1, "fits": []}',
        altered(schema=2),
        altered(unit=None),
        altered(fits=None),
        altered(fits=[{}]),
        altered(fits=[1]),
        altered(group=["model"]),
        altered(group={"model": []}),
        altered(target="x"),
        altered(b_crit=None),
        altered(b_crit={"value": 100.0}),
        altered(b_crit=estimate("x")),
        altered(b_crit=estimate(True)),
        altered(b_crit=estimate(0)),
        altered(b_crit=estimate(float("nan"))),
        altered(b_crit=estimate(float("inf"))),
        altered(b_crit=estimate(10**400)),
    ],
)
def test_what_is_no_fit_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(UserError, match=r"--baseline .*old\.json: is not a fit\.json"):
        read_baseline(tmp_path / "old.json")


def test_the_unaltered_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(altered())
    assert moved(report(KNOWN), read_baseline(tmp_path / "old.json")) == []


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_baseline(tmp_path / "missing.json")
    with pytest.raises(UserError, match="directory"):
        read_baseline(tmp_path)
    (tmp_path / "old.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not a fit"):
        read_baseline(tmp_path / "old.json")
