"""Names of workloads: found or refused without importing anything."""

import sys

import pytest

from bscrit.plugins import BUILT_IN_WORKLOADS, WORKLOADS, executor_problem, offered, workload_problem

CODE = "import nothing_of_this_name\nHELPER = 1\ndef make(): ...\nclass Mine: ...\nclass Other: ...\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "package" / "inner.py").write_text("class Deep: ...")
    return tmp_path


@pytest.mark.parametrize(
    "use", [*BUILT_IN_WORKLOADS, "mine:Mine", "mine:make", "package.inner:Deep", "json.decoder:JSONDecoder"]
)
def test_names_that_lead_somewhere(folder, use):
    assert workload_problem(use, folder) is None
    assert not {"mine", "package", "package.inner"} & set(sys.modules)


@pytest.mark.parametrize(
    ("use", "what", "remedy"),
    [
        ("clasifier", "is not a workload that is known", "did you mean 'classifier'?"),
        ("langauge", "is not a workload that is known", "did you mean 'language'?"),
        ("mine.py:Mine", "a module 'mine.py'", "did you mean 'mine'?"),
        ("mine:Mien", "a class 'Mien' that mine.py does not define", "did you mean 'Mine'?"),
        ("mien:Mine", "a module 'mien' that is neither beside the spec", "did you mean 'mine'?"),
        ("mine:Mine:Mine", "is not of the form module:Class", "my_module:MyWorkload"),
        ("mine:", "is not of the form module:Class", "my_module:MyWorkload"),
        ("my mine:Mine", "is not of the form module:Class", "my_module:MyWorkload"),
        ("os:system", "'os', which is not beside the spec", "beside the spec"),
        ("json:loads", "defines no such class", "beside the spec"),
        ("package.outer:Deep", "a module 'package.outer'", "known: mine"),
    ],
)
def test_names_that_lead_nowhere(folder, use, what, remedy):
    problem = workload_problem(use, folder)
    assert what in problem[0]
    assert remedy in problem[1]


@pytest.mark.parametrize(
    "code",
    [
        "from elsewhere import *",
        "if True:\n    Mine = 1",
        "def broken(:",
        "Mine = type('Mine', (), {})\n",
        "",
    ],
)
def test_a_file_whose_names_cannot_be_told_by_reading_is_left_to_the_worker(tmp_path, code):
    (tmp_path / "mine.py").write_text(code)
    assert workload_problem("mine:Mine", tmp_path) is None


def test_an_entry_point_of_an_installed_package_is_known(tmp_path, monkeypatch):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bscrit.workloads]\ntheirs = theirs_module:Theirs\n")
    assert "theirs" not in offered(WORKLOADS)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(offered(WORKLOADS))[-1] == "theirs"
    assert workload_problem("theirs", tmp_path) is None


def test_an_executor_by_its_name():
    assert executor_problem("local") is None
    what, remedy = executor_problem("lokal")
    assert what == "is not an executor that is known"
    assert remedy == "did you mean 'local'? known: local"
