"""From a results folder to a report: what belongs to its spec, and what is not there yet."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated import FACTS, Quadratic, make_spec, sweep

from bscrit.curve import curve_header, curve_line
from bscrit.errors import UserError
from bscrit.files import write_json, write_text
from bscrit.fit.export import to_dict
from bscrit.fit.source import fit
from bscrit.noise import HEADER as NOISE_HEADER
from bscrit.noise import noise_line
from bscrit.record import Record, begin, end
from bscrit.results import read_results

SPEC = make_spec(batch_sizes=[4, 16, 64, 256, 1024], targets=[0.5, 0.2], seeds=3, max_steps=3000)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(sweep(Quadratic(), SPEC).values())


def write(folder: Path, records: list[Record], spec=SPEC) -> Path:
    """A results folder as a sweep leaves it."""
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    write_text(folder / "spec.toml", spec.source.to_toml())
    write_json(folder / "preflight.json", {**FACTS.to_dict(), "untrained_value": 2.59, "unit": "image"})
    for record in records:
        trial = folder / "trials" / record.trial.name
        begin(trial, record.trial, record.order)
        c = record.curve
        rows = zip(c.steps, c.examples, c.loss, strict=True)
        lines = [
            curve_line(int(s), int(e), loss, record.trial.batch_size, record.trial.lr, 0.0)
            for s, e, loss in rows
        ]
        (trial / "curve.csv").write_text(curve_header() + "\n" + "".join(lines))
        if record.finished:
            end(trial, record.status, record.reason, {"steps": int(c.steps[-1])})
    return folder


def test_a_finished_sweep(tmp_path, records):
    report = fit(write(tmp_path / "r", records))
    assert [found.target for found in report.fits] == [0.5, 0.2]
    assert [found.verdict for found in report.fits] == ["identified"] * 2
    assert report.unit == "image"
    assert report.notes == ()
    assert (to_dict(report)["metric"], to_dict(report)["direction"]) == ("loss", "down")


def test_targets_that_the_sweep_did_not_ask_for(tmp_path, records):
    (found,) = fit(write(tmp_path / "r", records), targets=[0.3]).fits
    easier, harder = (one.b_crit.value for one in fit(tmp_path / "r").fits)
    assert easier < found.b_crit.value < harder


def test_trials_of_another_optimizer_are_left_out_and_told(tmp_path, records):
    folder = write(tmp_path / "r", records)
    before = fit(folder)
    other = make_spec(
        optimizer={"use": "sgd", "momentum": 0.9}, batch_sizes=[4, 16], targets=[0.5, 0.2], seeds=3
    )
    strangers = list(sweep(Quadratic(momentum=0.9), other).values())
    write(folder, strangers)
    after = fit(folder)
    assert after.fits == before.fits
    assert f"{len(strangers)} trials of another spec" in after.notes[0]
    assert {record.trial.name for record in read_results(folder).belonging} == {
        record.trial.name for record in records
    }


def test_an_unfinished_sweep_is_told(tmp_path, records):
    begun = [r for r in records if r.trial.batch_size < 256]
    begun.append(
        Record(begun[-1].trial.__class__(**{**begun[-1].trial.to_dict(), "seed": 99}), begun[-1].order)
    )
    report = fit(write(tmp_path / "r", begun))
    (note,) = report.notes
    assert "not complete" in note
    assert "1 trials are not finished" in note
    assert "batch size 256, 1024" in note


def test_an_interrupted_search_is_no_point(tmp_path, records):
    """Its first run is far from the best rate: as a point it would be an outlier or a rise, and the verdict another."""
    left = [r for r in records if r.trial.batch_size != 1024]
    first = next(r for r in records if r.trial.batch_size == 1024 and r.role == "search")
    for record in (first, replace(first, status="running")):
        interrupted = fit(write(tmp_path / record.status, [*left, record]))
        assert interrupted.fits == fit(write(tmp_path / f"{record.status}-without", left)).fits
        assert "nothing is measured yet at batch size 1024" in interrupted.notes[0]


def test_a_folder_without_a_finished_trial(tmp_path, records):
    folder = write(tmp_path / "r", [Record(records[0].trial, records[0].order)])
    with pytest.raises(UserError, match="no finished trial"):
        fit(folder)


def test_a_spec_s_workload_need_not_be_there_any_more(tmp_path, records):
    folder = write(tmp_path / "r", records)
    text = (folder / "spec.toml").read_text().replace('"quadratic"', '"gone:Away"')
    (folder / "spec.toml").write_text(text)
    with pytest.raises(
        UserError, match="no finished trial"
    ):  # none of its own: the records are of "quadratic"
        fit(folder)


def test_seeds_added_later_count_with_their_own_cohort(tmp_path):
    few = make_spec(batch_sizes=[4, 16, 64], targets=[0.2], seeds=2, max_steps=3000)
    more = make_spec(batch_sizes=[4, 16, 64], targets=[0.2], seeds=6, max_steps=3000)
    done = sweep(Quadratic(), few)
    done = sweep(Quadratic(), more, records=list(done.values()))
    (found,) = fit(write(tmp_path / "r", list(done.values()), more)).fits
    assert [point.runs for point in found.points] == [6, 6, 6]
    assert [point.censored for point in found.points] == [0, 0, 0]
    assert np.isfinite([point.steps for point in found.points]).all()


@pytest.mark.parametrize("missing", ["spec.toml", "preflight.json"])
def test_without_its_spec_a_folder_of_one_kind_is_fitted_with_a_note(tmp_path, records, missing):
    folder = write(tmp_path / "r", records)
    before = fit(folder)
    (folder / missing).unlink()
    after = fit(folder)
    assert after.fits == before.fits
    assert "was not checked" in after.notes[0]


def test_without_its_spec_trials_of_two_kinds_are_refused(tmp_path, records):
    other = make_spec(
        optimizer={"use": "sgd", "momentum": 0.9}, batch_sizes=[4, 16], targets=[0.5, 0.2], seeds=3
    )
    folder = write(tmp_path / "r", records)
    write(folder, list(sweep(Quadratic(momentum=0.9), other).values()))
    (folder / "spec.toml").unlink()
    with pytest.raises(UserError, match="trials of several specs at batch size 4"):
        fit(folder)


def test_a_copy_of_a_trial_is_no_second_run(tmp_path, records):
    folder = write(tmp_path / "r", records)
    before = fit(folder)
    measured = next(record for record in records if record.role == "measure")
    shutil.copytree(folder / "trials" / measured.trial.name, folder / "trials" / "zz-copy")
    assert fit(folder) == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("status.json", '{"schema": 3, "status": "reached", "facts": null}'),
        ("status.json", '{"schema": 3, "status": "lost", "reason": "", "facts": {}}'),
        ("status.json", "[" * 100_000),
        ("curve.csv", curve_header() + "\n" + "9" * 400 + ",1,0.1,4,0.1,0\n"),
        ("noise.csv", "step,examples,metric,n_small,sq_small,n_big,sq_big\n" + "0,0,identity,4,1,4,1\n" * 9),
    ],
)
def test_a_damaged_file_costs_its_own_trial_at_most(tmp_path, records, file, text):
    folder = write(tmp_path / "r", records)
    measured = next(record for record in records if record.role == "measure")
    (folder / "trials" / measured.trial.name / file).write_text(text)
    report = fit(folder)
    assert [found.verdict for found in report.fits] == ["identified"] * 2


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("trial.json", {"batch_size": 0}),
        ("trial.json", {"batch_size": "four"}),
        ("order.json", {"new": 1}),
        ("status.json", {"schema": 2}),
    ],
)
def test_identity_that_this_version_did_not_write_is_named(tmp_path, records, file, change):
    folder = write(tmp_path / "r", records)
    path = folder / "trials" / records[0].trial.name / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError) as caught:
        fit(folder)
    assert caught.value.where == str(path)


def test_what_cannot_be_read_is_a_sentence(tmp_path, records):
    folder = write(tmp_path / "r", records)
    curve = folder / "trials" / records[0].trial.name / "curve.csv"
    curve.unlink()
    curve.mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        fit(folder)


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", {"batch_size": [1]}, 7, None])
def test_what_is_no_source_is_a_sentence(source):
    with pytest.raises(UserError):
        fit(source)


@pytest.mark.parametrize("targets", [[float("nan")], [], "often"])
def test_what_is_no_target_is_a_sentence(tmp_path, records, targets):
    with pytest.raises(UserError, match="targets"):
        fit(write(tmp_path / "r", records), targets=targets)


def test_one_target_may_stand_alone(tmp_path, records):
    (found,) = fit(write(tmp_path / "r", records), targets=0.3).fits
    assert found.target == 0.3


def test_noise_is_read_and_corrected_for_the_size_of_the_data(tmp_path, records):
    """tr(Sigma)/|G|^2 = 50 without end; of batches from 2048 examples |G|^2 is that of the whole set."""
    folder = write(tmp_path / "r", records)
    for record in records:
        n = float(record.trial.batch_size)
        small, big = 1 + 50 / (n / 4), 1 + 50 / n
        rows = [noise_line(s, int(s * n), "identity", n / 4, small, n, big) for s in range(0, 3000, 5)]
        (folder / "trials" / record.trial.name / "noise.csv").write_text(NOISE_HEADER + "\n" + "".join(rows))
    for examples, scale in ((None, 50.0), (2048, 50 / (1 + 50 / 2048))):
        facts = {**FACTS.to_dict(), "untrained_value": 2.59, "examples": examples}
        write_json(folder / "preflight.json", facts)
        for found in fit(folder).fits:
            (one,) = found.noise
            assert one.pooled.mean.value == pytest.approx(scale, rel=1e-6)
            assert one.ratio.value == pytest.approx(scale / found.b_crit.value, rel=1e-6)
            assert list(one.by_batch_size) == [4, 16, 64, 256, 1024]
