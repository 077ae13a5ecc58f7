"""A warm worker: a process of this machine that imports torch once and then takes one request after the other.

Its pipes carry paths of request files alone, one a line: one way when it is handed a request, the other way when the
answer lies beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from bscrit.request import Done, Failed, Prepare, Request, Train, is_answered, write_answer
from bscrit.sweep.executors import Compute

EXIT_SECONDS = 10.0


class Warm:
    """A worker and the requests that it has not answered yet, the oldest first."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.handed: dict[Path, Request] = {}
        self.leaving = False
        self._received = b""

    @property
    def busy(self) -> bool:
        """Whether it has more to do than to prepare."""
        return any(not isinstance(request, Prepare) for request in self.handed.values())

    @property
    def preparing(self) -> bool:
        return any(isinstance(request, Prepare) for request in self.handed.values())

    @property
    def keeps(self) -> bool:
        """Whether it has something to keep, should it have to leave."""
        return all(isinstance(request, Train) for request in self.handed.values())

    @property
    def output(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def hand(self, file: Path, request: Request) -> None:
        """Hand it a request; one that prepares takes it afterwards. One that dies now is seen dead by the next poll."""
        assert self.process.stdin is not None
        self.handed[file] = request
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(str(file)).encode() + b"\n")
            self.process.stdin.flush()

    def leave(self) -> None:
        """Have it leave; what it trains it answers before."""
        self.leaving = True
        self.process.terminate()

    def read(self) -> list[Path]:
        """Requests that it has answered, or cannot answer any more; none while its line is not whole."""
        chunk = os.read(self.output, 1 << 16)
        *lines, self._received = (self._received + chunk).split(b"\n")
        files = [Path(json.loads(line)) for line in lines]
        for file in files:
            self.handed.pop(file)
        return files if chunk else self.died()

    def died(self) -> list[Path]:
        """Requests of a worker that cannot answer any more, with answers that say so."""
        self.end(EXIT_SECONDS)
        files = list(self.handed)
        self.handed.clear()
        code = self.process.returncode
        for file in files:
            if not is_answered(file):
                left = self.leaving and code == 0
                write_answer(file, Done(ended=False) if left else Failed("worker", explain_exit(code)))
        return files

    def end(self, seconds: float) -> None:
        """Wait this long for the worker to end, then end it, and in any case whatever it started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start(compute: Compute, place: int) -> Warm:
    """Start the worker that takes this place among those of this machine."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(compute.threads), **own_device(place)}
    locks = [argument for descriptor in compute.keep_open for argument in ("--lock", str(descriptor))]
    with compute.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bscrit.train.worker", "--path", str(compute.folder), *locks],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            pass_fds=compute.keep_open,
            env=environment,
        )
    return Warm(process)


def visible_devices() -> list[str]:
    """The GPUs that programs may use; empty where nothing is said about them."""
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def own_device(place: int) -> dict[str, str]:
    """Where several GPUs are visible, each worker sees one of them: two runs never share a GPU."""
    visible = visible_devices()
    return {"CUDA_VISIBLE_DEVICES": visible[place % len(visible)]} if len(visible) > 1 else {}


def explain_exit(code: int) -> str:
    """An exit status in words.

    >>> explain_exit(-9)
    'the worker was killed by SIGKILL, likely for lack of memory'
    """
    code = -(code - 128) if code > 128 else code
    if code >= 0:
        return f"the worker ended with exit status {code}"
    name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
    likely = ", likely for lack of memory" if name == "SIGKILL" else ""
    return f"the worker was killed by {name}{likely}"
