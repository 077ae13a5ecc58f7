"""Files that survive a crash, a full disk and a torn last line."""

import contextlib
import errno
import json
import os
import stat

import pytest

from bscrit.errors import UserError
from bscrit.files import explaining, replacing, whole_json, whole_lines, write_json, write_text


def test_a_written_file_is_read_back(tmp_path):
    write_json(tmp_path / "a.json", {"rate": 0.1, "name": "é"})
    assert whole_json(tmp_path / "a.json") == {"rate": 0.1, "name": "é"}


def test_json_is_strict(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with contextlib.suppress(KeyboardInterrupt), replacing(path) as stream:
        stream.write(b"half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_gets_the_permissions_that_the_user_asked_for(tmp_path):
    write_text(tmp_path / "a.txt", "")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


def test_json_torn_at_any_byte_is_no_json(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"schema": 1, "status": "reached", "reason": "déjà"})
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        assert whole_json(path) is None
    assert whole_json(tmp_path / "missing.json") is None


def test_whole_lines_leave_out_the_torn_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("head\n1,é\n2,b\n".encode())
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert whole_lines(path) == ["head", "1,é", "2,b"][:complete]
    assert whole_lines(tmp_path / "missing.csv") == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR])
def test_refusals_of_the_system_become_sentences_with_a_remedy(tmp_path, number):
    with pytest.raises(UserError) as caught, explaining(tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.where == str(tmp_path)
    assert caught.value.what == os.strerror(number)
    assert caught.value.remedy


def test_a_bug_keeps_its_traceback(tmp_path):
    with pytest.raises(ZeroDivisionError), explaining(tmp_path):
        _ = 1 / 0


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/a\.json"):
        write_json(tmp_path / "file" / "a.json", json.loads("{}"))
