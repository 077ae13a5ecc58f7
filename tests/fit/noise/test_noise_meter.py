"""noise.csv of a meter: alone, and beside a table of crossings; in the library and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from toy_runs import TOY, grid, runs, sampled

import bscrit
from bscrit.errors import UserError
from bscrit.fit.command import run
from bscrit.fit.export import markdown, schema, to_dict
from bscrit.fit.noise.meter import is_noise
from bscrit.noise import HEADER, NoiseSamples, noise_line


def write(path: Path, samples: NoiseSamples, metric: str = "identity") -> str:
    columns = (samples.n_small, samples.sq_small, samples.n_big, samples.sq_big)
    lines = [
        noise_line(int(step), int(examples), metric, *rest)
        for step, examples, *rest in zip(samples.steps, samples.examples, *columns, strict=True)
    ]
    path.write_text("\n".join([HEADER, *"".join(lines).splitlines()]) + "\n")
    return str(path)


@pytest.fixture
def meter(tmp_path) -> str:
    (samples,) = runs(256.0, 1, np.random.default_rng(0)).samples
    return write(tmp_path / "noise.csv", samples)


@pytest.fixture
def crossings(tmp_path) -> str:
    """The toy's frontier, of which the meter saw one batch size."""
    rows = [
        f"{b},{TOY.steps(b) * (1 + 0.004 * (-1) ** i):.6g}"
        for i, b in enumerate((4, 16, 64, 256, 1024, 4096))
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    return str(tmp_path / "runs.csv")


class TestAlone:
    def test_windows_with_intervals_and_no_b_crit(self, meter):
        report = bscrit.fit(meter, unit="image")
        assert report.fits == ()
        (one,) = report.noise
        assert list(one.by_batch_size) == [256.0]
        assert one.verdict == "nothing to compare"
        assert one.pooled.mean.low < TOY.b_crit < one.pooled.mean.high
        text = str(report)
        assert "B_simple at batch size 256" in text
        for word in ("start", "over the steps", "end", "images", "no B_crit to compare with", "--noise"):
            assert word in text
        assert report.table().empty

    def test_json(self, meter, capsys):
        assert run([meter], as_json=True) == 0
        data = json.loads(capsys.readouterr().out)
        jsonschema.validate(data, schema())
        assert data["fits"] == []
        assert data["noise"][0]["by_batch_size"][0]["batch_size"] == 256

    def test_several_files_are_runs_of_one_kind(self, tmp_path, meter):
        (samples,) = runs(256.0, 1, np.random.default_rng(1)).samples
        both = bscrit.fit([meter, write(tmp_path / "other.csv", samples)])
        one, two = bscrit.fit(meter).noise[0].pooled, both.noise[0].pooled
        assert two.samples == 2 * one.samples

    def test_metrics_of_one_file(self, tmp_path):
        (samples,) = runs(256.0, 1, np.random.default_rng(2)).samples
        path = tmp_path / "noise.csv"
        write(path, samples)
        text = path.read_text()
        path.write_text(text + text.split("\n", 1)[1].replace("identity", "adam"))
        assert [one.metric for one in bscrit.fit(path).noise] == ["identity", "adam"]

    def test_what_is_not_resolved_prints_no_number(self, tmp_path):
        at = grid(500)
        path = write(
            tmp_path / "noise.csv", sampled(np.full(len(at), 1e6), 8.0, at, np.random.default_rng(3))
        )
        text = str(bscrit.fit(path))
        assert "mean      not resolved" in text

    @pytest.mark.parametrize("rows", ["", "0,0,identity,8,nan,64,1\n", "0,0,iden"])
    def test_a_file_without_samples_is_a_sentence(self, tmp_path, rows):
        (tmp_path / "noise.csv").write_text(HEADER + "\n" + rows)
        with pytest.raises(UserError, match="no noise sample"):
            bscrit.fit(tmp_path / "noise.csv")

    def test_options_of_tables_are_refused(self, meter):
        with pytest.raises(UserError, match="targets"):
            bscrit.fit(meter, targets=[0.3])


class TestBesideATable:
    def test_the_toy_agrees(self, crossings, meter):
        report = bscrit.fit(crossings, noise=meter)
        (found,) = report.fits
        (one,) = found.noise
        assert one.verdict == "agrees"
        assert one.ratio.value == pytest.approx(1, rel=0.1)
        assert one.forecast.error.value == pytest.approx(1, rel=0.1)
        assert report.noise == ()
        text = str(report)
        assert "B_simple" in text
        assert "of B_crit: agrees" in text
        assert "jackknife" in text
        assert "(agrees)" in markdown(report)
        row = report.table().iloc[0]
        assert row.b_simple_ratio_low < 1 < row.b_simple_ratio_high
        jsonschema.validate(json.loads(json.dumps(to_dict(report), allow_nan=False)), schema())

    def test_a_run_goes_to_the_target_and_no_further(self, tmp_path, crossings):
        """After the target this run has ten times the noise, which is none of the comparison's business."""
        at = grid(3 * TOY.steps(256.0))
        random, late = np.random.default_rng(4), at > TOY.steps(256.0)
        scale = np.where(late, 1e3, 90.0)
        path = write(tmp_path / "long.csv", sampled(scale, 256.0, at, random))
        (found,) = bscrit.fit(crossings, noise=[path]).fits
        assert found.noise[0].pooled.mean.value == pytest.approx(90, rel=0.1)
        assert bscrit.fit(path).noise[0].pooled.mean_steps.value > 200

    def test_a_batch_size_between_those_of_the_table(self, tmp_path, crossings):
        (samples,) = runs(128.0, 1, np.random.default_rng(5)).samples
        (found,) = bscrit.fit(crossings, noise=write(tmp_path / "n.csv", samples)).fits
        assert found.noise[0].pooled.mean.low < TOY.b_crit < found.noise[0].pooled.mean.high

    def test_a_run_that_ended_early_is_told(self, tmp_path, crossings):
        (samples,) = runs(256.0, 1, np.random.default_rng(6)).samples
        report = bscrit.fit(crossings, noise=write(tmp_path / "n.csv", samples.until(500)))
        assert "batch size 256 was measured to step 493" in " ".join(report.notes)

    def test_the_command(self, crossings, meter, capsys):
        assert run([crossings], noise=(meter,)) == 0
        assert "of B_crit: agrees" in capsys.readouterr().out


class TestMistakes:
    def test_a_noise_csv_beside_a_table_without_the_option(self, crossings, meter):
        with pytest.raises(UserError) as caught:
            bscrit.fit([crossings, meter])
        assert "--noise" in str(caught.value)

    def test_a_table_as_noise(self, crossings):
        with pytest.raises(UserError, match=r"is no noise\.csv"):
            bscrit.fit(crossings, noise=crossings)

    def test_a_file_that_is_not_there(self, crossings, tmp_path):
        with pytest.raises(UserError, match="no such file"):
            bscrit.fit(crossings, noise=tmp_path / "gone.csv")

    def test_several_sources(self, crossings, meter):
        with pytest.raises(UserError, match="one source"):
            bscrit.fit([crossings, crossings + "x"], noise=meter)

    def test_a_file_twice(self, crossings, meter):
        with pytest.raises(UserError, match="twice"):
            bscrit.fit(crossings, noise=[meter, meter])

    def test_what_is_a_noise_csv(self, meter, crossings, tmp_path):
        assert is_noise(meter)
        assert is_noise(Path(meter))
        for other in (crossings, tmp_path, tmp_path / "gone", "-", "a\0b", 7, None):
            assert not is_noise(other)
