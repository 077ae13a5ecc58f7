"""Find out, before anything trains, what only a worker can know about a workload."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import torch

from bscrit.engine.identity import fingerprint
from bscrit.engine.lanes import Lanes
from bscrit.engine.loading import load_workload
from bscrit.engine.replay import Replay, replayable
from bscrit.engine.self_test import accumulation_test, choose_engine, resting, self_test
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, in_short
from bscrit.goal import TRAIN_LOSS
from bscrit.plugins import BUILT_IN_WORKLOADS
from bscrit.preflight import Preflight
from bscrit.request import Setup
from bscrit.train.refusals import cast, not_finite, not_repeatable
from bscrit.version import VERSION

_LANES_TIMED = 6
_CLEARLY = 2.0
_TESTED = 64
_TIMED_SECONDS = 0.2
Sizes = Sequence[tuple[int, Mapping[str, Any]]]
"""Batch sizes, and the optimizer at each of them."""


def preflight(setup: Setup) -> Preflight:
    """Build the workload, evaluate it untrained, test micro-batches, and choose an engine per batch size."""
    device = resolve_device(setup.device)
    if setup.execution == "compile":
        _compiles(device)
    workload = load_workload(setup.use, setup.settings, setup.metric, setup.validation_examples)
    try:
        return _facts(setup, workload, device)
    except UserError:
        raise
    except Exception as error:
        where = f"[workload] use = {setup.use!r}"
        what = f"fails on its first batch: {in_short(error)}"
        raise UserError(where, what, _dtype_remedy(error, setup.dtype)) from error


def warm_up(workload: Workload, setup: Setup, device: str) -> None:
    """A step and an evaluation of two lanes, after which torch has imported what it imports when it is first needed."""
    for engine in ("loop",) if setup.lanes == "loop" else ("loop", "vmap"):
        replay = Replay(workload, 0 if engine == "loop" and replayable(workload) else inf)
        seeds, compute = [setup.first_seed] * 2, _compute(setup, device)
        lanes = resting(workload, engine, *setup.optimizers[0], seeds, replay=replay, **compute)
        lanes.step(0, 0.0)
        lanes.evaluate()


def resolve_device(wanted: str) -> str:
    """A device that exists, from "auto" or a name as torch has it."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    cuda, mps = torch.cuda.is_available, torch.backends.mps.is_available
    there: dict[str, Callable[[], bool]] = {"cuda": cuda, "mps": mps}
    if not there.get(wanted.partition(":")[0], lambda: True)():
        raise UserError("[compute] device", f"{wanted!r} is not there", 'use device = "auto" or "cpu"')
    return wanted


def versions() -> dict[str, str]:
    """Python and the libraries that decide on numbers; "" for one that is not installed."""
    libraries = {}
    for name in ("torch", "numpy", "scikit-learn"):
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            libraries[name] = ""
    return {"bscrit": VERSION, "python": platform.python_version(), **libraries}


def _dtype_remedy(error: Exception, dtype: str) -> str:
    if not any(word in str(error) for word in ("dtype", "scalar type", "data type")):
        return ""
    return (
        f'parameters and inputs are in [compute] dtype = "{dtype}": choose another, or make tensors in theirs'
    )


def _compiles(device: str) -> None:
    """Refuse to compile where torch can't: every step would go on as if nothing had been asked."""
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(2, device=device))
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if not line.startswith("backend=")]
        raise UserError(
            '[compute] execution = "compile"',
            f"torch.compile fails here: {next(filter(None, lines), type(error).__name__)}",
            'install a C++ compiler, or use execution = "replay"',
        ) from error


def _compute(setup: Setup, device: str) -> dict[str, Any]:
    return {"dtype": setup.dtype, "device": device, "micro_batch": setup.micro_batch}


def _facts(setup: Setup, workload: Workload, device: str) -> Preflight:
    workload.prepare(device)
    most = inf if workload.examples is None else workload.examples
    sizes = [pair for pair in setup.optimizers if pair[0] <= most]
    smallest = sizes[0] if sizes else (1, setup.optimizers[0][1])
    tested = max((pair for pair in sizes if pair[0] <= _TESTED), key=lambda pair: pair[0], default=smallest)
    looked_at = tested if setup.metric == TRAIN_LOSS else smallest  # a loss of few examples says little
    compute = _compute(setup, device)
    lanes = resting(workload, "loop", *looked_at, [setup.first_seed], **compute)
    problems = [*not_finite(lanes), *not_repeatable(workload, setup.first_seed, tested[0])]
    engines, reasons = _engines(setup.lanes, workload, sizes, compute)
    notes = cast(workload, setup.first_seed, setup.dtype)
    notes += [
        f"one run after the other at batch size {', '.join(map(str, at))}: {reason}"
        for reason, at in reasons.items()
    ]
    mixing = _mixing(workload, lanes, tested, dtype=setup.dtype, device=device)
    notes += [f"batches are never split, and no noise scale is measured: {mixing}"] if mixing else []
    return Preflight(
        unit=workload.unit,
        examples=workload.examples,
        fingerprint=fingerprint(setup.use, workload, _untrained(setup, workload, looked_at, compute)),
        untrained_value=float(lanes.evaluate()[0]),
        parameters=_parameters(lanes),
        evaluation_share=0.0 if setup.metric == TRAIN_LOSS else _evaluation_share(lanes),
        splits=not mixing,
        engines=engines,
        device=device,
        problems=tuple(problems),
        notes=tuple(notes),
        versions=versions(),
    )


def _evaluation_share(lanes: Lanes) -> float:
    """Where every step is followed by an evaluation."""
    evaluation, step = _seconds(lanes.evaluate), _seconds(lambda: lanes.step(0, 0.0))
    return round(evaluation / (evaluation + step), 3)


def _seconds(act: Callable[[], object]) -> float:
    """The time of the fastest of some calls."""
    act()
    times: list[float] = []
    while not times or (len(times) < 5 and sum(times) < _TIMED_SECONDS):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return min(times)


def _parameters(lanes: Lanes) -> int:
    return sum(tensor[0].numel() for tensor in lanes.parameters.values())


def _untrained(
    setup: Setup, workload: Workload, at: tuple[int, Mapping[str, Any]], compute: Mapping[str, Any]
) -> str:
    """Size and loss of the model at seed 0, which no spec chooses; rounded beyond what threads and devices change."""
    if setup.use in BUILT_IN_WORKLOADS:
        return ""
    lanes = resting(workload, "loop", *at, [0], **compute)
    digits = 4 if setup.dtype in ("float32", "float64") else 2
    return f"{_parameters(lanes)} {float(lanes.evaluate()[0]):.{digits}g}"


def _mixing(workload: Workload, lanes: Lanes, tested: tuple[int, Mapping[str, Any]], **compute: Any) -> str:
    """Why a batch is not the sum of its parts; "" where it is."""
    if not workload.sums_over_examples:
        return "the workload says that its loss is not a sum over examples"
    kinds = {type(module).__name__ for module in lanes.engine.model.modules()}
    norms = sorted(kind for kind in kinds if "BatchNorm" in kind)
    if norms:
        return f"{norms[0]} mixes the examples of a batch"
    return accumulation_test(workload, *tested, **compute)


def _engines(
    wished: str, workload: Workload, sizes: Sizes, compute: Mapping[str, Any]
) -> tuple[dict[int, str], dict[str, list[int]]]:
    """The engine at each batch size; and why it is not the one that was wished for, with the sizes where.

    From the largest size down: vectorising gains most where batches are small, so that where it is clearly faster,
    smaller batches need no timing.
    """
    engines: dict[int, str] = {}
    reasons: dict[str, list[int]] = {}
    for size, optimizer in sorted(sizes, key=lambda pair: pair[0], reverse=True):
        engines[size], reason = wished, ""
        if wished == "vmap":
            reason = self_test(workload, size, optimizer, **compute)
            engines[size] = "loop" if reason else "vmap"
        elif wished == "auto":
            choice = choose_engine(workload, size, _LANES_TIMED, optimizer=optimizer, seconds=0.15, **compute)
            engines[size] = choice.engine
            if choice.speedup is None and not choice.reason.startswith("a step"):
                reason = choice.reason
            if choice.speedup is not None and choice.speedup >= _CLEARLY:
                wished = "vmap"
        if reason:
            reasons.setdefault(_plainly(reason), []).insert(0, size)
    return dict(sorted(engines.items())), reasons


def _plainly(reason: str) -> str:
    """Torch's own words for the commonest reason speak of vmap, which is no concern of the user's."""
    return "the model draws random numbers (dropout)" if "randomness" in reason else reason
