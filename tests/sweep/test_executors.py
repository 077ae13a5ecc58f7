"""One more executor, offered by an installed package: no file of this one is touched."""

import sys

import pytest
from inprocess import InProcess, Silent, offer, on, small_spec

from bscrit.errors import UserError, UserErrors
from bscrit.paths import ResultsPaths
from bscrit.request import Done, Train
from bscrit.results import read_records
from bscrit.spec import parse_spec, read_spec, restore_spec
from bscrit.spec.errors import Source
from bscrit.sweep import command
from bscrit.sweep.drive import drive
from bscrit.sweep.executors import Compute, executor_of

MODULE = """
import threading
from bscrit.train import worker

class Theirs:
    slots = 1
    made = []

    def __init__(self, compute):
        self.made.append(compute)
        self.files = []

    def submit(self, request):
        self.files.append(request)
        return request.name

    def poll(self, seconds):
        files, self.files = self.files, []
        for file in files:
            worker.serve(file, worker.Leave())
        return [file.name for file in files]

    def cancel(self, handle):
        pass

    def close(self):
        pass
"""
POINTS = "[bscrit.executors]\ntheirs = their_module:Theirs\nabsent = nothing_of_this_name:Absent\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An installed package that offers an executor."""
    info = tmp_path / "site" / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "site" / "their_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    sys.modules.pop("their_module", None)


def write_spec(folder, executor="theirs"):
    tables = small_spec(compute={"threads": 3}).source.data
    tables = {**tables, "compute": {**tables["compute"], "executor": executor}}
    file = folder / "x.toml"
    file.write_text(Source("x.toml", tables).to_toml())
    return file


def told(records):
    return {r.trial.name: (r.status, r.curve.loss.tobytes()) for r in records}


@pytest.mark.usefixtures("site")
def test_it_carries_a_sweep_which_finds_the_same(tmp_path, monkeypatch):
    assert command.sweep(write_spec(tmp_path), tmp_path / "out", [], dry_run=True) == 0
    assert command.sweep(write_spec(tmp_path), tmp_path / "out", [], dry_run=False) == 0
    theirs = read_records(tmp_path / "out")
    dry, made = sys.modules["their_module"].Theirs.made
    assert (dry.workers, made.workers, made.device, made.threads) == (1, 2, "cpu", 3)
    assert made.folder == tmp_path
    assert made.log == tmp_path / "out" / "workers.log"
    assert len(made.keep_open) == 1
    offer(monkeypatch, tmp_path / "mocks", mock=lambda _: InProcess())
    assert told(drive(on(small_spec(), "mock"), tmp_path / "b", Silent()).results.records) == told(theirs), (
        "where a trial trains is no part of what it is"
    )


@pytest.mark.usefixtures("site")
def test_results_are_read_where_it_is_not_installed(tmp_path, monkeypatch):
    drive(read_spec(write_spec(tmp_path)), tmp_path / "out", Silent())
    monkeypatch.undo()
    with pytest.raises(UserErrors, match="is not an executor that is known"):
        read_spec(tmp_path / "out" / "spec.toml")
    assert restore_spec(tmp_path / "out" / "spec.toml").compute.executor == "theirs"


@pytest.mark.usefixtures("site")
def test_a_name_that_is_not_known_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UserErrors, match=r"executor.*is not an executor that is known") as caught:
        read_spec(write_spec(tmp_path, "teirs"))
    assert "hint: did you mean 'theirs'? known: absent, local, theirs" in str(caught.value)


@pytest.mark.usefixtures("site")
def test_one_that_cannot_be_imported_is_a_sentence(tmp_path):
    spec = read_spec(write_spec(tmp_path, "absent"))
    with pytest.raises(
        UserError, match=r"executor = 'absent': cannot be imported: ModuleNotFoundError.*\n  hint: "
    ):
        drive(spec, tmp_path / "out", Silent())


def test_it_begins_without_the_requests_of_an_earlier_sweep(monkeypatch, tmp_path):
    """One of its workers might take them."""
    requests = ResultsPaths(tmp_path).requests
    requests.mkdir()
    (requests / "0123456789ab.json").write_text("")
    left = []
    offer(monkeypatch, tmp_path, mock=lambda _: left.extend(requests.iterdir()) or InProcess())
    with executor_of(on(small_spec(), "mock"), tmp_path):
        assert left == []
        assert requests.is_dir()
    assert not requests.exists()


def test_a_file_where_requests_should_lie_is_a_sentence(tmp_path):
    ResultsPaths(tmp_path).requests.write_text("")
    with (
        pytest.raises(UserError, match=r"requests: File exists\n  hint: "),
        executor_of(small_spec(), tmp_path),
    ):
        pass


def test_the_executor_is_left_out_of_the_identity_of_a_trial(monkeypatch, tmp_path):
    offer(monkeypatch, tmp_path, mock=lambda _: InProcess())
    tables = small_spec().source.data
    mocked = parse_spec({**tables, "compute": {**tables["compute"], "executor": "mock"}})
    assert mocked.trial(4, 0.1, 0).key == small_spec().trial(4, 0.1, 0).key


def test_it_is_made_from_what_compute_says_and_no_more():
    assert set(Compute.__dataclass_fields__) == {"workers", "device", "threads", "folder", "log", "keep_open"}


class Claims(InProcess):
    """Answers that everything is trained, and trains nothing."""

    def __init__(self):
        super().__init__(trouble=lambda _, request: Done() if isinstance(request, Train) else None)


def test_one_that_claims_to_have_trained_is_given_up(monkeypatch, tmp_path):
    offer(monkeypatch, tmp_path, claims=lambda _: Claims())
    outcome = drive(on(small_spec(), "claims"), tmp_path / "out", Silent())
    assert set(outcome.given_up.values()) == {"was answered as trained, and has not ended"}


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda _: 1 / 0, "cannot be made: ZeroDivisionError"),
        (lambda _: object(), "has no submit, poll, cancel, close"),
        (7, "cannot be made: TypeError"),
    ],
)
def test_one_that_cannot_be_made_is_a_sentence(monkeypatch, tmp_path, made, what):
    offer(monkeypatch, tmp_path, broken=made)
    with pytest.raises(UserError, match=what), executor_of(on(small_spec(), "broken"), tmp_path):
        pass
    assert not ResultsPaths(tmp_path).requests.exists()


def test_one_that_tells_nothing_of_the_workload_is_a_sentence(monkeypatch, tmp_path):
    offer(monkeypatch, tmp_path, empty=lambda _: InProcess(trouble=lambda *_: Done()))
    with pytest.raises(UserError, match="gave no facts of the workload"):
        drive(on(small_spec(), "empty"), tmp_path / "out", Silent())
