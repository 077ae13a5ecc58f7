"""The driver: state in files, failures as rows, one sweep in a folder."""

import itertools
import json
import os
import signal
import time

import pytest
from inprocess import InProcess, Silent, offer, on, small_spec

from bscrit import results
from bscrit.errors import UserError, UserErrors
from bscrit.paths import ResultsPaths
from bscrit.record import read_record
from bscrit.request import Done, Failed, Train, write_answer, write_request
from bscrit.results import read_records
from bscrit.spec import read_spec
from bscrit.sweep.drive import ATTEMPTS, drive
from bscrit.train import worker
from bscrit.workloads import quadratic


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Drive a sweep in this process; its outcome and its executor."""

    def run(spec=None, executor=None, out=None):
        executor, made = executor or InProcess(), []
        offer(monkeypatch, tmp_path, mock=lambda compute: made.append(compute) or executor)
        try:
            return drive(on(spec or small_spec(), "mock"), out or tmp_path / "out", Silent()), executor
        finally:
            assert executor.closed == len(made)
            assert not ResultsPaths(out or tmp_path / "out").requests.exists(), (
                "requests and answers are gone"
            )

    return run


def told(outcome):
    return {r.trial.name: (r.status, r.order, r.curve.loss.tobytes()) for r in outcome.results.records}


def times(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("trials/*/status.json")}


KILLED = Failed("worker", "the worker was killed by SIGKILL, likely for lack of memory")


def folders_of(request):
    return [folder.name for folder in request.folders] if isinstance(request, Train) else []


@pytest.mark.parametrize("file", ["trial.json", "order.json"])
def test_a_finished_run_whose_identity_was_torn_is_mended_by_its_cohort(run, file):
    first, _ = run()
    record = next(r for r in first.results.records if r.role == "search" and len(r.order.lanes) > 1)
    whole = (record.folder / file).read_text()
    (record.folder / file).write_text(whole[: len(whole) // 2])
    second, executor = run()
    assert executor.requests == []
    assert told(second) == told(first)
    assert (record.folder / file).read_text() == whole


class Unhurried(InProcess):
    """Its first worker takes a minute to come, and another one to answer, by the clock of the test."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.polls = clock, 0

    @property
    def slots(self):
        return 2 if self.polls > 3 else 0

    @slots.setter
    def slots(self, count):
        assert count == 2

    def poll(self, seconds):
        self.polls += 1
        self.clock[0] += 20.0 if self.polls < 7 else 0.0
        return super().poll(seconds) if self.polls > 6 else []


def test_a_look_that_takes_long_is_told_of_and_is_part_of_the_time(tmp_path, monkeypatch):
    clock, view = [0.0], Silent()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    offer(monkeypatch, tmp_path, mock=lambda _: Unhurried(clock))
    outcome = drive(on(small_spec(), "mock"), tmp_path / "out", view)
    assert outcome.seconds == 120.0
    first, *others = view.notes[:7]
    assert first.startswith("looking at the workload: its data and model, and how it trains fastest at batch")
    log = f"what a worker prints is in {tmp_path}/out/workers.log"
    assert others[0] == f"waiting for a worker, 20 s; {log}"
    assert others[-1] == f"still looking, 2 min 0 s; {log}"


def test_what_was_there_is_read_once(run, monkeypatch):
    before, _ = run()
    folders = []
    read_record = results.read_record
    monkeypatch.setattr(
        results, "read_record", lambda folder: folders.append(folder.name) or read_record(folder)
    )
    more, _ = run(small_spec(sweep={"seeds": 3}))
    assert len(more.results.records) > len(before.results.records)
    assert sorted(folders) == sorted(told(before))


def test_a_sweep_leaves_its_spec_its_facts_and_finished_trials(run, tmp_path):
    outcome, _ = run()
    assert {record.status for record in outcome.results.records} <= {"reached", "stopped", "diverged"}
    assert outcome.new == {record.trial.name for record in outcome.results.records}
    assert sorted(told(outcome)) == sorted(record.trial.name for record in read_records(tmp_path / "out"))
    again = read_spec(tmp_path / "out" / "spec.toml")
    assert again.sweep == small_spec().sweep
    assert json.loads((tmp_path / "out" / "preflight.json").read_text())["unit"] == "example"


def test_a_finished_sweep_trains_nothing(run, tmp_path):
    first, _ = run()
    before = times(tmp_path / "out")
    second, executor = run()
    assert executor.requests == [], "nor does it start a worker"
    assert second.new == set()
    assert told(second) == told(first)
    assert times(tmp_path / "out") == before


def test_the_number_of_workers_changes_nothing(run, tmp_path):
    outcomes = [run(executor=InProcess(slots), out=tmp_path / f"{slots}")[0] for slots in (1, 2, 5)]
    assert told(outcomes[0]) == told(outcomes[1]) == told(outcomes[2])


def test_every_cohort_loses_its_worker_once(run, tmp_path):
    undisturbed, _ = run()
    seen = set()

    def once(_, request):
        cohort = tuple(folders_of(request))
        if cohort and cohort not in seen:
            seen.add(cohort)
            return KILLED
        return None

    outcome, executor = run(executor=InProcess(trouble=once), out=tmp_path / "troubled")
    assert len(executor.trained) == 2 * len(seen)
    assert told(outcome) == told(undisturbed)
    assert outcome.given_up == {}


def test_a_trial_that_fails_always_is_a_row_with_its_log_and_the_others_go_on(run, tmp_path):
    def always(_, request):
        return KILLED if any("-s1-" in name for name in folders_of(request)) else None

    outcome, executor = run(executor=InProcess(trouble=always))
    failed = [record for record in outcome.results.records if record.status == "failed"]
    assert {record.trial.name for record in failed} == set(outcome.given_up)
    assert {record.trial.batch_size for record in failed} == {4, 32}
    assert max(sum(failed[0].trial.name in cohort for cohort in executor.trained) for _ in failed) == ATTEMPTS
    for record in failed:
        assert "lack of memory" in record.reason
        assert "lack of memory" in (record.folder / "log.txt").read_text()
    healed, executor = run()
    assert {name for cohort in executor.trained for name in cohort} >= set(outcome.given_up)
    assert told(healed) == told(run(out=tmp_path / "undisturbed")[0])


def test_an_exception_in_training_is_a_failure_of_its_cohort(run):
    def raising(number, _):
        return Failed("trial", "ValueError: in user code") if number == 1 else None

    outcome, executor = run(executor=InProcess(trouble=raising))
    assert executor.trained[0] == executor.trained[1], (
        "the same cohort again, before anything is planned on it"
    )
    assert outcome.given_up == {}


def test_a_mistake_that_every_trial_would_meet_ends_the_sweep(run, tmp_path):
    def wrong(number, _):
        return Failed("user", "is wrong", "workload", "mend it") if number == 3 else None

    with pytest.raises(UserError, match="workload: is wrong\n  hint: mend it"):
        run(executor=InProcess(trouble=wrong))
    assert told(run()[0]) == told(run(out=tmp_path / "undisturbed")[0])


def test_a_preflight_that_fails_names_the_log(run, tmp_path):
    with pytest.raises(UserError, match=r"preflight: the worker was killed.*\n  hint: see .*workers\.log"):
        run(executor=InProcess(trouble=lambda *_: KILLED))
    assert not list((tmp_path / "out" / "trials").iterdir())


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sweep": {"targets": [99.0, 0.1]}}, "99 is met before training"),
        (
            {"workload": {"use": "classifier", "data": "digits", "dimensions": 1}},
            "is not a setting of 'classifier'",
        ),
        ({"workload": {"start": 1e30}}, "its evaluation before training is inf"),
    ],
)
def test_what_is_wrong_is_said_before_anything_trains(run, tmp_path, keys, expected):
    with pytest.raises(UserError, match=expected):
        run(small_spec(**keys))
    assert not list((tmp_path / "out" / "trials").iterdir())


def test_several_mistakes_are_told_together(run):
    with pytest.raises(UserErrors) as caught:
        run(small_spec(sweep={"targets": [99.0, 0.1]}, compute={"micro_batch": 2}))
    assert len(caught.value.errors) == 2


def test_a_torn_preflight_of_before_is_made_again(run, tmp_path):
    first, _ = run()
    file = tmp_path / "out" / "preflight.json"
    file.write_bytes(file.read_bytes()[:40])
    second, executor = run()
    assert executor.trained == []
    assert told(second) == told(first)


def test_engines_that_were_chosen_stay(run, tmp_path):
    run()
    file = tmp_path / "out" / "preflight.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "engines": {**facts["engines"], "4": "vmap"}}))
    run()
    assert json.loads(file.read_text())["engines"] == {"4": "vmap", "32": "loop"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
@pytest.mark.parametrize("when", [0, 1, 4])
def test_told_to_leave_it_leaves_and_the_same_command_goes_on(run, tmp_path, number, when):
    calls = itertools.count()

    def interrupt(*_):
        if next(calls) == when:
            os.kill(os.getpid(), number)

    outcome, executor = run(executor=InProcess(trouble=interrupt))
    assert outcome.interrupted == number
    assert len(executor.requests) <= when + 1 + executor.slots
    finished, _ = run()
    assert finished.interrupted == 0
    assert told(finished) == told(run(out=tmp_path / "undisturbed")[0])


def test_a_file_where_the_results_should_go_is_a_sentence(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="choose another folder, with --out"):
        drive(small_spec(), tmp_path / "out", Silent())


def test_records_are_read_back_as_they_were_taken(run):
    outcome, _ = run()
    for record in outcome.results.records:
        again = read_record(record.folder)
        assert (again.trial, again.order, again.status) == (record.trial, record.order, record.status)


def test_rates_at_which_the_user_s_code_raises_do_not_stop_the_search(run, monkeypatch):
    """Tried twice, then a wall like one that diverges."""
    loss = quadratic.Quadratic.losses

    def checked(self, model, batch):
        if model.theta.detach().abs().max() > 3:
            raise ValueError("not finite")
        return loss(self, model, batch)

    monkeypatch.setattr(quadratic.Quadratic, "losses", checked)
    monkeypatch.setattr(worker, "_workloads", {})  # steps of other losses may have been recorded
    outcome, executor = run(small_spec(learning_rate={"guess": 2.0}))
    failed = [record for record in outcome.results.records if record.status == "failed"]
    assert failed
    assert {record.trial.name for record in failed} == set(outcome.given_up)
    assert all(sum(name in cohort for cohort in executor.trained) >= ATTEMPTS for name in outcome.given_up)
    measured = {
        r.trial.batch_size for r in outcome.results.records if r.role == "measure" and r.status == "reached"
    }
    assert measured == {4, 32}


class Losing(InProcess):
    """Loses every third request: it ends without an answer."""

    def poll(self, seconds):
        if self.waiting and self.waiting[-1][0] % 3 == 1:
            return [str(self.waiting.pop()[1])]
        return super().poll(seconds)


class Late(InProcess):
    """Tells of answers some polls later, the last one first, and more than once."""

    def __init__(self):
        super().__init__(3)
        self.polls, self.told = itertools.count(), []

    def poll(self, seconds):
        self.told = [*super().poll(seconds), *self.told]
        return list(self.told) if next(self.polls) % 3 == 2 else []


class Changing(InProcess):
    """Has no worker at first, and then another number of them at each poll."""

    def __init__(self):
        super().__init__(0)
        self.counts = itertools.cycle([1, 3, 0, 2])

    def poll(self, seconds):
        handles = super().poll(seconds)
        self.slots = max(next(self.counts), len(self.waiting))
        return handles


class Dying(InProcess):
    """Ends at its fourth answer."""

    def poll(self, seconds):
        if len(self.requests) > 4:
            raise UserError("the cluster", "is gone", "start it again")
        return super().poll(seconds)


@pytest.mark.parametrize("kind", [Losing, Late, Changing])
def test_an_executor_may_lose_requests_be_late_and_change(run, tmp_path, kind):
    outcome, _ = run(executor=kind())
    assert outcome.given_up == {}
    assert told(outcome) == told(run(out=tmp_path / "undisturbed")[0])


def test_an_executor_that_dies_costs_nothing_that_is_finished(run, tmp_path):
    with pytest.raises(UserError, match="the cluster: is gone"):
        run(executor=Dying())
    before = times(tmp_path / "out")
    assert before
    finished, _ = run()
    assert before.items() <= times(tmp_path / "out").items()
    assert told(finished) == told(run(out=tmp_path / "undisturbed")[0])


def test_a_worker_that_leaves_its_cohort_is_no_failure(run, tmp_path):
    """As where its time on a cluster is over."""
    left = set()

    def leave(_, request):
        cohort = tuple(folders_of(request))
        return Done(ended=False) if cohort and cohort not in left and not left.add(cohort) else None

    outcome, executor = run(executor=InProcess(trouble=leave))
    assert len(executor.trained) == 2 * len(left) > 2
    assert told(outcome) == told(run(out=tmp_path / "undisturbed")[0])


def test_requests_and_answers_of_an_earlier_sweep_do_no_harm(run, tmp_path):
    requests = ResultsPaths(tmp_path / "out").requests
    requests.mkdir(parents=True)
    file = write_request(requests, Train((tmp_path / "elsewhere",)))
    write_answer(file, Failed("user", "is of yesterday"))
    write_answer(write_request(requests, Train((tmp_path / "elsewhere",))), Failed("worker", "is late"))

    def late(*_):
        write_answer(file, Failed("user", "is of yesterday"))  # by a worker of that sweep that lives on

    outcome, _ = run(executor=InProcess(trouble=late))
    assert told(outcome) == told(run(out=tmp_path / "undisturbed")[0])
