"""A worker process: requests in, answers out, whatever its workload does to streams, threads and signals."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from cohorts import ORDER, SETTINGS, begun, told, workload
from own import write_module

from bscrit.order import Order
from bscrit.record import begin, read_record
from bscrit.request import Done, Failed, Prepare, Setup, Shard, Train, take_answer, write_request
from bscrit.train import worker
from bscrit.train.loop import train
from bscrit.trial import Trial

LONG = replace(ORDER, targets=(-1.0,), max_steps=10**6, lanes=((0.1, 7), (0.2, 7)))


@pytest.fixture
def start(tmp_path):
    """Start a worker; it is ended with the test."""
    processes = []

    def start():
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "bscrit.train.worker", "--path", str(tmp_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def ask(process, tmp_path, request):
    """Hand over a request; its file."""
    (tmp_path / "requests").mkdir(exist_ok=True)
    file = write_request(tmp_path / "requests", request)
    process.stdin.write(json.dumps(str(file)) + "\n")
    process.stdin.flush()
    return file


def train_in(process, tmp_path, folders):
    """The answer to a request to train."""
    return heard(process, ask(process, tmp_path, Train(tuple(folders))))


def heard(process, file):
    assert json.loads(process.stdout.readline()) == str(file)
    return take_answer(file)


def own_cohort(tmp_path, name, **inside):
    write_module(tmp_path, name, **inside)
    trial = Trial(f"{name}:Mine", batch_size=4, lr=0.05, seed=1)
    order = Order("measure", 0, lanes=((0.05, 1),), targets=(0.3,), max_steps=200)
    begin(tmp_path / trial.name, trial, order)
    return [tmp_path / trial.name]


def running(folders, process):
    """Wait until the cohort has begun to train."""
    end = time.monotonic() + 30
    while len(read_record(folders[0]).curve) < 50:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)


def test_cohorts_one_after_the_other(start, tmp_path):
    process = start()
    for root in ("a", "b"):
        folders = begun(tmp_path / root)
        assert train_in(process, tmp_path, folders).ended
        assert read_record(folders[0]).status == "reached"
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("way", ["its input ends", "SIGTERM"])
def test_told_to_leave_it_keeps_what_it_has(start, tmp_path, way):
    folders = begun(tmp_path / "a", LONG)
    process = start()
    file = ask(process, tmp_path, Train(tuple(folders)))
    running(folders, process)
    process.send_signal(signal.SIGINT)  # Ctrl-C goes to the whole terminal, and is the sweep's to handle
    if way == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
    assert process.stdout.read() == json.dumps(str(file)) + "\n"
    assert process.wait(60) == 0
    answer = take_answer(file)
    assert isinstance(answer, Done)
    assert not answer.ended
    assert not list((tmp_path / "requests").iterdir())
    assert read_record(folders[0]).status == "running"
    assert (folders[0] / "checkpoint.pt").exists()


def test_an_interrupted_cohort_goes_on_in_another_process_bit_for_bit(start, tmp_path):
    order = replace(ORDER, targets=(0.5, 0.08), max_steps=4000, lanes=((0.002, 7), (0.004, 7)))
    undisturbed, folders = begun(tmp_path / "a", order), begun(tmp_path / "b", order)
    train(undisturbed, workload(), {})
    for _ in range(2):
        process = start()
        ask(process, tmp_path, Train(tuple(folders)))
        running(folders, process)
        process.stdin.close()
        process.wait(60)
    train(folders, workload(), {})
    keep = [(lr, seed, status, reason, curves) for lr, seed, status, reason, _, curves in told(folders)]
    assert keep == [
        (lr, seed, status, reason, curves) for lr, seed, status, reason, _, curves in told(undisturbed)
    ]


NOISY = (
    "print('to output', flush=True); os.write(1, b'raw'); print(repr(sys.stdin.readline()), file=sys.stderr)"
)


def test_what_a_workload_prints_and_reads_stays_out_of_the_conversation(start, tmp_path):
    folders = own_cohort(tmp_path, "chatty", top="print('on import')", model=NOISY)
    process = start()
    assert train_in(process, tmp_path, folders).ended
    log = (tmp_path / "log").read_text()
    assert "on import" in log
    assert "to output" in log
    assert "raw" in log
    assert "''" in log, "there is nothing to read"


@pytest.mark.parametrize(
    "work",
    [
        "threading.Thread(target=time.sleep, args=(60,)).start()",
        "subprocess.Popen(['sleep', '60'])",
        "os.fork() or (time.sleep(20), os._exit(0))",
    ],
)
def test_threads_and_processes_of_a_workload_do_not_keep_a_worker_alive(start, tmp_path, work):
    folders = own_cohort(tmp_path, "spawning", init=work)
    process = start()
    assert train_in(process, tmp_path, folders).ended
    process.stdin.close()
    assert process.wait(15) == 0


def test_an_exception_is_an_answer_with_its_traceback_in_the_log_of_the_trial(start, tmp_path):
    folders = own_cohort(tmp_path, "raising", losses="if len(y) == 4: raise ZeroDivisionError('in my code')")
    process = start()
    assert train_in(process, tmp_path, folders) == Failed("trial", "ZeroDivisionError: in my code")
    assert 'raise ZeroDivisionError("in my code")'.replace('"', "'") in (folders[0] / "log.txt").read_text()
    assert train_in(process, tmp_path, begun(tmp_path / "next")).ended, "the next cohort trains"


def test_a_mistake_of_the_user_is_told_as_one(start, tmp_path):
    folders = own_cohort(tmp_path, "wrong", evaluate="loss = loss.repeat(2)")
    process = start()
    answer = train_in(process, tmp_path, folders)
    assert answer.fault == "user"
    assert "returned shape (2,)" in answer.what


SETUP = Setup("quadratic", SETTINGS, "cpu", "float32", "auto", "replay", None, 0, ((4, {"use": "sgd"}),))


def test_what_was_prepared_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_workloads", {})
    assert worker.answer(Prepare(SETUP)) == Done()
    monkeypatch.setattr(worker, "load_workload", None)
    assert worker.answer(Train(tuple(begun(tmp_path)))).ended


def test_what_is_wrong_with_a_workload_is_not_told_by_those_who_prepare(start, tmp_path):
    process = start()
    file = ask(process, tmp_path, Prepare(replace(SETUP, use="not_there:Mine")))
    other = ask(process, tmp_path, Train(tuple(begun(tmp_path / "next"))))
    assert heard(process, file) == Done()
    assert heard(process, other).ended
    assert (tmp_path / "log").read_text() == ""


def test_a_request_that_is_gone_or_of_another_version_is_not_carried_out(start, tmp_path):
    process = start()
    taken = tmp_path / "taken.json"
    process.stdin.write(json.dumps(str(taken)) + "\n")
    process.stdin.flush()
    assert heard(process, taken) == Failed("worker", "the worker left no answer")
    odd = tmp_path / "odd.json"
    odd.write_text('{"kind": "dance"}')
    process.stdin.write(json.dumps(str(odd)) + "\n")
    process.stdin.flush()
    answer = heard(process, odd)
    assert (answer.fault, answer.where) == ("user", str(odd))
    assert train_in(process, tmp_path, begun(tmp_path / "next")).ended


def test_a_shard_whose_training_raises_logs_it_for_its_own_lanes(tmp_path):
    folders = own_cohort(tmp_path, "broken", init="raise RuntimeError('in my code')")
    folders += begun(tmp_path / "other")
    request = Train(tuple(folders), Shard((0,), (None,) * len(folders)))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        assert worker.answer(request).fault == "trial"
    assert "in my code" in (folders[0] / "log.txt").read_text()
    assert not any((folder / "log.txt").exists() for folder in folders[1:])


def test_an_answer_tells_how_long_steps_took(tmp_path):
    folders = begun(tmp_path)
    paces = worker.answer(Train(tuple(folders))).paces
    steps = [read_record(folder).facts["steps"] for folder in folders]
    assert sum(pace.lanes * pace.steps for pace in paces) == sum(steps)
    seconds = max(read_record(folder).facts["seconds"] for folder in folders)
    assert 0 < sum(pace.seconds for pace in paces) <= seconds + 0.01


def test_a_worker_whose_sweep_died_does_not_outlive_a_method_that_hangs():
    """Its input ends while it is busy: the group ends after a while, and with it the lock that it holds."""
    program = (
        "import io, queue, time\n"
        "from bscrit.train import worker\n"
        "worker.LEAVE_SECONDS = 0.2\n"
        "worker._listen(io.StringIO(), queue.Queue(), worker.Leave())\n"
        "time.sleep(300)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    assert process.wait(120) == -signal.SIGKILL


def test_a_step_is_given_the_time_of_three_of_the_longest(monkeypatch):
    times = iter([0.0, 2.0, 12.0, 13.0, 100.0])
    monkeypatch.setattr(worker.time, "monotonic", lambda: next(times))
    leave = worker.Leave()
    assert [leave() for _ in range(3)] == [False] * 3
    assert leave.patience == worker.LEAVE_SECONDS + 3 * 10.0
    leave()
    assert leave.patience == worker.ORPHAN_SECONDS


@pytest.mark.parametrize(
    "begun", ["os.fork() or time.sleep(600)", "subprocess.Popen(['sleep', '600'], close_fds=False)"]
)
def test_what_a_workload_started_does_not_keep_the_lock(tmp_path, begun):
    """Also where nobody is left to end it."""
    folders = own_cohort(tmp_path, "starts_another", batch=f"{begun}; os.kill(os.getpid(), 9)")
    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bscrit.train.worker",
                "--path",
                str(tmp_path),
                "--lock",
                str(lock.fileno()),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            text=True,
        )
    try:
        ask(process, tmp_path, Train(tuple(folders)))
        process.wait()
        with (tmp_path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
