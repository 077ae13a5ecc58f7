"""A worker: a process that imports torch once and then carries out one request after the other.

It reads paths of request files (`bscrit.request`), one a line and in JSON, from standard input. It takes the request,
leaves its answer beside it, and says so by the same line on standard output; what the workload prints goes to standard
error. When its input ends, because the sweep asked it to leave or died, it leaves a checkpoint and goes.

    python -m bscrit.train.worker --path FOLDER_OF_THE_SPEC [--lock DESCRIPTOR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# Two threads that spin for work make neighbours' steps many times slower; set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from bscrit.cohort.pace import Pace
from bscrit.engine.loading import load_workload
from bscrit.engine.memory import tune_allocator
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, in_short
from bscrit.paths import TrialPaths
from bscrit.record import read_record
from bscrit.request import (
    Answer,
    Done,
    Facts,
    Failed,
    Inspect,
    Prepare,
    Request,
    Setup,
    Train,
    take_request,
    write_answer,
)
from bscrit.train.loop import train
from bscrit.train.preflight import preflight, resolve_device, versions, warm_up

GRACE_SECONDS = 2.0
ORPHAN_SECONDS = 60.0
LEAVE_SECONDS = 5.0
_workloads: dict[str, Workload] = {}


class Leave:
    """Whether to leave, asked after every step; and how long the longest step took so far."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.begin()

    def begin(self) -> None:
        self._asked, self._longest = time.monotonic(), 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        self._longest, self._asked = max(self._longest, now - self._asked), now
        return self.event.is_set()

    @property
    def patience(self) -> float:
        """Seconds after which a step is taken to hang: it took longer than three of the longest, and a checkpoint."""
        return min(LEAVE_SECONDS + 3 * self._longest, ORPHAN_SECONDS)


def _prepared(
    use: str, settings: Mapping[str, Any], metric: str, validation_examples: int | None, device: str
) -> Workload:
    text = json.dumps([use, settings, metric, validation_examples, device], sort_keys=True)
    if text not in _workloads:
        workload = load_workload(use, settings, metric, validation_examples)
        workload.prepare(device)
        _workloads[text] = workload
    return _workloads[text]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--lock", type=int, action="append", default=[])
    options = parser.parse_args(arguments)
    lines, answers = _claim_streams()
    _keep_from_children(options.lock)
    sys.path[:0] = options.path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's to handle, which ends our input
    tune_allocator()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    leave = Leave()
    signal.signal(signal.SIGTERM, lambda *_: leave.event.set())
    handed: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(lines, handed, leave), daemon=True).start()
    while not leave() and (line := handed.get()) is not None:
        serve(Path(json.loads(line)), leave)
        answers.write(line)
        answers.flush()
    # Threads that a workload started may never end.
    last_resort = threading.Timer(GRACE_SECONDS, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()


def serve(file: Path, leave: Leave) -> None:
    """Take the request of a file and leave its answer; nothing where another worker took it."""
    try:
        request = take_request(file)
    except UserError as error:
        write_answer(file, Failed("user", error.what, error.where, error.remedy))
        return
    if request is not None:
        write_answer(file, answer(request, leave))


def answer(request: Request, leave: Leave | None = None) -> Answer:
    """Carry out a request."""
    try:
        match request:
            case Inspect():
                return Facts(preflight(request.setup))
            case Prepare():
                _prepare(request.setup)
                return Done()
            case Train():
                return _train(request, leave or Leave())
    except UserError as error:
        traceback.print_exc()
        return Failed("user", error.what, error.where, error.remedy)
    except Exception as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        for folder in request.own_folders if isinstance(request, Train) else ():
            with TrialPaths(folder).log.open("a", encoding="utf-8") as log:
                log.write(text)
        return Failed("trial", in_short(error))


def _train(request: Train, leave: Leave) -> Done:
    record = read_record(request.folders[0])
    assert record is not None, "the sweep begins a folder before it hands it over"
    trial, order, pace = record.trial, record.order, Pace()
    evaluation = trial.goal.metric, trial.validation_examples
    workload = _prepared(trial.workload, trial.settings, *evaluation, order.device)
    facts = {"device": order.device, "dtype": trial.dtype, "unit": workload.unit, "versions": versions()}
    leave.begin()
    ended = train(request.folders, workload, facts, leave, request.shard, pace)
    return Done(ended, pace.stretches, pace.waits)


def _prepare(setup: Setup) -> None:
    """Load a workload and try it; what is wrong with it is for preflight to say."""
    with contextlib.suppress(Exception):
        device = resolve_device(setup.device)
        evaluation = setup.metric, setup.validation_examples
        warm_up(_prepared(setup.use, setup.settings, *evaluation, device), setup, device)


def _listen(lines: IO[str], handed: queue.Queue[str | None], leave: Leave) -> None:
    for line in lines:
        handed.put(line)
    leave.event.set()
    handed.put(None)
    # A method that hangs would hold up Ctrl-C and keep the results locked, and no sweep may be left to end this worker.
    orphaned = threading.Timer(leave.patience, _end_group)
    orphaned.daemon = True
    orphaned.start()


def _keep_from_children(descriptors: Sequence[int]) -> None:
    """Processes that a workload starts hold no lock: they may outlive this worker."""

    def close() -> None:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=close)


def _end_group() -> None:
    """End this process and those that a workload started in its group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _claim_streams() -> tuple[IO[str], IO[str]]:
    """Our own standard input and output, out of reach of what a workload reads and prints."""
    lines, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return lines, answers


if __name__ == "__main__":
    main(sys.argv[1:])
