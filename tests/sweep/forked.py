"""The local executor, with workers that are forked from this process instead of started anew."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace

import torch

from bscrit.engine.lanes import Lanes
from bscrit.request import Done, Prepare
from bscrit.sweep.executors import local
from bscrit.sweep.executors.local import Local
from bscrit.sweep.executors.warm import Warm
from bscrit.train import worker


class Forked(Local):
    """
    Args:
        trouble: called in the process of a request, with (number, request), before it is carried out; returns what is
            called at every evaluation, or None.
    """

    def __init__(self, monkeypatch, compute, slots, trouble):
        self.requests, self.left = [], []
        count, ours = multiprocessing.Value("i", 0), []
        monkeypatch.setattr(local, "start", lambda *_: Warm(_Process(lambda: _work(count, trouble), ours)))
        super().__init__(replace(compute, workers=slots))

    def _hand(self, file, job):
        self.requests += job.parts.values()
        super()._hand(file, job)

    def _leave(self, job):
        self.left.append(job)
        super()._leave(job)


class _Process:
    """What is used of a `subprocess.Popen`.

    Args:
        ours: descriptors of this process, which a child closes so that others see the end of their input.
    """

    def __init__(self, work, ours):
        (theirs_in, stdin), (stdout, theirs_out) = os.pipe(), os.pipe()
        ours += [stdin, stdout]
        sys.stderr.flush()
        self.returncode, self.pid = None, os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.dup2(theirs_in, 0)
                os.dup2(theirs_out, 1)
                for descriptor in (*ours, theirs_in, theirs_out):
                    os.close(descriptor)
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = _Stream(stdin, "wb", ours), _Stream(stdout, "rb", ours)

    def poll(self):
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout=60.0):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked", timeout)
            time.sleep(0.001)
        return self.returncode

    def terminate(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class _Stream:
    def __init__(self, descriptor, mode, ours):
        self._file, self._ours = os.fdopen(descriptor, mode), ours
        self.fileno, self.write, self.flush = self._file.fileno, self._file.write, self._file.flush

    def close(self):
        if not self._file.closed:
            self._ours.remove(self._file.fileno())
            self._file.close()

    __del__ = close


def _work(count, trouble):
    torch.set_num_threads(1)
    answer, evaluate = worker.answer, Lanes.evaluate

    def troubled(request, leave):
        if isinstance(request, Prepare):
            return Done()  # there is nothing to load that this process does not have
        with count.get_lock():
            number, count.value = count.value, count.value + 1
        evaluated = trouble(number, request)

        def troubled_evaluate(lanes):
            if evaluated is not None:
                evaluated()
            return evaluate(lanes)

        Lanes.evaluate = troubled_evaluate
        return answer(request, leave)

    worker.answer = troubled
    worker.main([])
