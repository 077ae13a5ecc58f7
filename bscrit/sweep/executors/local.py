"""Worker processes on this machine; where some are free, a cohort is split over several of them."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from bscrit.files import stamp
from bscrit.order import Cohort
from bscrit.paths import TrialPaths
from bscrit.plugins import BUILT_IN_WORKLOADS
from bscrit.record import read_record
from bscrit.request import (
    Done,
    Facts,
    Failed,
    Inspect,
    Prepare,
    Request,
    Setup,
    Shard,
    Train,
    read_answer,
    read_request,
    take_answer,
    take_request,
    write_answer,
    write_request,
)
from bscrit.sweep.executors import Compute
from bscrit.sweep.executors.shards import Paces, Shards, names, share_out
from bscrit.sweep.executors.warm import EXIT_SECONDS, Warm, start, visible_devices

GRACE_SECONDS = 60.0
MOST_WORKERS = 4


@dataclass
class _Job:
    """A request at hand, and its parts: itself, or a shard of its cohort for each of several workers.

    Attributes:
        parts: those without an answer, by their files.
        cohort: that trains; None where none does.
        split: whether there are several parts.
        left: whether its workers were asked to leave: without the others a shard would wait for ever.
        failed: the first failure.
        done: the answers of the parts that went well.
    """

    parts: dict[Path, Request]
    cohort: Cohort | None = None
    split: bool = False
    left: bool = False
    failed: Failed | None = None
    done: list[Done] = field(default_factory=list)


class Local:
    """As many workers as [compute] asks for, warm, so that torch is imported once each; one that died is replaced."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._workers = [start(compute, place) for place in range(worker_count(compute))]
        self._submitted: list[Path] = []
        self._cancelled: list[str] = []
        self._jobs: dict[Path, _Job] = {}
        self._paces = Paces()
        self._former: dict[tuple[str, ...], Shards] = {}

    @property
    def slots(self) -> int:
        """One for each worker, but for those that help with the cohort of another."""
        return len(self._workers) - sum(len(job.parts) - 1 for job in self._jobs.values())

    def submit(self, request: Path) -> str:
        self._submitted.append(request)
        return str(request)

    def poll(self, seconds: float) -> list[str]:
        self._begin()
        open_ones = {worker.output: worker for worker in self._workers if worker.handed}
        ready = set(select.select(list(open_ones), [], [], seconds)[0])
        # What a worker started may hold its output open when it is dead.
        dead = [output for output in set(open_ones) - ready if open_ones[output].process.poll() is not None]
        ready |= set(select.select(dead, [], [], 0)[0])
        finished, self._cancelled = self._cancelled, []
        for output in [*ready, *(output for output in dead if output not in ready)]:
            worker = open_ones[output]
            for part in worker.read() if output in ready else worker.died():
                finished += self._take(worker, part)
        return finished

    def cancel(self, handle: str) -> None:
        file = Path(handle)
        if file in self._submitted:
            self._submitted.remove(file)
            write_answer(file, Done(ended=False))
            self._cancelled.append(handle)
        else:
            self._leave(self._jobs[file])

    def close(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(BrokenPipeError, OSError):
                if worker.process.stdin is not None:
                    worker.process.stdin.close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            if not worker.handed:
                worker.process.terminate()
            worker.end(max(deadline - time.monotonic(), 0.1) if worker.keeps else 0.0)
            if worker.process.stdout is not None:
                worker.process.stdout.close()

    def _begin(self) -> None:
        """Begin what was submitted: how cohorts are split depends on all of them."""
        cohorts: dict[Path, tuple[Train, Cohort, list[bool]]] = {}
        for file in self._submitted:
            request = read_request(file)
            if isinstance(request, Train):
                cohorts[file] = (request, *_lanes(request))
                continue
            self._hand(file, _Job({file: request}))
            if isinstance(request, Inspect) and request.setup.use in BUILT_IN_WORKLOADS:
                self._prepare(file.parent, request.setup)
        self._submitted = list(cohorts)
        idle = sum(not worker.busy for worker in self._workers)
        if not cohorts or not idle:
            return
        _, planned, live = zip(*cohorts.values(), strict=True)
        trials = next(iter(cohorts.values()))[0].folders[0].parent
        shared = share_out(planned, live, idle, trials, self._paces, self._former)
        for (file, (request, cohort, _)), shards in zip(cohorts.items(), shared, strict=False):
            self._submitted.remove(file)
            self._former[names(cohort)] = shards
            split = len(shards) > 1
            parts: dict[Path, Request] = _split(file, request, shards) if split else {file: request}
            self._hand(file, _Job(parts, cohort, split))

    def _hand(self, file: Path, job: _Job) -> None:
        """Hand each part to a worker that is idle, at best to one that need not prepare first."""
        self._jobs[file] = job
        for part, request in job.parts.items():
            idle = [place for place, worker in enumerate(self._workers) if not worker.busy]
            place = min(idle, key=lambda place: self._workers[place].preparing)
            if self._workers[place].process.poll() is not None:
                self._workers[place] = start(self._compute, place)
            self._workers[place].hand(part, request)

    def _prepare(self, requests: Path, setup: Setup) -> None:
        """Have every worker that is idle load a workload before it trains on it."""
        for worker in self._workers:
            if not worker.busy:
                prepare = Prepare(setup)
                worker.hand(write_request(requests, prepare), prepare)

    def _leave(self, job: _Job) -> None:
        """Have the workers of a request leave."""
        for worker in self._workers:
            if job.parts.keys() & worker.handed.keys():
                worker.leave()

    def _take(self, worker: Warm, part: Path) -> list[str]:
        """Take in the answer to a part; the handle of its request, where no part is left."""
        file = next((file for file, job in self._jobs.items() if part in job.parts), None)
        if file is None:
            take_answer(part)  # it has prepared
            return []
        job = self._jobs[file]
        request = job.parts.pop(part)
        answer = take_answer(part) if job.split else read_answer(part)
        if worker.leaving or (isinstance(answer, Done) and not answer.ended):
            worker.end(EXIT_SECONDS)  # the next request is for another one
        ended = isinstance(answer, Facts) or (isinstance(answer, Done) and answer.ended)
        if isinstance(answer, Done):
            job.done.append(answer)
            if job.cohort is not None:
                self._paces.add(job.cohort, answer.paces)
        elif isinstance(answer, Failed) and (not job.left or answer.fault == "user"):
            job.failed = replace(answer, lanes=request.own) if isinstance(request, Train) else answer
        elif isinstance(request, Inspect) and request.setup.use not in BUILT_IN_WORKLOADS:
            # Not before: a class of the user's may download, and two at once would collide.
            self._prepare(file.parent, request.setup)
        if job.parts:
            if not (job.left or ended):
                job.left = True
                self._leave(job)
            return []
        del self._jobs[file]
        self._paces.waited([done.waits for done in job.done])
        if job.split:
            write_answer(file, job.failed or Done(all(done.ended for done in job.done)))
        return [str(file)]


def _lanes(request: Train) -> tuple[Cohort, list[bool]]:
    """The cohort that lies in the folders of a request, and which of its lanes train."""
    records = [read_record(folder) for folder in request.folders]
    begun = [record for record in records if record is not None]
    assert len(begun) == len(records), "the sweep begins a folder before it hands it over"
    cohort = Cohort(tuple(record.trial for record in begun), begun[0].order)
    return cohort, [not record.finished for record in begun]


def _split(file: Path, request: Train, shards: Shards) -> dict[Path, Request]:
    """A request for each shard in place of one for the cohort."""
    take_request(file)
    stamps = tuple(stamp(TrialPaths(folder).curve) for folder in request.folders)
    parts = [replace(request, shard=Shard(own, stamps)) for own in shards]
    return {write_request(file.parent, part): part for part in parts}


def worker_count(compute: Compute) -> int:
    """Workers at the same time."""
    if compute.workers != "auto":
        return compute.workers
    if compute.device != "cpu" and (visible := visible_devices()):
        return len(visible)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // compute.threads, MOST_WORKERS))
