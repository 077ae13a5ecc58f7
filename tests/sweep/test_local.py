"""Warm workers: answers, deaths, and what a workload does to the process it lives in."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from bscrit.sweep.executors import local
from bscrit.sweep.executors.local import Local, explain_exit

STAND_IN = """
import json, os, signal, subprocess, sys, time

def say(answer):
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    request = json.loads(line)
    prepares = request["call"] == "prepare"
    exec(request["request"]["code"] if prepares else request["code"])
    say({"prepared": True} if prepares else {"done": os.getpid()})
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """An executor whose workers run what they are told, without torch."""
    (tmp_path / "stand_in").write_text(
        "#!/bin/sh\nshift 2\nexec " + sys.executable + f" {tmp_path}/stand_in.py $@\n"
    )
    (tmp_path / "stand_in").chmod(0o755)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(local.sys, "executable", str(tmp_path / "stand_in"))
    monkeypatch.setattr(local, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(local, "EXIT_SECONDS", 2.0)
    executors = []

    def start(slots=1):
        executors.append(Local(slots, tmp_path, tmp_path / "workers.log"))
        return executors[-1]

    yield start
    for executor in executors:
        executor.close()


def answer(executor, code=""):
    executor.submit({"call": "train", "code": code})
    return wait(executor)[0]


def wait(executor, count=1, seconds=10.0):
    answers, end = [], time.monotonic() + seconds
    while len(answers) < count:
        assert time.monotonic() < end, "no answer"
        answers += executor.poll(0.1)
    return answers


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_worker_stays_warm(start):
    executor = start()
    assert answer(executor).done["done"] == answer(executor).done["done"]


def test_workers_answer_in_any_order(start):
    executor = start(2)
    slow, fast = (
        executor.submit({"call": "train", "code": "time.sleep(0.5)"}),
        executor.submit({"call": "train", "code": ""}),
    )
    assert [one.request for one in wait(executor, 2)] == [fast, slow]


def test_nothing_to_wait_for(start):
    assert start().poll(0.01) == []


def test_a_worker_that_was_killed_is_explained_and_replaced(start):
    executor = start()
    first = answer(executor).done["done"]
    dead = answer(executor, "os.kill(os.getpid(), 9)")
    assert dead.by == "worker"
    assert dead.error[1] == "the worker was killed by SIGKILL, likely for lack of memory"
    assert answer(executor).done["done"] != first


def test_a_worker_that_died_between_two_requests_is_replaced(start):
    executor = start()
    os.kill(answer(executor).done["done"], signal.SIGKILL)
    time.sleep(0.2)
    assert answer(executor).done


def test_a_death_is_seen_although_what_the_worker_started_holds_its_output_open(start):
    """As the processes of a data loader do: without an end of the output there was waiting for ever."""
    executor = start()
    code = (
        "print(json.dumps(subprocess.Popen(['sleep', '60']).pid), file=sys.stderr, flush=True); os._exit(3)"
    )
    dead = answer(executor, code)
    assert dead.error[1] == "the worker ended with exit status 3"
    child = int((executor._log).read_text().strip())
    time.sleep(0.1)
    assert not alive(child)


def test_the_last_words_of_a_worker_are_heard(start):
    executor = start()
    last = answer(executor, "say({'done': 7}); os._exit(0)")
    assert last.done == {"done": 7}


def test_a_worker_that_leaves_with_its_answer_gets_no_further_request(start):
    executor = start()
    code = "say({'done': False}); time.sleep(0.3); os._exit(0)"
    assert answer(executor, code).done == {"done": False}
    assert answer(executor).done["done"]


def test_half_an_answer_is_none(start):
    executor = start()
    dead = answer(executor, "sys.stdout.write('{\"done\": 7'); sys.stdout.flush(); os._exit(1)")
    assert dead.by == "worker"


def test_errors_keep_their_kind(start):
    executor = start()
    found = answer(executor, "say({'error': ['here', 'what', 'hint'], 'of': 'trial'}); sys.exit()")
    assert (found.done, found.error, found.by) == (None, ("here", "what", "hint"), "trial")


def test_closing_ends_idle_and_stubborn_workers_and_what_they_started(start):
    executor = start(2)
    pids = [one.done["done"] for one in _both(executor)]
    executor.submit({"call": "train", "code": "subprocess.Popen(['sleep', '60']); time.sleep(60)"})
    time.sleep(0.3)
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < 5
    assert not any(alive(pid) for pid in pids)


def test_what_has_nothing_to_keep_is_not_waited_for(start, monkeypatch):
    """A preflight that downloads, when somebody presses Ctrl-C."""
    monkeypatch.setattr(local, "GRACE_SECONDS", 60.0)
    executor = start()
    pid = answer(executor).done["done"]
    executor.submit({"call": "preflight", "code": "time.sleep(60)"})
    time.sleep(0.1)
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < 5
    assert not alive(pid)


SLOWLY = "time.sleep(0.4); print(os.getpid(), file=sys.stderr, flush=True)"


def test_who_is_idle_prepares_and_that_is_no_answer(start):
    executor = start(3)
    executor.submit({"call": "preflight", "code": "time.sleep(0.1)"})
    executor.prepare({"code": SLOWLY})
    asked = wait(executor)[0].done["done"]
    for _ in range(3):  # to all of them, before two have prepared
        executor.submit({"call": "train", "code": ""})
    trained = {one.done["done"] for one in wait(executor, 3)}
    assert {int(line) for line in executor._log.read_text().split()} == trained - {asked}
    assert len(trained) == 3
    assert executor.poll(0.1) == []


def test_a_request_goes_to_one_that_need_not_prepare_first(start):
    executor = start(2)
    executor.submit({"call": "preflight", "code": ""})
    executor._workers.reverse()
    executor.prepare({"code": "time.sleep(5)"})
    wait(executor)
    began = time.monotonic()
    assert answer(executor).done
    assert time.monotonic() - began < 4


def test_one_that_dies_while_it_prepares_is_replaced(start):
    executor = start()
    executor.prepare({"code": "os._exit(1)"})
    assert executor.poll(5.0) == []
    assert answer(executor).done
    executor.prepare({"code": "time.sleep(0.2); os._exit(1)"})
    assert answer(executor).by == "worker"


@pytest.mark.parametrize("also", [False, True])
def test_one_that_prepares_has_nothing_to_keep_and_is_not_waited_for(start, monkeypatch, also):
    monkeypatch.setattr(local, "GRACE_SECONDS", 60.0)
    executor = start()
    pid = answer(executor).done["done"]
    executor.prepare({"code": "time.sleep(60)"})
    if also:
        executor.submit({"call": "train", "code": ""})
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < 5
    assert not alive(pid)


def test_one_that_is_told_to_leave_leaves_alone(start):
    executor = start(2)
    pids = {one.done["done"] for one in _both(executor)}
    code = "signal.signal(15, lambda *_: (say({'done': False}), os._exit(0))); time.sleep(5)"
    one, other = (executor.submit({"call": "train", "code": c}) for c in (code, "time.sleep(1)"))
    time.sleep(0.3)
    executor.leave(one)
    first, second = wait(executor, 2)
    assert (first.request, first.done) == (one, {"done": False})
    assert second.request == other
    assert second.done["done"] in pids


def _both(executor):
    executor.submit({"call": "train", "code": "time.sleep(0.1)"})
    executor.submit({"call": "train", "code": "time.sleep(0.1)"})
    return wait(executor, 2)


def test_a_signal_while_waiting_does_not_lose_an_answer(start):
    executor = start()
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        assert answer(executor, "time.sleep(0.5)").done
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
    assert [local._own_device(place).get("CUDA_VISIBLE_DEVICES") for place in range(3)] == expected
