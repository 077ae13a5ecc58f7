"""An executor without processes: cohorts train here, and trouble comes when it is asked for."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from bscrit.request import Answer, Request, Train, take_request, write_answer
from bscrit.spec import parse_spec
from bscrit.train import worker


class InProcess:
    """Carries out requests at the next poll, the last one first.

    Args:
        trouble: called with (number, request) before a request; an Answer stands in for it.
    """

    def __init__(
        self, slots: int = 2, trouble: Callable[[int, Request], Answer | None] = lambda *_: None
    ) -> None:
        self.slots = slots
        self.trouble = trouble
        self.requests: list[Request] = []
        self.waiting: list[tuple[int, Path]] = []
        self.closed = 0

    def submit(self, request):
        assert len(self.waiting) < self.slots
        self.requests.append(take_request(request))
        self.waiting.append((len(self.requests) - 1, request))
        return str(request)

    def poll(self, seconds):  # noqa: ARG002 (answers are there at once)
        if not self.waiting:
            return []
        number, file = self.waiting.pop()
        request = self.requests[number]
        write_answer(file, self.trouble(number, request) or worker.answer(request))
        return [str(file)]

    def cancel(self, handle):
        raise AssertionError(f"{handle} was to be cancelled, and no test of this executor does that")

    def close(self):
        self.closed += 1

    @property
    def trained(self):
        """Names of the folders of each cohort that was submitted."""
        return [
            [folder.name for folder in request.folders]
            for request in self.requests
            if isinstance(request, Train)
        ]


def offer(monkeypatch, folder, **executors):
    """Offer executors as an installed package does: each by its name, called with a `Compute`."""
    info = folder / "site" / "theirs-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = [f"{name} = their_executors:{name}" for name in executors]
    (info / "entry_points.txt").write_text("\n".join(["[bscrit.executors]", *lines]) + "\n")
    monkeypatch.setitem(sys.modules, "their_executors", SimpleNamespace(**executors))
    monkeypatch.syspath_prepend(folder / "site")


def on(spec, executor):
    """The spec on another executor."""
    compute = spec.compute.model_copy(update={"executor": executor})
    return spec.model_copy(update={"compute": compute})


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
