"""`bscrit fit` as scripts see it: streams, files, exit codes, the check against a baseline."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest

from bscrit.errors import UserError
from bscrit.fit.command import (
    FAILED,
    PASSED,
    Options,
    moved,
    parse_columns,
    parse_direction,
    parse_targets,
    run,
)
from bscrit.fit.report import schema, to_dict
from bscrit.fit.source import fit

# Zhang et al. 2024 (arXiv 2410.21676), 85M parameters, steps to a validation loss of 3.42
ZHANG = dict(
    zip(
        (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        (46000, 23000, 13282, 7000, 3840, 2528, 1917, 1600, 1600),
        strict=True,
    )
)


def table(path: Path, rows: dict[int, float], name: str = "runs.csv") -> str:
    lines = [f"{size},{steps}" for size, steps in rows.items()]
    (path / name).write_text("\n".join(["batch_size,steps", *lines]) + "\n")
    return str(path / name)


def exact(b_crit: float) -> dict[int, float]:
    """A frontier without scatter but for a per cent to and fro."""
    return {
        2**k: round(1000 * (1 + b_crit / 2**k) * (1 + 0.01 * (-1) ** (k // 2)), 3) for k in range(2, 16, 2)
    }


class TestStreams:
    def test_json_is_strict_and_valid(self, tmp_path, capsys):
        assert run([table(tmp_path, ZHANG)], Options(as_json=True)) == PASSED
        out = capsys.readouterr().out
        found = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
        jsonschema.validate(found, schema())
        assert found["fits"][0]["b_crit"]["value"] == pytest.approx(2190.600, rel=1e-6)

    def test_the_table_names_unit_and_definition(self, tmp_path, capsys):
        run([table(tmp_path, ZHANG)], Options(unit="sequence"))
        out = capsys.readouterr().out
        assert "2,190 [" in out or "2,191 [" in out
        assert "sequences" in out
        assert "twice the fewest steps" in out

    def test_a_summary_for_continuous_integration_is_appended(self, tmp_path, monkeypatch):
        summary = tmp_path / "summary.md"
        summary.write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        run([table(tmp_path, ZHANG)], Options())
        text = summary.read_text()
        assert text.startswith("before\n")
        assert "| " in text
        assert "identified" in text


class TestExitCodes:
    def test_nothing_identified_is_an_answer(self, tmp_path):
        assert run([table(tmp_path, {64: 1000, 128: 500, 256: 250})], Options()) == PASSED

    def test_strict_wants_more(self, tmp_path, capsys):
        assert run([table(tmp_path, {64: 1000, 128: 500, 256: 250})], Options(strict=True)) == FAILED
        assert "check failed" in capsys.readouterr().err

    def test_strict_is_content_with_a_good_fit(self, tmp_path):
        assert run([table(tmp_path, exact(500))], Options(strict=True)) == PASSED

    @pytest.mark.parametrize(
        ("factor", "code"), [(1.0, PASSED), (1.005, PASSED), (3.0, FAILED), (0.3, FAILED)]
    )
    def test_baseline(self, tmp_path, capsys, factor, code):
        old = tmp_path / "old.json"
        old.write_text(json.dumps(to_dict(fit(table(tmp_path, exact(500))))))
        source = table(tmp_path, exact(500 * factor), "new.csv")
        assert run([source], Options(baseline=old)) == code
        if code == FAILED:
            said = capsys.readouterr().err
            assert f"{factor:.2f} times"[:3] in said
            assert "moved from" in said

    def test_a_fit_that_is_lost_is_a_move(self, tmp_path):
        before = to_dict(fit(table(tmp_path, exact(500))))
        now = fit(table(tmp_path, {64: 1000, 128: 500, 256: 250}, "new.csv"))
        assert any("was" in problem for problem in moved(now, before))

    def test_a_baseline_that_is_none(self, tmp_path):
        source = table(tmp_path, ZHANG)
        with pytest.raises(UserError, match="no such file"):
            run([source], Options(baseline=tmp_path / "missing.json"))
        (tmp_path / "other.json").write_text("[1, 2]")
        with pytest.raises(UserError, match=r"is not a fit\.json"):
            run([source], Options(baseline=tmp_path / "other.json"))


class TestArguments:
    def test_targets(self):
        assert parse_targets("0.5, 0.3") == (0.5, 0.3)
        assert parse_targets(None) is None
        with pytest.raises(UserError, match="not a list of numbers"):
            parse_targets("0.5;0.3")

    def test_columns(self):
        assert parse_columns(["steps=iter,lr=rate", "batch_size=b"]) == {
            "steps": "iter",
            "lr": "rate",
            "batch_size": "b",
        }
        with pytest.raises(UserError, match="role=column"):
            parse_columns(["steps"])

    def test_direction(self):
        assert parse_direction("up") == "up"
        with pytest.raises(UserError, match="direction"):
            parse_direction("sideways")


class TestLibrary:
    def test_the_package_is_called(self, tmp_path):
        import bscrit

        report = bscrit.fit(table(tmp_path, ZHANG), unit="sequence")
        assert report.fits[0].b_crit.value == pytest.approx(2190.600, rel=1e-6)
        assert report.unit == "sequence"
        frame = report.points()
        assert list(frame.batch_size) == list(ZHANG)
        assert math.isclose(report.table().b_crit[0], report.fits[0].b_crit.value)

    def test_a_data_frame(self):
        import pandas as pd

        import bscrit

        frame = pd.DataFrame({"batch_size": list(ZHANG), "steps": list(ZHANG.values())})
        assert bscrit.fit(frame).fits[0].s_min.value == pytest.approx(1293.8268694659, rel=1e-6)

    def test_a_folder_that_is_no_results_folder(self, tmp_path):
        with pytest.raises(UserError, match="not of a sweep's results"):
            fit(tmp_path)
