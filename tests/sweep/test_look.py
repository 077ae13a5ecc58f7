"""When facts that were found before still hold."""

import json
from dataclasses import replace

import pytest
from inprocess import InProcess, Silent, small_spec

from bscrit.preflight import Preflight
from bscrit.spec import parse_spec
from bscrit.sweep.look import look, seen

MODULE = """
from bscrit.workloads.quadratic import Quadratic

class Mine(Quadratic):
    def __init__(self, data, **settings):
        super().__init__(**settings)
"""


def own_spec(folder, **settings):
    spec = small_spec()
    tables = {
        "workload": {"use": "mine:Mine", "data": "text", "dimensions": 5, **settings},
        "sweep": {"batch_sizes": [4, 16], "targets": [0.2], "max_examples": 10**5},
        "noise": {"source": "none"},
    }
    return parse_spec(tables, name=spec.name, folder=folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A spec's folder with a class of the user's and the data that its settings name."""
    folder = tmp_path / "specs"
    (folder / "text").mkdir(parents=True)
    (folder / "mine.py").write_text(MODULE)
    (folder / "text" / "a.txt").write_text("one")
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def looked(folder, tmp_path):
    """The folder of results after one look."""
    found = look(own_spec(folder), tmp_path, InProcess(), Silent())
    assert seen(own_spec(folder), tmp_path) == found
    return tmp_path


def test_without_a_look_nothing_was_seen(folder, tmp_path):
    assert seen(own_spec(folder), tmp_path) is None


def test_another_question_wants_another_look(looked, folder):
    assert seen(own_spec(folder, dimensions=6), looked) is None


@pytest.mark.parametrize("name", ["mine.py", "text/a.txt", "text/b.txt"])
def test_a_file_that_changed_wants_another_look(looked, folder, name):
    with (folder / name).open("a") as stream:
        stream.write("# more")
    assert seen(own_spec(folder), looked) is None


@pytest.mark.parametrize("package", ["bscrit", "torch"])
def test_another_version_wants_another_look(looked, folder, package):
    file = looked / "preflight.json"
    facts = Preflight.from_dict(json.loads(file.read_text()))
    file.write_text(json.dumps(replace(facts, versions={**facts.versions, package: "0.0"}).to_dict()))
    assert seen(own_spec(folder), looked) is None


def test_facts_of_an_older_version_want_another_look(looked, folder):
    file = looked / "preflight.json"
    facts = json.loads(file.read_text())
    del facts["request"], facts["stamps"]
    file.write_text(json.dumps(facts))
    assert seen(own_spec(folder), looked) is None
