"""Text by name: the standard library's source, files and folders, and what is wrong with them."""

import pytest

from bscrit.errors import UserError
from bscrit.workloads.text import _standard_library, read_text


def test_python_s_source_is_that_of_its_modules():
    files = _standard_library()
    assert files == _standard_library()
    names = {file.name for file in files}
    assert {"argparse.py", "decoder.py", "_collections_abc.py"} <= names
    assert not {"cp1252.py", "topics.py", "pyshell.py", "turtle.py", "support.py"} & names
    size = sum(file.stat().st_size + 1 for file in files) - 1
    assert len(read_text("python")) == size > 50_000 * 65


def test_tests_and_what_is_not_python_s_own_are_left_out(tmp_path, monkeypatch):
    inside = tmp_path / "tests" / "stdlib"
    for number, name in enumerate(
        [
            "json/tool.py",
            "json.py",
            "argparse.py",
            "json/tests/test_tool.py",
            "unittest/test/support.py",
            "site-packages/json.py",
            "mine.py",
            "idlelib/run.py",
            "encodings/cp1252.py",
            "json/notes.txt",
        ]
    ):
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_text(str(number) * 400)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "tests" / name))
    assert [str(file.relative_to(inside)) for file in _standard_library()] == [
        "argparse.py",
        "json/tool.py",
        "json.py",
    ]
    assert read_text("python") == b"\n".join(letter * 400 for letter in (b"2", b"0", b"1"))


def test_a_folder_is_its_files_in_order_without_hidden_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, letter in {"b.txt": "b", "a/z.md": "z", "a/y.py": "y", ".git/x": "X", "a/.hid": "H"}.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(letter * 89)
    assert read_text("texts") == b"\n".join(letter * 89 for letter in (b"y", b"z", b"b"))


def test_a_path_beside_the_spec_goes_before_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "text.txt").write_text("mine")
    (tmp_path / "elsewhere" / "text.txt").write_text("other")
    assert read_text("text.txt") == b"mine" == read_text(str(tmp_path / "text.txt"))
    (tmp_path / "text.txt").unlink()
    assert read_text("text.txt") == b"other"


def test_text_that_cannot_be_used_is_explained(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "image.png").write_bytes(b"PNG\0\1" * 200)
    for data, words in {
        "txet.txt": f"'txet.txt' is neither.* in {tmp_path}",
        "/no/such/text": "'/no/such/text' is neither \"python\" nor a file or folder$",
        "empty": "'empty' is a folder without files",
        "mixed": "mixed/image.png holds zero bytes",
        "": "data = ''",
        7: "data = 7",
    }.items():
        with pytest.raises(ValueError, match=words):
            read_text(data)


def test_an_installation_without_source_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    with pytest.raises(UserError, match="holds no source files"):
        read_text("python")
