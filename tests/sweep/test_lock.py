"""One sweep in a folder, and signals that ask it to leave."""

import fcntl
import os
import signal
import threading

import pytest
from inprocess import Silent

from bscrit.errors import UserError
from bscrit.sweep import lock
from bscrit.sweep.lock import interruptible, locked


def test_signals_are_given_back_and_a_second_ctrl_c_is_an_ordinary_one():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as interrupted:
        assert interrupted() == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupted() == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_folder_in_use_is_waited_for_and_then_refused(tmp_path, monkeypatch):
    view = Silent()
    with locked(tmp_path, view):
        monkeypatch.setattr(lock, "LOCK_SECONDS", 0.3)
        with pytest.raises(UserError, match="is in use by another sweep"), locked(tmp_path, view):
            pass
    assert view.notes == [f"waiting for another sweep to leave {tmp_path}"]
    with locked(tmp_path, view) as kept:
        assert len(kept) == 1


def test_a_lock_is_free_again_when_its_holder_dies(tmp_path):
    child = os.fork()
    if child == 0:
        with (tmp_path / ".lock").open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            os._exit(0)
    os.waitpid(child, 0)
    with locked(tmp_path, Silent()):
        pass


def test_outside_the_main_thread_no_signal_is_handled():
    numbers = []

    def body() -> None:
        with interruptible() as interrupted:
            numbers.append(interrupted())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert numbers == [0]
