"""One sweep in a results folder, which leaves when it is asked to: the lock, and signals."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bscrit.errors import UserError
from bscrit.files import explaining
from bscrit.paths import ResultsPaths
from bscrit.sweep.view import View

LOCK_SECONDS = 60.0


@contextlib.contextmanager
def locked(out: Path, view: View) -> Iterator[tuple[int, ...]]:
    """Hold the results folder alone; a worker inherits the lock, so that it counts if it outlives us."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield ()
        return
    with contextlib.ExitStack() as files:
        with explaining(out):
            stream = files.enter_context(ResultsPaths(out).lock.open("a"))
        deadline, noted = time.monotonic() + LOCK_SECONDS, False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break  # a file system without locks
            if time.monotonic() > deadline:
                raise UserError(
                    str(out), "is in use by another sweep", "wait for it, or choose another --out"
                )
            if not noted:
                view.note(f"waiting for another sweep to leave {out}")
                noted = True
            time.sleep(0.2)
        yield (stream.fileno(),)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Ctrl-C, SIGTERM and SIGUSR2 ask the sweep to leave; a second Ctrl-C is an ordinary one.

    Yields what tells the number of the first signal that came, 0 while none did: always so outside the main thread,
    which alone may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    caught: list[int] = []

    def handler(number: int, _: object) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield lambda: caught[0] if caught else 0
    finally:
        for number, old in before.items():
            signal.signal(number, old)
