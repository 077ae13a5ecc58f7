"""`bscrit fit` as scripts see it: streams, files, exit codes, the check against a baseline."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest
from simulated import Quadratic, make_spec, sweep
from test_source import write

from bscrit.errors import UserError
from bscrit.fit.command import (
    FAILED,
    PASSED,
    UNWRITTEN,
    run,
)
from bscrit.fit.export import schema, to_dict
from bscrit.fit.source import fit
from bscrit.record import Record

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


SPEC = make_spec(batch_sizes=[4, 16, 64, 256, 1024], targets=[0.2], seeds=2, max_steps=3000)
DERIVED = ("fit.json", "frontier.csv", "crossings.csv")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(sweep(Quadratic(), SPEC).values())


@pytest.fixture
def results(tmp_path, records) -> Path:
    return write(tmp_path / "results", records, SPEC)


class TestFiles:
    def test_a_plain_fit_writes_what_others_read(self, results):
        assert run([str(results)]) == PASSED
        assert {path.name for path in results.iterdir()} >= set(DERIVED)
        assert json.loads((results / "fit.json").read_text()) == to_dict(fit(results))

    @pytest.mark.parametrize("options", [{"unit": "token"}, {"targets": (0.3,)}])
    def test_a_fit_of_something_else_leaves_them(self, results, options):
        run([str(results)], **options)
        assert not any((results / name).exists() for name in DERIVED)

    def test_an_answer_is_printed_where_no_file_can_be_written(self, results, capsys):
        (results / "fit.json").mkdir()
        assert run([str(results)]) == UNWRITTEN
        out, err = capsys.readouterr()
        assert "B_crit" in out
        line, hint = err.splitlines()
        assert line.startswith(f"error: {results / 'fit.json'}: ")
        assert "--out" not in hint

    def test_a_summary_that_cannot_be_written_hides_no_failed_check(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
        assert run([table(tmp_path, {64: 1000, 128: 500, 256: 250})], strict=True) == FAILED
        out, err = capsys.readouterr()
        assert "B_crit" in out
        assert err.startswith("check failed")
        assert f"error: {tmp_path}: " in err
        assert run([table(tmp_path, ZHANG)]) == PASSED

    def test_the_baseline_stays_as_it_is(self, results, monkeypatch, capsys):
        run([str(results)])
        old = json.loads((results / "fit.json").read_text())
        for end in old["fits"][0]["b_crit"]:
            old["fits"][0]["b_crit"][end] *= 100
        before = json.dumps(old)
        (results / "fit.json").write_text(before)
        monkeypatch.chdir(results)
        for _ in range(2):
            assert run([str(results)], baseline=Path("fit.json")) == FAILED
        assert (results / "fit.json").read_text() == before
        assert "fit.json: is the baseline, and stays as it is" in capsys.readouterr().err


class TestStreams:
    def test_json_is_strict_and_valid(self, tmp_path, capsys):
        assert run([table(tmp_path, ZHANG)], as_json=True) == PASSED
        out = capsys.readouterr().out
        found = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
        jsonschema.validate(found, schema())
        assert found["fits"][0]["b_crit"]["value"] == pytest.approx(2190.600, rel=1e-6)

    def test_the_table_names_unit_and_definition(self, tmp_path, capsys):
        run([table(tmp_path, ZHANG)], unit="sequence")
        out = capsys.readouterr().out
        assert "2,190 [" in out or "2,191 [" in out
        assert "sequences" in out
        assert "twice the fewest steps" in out

    def test_a_summary_for_continuous_integration_is_appended(self, tmp_path, monkeypatch):
        summary = tmp_path / "summary.md"
        summary.write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        run([table(tmp_path, ZHANG)])
        text = summary.read_text()
        assert text.startswith("before\n")
        assert "| " in text
        assert "identified" in text


class TestExitCodes:
    def test_nothing_identified_is_an_answer(self, tmp_path):
        assert run([table(tmp_path, {64: 1000, 128: 500, 256: 250})]) == PASSED

    def test_strict_wants_more(self, tmp_path, capsys):
        assert run([table(tmp_path, {64: 1000, 128: 500, 256: 250})], strict=True) == FAILED
        assert "check failed" in capsys.readouterr().err

    def test_strict_is_content_with_a_good_fit(self, tmp_path):
        assert run([table(tmp_path, exact(500))], strict=True) == PASSED

    def test_strict_wants_a_narrow_interval(self, tmp_path, capsys):
        """A factor of 3 from end to end."""
        rows = exact(500)
        random = [1.25, 0.8, 1.3, 0.8, 1.2, 0.95, 1.05]
        source = table(tmp_path, {b: s * f for (b, s), f in zip(rows.items(), random, strict=True)})
        assert run([source], strict=True) == PASSED
        assert run([source], strict=True, widest=2.0) == FAILED
        assert "wide: the interval of B_crit spans a factor 3.0, more than 2" in capsys.readouterr().err
        with pytest.raises(UserError, match=r"--widest 0\.5"):
            run([source], widest=0.5)

    @pytest.mark.parametrize(
        ("factor", "code"), [(1.0, PASSED), (1.005, PASSED), (3.0, FAILED), (0.3, FAILED)]
    )
    def test_baseline(self, tmp_path, capsys, factor, code):
        old = tmp_path / "old.json"
        old.write_text(json.dumps(to_dict(fit(table(tmp_path, exact(500))))))
        source = table(tmp_path, exact(500 * factor), "new.csv")
        assert run([source], baseline=old) == code
        if code == FAILED:
            said = capsys.readouterr().err
            assert f"{factor:.2f} times"[:3] in said
            assert "moved from" in said


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
