"""Warm workers: answers, deaths, and what a workload does to the process it lives in."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bscrit.order import Order
from bscrit.preflight import Preflight
from bscrit.record import begin
from bscrit.request import Done, Failed, Inspect, Setup, Train, take_answer, write_request
from bscrit.sweep.executors import Compute, local, warm
from bscrit.sweep.executors.local import Local, worker_count
from bscrit.sweep.executors.warm import explain_exit, own_device
from bscrit.trial import Trial

STAND_IN = """
import json, os, signal, subprocess, sys, time

said = set()

def answer(kind="done", **fields):
    if kind == "done":
        fields = {"paces": [{"lanes": os.getpid(), "steps": 0, "seconds": 0.0}], **fields}
    with open(file[:-5] + ".part", "w") as stream:
        json.dump({"kind": kind, **fields}, stream)
    os.rename(file[:-5] + ".part", file[:-5] + ".answer.json")

def say(**fields):
    said.add(file)
    answer(**fields)
    sys.stdout.write(line)
    sys.stdout.flush()

for line in sys.stdin:
    file = json.loads(line)
    request = json.load(open(file))
    os.unlink(file)
    of = json.load(open(request["folders"][0] + "/trial.json")) if "folders" in request else request["setup"]
    exec(of["settings"]["code"])
    if file not in said:
        say()
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """An executor whose workers run what they are told, without torch."""
    (tmp_path / "stand_in").write_text(
        "#!/bin/sh\nshift 2\nexec " + sys.executable + f" {tmp_path}/stand_in.py $@\n"
    )
    (tmp_path / "stand_in").chmod(0o755)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "requests").mkdir()
    monkeypatch.setattr(warm.sys, "executable", str(tmp_path / "stand_in"))
    monkeypatch.setattr(local, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(local, "EXIT_SECONDS", 2.0)
    monkeypatch.setattr(warm, "EXIT_SECONDS", 2.0)
    executors = []

    def start(slots=1):
        executors.append(Local(Compute(slots, "cpu", 1, tmp_path, tmp_path / "workers.log")))
        return executors[-1]

    yield start
    for executor in executors:
        executor.close()


def setup(code, use="quadratic"):
    return Setup(use, {"code": code}, "cpu", "float32", "auto", "eager", None, 0, ((4, {}),))


def ask(executor, code="", inspect=False, use="quadratic"):
    """Submit a request that runs some code in its worker; its handle."""
    folder = executor._compute.folder
    if inspect:
        return executor.submit(write_request(folder / "requests", Inspect(setup(code, use))))
    trial = Trial("quadratic", 4, 0.1, 0, settings={"code": code})
    order = Order("search", 0, ((0.1, 0),), (0.5,), 100)
    begin(folder / trial.name, trial, order)
    return executor.submit(write_request(folder / "requests", Train((folder / trial.name,))))


def answer(executor, code=""):
    ask(executor, code)
    return wait(executor)[0]


def pid_of(answer):
    return answer.paces[0].lanes


def wait(executor, count=1, seconds=20.0):
    """Answers, in the order in which they came."""
    return [take_answer(Path(handle)) for handle in wait_for(executor, count, seconds)]


def wait_for(executor, count=1, seconds=20.0):
    handles, end = [], time.monotonic() + seconds
    while len(handles) < count:
        assert time.monotonic() < end, "no answer"
        handles += executor.poll(0.1)
    return handles


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_worker_stays_warm(start):
    executor = start()
    assert pid_of(answer(executor)) == pid_of(answer(executor))


def test_workers_answer_in_any_order(start):
    executor = start(2)
    slow, fast = ask(executor, "time.sleep(0.5)"), ask(executor)
    assert wait_for(executor, 2) == [fast, slow]


def test_nothing_to_wait_for(start):
    assert start().poll(0.01) == []


def test_a_worker_that_was_killed_is_explained_and_replaced(start):
    executor = start()
    first = pid_of(answer(executor))
    dead = answer(executor, "os.kill(os.getpid(), 9)")
    assert dead == Failed("worker", "the worker was killed by SIGKILL, likely for lack of memory")
    assert pid_of(answer(executor)) != first


def test_a_worker_that_died_between_two_requests_is_replaced(start):
    executor = start()
    os.kill(pid_of(answer(executor)), signal.SIGKILL)
    time.sleep(0.2)
    assert answer(executor).ended


def test_a_death_is_seen_although_what_the_worker_started_holds_its_output_open(start):
    """As the processes of a data loader do: without an end of the output there was waiting for ever."""
    executor = start()
    code = (
        "print(json.dumps(subprocess.Popen(['sleep', '60']).pid), file=sys.stderr, flush=True); os._exit(3)"
    )
    dead = answer(executor, code)
    assert dead.what == "the worker ended with exit status 3"
    child = int(executor._compute.log.read_text().strip())
    time.sleep(0.1)
    assert not alive(child)


def test_the_last_words_of_a_worker_are_heard(start):
    executor = start()
    last = answer(executor, "say(paces=[{'lanes': 7, 'steps': 0, 'seconds': 0.0}]); os._exit(0)")
    assert pid_of(last) == 7


def test_an_answer_counts_although_its_worker_died_before_it_said_so(start):
    executor = start()
    last = answer(executor, "answer(); sys.stdout.write('\"half'); sys.stdout.flush(); os._exit(1)")
    assert last.ended


def test_a_worker_that_leaves_with_its_answer_gets_no_further_request(start):
    executor = start()
    left = answer(executor, "say(ended=False); time.sleep(0.3); os._exit(0)")
    assert not left.ended
    assert answer(executor).ended


def test_half_an_answer_is_none(start):
    executor = start()
    dead = answer(executor, "sys.stdout.write(line[:5]); sys.stdout.flush(); os._exit(1)")
    assert dead.fault == "worker"


def test_errors_keep_their_kind(start):
    executor = start()
    failed = answer(executor, "say(kind='failed', fault='trial', what='what', where='here', remedy='hint')")
    assert failed == Failed("trial", "what", "here", "hint")


def test_closing_ends_idle_and_stubborn_workers_and_what_they_started(start):
    executor = start(2)
    pids = [pid_of(one) for one in _both(executor)]
    ask(executor, "subprocess.Popen(['sleep', '60']); time.sleep(60)")
    executor.poll(0.3)
    executor.close()
    assert not any(alive(pid) for pid in pids)


def test_what_has_nothing_to_keep_is_not_waited_for(start, monkeypatch):
    """A look that downloads, when somebody presses Ctrl-C."""
    monkeypatch.setattr(local, "GRACE_SECONDS", 600.0)
    executor = start()
    pid = pid_of(answer(executor))
    ask(executor, "time.sleep(600)", inspect=True)
    executor.poll(0.1)
    executor.close()
    assert not alive(pid)


SLOWLY = "request['kind'] == 'prepare' and (time.sleep(0.4), os.write(2, b'%d\\n' % os.getpid()))"


def test_who_is_idle_prepares_and_that_is_no_answer(start):
    executor = start(3)
    ask(executor, SLOWLY, inspect=True)
    looked = pid_of(wait(executor)[0])
    for _ in range(3):  # to all of them, before two have prepared
        ask(executor)
    trained = {pid_of(one) for one in wait(executor, 3)}
    assert {int(line) for line in executor._compute.log.read_text().split()} == trained - {looked}
    assert len(trained) == 3
    assert executor.poll(0.1) == []


def test_a_class_of_the_users_is_not_prepared_while_another_worker_looks(start):
    """It may download what is not there yet, and two at once would collide."""
    executor = start(2)
    facts = f"time.sleep(0.3) or say(kind='facts', preflight={Preflight().to_dict()!r})"
    ask(
        executor,
        f"{facts} if request['kind'] == 'inspect' else time.sleep(600)",
        inspect=True,
        use="mine:Mine",
    )
    executor.poll(0.1)
    assert not any(worker.preparing for worker in executor._workers)
    wait(executor)
    assert all(worker.preparing for worker in executor._workers)


def test_a_request_goes_to_one_that_need_not_prepare_first(start):
    executor = start(2)
    executor._workers.reverse()
    ask(executor, "request['kind'] == 'prepare' and time.sleep(600)", inspect=True)
    wait(executor)
    assert answer(executor).ended


def test_one_that_dies_while_it_prepares_is_replaced(start):
    executor = start(2)
    ask(executor, "request['kind'] == 'prepare' and os._exit(1)", inspect=True)
    wait(executor)
    assert executor.poll(2.0) == []
    assert {one.ended for one in _both(executor)} == {True}


@pytest.mark.parametrize("also", [False, True])
def test_one_that_prepares_has_nothing_to_keep_and_is_not_waited_for(start, monkeypatch, also):
    monkeypatch.setattr(local, "GRACE_SECONDS", 600.0)
    executor = start(2)
    pids = [pid_of(one) for one in _both(executor)]
    ask(executor, "request['kind'] == 'prepare' and time.sleep(600)", inspect=True)
    wait(executor)
    if also:
        ask(executor, "time.sleep(0.1)")
        ask(executor)
        executor.poll(0.0)
    executor.close()
    assert not any(alive(pid) for pid in pids)


def test_one_that_is_cancelled_leaves_alone(start):
    executor = start(2)
    pids = {pid_of(one) for one in _both(executor)}
    code = "signal.signal(15, lambda *_: (say(ended=False), os._exit(0))); time.sleep(600)"
    one = ask(executor, code)
    executor.poll(0.5)
    other = ask(executor, "time.sleep(1)")
    executor.cancel(one)
    first, second = wait_for(executor, 2)
    assert (first, second) == (one, other)
    assert not take_answer(Path(one)).ended
    assert pid_of(take_answer(Path(other))) in pids


def test_what_is_cancelled_before_it_began_never_begins(start, tmp_path):
    executor = start()
    handle = ask(executor, f"open({str(tmp_path / 'ran')!r}, 'w')")
    executor.cancel(handle)
    assert wait_for(executor) == [handle]
    assert take_answer(Path(handle)) == Done(ended=False)
    assert answer(executor).ended
    assert not (tmp_path / "ran").exists()
    assert executor.slots == 1


def _both(executor):
    ask(executor, "time.sleep(0.1)")
    ask(executor, "time.sleep(0.1)")
    return wait(executor, 2)


def test_a_signal_while_waiting_does_not_lose_an_answer(start):
    executor = start()
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        assert answer(executor, "time.sleep(0.5)").ended
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "the worker ended with exit status 0"),
        (1, "the worker ended with exit status 1"),
        (-9, "the worker was killed by SIGKILL, likely for lack of memory"),
        (137, "the worker was killed by SIGKILL, likely for lack of memory"),
        (-11, "the worker was killed by SIGSEGV"),
        (-99, "the worker was killed by signal 99"),
    ],
)
def test_exit_statuses_in_words(code, words):
    assert explain_exit(code) == words


@pytest.mark.parametrize(
    ("visible", "expected"), [("", [None, None, None]), ("3", [None, None, None]), ("0,2", ["0", "2", "0"])]
)
def test_two_workers_never_share_a_gpu_where_there_are_several(monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [own_device(place).get("CUDA_VISIBLE_DEVICES") for place in range(3)] == expected


def test_workers_leave_cores_for_threads(monkeypatch, tmp_path):
    auto = Compute("auto", "cpu", 1, tmp_path, tmp_path / "log")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert worker_count(auto) == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert worker_count(auto) == local.MOST_WORKERS
    assert worker_count(replace(auto, threads=32)) == 2
    assert worker_count(replace(auto, workers=7)) == 7
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert worker_count(replace(auto, device="auto")) == 3
    assert worker_count(auto) == local.MOST_WORKERS
