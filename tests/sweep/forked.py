"""An executor whose requests train at the same time, each in a process that is forked from this one."""

import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress

import torch

from bscrit.sweep.executors import Answer
from bscrit.sweep.executors.local import explain_exit
from bscrit.train import worker


class Forked:
    """
    Args:
        trouble: called in the process of a request, with (number, request), before it trains; returns what is called
            at every evaluation, or None.
    """

    at_once = True

    def __init__(self, slots=2, trouble=lambda *_: None):
        self.slots, self.trouble = slots, trouble
        self.requests, self.left, self.closed = [], [], 0
        self._children = {}

    def submit(self, request):
        assert len(self._children) < self.slots
        number = len(self.requests)
        self.requests.append(request)
        read, write = os.pipe()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _work(write, self.trouble(number, request), request)
        os.close(write)
        self._children[read] = (child, number)
        return number

    def prepare(self, request):
        """There is nothing to load that this process does not have."""

    def leave(self, number):
        self.left.append(number)
        os.kill(next(child for child, one in self._children.values() if one == number), signal.SIGTERM)

    def poll(self, seconds):
        answers = []
        for read in select.select(list(self._children), [], [], seconds)[0]:
            child, number = self._children.pop(read)
            with os.fdopen(read) as stream:
                text = stream.read()
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answer = json.loads(text) if text else {"error": ["", explain_exit(code), ""], "of": "worker"}
            error = "error" in answer
            answers.append(
                Answer(number, error=tuple(answer["error"]), by=answer["of"])
                if error
                else Answer(number, done=answer)
            )
        return answers

    def close(self):
        self.closed += 1
        for child, _ in self._children.values():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        for read, (child, _) in self._children.items():
            os.waitpid(child, 0)
            os.close(read)


def _work(write, trouble, request):
    try:
        leave = threading.Event()
        for number in (signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: leave.set())
        torch.set_num_threads(1)
        if trouble is not None:
            evaluate = worker.train.__globals__["Lanes"].evaluate

            def troubled(lanes):
                trouble()
                return evaluate(lanes)

            worker.train.__globals__["Lanes"].evaluate = troubled
        with os.fdopen(write, "w") as stream:
            stream.write(json.dumps(worker._answer(request, leave)))
    finally:
        os._exit(0)
