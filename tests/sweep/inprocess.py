"""An executor without processes: cohorts train here, and trouble comes when it is asked for."""

import threading
from collections.abc import Callable

from bscrit.spec import parse_spec
from bscrit.sweep.executors import Answer
from bscrit.train import worker


class InProcess:
    """Runs requests at the next poll, the last one first.

    Args:
        trouble: called with (number, request) before a request; an Answer stands in for it.
    """

    at_once = False

    def __init__(
        self, slots: int = 2, trouble: Callable[[int, dict], Answer | None] = lambda *_: None
    ) -> None:
        self.slots = slots
        self.trouble = trouble
        self.requests: list[dict] = []
        self.prepared: list[dict] = []
        self._waiting: list[int] = []
        self.closed = 0

    def submit(self, request):
        assert len(self._waiting) < self.slots
        self.requests.append(request)
        self._waiting.append(len(self.requests) - 1)
        return len(self.requests) - 1

    def prepare(self, request):
        self.prepared.append(request)

    def poll(self, seconds):  # noqa: ARG002 (answers are there at once)
        if not self._waiting:
            return []
        number = self._waiting.pop()
        request = self.requests[number]
        found = self.trouble(number, request)
        if found is not None:
            return [found]
        answer = worker._answer(request, threading.Event())
        if "error" in answer:
            return [Answer(number, error=tuple(answer["error"]), by=answer["of"])]
        return [Answer(number, done=answer)]

    def close(self):
        self.closed += 1

    @property
    def trained(self):
        """Names of the folders of each cohort that was submitted."""
        return [
            [folder.rpartition("/")[2] for folder in request["folders"]]
            for request in self.requests
            if request["call"] == "train"
        ]


class Silent:
    """A view that remembers what it was told."""

    def __init__(self):
        self.notes, self.ends, self.updates, self.closed = [], [], 0, False

    def note(self, text):
        self.notes.append(text)

    def begun(self, cohort):
        pass

    def ended(self, cohort, records):
        self.ends.append((cohort, list(records)))

    def update(self, cohorts, results):  # noqa: ARG002 (counted only)
        self.updates += 1

    def close(self):
        self.closed = True


def small_spec(**keys):
    """A sweep of a small quadratic that takes a second."""
    tables = {
        "workload": {"use": "quadratic", "dimensions": 10},
        "sweep": {
            "batch_sizes": [4, 32],
            "targets": [0.5, 0.1],
            "seeds": 2,
            "max_examples": 30_000,
            "max_steps": 800,
        },
        "noise": {"source": "none"},
        "compute": {"workers": 2, "device": "cpu", "lanes": "loop"},
    }
    for table, settings in keys.items():
        tables[table] = {**tables.get(table, {}), **settings}
    return parse_spec(tables, "small")
