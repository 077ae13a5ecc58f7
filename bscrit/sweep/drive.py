"""Drive a sweep: plan, hand cohorts to the executor, read what came back, and plan again.

All state is in the results folder. Killed at any moment and started again, the same command goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bscrit.errors import UserError
from bscrit.files import check_ordinary, explaining
from bscrit.order import Cohort
from bscrit.paths import ResultsPaths, TrialPaths
from bscrit.record import Record, begin, end, mend, read_record
from bscrit.request import Done, Failed, Train, take_answer, write_request
from bscrit.results import Results, read_records
from bscrit.spec import Spec
from bscrit.sweep.executors import Executor, executor_of
from bscrit.sweep.lock import interruptible, locked
from bscrit.sweep.plan import plan
from bscrit.sweep.preflight import POLL_SECONDS, earlier_facts, inspect
from bscrit.sweep.silence import Silence
from bscrit.sweep.view import View

ATTEMPTS = 2
UNFINISHED = Failed("worker", "was answered as trained, and has not ended")


@dataclass
class Outcome:
    """The end of a sweep.

    Attributes:
        results: everything in the folder.
        new: names of the trials that trained now; the others were there already.
        given_up: names of trials that failed, with the reason.
        interrupted: number of the signal that ended it before its time, 0 for none.
        seconds: it took, the look at the workload included.
    """

    results: Results
    new: set[str] = field(default_factory=set)
    given_up: dict[str, str] = field(default_factory=dict)
    interrupted: int = 0
    seconds: float = 0.0


def drive(spec: Spec, out: Path, view: View) -> Outcome:
    """Run the sweep in the results folder `out` until nothing is planned, or until it is asked to leave.

    Raises:
        UserError: another sweep uses the folder; the workload cannot be built; the disk is full.
        UserErrors: everything that preflight found wrong with the spec.
    """
    began = time.monotonic()
    if out.is_dir():
        check_ordinary(out)
    with explaining(out):
        ResultsPaths(out).trials.mkdir(parents=True, exist_ok=True)
    with locked(out, view) as lock, interruptible() as interrupted:
        facts, records = earlier_facts(spec, out), _mended(out, read_records(out))
        if facts is not None and not plan(spec, facts, records):
            # Nothing is left to train: no worker need start.
            return Outcome(Results(out, records, spec, facts))
        with executor_of(spec, out, lock) as executor:
            facts = inspect(spec, out, executor, view, interrupted)
            if facts is None:
                return Outcome(Results(out, records, spec), interrupted=interrupted())
            return _Drive(spec, Results(out, records, spec, facts), executor, view, began).run(interrupted)


def _mended(out: Path, records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of a folder, with those whose trial or order was torn: every order holds the lanes of its cohort."""
    by_name = {record.trial.name: record for record in records}
    for record in records:
        for lr, seed in record.order.lanes:
            trial = replace(record.trial, lr=lr, seed=seed)
            folder = ResultsPaths(out).trial(trial.name).folder
            if trial.name not in by_name and folder.is_dir():
                mended = mend(folder, trial, record.order)
                by_name |= {trial.name: mended} if mended is not None else {}
    return tuple(by_name[name] for name in sorted(by_name))


class _Drive:
    """A sweep while it runs.

    Attributes:
        records: by name of the trial; those of trials that run are empty.
        running: files of requests without an answer and the cohorts that they train, by handle.
        failures: how often each trial failed in this run of the sweep.
    """

    def __init__(self, spec: Spec, results: Results, executor: Executor, view: View, began: float) -> None:
        self.spec, self.facts, self.executor, self.view = spec, results.preflight, executor, view
        self.paths = ResultsPaths(results.folder)
        self.records = {record.trial.name: record for record in results.records}
        self.running: dict[str, tuple[Path, Cohort]] = {}
        self.failures: Counter[str] = Counter()
        self.outcome = Outcome(self._results())
        self.began = began
        self.silence = Silence(self.paths)

    def run(self, interrupted: Callable[[], int]) -> Outcome:
        planned = self._plan()
        while not interrupted():
            while planned and len(self.running) < self.executor.slots:
                self._start(planned.pop(0))
            if not (self.running or planned):
                break
            ended = [self._take(handle) for handle in self.executor.poll(POLL_SECONDS)]
            if any(ended):
                planned = self._plan()
            for sentence in self.silence.notes(
                {handle: cohort for handle, (_, cohort) in self.running.items()}
            ):
                self.view.note(sentence)
            self.view.update(self._cohorts(), self._results())
        self.outcome.interrupted = interrupted()
        self.outcome.results = self._results()
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def _results(self) -> Results:
        return Results(self.paths.root, tuple(self.records.values()), self.spec, self.facts)

    def _plan(self) -> list[Cohort]:
        """Cohorts that may begin now; this depends on records alone, and they change by answers alone."""
        busy = {trial.name for cohort in self._cohorts() for trial in cohort.trials}
        cohorts = plan(self.spec, self.facts, self.records.values(), self.outcome.given_up)
        return [cohort for cohort in cohorts if not busy & {trial.name for trial in cohort.trials}]

    def _cohorts(self) -> list[Cohort]:
        return [cohort for _, cohort in self.running.values()]

    def _start(self, cohort: Cohort) -> None:
        """Begin the trials of a cohort that have not ended as it asks, and hand it to the executor."""
        for trial in cohort.trials:
            record, folder = self.records.get(trial.name), self._trial(trial.name).folder
            if record is None or not record.finished or record.order != cohort.order:
                begin(folder, trial, cohort.order)
                self.records[trial.name] = Record(trial, cohort.order, folder=folder)
                self.outcome.new.add(trial.name)
        folders = tuple(self._trial(trial.name).folder.absolute() for trial in cohort.trials)
        request = write_request(self.paths.requests.absolute(), Train(folders))
        self.running[self.executor.submit(request)] = request, cohort
        self.view.begun(cohort)

    def _take(self, handle: str) -> bool:
        """Take the answer to a request, and read what its cohort left; False where it was taken before."""
        if handle not in self.running:
            return False
        request, cohort = self.running.pop(handle)
        answer = take_answer(request)
        failed = answer if isinstance(answer, Failed) else None
        if failed is not None and failed.fault == "user":
            raise UserError(failed.where, failed.what, failed.remedy)
        for place, trial in enumerate(cohort.trials):
            record = read_record(self._trial(trial.name).folder)
            concerned = failed is not None and (not failed.lanes or place in failed.lanes)
            if record is not None and not record.finished:
                if concerned or record.status == "failed":
                    record = self._failed(record, failed if concerned else None)
                elif isinstance(answer, Done) and answer.ended:
                    record = self._failed(record, UNFINISHED)
            if record is not None:
                self.records[trial.name] = record
        self.view.ended(cohort, [self.records[trial.name] for trial in cohort.trials])
        return True

    def _failed(self, record: Record, failed: Failed | None) -> Record:
        """Close a trial that failed, by itself or with its worker; the plan asks for it until it failed too often."""
        name, paths = record.trial.name, self._trial(record.trial.name)
        self.failures[name] += 1
        if failed is not None and failed.fault == "worker":
            with explaining(paths.folder), paths.log.open("a", encoding="utf-8") as log:
                log.write(failed.what + "\n")
        reason = failed.what if failed is not None else record.reason
        end(paths.folder, "failed", reason, {"attempts": self.failures[name]})
        if self.failures[name] >= ATTEMPTS:
            self.outcome.given_up[name] = reason
        return read_record(paths.folder) or record

    def _trial(self, name: str) -> TrialPaths:
        return self.paths.trial(name)
