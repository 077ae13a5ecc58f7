"""Noise scales as people, scripts and spreadsheets get them."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from toy_runs import TOY, fit, grid, records, runs, sampled

from bscrit.estimate import Estimate
from bscrit.fit.export import markdown, schema, to_dict
from bscrit.fit.noise.compare import with_noise
from bscrit.fit.noise.windows import Runs
from bscrit.fit.report import Report
from bscrit.fit.result import FrozenScale

SIZES = (16, 64, 256)


@pytest.fixture(scope="module")
def report() -> Report:
    random = np.random.default_rng(0)
    made = [
        one
        for b in SIZES
        for one in records(runs(float(b), 3, random, loss=lambda s: np.maximum(s, 1e-6) ** -0.25))
    ]
    found = with_noise(fit(TOY.b_crit), made)
    (one,) = found.noise
    frozen = (
        FrozenScale(0.2, Estimate(90.0, 80.0, 100.0), 4096.0),
        FrozenScale(0.5, Estimate(None, 30.0), 64.0),
    )
    return Report("runs", "image", (replace(found, noise=(replace(one, frozen=frozen),)),))


def test_the_block_of_a_fit(report):
    text = str(report)
    lines = [line.strip() for line in text.splitlines()]
    (mean,) = [line for line in lines if line.startswith("B_simple")]
    assert mean.endswith("images, over the progress of the runs at batch size 256")
    assert any("at the start; " in line and line.endswith("at the target") for line in lines)
    assert any("of B_crit: agrees" in line for line in lines)
    assert any(line.startswith("forecast  B_crit ") and "of the measured one" in line for line in lines)
    assert any(line.startswith("growth    B_simple ~ loss^-a, a = ") for line in lines)
    assert "frozen    B_simple 90.0 [80.0, 100] images at loss 0.200, on fresh data (4,100 images)" in lines
    assert (
        "frozen    B_simple not resolved, at least 30.0 images at loss 0.500, on fresh data (64.0 images)"
        in lines
    )


def test_a_column_per_metric_beside_the_points(report):
    lines = str(report).splitlines()
    head = next(i for i, line in enumerate(lines) if "batch size" in line and "rate" in line)
    assert lines[head].endswith("B_simple")
    for line, size in zip(lines[head + 1 : head + 4], SIZES, strict=True):
        assert float(line.split()[-1]) == pytest.approx(TOY.b_crit, rel=0.3), size


def test_unresolved_never_prints_a_number_as_a_value():
    at, random = grid(TOY.steps(16.0), 40), np.random.default_rng(1)
    samples = tuple(sampled(np.full(len(at), 1e5), 16.0, at, random) for _ in range(3))
    found = with_noise(fit(90.0, (16,)), records(Runs(16.0, TOY.steps(16.0), samples)))
    assert found.noise[0].verdict == "unresolved"
    report = Report("runs", "image", (found,))
    text = str(report)
    said = [line for line in text.splitlines() if "B_simple" in line]
    assert any("B_simple  not resolved" in line for line in said)
    assert "of B_crit:" not in text
    assert "forecast" not in text
    row = report.table().iloc[0]
    assert row.b_simple is None or np.isnan(row.b_simple)
    (data,) = to_dict(report)["fits"][0]["noise"]
    assert data["pooled"]["mean"]["value"] is None
    assert data["forecast"] is None
    assert "B_simple (unresolved)" in markdown(report)


def test_json_is_strict_and_follows_its_schema(report):
    data = json.loads(json.dumps(to_dict(report), allow_nan=False))
    jsonschema.validate(data, schema())
    (one,) = data["fits"][0]["noise"]
    assert [each["batch_size"] for each in one["by_batch_size"]] == [16, 64, 256]
    assert one["ratio"]["low"] < 1 < one["ratio"]["high"]
    assert one["forecast"]["batch_size"] == 256
    assert len(one["frozen"]) == 2
    broken = json.loads(json.dumps(data))
    broken["fits"][0]["noise"][0]["pooled"]["mean"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema())


def test_columns_of_the_data_frame(report):
    row = report.table().iloc[0]
    assert row.b_simple_low < TOY.b_crit < row.b_simple_high
    assert row.b_simple_ratio == pytest.approx(row.b_simple / row.b_crit)


def test_markdown_holds_the_ratio(report):
    head, _, row = [line for line in markdown(report).splitlines() if line.startswith("|")]
    assert "noise scale / B_crit" in head
    assert "B_simple 1.0" in row or "B_simple 0.9" in row
    assert "(agrees)" in row
    assert head.count("|") == row.count("|")
