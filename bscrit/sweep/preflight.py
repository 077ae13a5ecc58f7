"""Preflight: facts about a workload that a worker finds out, and whether those of an earlier sweep still hold."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bscrit.errors import UserError, UserErrors
from bscrit.files import write_json, write_text
from bscrit.paths import ResultsPaths
from bscrit.plugins import BUILT_IN_WORKLOADS
from bscrit.preflight import Preflight, read_preflight
from bscrit.request import Answer, Facts, Failed, Inspect, Request, Setup, take_answer, write_request
from bscrit.spec import Spec, check
from bscrit.sweep.executors import Executor
from bscrit.sweep.view import View
from bscrit.version import VERSION
from bscrit.words import duration, sizes

INSPECTED = (2, 8, 32, 128, 512)  # where the sweep chooses its batch sizes: each has a neighbour here
POLL_SECONDS = 0.2
SILENT_SECONDS = 15.0  # after which a look that takes long is told of again
MOST_FILES = 1000


def inspect(
    spec: Spec, out: Path, executor: Executor, view: View, interrupted: Callable[[], int] = lambda: 0
) -> Preflight | None:
    """Facts about the workload from a worker; engines that were chosen before stay. None when interrupted.

    Raises:
        UserError: the workload cannot be built.
        UserErrors: everything that the facts show to be wrong with the spec.
    """
    file = ResultsPaths(out).preflight
    before = read_preflight(file)
    stamps, setup = _stamps(spec), _setup(spec)
    tried = sizes([size for size, _ in setup.optimizers])
    view.note(f"looking at the workload: its data and model, and how it trains fastest at batch size {tried}")
    answer = _answer(Inspect(setup), ResultsPaths(out), executor, view, interrupted)
    if answer is None:
        return None
    if isinstance(answer, Failed):
        remedy = answer.remedy or f"see {ResultsPaths(out).workers_log}"
        raise UserError(answer.where or "preflight", answer.what, remedy)
    if not isinstance(answer, Facts):
        where = f"[compute] executor = {spec.compute.executor!r}"
        raise UserError(where, "gave no facts of the workload", "mend or update the package that offers it")
    facts = answer.preflight
    if before is not None and before.fingerprint == facts.fingerprint and before.device == facts.device:
        facts = replace(facts, engines={**facts.engines, **before.engines})
    facts = replace(facts, request=_plain(setup), stamps=stamps)
    errors, warnings = check(spec, facts)
    if errors:
        raise UserErrors(errors)
    for line in (*warnings, *facts.notes):
        view.note(line)
    write_json(file, facts.to_dict())
    write_text(ResultsPaths(out).spec, spec.source.to_toml())
    return facts


def _answer(
    request: Request, paths: ResultsPaths, executor: Executor, view: View, interrupted: Callable[[], int]
) -> Answer | None:
    """The answer to a request, as soon as there is a worker; None when interrupted."""
    file, handle = write_request(paths.requests.absolute(), request), None
    began = spoke = time.monotonic()
    while not interrupted():
        if (now := time.monotonic()) - spoke >= SILENT_SECONDS:
            spoke = now
            doing = "still looking" if handle else "waiting for a worker"
            view.note(f"{doing}, {duration(now - began)}; what a worker prints is in {paths.workers_log}")
        if handle is None and executor.slots > 0:
            handle = executor.submit(file)
        if handle in executor.poll(POLL_SECONDS):
            return take_answer(file)
    return None


def earlier_facts(spec: Spec, out: Path) -> Preflight | None:
    """The facts of an earlier look, where a new one would find the same; None where it may not.

    That is: a built-in workload (what a class of the user's rests on cannot be known from outside), the same
    request to the same versions, and no file or folder that its settings name has changed in size or time.
    """
    before = read_preflight(ResultsPaths(out).preflight)
    if before is None or spec.workload.use not in BUILT_IN_WORKLOADS:
        return None
    same = before.request == _plain(_setup(spec)) and before.stamps == _stamps(spec)
    if not same or any(before.versions.get(name) != version for name, version in _versions()):
        return None
    write_text(ResultsPaths(out).spec, spec.source.to_toml())
    return None if check(spec, before)[0] else before


def _setup(spec: Spec) -> Setup:
    tried = spec.candidates()
    if spec.sweep.auto:
        tried = tuple(size for size in tried if size in INSPECTED) or tried
    return Setup(
        use=spec.workload.use,
        settings=spec.workload.settings,
        device=spec.compute.device,
        dtype=spec.compute.dtype,
        lanes=spec.compute.lanes,
        execution=spec.compute.execution,
        micro_batch=spec.compute.micro_batch,
        first_seed=spec.sweep.first_seed,
        optimizers=tuple((size, spec.optimizer.at(size)) for size in tried),
        metric=spec.sweep.metric,
        validation_examples=spec.sweep.validation_examples,
    )


def _plain(setup: Setup) -> dict[str, Any]:
    """As it is read back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(setup)))
    return plain


def _versions() -> Iterator[tuple[str, str]]:
    yield "bscrit", VERSION
    yield "python", platform.python_version()
    for name in ("torch", "numpy", "scikit-learn"):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, ""


def _stamps(spec: Spec) -> Mapping[str, list[int]]:
    """Size and time of every file that a built-in workload's settings name."""
    if spec.workload.use not in BUILT_IN_WORKLOADS:
        return {}
    named = [value for value in spec.workload.settings.values() if isinstance(value, str) and value]
    stamps = {}
    for place in (folder / value for value in named for folder in (Path(), spec.workload.folder)):
        for file in _files(place):
            with contextlib.suppress(OSError):
                state = file.stat()
                stamps[str(file)] = [state.st_size, state.st_mtime_ns]
    return stamps


def _files(place: Path) -> list[Path]:
    """A file itself, the files of a folder; a name too long for a path is none."""
    try:
        if place.is_dir():
            return sorted(file for file in itertools.islice(place.rglob("*"), MOST_FILES) if file.is_file())
        return [place] if place.is_file() else []
    except (OSError, ValueError):
        return []
