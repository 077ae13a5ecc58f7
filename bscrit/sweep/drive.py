"""Drive a sweep: plan, hand cohorts to the executor, read what came back, and plan again.

All state is in the results folder. Killed at any moment and started again, the same command goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bscrit.errors import UserError
from bscrit.files import explaining, stamp
from bscrit.order import Cohort
from bscrit.paths import ResultsPaths, TrialPaths
from bscrit.preflight import Preflight
from bscrit.record import Record, begin, end, read_record
from bscrit.results import Results, read_records
from bscrit.spec import Spec
from bscrit.sweep.executors import Answer, Executor
from bscrit.sweep.executors.local import Local
from bscrit.sweep.plan import plan
from bscrit.sweep.preflight import POLL_SECONDS, look, seen
from bscrit.sweep.shards import Paces, Shards, names, share_out
from bscrit.sweep.view import View

ATTEMPTS = 2
MOST_WORKERS = 4
LOCK_SECONDS = 60.0


@dataclass
class Outcome:
    """What a sweep left.

    Attributes:
        results: everything in the folder.
        new: names of the trials that trained now; the others were there already.
        given_up: names of trials that failed, with the reason.
        interrupted: number of the signal that told it to leave before it ended, 0 for none.
        seconds: it took.
    """

    results: Results
    new: set[str] = field(default_factory=set)
    given_up: dict[str, str] = field(default_factory=dict)
    interrupted: int = 0
    seconds: float = 0.0


def drive(spec: Spec, out: Path, view: View) -> Outcome:
    """Run the sweep in the results folder `out` until nothing is planned, or until it is told to leave.

    Raises:
        UserError: another sweep uses the folder; the workload cannot be built; the disk is full.
        UserErrors: everything that preflight found wrong with the spec.
    """
    with explaining(out):
        ResultsPaths(out).trials.mkdir(parents=True, exist_ok=True)
    with locked(out, view) as lock, interruptible() as interrupted:
        facts = seen(spec, out)
        if facts is not None and not plan(spec, facts, records := read_records(out)):
            return Outcome(
                Results(out, tuple(records), spec, facts)
            )  # nothing is left to train: no worker need start
        executor = Local(
            _slots(spec), spec.workload.folder, ResultsPaths(out).workers_log, spec.compute.threads, lock
        )
        try:
            facts = look(spec, out, executor, view, interrupted)
            if facts is None:
                return Outcome(Results(out, tuple(read_records(out)), spec), interrupted=interrupted())
            return _Drive(spec, out, facts, executor, view).run(interrupted)
        finally:
            executor.close()


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
        deadline, told = time.monotonic() + LOCK_SECONDS, False
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
            if not told:
                view.note(f"waiting for another sweep to leave {out}")
                told = True
            time.sleep(0.2)
        yield (stream.fileno(),)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Ctrl-C, SIGTERM and SIGUSR2 ask the sweep to leave; a second Ctrl-C is an ordinary one.

    Yields what tells the number of the first signal that came, 0 while none did.
    """
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


@dataclass
class _Running:
    """A cohort that trains, on one worker or on several.

    Attributes:
        shards: places of lanes by the number of the request that trains them.
        waiting: requests without an answer.
        failed: what went wrong, by place of lane.
        left: whether it was told to leave, since a shard cannot go on without the others.
        waits: how long shards waited for each other.
    """

    cohort: Cohort
    shards: dict[int, tuple[int, ...]] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    failed: dict[int, Answer] = field(default_factory=dict)
    left: bool = False
    waits: list[Sequence[float]] = field(default_factory=list)


class _Drive:
    def __init__(self, spec: Spec, out: Path, facts: Preflight, executor: Executor, view: View) -> None:
        self.spec, self.out, self.facts, self.executor, self.view = spec, out, facts, executor, view
        self.records = {record.trial.name: record for record in read_records(out)}
        self.running: list[_Running] = []
        self.paces = Paces()
        self.split: dict[tuple[str, ...], Shards] = {}
        self.failures: Counter[str] = Counter()
        self.outcome = Outcome(self._results())
        self.began = time.monotonic()

    def run(self, interrupted: Callable[[], int]) -> Outcome:
        known_anew = True  # the plan depends on records alone, and they change by answers alone
        while not interrupted():
            if known_anew:
                self._submit()
            if not self.running:
                break
            answers = self.executor.poll(POLL_SECONDS)
            known_anew = False
            for answer in answers:
                known_anew |= self._take(answer)
            cohorts = [running.cohort for running in self.running]
            self.view.update(cohorts, self._results())
        self.outcome.interrupted = interrupted()
        self.outcome.results = self._results()
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def _results(self) -> Results:
        return Results(self.out, tuple(self.records.values()), self.spec, self.facts)

    def _submit(self) -> None:
        """Begin what is planned and does not run yet, as far as there are free workers."""
        free = self.executor.slots - sum(len(running.waiting) for running in self.running)
        busy = {trial.name for running in self.running for trial in running.cohort.trials}
        planned = (
            plan(self.spec, self.facts, self.records.values(), self.outcome.given_up) if free > 0 else []
        )
        planned = [cohort for cohort in planned if not busy & {trial.name for trial in cohort.trials}][:free]
        chosen: list[tuple[Cohort, Shards]] = [(cohort, []) for cohort in planned]
        if self.executor.at_once:
            trials = ResultsPaths(self.out).trials
            chosen = share_out(planned, free, self._ended, trials, self.paces, self.split)
        for cohort, shards in chosen:
            self.split[names(cohort)] = shards
            self._start(cohort, shards)

    def _ended(self, cohort: Cohort) -> list[bool]:
        """Which trials of a cohort have ended as it asks."""
        known = [self.records.get(trial.name) for trial in cohort.trials]
        return [r is not None and r.finished and r.order == cohort.order for r in known]

    def _start(self, cohort: Cohort, shards: Shards) -> None:
        for trial, ended in zip(cohort.trials, self._ended(cohort), strict=True):
            if not ended:
                begin(self._folder(trial.name), trial, cohort.order)
                self.records[trial.name] = Record(trial, cohort.order, folder=self._folder(trial.name))
                self.outcome.new.add(trial.name)
        folders = [self._folder(trial.name) for trial in cohort.trials]
        request: dict[str, Any] = {"call": "train", "folders": [str(folder) for folder in folders]}
        if len(shards) > 1:
            request["stamps"] = [stamp(TrialPaths(folder).curve) for folder in folders]
        running = _Running(cohort)
        for own in shards or [tuple(range(len(folders)))]:
            number = self.executor.submit({**request, "own": own} if len(shards) > 1 else request)
            running.shards[number] = own
        running.waiting = set(running.shards)
        self.running.append(running)
        self.view.begun(cohort)

    def _take(self, answer: Answer) -> bool:
        """Take in an answer; whether a cohort ended by it."""
        if answer.by == "user":
            raise UserError(*answer.error)
        running = next(running for running in self.running if answer.request in running.waiting)
        running.waiting.remove(answer.request)
        if answer.done is not None:
            self.paces.add(running.cohort, answer.done.get("paces", ()))
            running.waits.append(answer.done.get("waits", (0, 0.0)))
        elif not running.left:
            running.failed.update(dict.fromkeys(running.shards[answer.request], answer))
        if running.waiting:
            # Without its mates a shard would wait for ever; it is told once, and goes on when it is planned again.
            if not running.left and not (answer.done and answer.done.get("done")):
                running.left = True
                for number in running.waiting:
                    self.executor.leave(number)
            return False
        self.running.remove(running)
        self.paces.waited(running.waits)
        self._close(running)
        return True

    def _close(self, running: _Running) -> None:
        """Read what a cohort left."""
        trials = running.cohort.trials
        for place, trial in enumerate(trials):
            record = read_record(self._folder(trial.name))
            answer = running.failed.get(place)
            if record is not None and not record.finished and (answer or record.status == "failed"):
                record = self._failed(record, answer)
            if record is not None:
                self.records[trial.name] = record
        self.view.ended(running.cohort, [self.records[trial.name] for trial in trials])

    def _failed(self, record: Record, answer: Answer | None) -> Record:
        """Close a trial whose worker failed; the plan asks for it again until it failed too often."""
        name, folder = record.trial.name, self._folder(record.trial.name)
        self.failures[name] += 1
        if answer is not None and answer.by == "worker":
            with explaining(folder), TrialPaths(folder).log.open("a", encoding="utf-8") as log:
                log.write(answer.error[1] + "\n")
        reason = answer.error[1] if answer is not None else record.reason
        end(folder, "failed", reason, {"attempts": self.failures[name]})
        if self.failures[name] >= ATTEMPTS:
            self.outcome.given_up[name] = reason
        return read_record(folder) or record

    def _folder(self, name: str) -> Path:
        return ResultsPaths(self.out).trial(name).folder


def _slots(spec: Spec) -> int:
    if spec.compute.workers != "auto":
        return int(spec.compute.workers)
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if spec.compute.device != "cpu" and visible:
        return len(visible)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // spec.compute.threads, MOST_WORKERS))
