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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bscrit.errors import UserError
from bscrit.files import explaining
from bscrit.preflight import Preflight
from bscrit.record import Record, begin, end, read_record
from bscrit.results import read_results
from bscrit.spec import Spec
from bscrit.sweep.cohort import Cohort
from bscrit.sweep.executors import Answer, Executor
from bscrit.sweep.executors.local import Local
from bscrit.sweep.look import POLL_SECONDS, look, seen
from bscrit.sweep.plan import plan
from bscrit.sweep.view import View

ATTEMPTS = 2
MOST_WORKERS = 4
LOCK_SECONDS = 60.0


@dataclass
class Outcome:
    """What a sweep left.

    Attributes:
        records: everything in the results folder.
        new: names of the trials that trained now; the others were there already.
        given_up: names of trials that failed, with the reason.
        interrupted: number of the signal that told it to leave before it ended, 0 for none.
        seconds: it took.
    """

    records: list[Record]
    preflight: Preflight
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
        (out / "trials").mkdir(parents=True, exist_ok=True)
    with locked(out, view) as lock, interruptible() as interrupted:
        facts = seen(spec, out)
        if facts is not None and not plan(spec, facts, records := read_results(out)):
            return Outcome(records, facts)  # nothing is left to train: no worker need start
        executor = Local(_slots(spec), spec.workload.folder, out / "workers.log", spec.compute.threads, lock)
        try:
            facts = look(spec, out, executor, view, interrupted)
            if facts is None:
                return Outcome(read_results(out), Preflight(), interrupted=interrupted())
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
            stream = files.enter_context((out / ".lock").open("a"))
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


class _Drive:
    def __init__(self, spec: Spec, out: Path, facts: Preflight, executor: Executor, view: View) -> None:
        self.spec, self.out, self.facts, self.executor, self.view = spec, out, facts, executor, view
        self.records = {record.trial.name: record for record in read_results(out)}
        self.running: dict[int, Cohort] = {}
        self.failures: Counter[str] = Counter()
        self.outcome = Outcome([], facts)
        self.began = time.monotonic()

    def run(self, interrupted: Callable[[], int]) -> Outcome:
        known_anew = True  # the plan depends on records alone, and they change by answers alone
        while not interrupted():
            if known_anew:
                self._submit()
            if not self.running:
                break
            answers = self.executor.poll(POLL_SECONDS)
            for answer in answers:
                self._take(answer)
            known_anew = bool(answers)
            self.view.update(list(self.running.values()), list(self.records.values()), self.out)
        self.outcome.interrupted = interrupted()
        self.outcome.records = list(self.records.values())
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def _submit(self) -> None:
        """Begin what is planned and does not run yet, as far as there are free workers."""
        busy = {trial.name for cohort in self.running.values() for trial in cohort.trials}
        for cohort in plan(self.spec, self.facts, self.records.values(), self.outcome.given_up):
            if len(self.running) >= self.executor.slots:
                return
            if any(trial.name in busy for trial in cohort.trials):
                continue
            for trial in cohort.trials:
                known = self.records.get(trial.name)
                if known is None or not known.finished or known.order != cohort.order:
                    begin(self._folder(trial.name), trial, cohort.order)
                    self.records[trial.name] = Record(trial, cohort.order, folder=self._folder(trial.name))
                    self.outcome.new.add(trial.name)
            folders = [str(self._folder(trial.name)) for trial in cohort.trials]
            self.running[self.executor.submit({"call": "train", "folders": folders})] = cohort
            self.view.begun(cohort)

    def _take(self, answer: Answer) -> None:
        cohort = self.running.pop(answer.request)
        if answer.by == "user":
            raise UserError(*answer.error)
        for trial in cohort.trials:
            record = read_record(self._folder(trial.name))
            if record is not None and not record.finished and (answer.by or record.status == "failed"):
                record = self._failed(record, answer)
            if record is not None:
                self.records[trial.name] = record
        self.view.ended(cohort, [self.records[trial.name] for trial in cohort.trials])

    def _failed(self, record: Record, answer: Answer) -> Record:
        """Close a trial whose worker failed; the plan asks for it again until it failed too often."""
        name, folder = record.trial.name, self._folder(record.trial.name)
        self.failures[name] += 1
        if answer.by == "worker":
            with explaining(folder), (folder / "log.txt").open("a", encoding="utf-8") as log:
                log.write(answer.error[1] + "\n")
        reason = answer.error[1] or record.reason
        end(folder, "failed", reason, {"attempts": self.failures[name]})
        if self.failures[name] >= ATTEMPTS:
            self.outcome.given_up[name] = reason
        return read_record(folder) or record

    def _folder(self, name: str) -> Path:
        return self.out / "trials" / name


def _slots(spec: Spec) -> int:
    if spec.compute.workers != "auto":
        return int(spec.compute.workers)
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if spec.compute.device != "cpu" and visible:
        return len(visible)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // spec.compute.threads, MOST_WORKERS))
