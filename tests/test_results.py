"""A folder of records."""

import pytest

from bscrit.errors import UserError
from bscrit.order import Order
from bscrit.record import begin, end
from bscrit.results import is_results, read_results
from bscrit.trial import Trial

ORDER = Order("measure", 0, lanes=((0.05, 3),), targets=(0.2,), max_steps=100)


def add(results, batch_size):
    trial = Trial("quadratic", batch_size=batch_size, lr=0.05, seed=3)
    begin(results / "trials" / trial.name, trial, ORDER)
    return trial


def test_records_ascend_in_batch_size(tmp_path):
    for size in (1024, 4, 64):
        add(tmp_path, size)
    assert [record.trial.batch_size for record in read_results(tmp_path)] == [4, 64, 1024]


def test_what_was_not_begun_and_what_is_no_folder_is_passed_over(tmp_path):
    trial = add(tmp_path, 4)
    (tmp_path / "trials" / "b00008-torn").mkdir()
    (tmp_path / "trials" / "notes.txt").write_text("mine")
    end(tmp_path / "trials" / trial.name, "failed", "", {})
    assert [record.trial for record in read_results(tmp_path)] == [trial]


def test_a_folder_with_a_space_in_its_name(tmp_path):
    add(tmp_path / "my results", 4)
    assert len(read_results(tmp_path / "my results")) == 1


@pytest.mark.parametrize("name", ["", "missing"])
def test_another_folder_is_an_error_with_a_remedy(tmp_path, name):
    assert not is_results(tmp_path / name)
    with pytest.raises(UserError, match=r"no folder 'trials'\n  hint: run `bscrit sweep`"):
        read_results(tmp_path / name)


def test_an_empty_folder_of_trials_holds_no_records(tmp_path):
    (tmp_path / "trials").mkdir()
    assert read_results(tmp_path) == []
