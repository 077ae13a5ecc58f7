"""A folder of records, and those that belong to its spec."""

import os
from dataclasses import replace

import pytest
from simulated import FACTS, make_spec

from bscrit.errors import UserError
from bscrit.files import write_json, write_text
from bscrit.order import Order
from bscrit.paths import ResultsPaths
from bscrit.record import begin, end
from bscrit.results import is_results, read_records, read_results
from bscrit.trial import Trial

SPEC = make_spec(batch_sizes=[4, 64], targets=[0.2], seeds=2)
KNOWN = replace(FACTS, unit="image", examples=640, untrained_value=2.3)
ORDER = Order("measure", 0, lanes=((0.05, 3),), targets=(0.2,), max_steps=100)


def add(results, batch_size):
    trial = Trial("quadratic", batch_size=batch_size, lr=0.05, seed=3)
    begin(results / "trials" / trial.name, trial, ORDER)
    return trial


def test_records_ascend_in_batch_size(tmp_path):
    for size in (1024, 4, 64):
        add(tmp_path, size)
    assert [record.trial.batch_size for record in read_records(tmp_path)] == [4, 64, 1024]


def test_what_was_not_begun_and_what_is_no_folder_is_passed_over(tmp_path):
    trial = add(tmp_path, 4)
    (tmp_path / "trials" / "b00008-torn").mkdir()
    (tmp_path / "trials" / "notes.txt").write_text("mine")
    end(tmp_path / "trials" / trial.name, "failed", "", {})
    assert [record.trial for record in read_records(tmp_path)] == [trial]


def test_a_folder_with_a_space_in_its_name(tmp_path):
    add(tmp_path / "my results", 4)
    assert len(read_records(tmp_path / "my results")) == 1


@pytest.mark.parametrize("name", ["", "missing"])
def test_another_folder_is_an_error_with_a_remedy(tmp_path, name):
    assert not is_results(tmp_path / name)
    with pytest.raises(UserError, match=r"no folder 'trials'\n  hint: run `bscrit sweep`"):
        read_records(tmp_path / name)


def test_an_empty_folder_of_trials_holds_no_records(tmp_path):
    (tmp_path / "trials").mkdir()
    assert read_records(tmp_path) == []


@pytest.fixture
def swept(tmp_path):
    """Trials of the spec at a listed batch size and at another one, and one trial of other data."""
    own = [SPEC.trial(size, 0.05, 3, KNOWN.fingerprint) for size in (4, 256)]
    for trial in (*own, SPEC.trial(64, 0.05, 3, "other data")):
        begin(tmp_path / "trials" / trial.name, trial, ORDER)
    write_text(tmp_path / "spec.toml", SPEC.source.to_toml())
    write_json(tmp_path / "preflight.json", KNOWN.to_dict())
    return tmp_path


def sizes(records):
    return [record.trial.batch_size for record in records]


def test_records_that_belong_and_those_that_are_asked_for(swept):
    results = read_results(swept)
    assert sizes(results.records) == [4, 64, 256]
    assert sizes(results.belonging) == [4, 256]
    assert sizes(results.asked_for) == [4]
    assert (results.folder, results.preflight) == (swept, KNOWN)


def test_a_sweep_that_chooses_its_batch_sizes_asks_for_all_that_belong(swept):
    auto = make_spec(batch_sizes="auto", targets=[0.2], seeds=2)
    assert sizes(replace(read_results(swept), spec=auto).asked_for) == [4, 256]


@pytest.mark.parametrize("file", ["spec", "preflight"])
def test_without_a_spec_or_its_data_every_record_belongs(swept, file):
    getattr(ResultsPaths(swept), file).unlink()
    results = read_results(swept)
    assert results.spec is None
    assert sizes(results.belonging) == sizes(results.asked_for) == [4, 64, 256]
    assert results.preflight.unit == ("image" if file == "spec" else "example")


def test_a_torn_preflight_is_none(swept):
    path = ResultsPaths(swept).preflight
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        assert read_results(swept).spec is None


@pytest.mark.parametrize("place", ["preflight.json", "trials/b00004", "trials/b00004/curve.csv"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_in_a_folder_are_not_followed_and_not_opened(tmp_path, place, kind):
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "results" / place
    path.parent.mkdir(parents=True)
    (tmp_path / "results" / "trials").mkdir(exist_ok=True)
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
    with pytest.raises(UserError, match="symbolic link" if kind == "link" else "no ordinary file") as caught:
        read_results(tmp_path / "results")
    assert caught.value.where == str(path)


def test_a_link_to_a_results_folder_is_the_user_s_own(tmp_path):
    trial = add(tmp_path / "results", 4)
    (tmp_path / "link").symlink_to(tmp_path / "results")
    assert [record.trial for record in read_records(tmp_path / "link")] == [trial]
