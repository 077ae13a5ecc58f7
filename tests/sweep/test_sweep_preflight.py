"""When facts that were found before still hold."""

import json
from dataclasses import replace

import pytest
from inprocess import InProcess, Silent

from bscrit.paths import ResultsPaths
from bscrit.preflight import read_preflight
from bscrit.spec import parse_spec
from bscrit.sweep.preflight import earlier_facts, inspect


def looked_at(spec, out):
    ResultsPaths(out).requests.mkdir(exist_ok=True)
    return inspect(spec, out, InProcess(), Silent())


def text_spec(folder, **settings):
    """A small language model on the files that its settings name."""
    small = {"layers": 1, "width": 8, "heads": 1, "sequence": 8, "validation_tokens": 64}
    tables = {
        "workload": {"use": "language", "data": "text", **small, **settings},
        "sweep": {"batch_sizes": [4, 16], "targets": [4.0], "max_examples": 10**5},
        "noise": {"source": "none"},
        "compute": {"lanes": "loop"},
    }
    return parse_spec(tables, name="spec", folder=folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A spec's folder with the data that its settings name."""
    folder = tmp_path / "specs"
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "a.txt").write_text("all work and no play " * 50)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def looked(folder, tmp_path):
    """The folder of results after one look."""
    found = looked_at(text_spec(folder), tmp_path)
    assert earlier_facts(text_spec(folder), tmp_path) == found
    return tmp_path


def test_without_a_look_nothing_was_seen(folder, tmp_path):
    assert earlier_facts(text_spec(folder), tmp_path) is None


def test_another_question_wants_another_look(looked, folder):
    assert earlier_facts(text_spec(folder, width=16), looked) is None


@pytest.mark.parametrize("name", ["text/a.txt", "text/b.txt"])
def test_a_file_that_changed_wants_another_look(looked, folder, name):
    with (folder / name).open("a") as stream:
        stream.write("# more")
    assert earlier_facts(text_spec(folder), looked) is None


@pytest.mark.parametrize("package", ["bscrit", "torch", "python"])
def test_another_version_wants_another_look(looked, folder, package):
    file = looked / "preflight.json"
    facts = read_preflight(file)
    file.write_text(json.dumps(replace(facts, versions={**facts.versions, package: "0.0"}).to_dict()))
    assert earlier_facts(text_spec(folder), looked) is None


def test_facts_of_an_older_version_want_another_look(looked, folder):
    file = looked / "preflight.json"
    facts = json.loads(file.read_text())
    del facts["request"], facts["stamps"]
    file.write_text(json.dumps(facts))
    assert earlier_facts(text_spec(folder), looked) is None


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"engines": []}', '{"engines": {}, "odd": 1}', "{"])
def test_what_is_no_preflight_wants_another_look(looked, folder, content):
    (looked / "preflight.json").write_text(content)
    assert earlier_facts(text_spec(folder), looked) is None
    assert looked_at(text_spec(folder), looked) is not None


def users_spec(tmp_path, monkeypatch, module):
    """A spec of a class in a module of the user's."""
    (tmp_path / f"{module}.py").write_text(
        "from bscrit.workloads.quadratic import Quadratic\n\nclass Mine(Quadratic): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = {"batch_sizes": [4, 16], "targets": [0.2], "max_examples": 10**5}
    return parse_spec(
        {"workload": {"use": f"{module}:Mine"}, "sweep": tables, "noise": {"source": "none"}}, folder=tmp_path
    )


def test_what_a_class_of_the_users_rests_on_is_not_known(tmp_path, monkeypatch):
    spec = users_spec(tmp_path, monkeypatch, "seen_from_outside")
    looked_at(spec, tmp_path)
    assert earlier_facts(spec, tmp_path) is None


def test_a_class_of_the_users_keeps_its_fingerprint_until_a_module_beside_it_changes(tmp_path, monkeypatch):
    spec = users_spec(tmp_path, monkeypatch, "rests_on_another")
    (tmp_path / "its_net.py").write_text("WIDTH = 8\n")
    with (tmp_path / "rests_on_another.py").open("a") as stream:
        stream.write("\nimport its_net\n")
    first = looked_at(spec, tmp_path).fingerprint
    assert looked_at(spec, tmp_path).fingerprint == first
    (tmp_path / "its_net.py").write_text("WIDTH = 64\n")
    assert looked_at(spec, tmp_path).fingerprint != first
