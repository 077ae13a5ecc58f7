"""What people, scripts, spreadsheets and summary pages get."""

from __future__ import annotations

import csv
import io
import json

import jsonschema
import pytest

from bscrit.crossing import Crossing, CrossingTable
from bscrit.estimate import Estimate
from bscrit.fit.caveats.codes import CODES
from bscrit.fit.core import fit_table
from bscrit.fit.export import crossings_csv, frontier_csv, markdown, schema, to_dict
from bscrit.fit.report import Report, title
from bscrit.words import shown

SIZES = [64 * 2**i for i in range(9)]
STEPS = [46000, 23000, 13282, 7000, 3840, 2528, 1917, 1600, 1600]


def rows(**fields) -> list[Crossing]:
    return [Crossing(float(b), float(s), **fields) for b, s in zip(SIZES, STEPS, strict=True)]


REPORTS = {
    "identified": rows(target=3.42, lr=0.003, group=(("model", "85M"),)),
    "lower bound": [Crossing(float(b), 1e6 / b, target=3.0) for b in SIZES],
    "upper bound": [Crossing(float(b), 100.0) for b in SIZES],
    "too few": rows()[:2],
    "all censored": [Crossing(float(b), 100.0, censored=True, high=float("inf")) for b in SIZES],
    "some censored": [*rows(), Crossing(32.0, 50000.0, censored=True, high=float("inf"))],
    "exact": [Crossing(float(b), 1000 * (1 + 500 / b)) for b in SIZES],
    "nothing": [],
}


def report(name: str = "identified") -> Report:
    return fit_table(
        CrossingTable(
            tuple(REPORTS[name]), source="runs.csv", unit="sequence", notes=("one row was left out",)
        )
    )


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_strict_and_follows_its_schema(name):
    data = json.loads(json.dumps(to_dict(report(name)), allow_nan=False))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(data, schema())


def test_json_holds_what_was_promised():
    data = to_dict(report())
    assert (data["schema"], data["source"], data["unit"]) == (1, "runs.csv", "sequence")
    (fit,) = data["fits"]
    assert fit["group"] == {"model": "85M"}
    assert (fit["target"], fit["verdict"], fit["noise"]) == (3.42, "identified", [])
    assert fit["b_crit"]["value"] == pytest.approx(2190.6, rel=1e-4)
    assert set(fit["s_min"]) == {"value", "low", "high"}
    assert fit["points"][0]["lr"] == 0.003
    assert {"batch_size", "steps", "examples", "lr", "runs", "censored"} <= set(fit["points"][0])
    assert {"code", "text", "hint"} <= set(fit["caveats"][0])


def test_the_schema_refuses_a_value_that_is_not_a_number():
    data = to_dict(report())
    data["fits"][0]["b_crit"]["value"] = "2190"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_no_value_is_null():
    (fit,) = to_dict(report("lower bound"))["fits"]
    assert fit["b_crit"]["value"] is None
    assert fit["b_crit"]["high"] is None
    assert fit["b_crit"]["low"] > 0


class TestTable:
    def test_units_target_and_definitions(self):
        text = str(report())
        assert text.startswith("model 85M, target 3.42: identified\n")
        assert "B_crit    2,190 [1,900, 2,530] sequences" in text
        assert "S_min     1,290 [1,170, 1,420] steps" in text
        assert "twice the fewest steps and twice the fewest examples" in text
        assert "20 % more examples" in text
        assert "note: one row was left out" in text
        assert "hint: " in text

    def test_bounds_and_nothing(self):
        assert "B_crit    at least" in str(report("lower bound"))
        assert "B_crit    at most" in str(report("upper bound"))
        assert "B_crit    not identified" in str(report("too few"))
        assert str(report("nothing")).splitlines()[-1] == "nothing to fit"

    def test_censored_points_are_bounds(self):
        line = next(line for line in str(report("some censored")).splitlines() if ">50,000" in line)
        assert "1 of 1 did not reach the target" in line

    def test_columns_are_aligned(self):
        lines = str(report()).splitlines()
        start = next(i for i, line in enumerate(lines) if "batch size" in line and "rate" in line)
        ends = {line.rstrip().rfind("0.003") for line in lines[start + 1 : start + 10]}
        assert len(ends) == 1


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (Estimate(2190.6, 1902.0, 2529.0), "2,190 [1,900, 2,530]"),
        (Estimate(2190.6), "2,190"),
        (Estimate(None, 84.0), "at least 84.0"),
        (Estimate(None, None, 0.0123), "at most 0.0123"),
        (Estimate(None, 2.0, 3.0), "not identified [2.00, 3.00]"),
        (Estimate(None), "not identified"),
        (Estimate(1e6, 1e5, None), "1,000,000 [100,000, ...)"),
    ],
)
def test_estimates_in_words(estimate, words):
    assert shown(estimate) == words


def test_frontier_csv():
    read = list(csv.DictReader(io.StringIO(frontier_csv(report()))))
    assert len(read) == 9
    assert read[0]["model"] == "85M"
    assert float(read[0]["steps"]) == 46000
    assert float(read[0]["examples"]) == 64 * 46000
    assert read[0]["low"] == ""


def test_crossings_csv_is_read_back(tmp_path):
    from bscrit.tables.table import read_table

    written = REPORTS["some censored"]
    path = tmp_path / "crossings.csv"
    path.write_text(crossings_csv(written), "utf-8")
    read = read_table(path).crossings
    assert [(c.batch_size, c.steps, c.censored) for c in read] == [
        (c.batch_size, c.steps, c.censored) for c in written
    ]


def test_markdown():
    text = markdown(report())
    row = next(line for line in text.splitlines() if line.startswith("| model 85M"))
    assert "| identified | 2,190 [1,900, 2,530] |" in row
    assert "no-replicates" in row
    assert "| not measured |" in row
    hostile = fit_table(CrossingTable(tuple(rows(group=(("a|b", "c|d"),)))))
    assert "a&#124;b c&#124;d" in markdown(hostile)


def test_titles():
    assert title(report().fits[0]) == "model 85M, target 3.42"
    assert title(fit_table(CrossingTable(tuple(rows()))).fits[0]) == ""


def test_the_schema_knows_every_caveat():
    assert schema()["$defs"]["caveat"]["properties"]["code"]["enum"] == list(CODES)
