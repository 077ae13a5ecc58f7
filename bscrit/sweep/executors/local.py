"""Worker processes on this machine: warm, so that torch is imported once each and not once a trial."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bscrit.sweep.executors import Answer

GRACE_SECONDS = 60.0
EXIT_SECONDS = 10.0


class Local:
    """Up to `slots` workers; one that died is replaced.

    Args:
        slots: workers at the same time.
        folder: of the spec, where a user's own workload is found.
        log: file that collects what workers and workloads print.
        threads: CPU threads of each worker.
        keep_open: file descriptors that workers inherit: a lock on the results that outlives this process.
    """

    at_once = True

    def __init__(
        self, slots: int, folder: Path, log: Path, threads: int = 1, keep_open: Sequence[int] = ()
    ) -> None:
        self.slots = slots
        self._folder = folder
        self._log = log
        self._threads = threads
        self._keep_open = tuple(keep_open)
        self._numbers = itertools.count()
        self._workers = [self._start(place) for place in range(slots)]

    def submit(self, request: Mapping[str, Any]) -> int:
        idle = [place for place, worker in enumerate(self._workers) if worker.request is None]
        place = min(idle, key=lambda place: self._workers[place].preparing)
        worker = self._workers[place]
        if worker.process.poll() is not None:
            worker = self._workers[place] = self._start(place)
        worker.request, worker.keeps = next(self._numbers), request["call"] == "train"
        worker.tell(request)
        return worker.request

    def prepare(self, request: Mapping[str, Any]) -> None:
        for worker in self._workers:
            if worker.request is None:
                worker.preparing = True
                worker.tell({"call": "prepare", "request": dict(request)})

    def leave(self, number: int) -> None:
        for worker in self._workers:
            if worker.request == number:
                worker.process.terminate()

    def poll(self, seconds: float) -> list[Answer]:
        busy = {
            worker.output: worker
            for worker in self._workers
            if worker.request is not None or worker.preparing
        }
        ready, _, _ = select.select(list(busy), [], [], seconds)
        # What a worker started may hold its output open when it is dead.
        dead = [output for output in set(busy) - set(ready) if busy[output].process.poll() is not None]
        ready += select.select(dead, [], [], 0)[0]
        answers = [busy[output].read() for output in ready]
        answers += [busy[output].died() for output in dead if output not in ready]
        return [answer for answer in answers if answer is not None]

    def close(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(BrokenPipeError, OSError):
                if worker.process.stdin is not None:
                    worker.process.stdin.close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            if worker.request is None:
                worker.process.terminate()
            has_time = not worker.preparing and (worker.request is None or worker.keeps)
            worker.end(max(deadline - time.monotonic(), 0.1) if has_time else 0.0)
            if worker.process.stdout is not None:
                worker.process.stdout.close()

    def _start(self, place: int) -> _Worker:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), **_own_device(place)}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "bscrit.train.worker", "--path", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=self._keep_open,
                env=environment,
            )
        return _Worker(process)


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    request: int | None = None
    keeps: bool = False
    preparing: bool = False
    received: bytes = b""

    def tell(self, request: Mapping[str, Any]) -> None:
        """Send a request; one who prepares reads it afterwards. One who dies now is found dead by the next poll."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            self.process.stdin.flush()

    @property
    def output(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> Answer | None:
        """The answer to the request at hand, None while it is not whole."""
        chunk = os.read(self.output, 1 << 16)
        self.received += chunk
        while b"\n" in self.received:
            line, _, self.received = self.received.partition(b"\n")
            answer = json.loads(line)
            if "prepared" in answer:
                self.preparing = False
                continue
            assert self.request is not None
            request, self.request = self.request, None
            if "error" in answer:
                return Answer(request, error=tuple(answer["error"]), by=answer["of"])
            if answer.get("done") is False:  # told to leave: the next request is for another worker
                self.end(EXIT_SECONDS)
            return Answer(request, done=answer)
        return None if chunk else self.died()

    def died(self) -> Answer | None:
        """The answer of a worker that can give none any more, None where it was asked nothing but to prepare."""
        request, self.request, self.preparing = self.request, None, False
        self.end(EXIT_SECONDS)
        if request is None:
            return None
        return Answer(request, error=("", explain_exit(self.process.returncode), ""), by="worker")

    def end(self, seconds: float) -> None:
        """Wait this long for the worker to end, then end it, and in any case whatever it started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def explain_exit(code: int) -> str:
    """What an exit status means, in words.

    >>> explain_exit(-9)
    'the worker was killed by SIGKILL, likely for lack of memory'
    """
    code = -(code - 128) if code > 128 else code
    if code >= 0:
        return f"the worker ended with exit status {code}"
    name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
    likely = ", likely for lack of memory" if name == "SIGKILL" else ""
    return f"the worker was killed by {name}{likely}"


def _own_device(place: int) -> dict[str, str]:
    """Where several GPUs are visible, each worker sees one of them: two runs never share a GPU."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[place % len(visible)]} if len(visible) > 1 else {}
