"""Find out, before anything trains, what only a worker can know about a workload."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import bscrit
from bscrit.errors import UserError
from bscrit.preflight import Preflight
from bscrit.train.lanes import Lanes
from bscrit.train.loading import fingerprint, load_workload
from bscrit.train.selftest import accumulation_test, choose_backend, self_test
from bscrit.train.workload import Workload

_LANES_TIMED = 6
_TESTED = 64


def preflight(request: Mapping[str, Any]) -> Preflight:
    """Build the workload, evaluate it untrained, test micro-batches, and choose a backend per batch size.

    Args:
        request: use, settings, device, dtype, lanes, micro_batch, first_seed, and optimizers: a list of
            [batch size, resolved optimizer] pairs.
    """
    device = resolve_device(request["device"])
    workload = load_workload(request["use"], request["settings"])
    try:
        return _facts(request, workload, device)
    except UserError:
        raise
    except Exception as error:
        where = f"[workload] use = {request['use']!r}"
        what = f"fails on its first batch: {type(error).__name__}: {error}"
        raise UserError(where, what, "the traceback is in the worker's log") from error


def resolve_device(wanted: str) -> str:
    """A device that exists, from "auto" or a name as torch has it."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("[compute] device", f"{wanted!r} is not there", 'use device = "auto" or "cpu"')
    if wanted == "mps" and not torch.backends.mps.is_available():
        raise UserError("[compute] device", "'mps' is not there", 'use device = "auto" or "cpu"')
    return wanted


def versions() -> dict[str, str]:
    return {
        "bscrit": bscrit.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _facts(request: Mapping[str, Any], workload: Workload, device: str) -> Preflight:
    workload.prepare(device)
    sizes: Sequence[tuple[int, dict[str, Any]]] = [(int(b), o) for b, o in request["optimizers"]]
    if workload.examples is not None:
        sizes = [(size, optimizer) for size, optimizer in sizes if size <= workload.examples]
    smallest, optimizer = sizes[0] if sizes else (1, request["optimizers"][0][1])
    lanes = Lanes(
        workload,
        seeds=[request["first_seed"]],
        lrs=[0.0],
        batch_size=smallest,
        optimizer=optimizer,
        backend="loop",
        device=device,
        dtype=request["dtype"],
    )
    lanes.gradients(0)
    backends, notes, problems = {}, [], []
    for size, settings in sizes:
        backends[size], note = _backend(request, workload, device, size, settings)
        notes += [f"batch size {size}: {note}"] if note else []
    tested = max([size for size, _ in sizes if size <= _TESTED], default=0)
    if workload.sums_over_examples and tested > 1:
        test = accumulation_test(workload, tested, optimizer, request["dtype"], device)
        problems += [] if test.ok else [f"micro-batches are not the batch: {test.reason}"]
    return Preflight(
        unit=workload.unit,
        examples=workload.examples,
        fingerprint=fingerprint(request["use"], workload),
        untrained_loss=float(lanes.evaluate()[0]),
        parameters=sum(tensor[0].numel() for tensor in lanes.parameters.values()),
        splits=workload.sums_over_examples and not problems,
        backends=backends,
        device=device,
        problems=tuple(problems),
        notes=tuple(notes),
        versions=versions(),
    )


def _backend(
    request: Mapping[str, Any], workload: Workload, device: str, size: int, optimizer: Mapping[str, Any]
) -> tuple[str, str]:
    """The backend at one batch size, and a sentence where it is not the one that was wished for."""
    arguments = {"dtype": request["dtype"], "device": device, "micro_batch": request["micro_batch"]}
    if request["lanes"] == "loop":
        return "loop", ""
    if request["lanes"] == "vmap":
        test = self_test(workload, size, optimizer, **arguments)
        return ("vmap", "") if test.ok else ("loop", f"lanes run one after the other: {test.reason}")
    choice = choose_backend(workload, size, _LANES_TIMED, optimizer=optimizer, seconds=0.15, **arguments)
    return choice.backend, "" if choice.speedup is not None or choice.backend == "vmap" else choice.reason
