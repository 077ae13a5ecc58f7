"""A worker: a process that imports torch once and then trains one cohort after the other.

It reads requests, one JSON object a line, from standard input, and answers each with one line on standard
output; what the workload prints goes to standard error. When its input ends, because the sweep asked it to
leave or died, it leaves a checkpoint and goes.

    python -m bscrit.train.worker --path FOLDER_OF_THE_SPEC
    {"call": "preflight", "request": {...}}                         ->  {"facts": {...}}
    {"call": "prepare", "request": {...}}                           ->  {"prepared": true}
    {"call": "train", "folders": ["results/x/trials/b4-...", ...]}  ->  {"done": true, ...}

For a cohort on several workers the request says which lanes are this one's, too (cohort/peers.py). The answer tells how
fast they were (cohort/pace.py).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# Two threads that spin for work make neighbours' steps many times slower; set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from bscrit.cohort.pace import Pace
from bscrit.engine.lanes import tune_allocator
from bscrit.engine.loading import load_workload
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.paths import TrialPaths
from bscrit.record import read_record
from bscrit.request import Shard
from bscrit.train.loop import train
from bscrit.train.preflight import preflight, resolve_device, versions, warm_up

GRACE_SECONDS = 2.0
_workloads: dict[str, Workload] = {}


def run(
    folders: Sequence[Path],
    leave: threading.Event | None = None,
    shard: Shard | None = None,
    pace: Pace | None = None,
) -> bool:
    """Train the cohort that lies in these folders; False when told to leave before it ended."""
    record = read_record(folders[0])
    assert record is not None, "the sweep begins a folder before it hands it over"
    trial, order = record.trial, record.order
    workload = _prepared(trial.workload, trial.settings, order.device)
    facts = {"device": order.device, "dtype": trial.dtype, "unit": workload.unit, "versions": versions()}
    return train(folders, workload, facts, leave.is_set if leave else lambda: False, shard, pace)


def _prepared(use: str, settings: Mapping[str, Any], device: str) -> Workload:
    text = json.dumps([use, settings, device], sort_keys=True)
    if text not in _workloads:
        workload = load_workload(use, settings)
        workload.prepare(device)
        _workloads[text] = workload
    return _workloads[text]


def main(arguments: Sequence[str]) -> None:
    asked, answers = _claim_streams()
    for folder in arguments[1:]:
        sys.path.insert(0, folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's to handle, and it tells us
    tune_allocator()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(asked, requests, leave), daemon=True).start()
    while not leave.is_set() and (request := requests.get()) is not None:
        answers.write(json.dumps(_answer(request, leave)) + "\n")
        answers.flush()
    # Threads that a workload started may never end.
    last_resort = threading.Timer(GRACE_SECONDS, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()


def _answer(request: Mapping[str, Any], leave: threading.Event) -> dict[str, Any]:
    try:
        if request["call"] == "preflight":
            return {"facts": preflight(request["request"]).to_dict()}
        if request["call"] == "prepare":
            return _prepare(request["request"])
        folders, pace = [Path(folder) for folder in request["folders"]], Pace()
        stamps = tuple(None if one is None else tuple(one) for one in request.get("stamps", ()))
        shard = Shard(tuple(request["own"]), stamps) if "own" in request else None
        done = run(folders, leave, shard, pace)
        paces = [[one.lanes, one.steps, one.seconds] for one in pace.stretches]
        return {"done": done, "paces": paces, "waits": [pace.waits.evaluations, pace.waits.seconds]}
    except UserError as error:
        traceback.print_exc()
        return {"error": [error.where, error.what, error.remedy], "of": "user"}
    except Exception as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        for folder in _own(request):
            with open(TrialPaths(Path(folder)).log, "a", encoding="utf-8") as log:  # noqa: PTH123
                log.write(text)
        return {"error": ["", f"{type(error).__name__}: {error}", ""], "of": "trial"}


def _prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Load a workload and try it, before there is anything to train on it; what is wrong with it, preflight says."""
    try:
        device = resolve_device(request["device"])
        warm_up(_prepared(request["use"], request["settings"], device), request, device)
    except Exception:
        return {"prepared": False}
    return {"prepared": True}


def _own(request: Mapping[str, Any]) -> list[str]:
    """The folders whose lanes a request trains."""
    folders: list[str] = request.get("folders", [])
    return [folders[place] for place in request.get("own", range(len(folders)))]


def _listen(asked: IO[str], requests: queue.Queue[dict[str, Any] | None], leave: threading.Event) -> None:
    for line in asked:
        requests.put(json.loads(line))
    leave.set()
    requests.put(None)


def _claim_streams() -> tuple[IO[str], IO[str]]:
    """Our own standard input and output, out of reach of what a workload reads and prints."""
    asked, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return asked, answers


if __name__ == "__main__":
    main(sys.argv[1:])
