"""Find out, before anything trains, what only a worker can know about a workload."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch

from bscrit.engine.identity import fingerprint
from bscrit.engine.lanes import Lanes
from bscrit.engine.loading import load_workload
from bscrit.engine.replay import Replay, replayable
from bscrit.engine.seeding import seeded
from bscrit.engine.self_test import accumulation_test, choose_engine, self_test
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, in_short
from bscrit.measure.nested import tensors_of
from bscrit.plugins import BUILT_IN_WORKLOADS
from bscrit.preflight import Preflight
from bscrit.request import Setup
from bscrit.version import VERSION

_LANES_TIMED = 6
_CLEARLY = 2.0
_TESTED = 64


def preflight(setup: Setup) -> Preflight:
    """Build the workload, evaluate it untrained, test micro-batches, and choose an engine per batch size."""
    device = resolve_device(setup.device)
    if setup.execution == "compile":
        _compiles(device)
    workload = load_workload(setup.use, setup.settings, setup.metric)
    try:
        return _facts(setup, workload, device)
    except UserError:
        raise
    except Exception as error:
        where = f"[workload] use = {setup.use!r}"
        what = f"fails on its first batch: {in_short(error)}"
        raise UserError(where, what, _dtype_remedy(error, setup.dtype)) from error


def _dtype_remedy(error: Exception, dtype: str) -> str:
    words = ("dtype", "scalar type", "data type")
    if not any(word in str(error) for word in words):
        return ""
    return (
        f'parameters and inputs are in [compute] dtype = "{dtype}": choose another, or make tensors in theirs'
    )


def warm_up(workload: Workload, setup: Setup, device: str) -> None:
    """A step and an evaluation of two lanes, after which torch has imported what it imports when it is first needed."""
    size, optimizer = setup.optimizers[0]
    for engine in ("loop",) if setup.lanes == "loop" else ("loop", "vmap"):
        lanes = Lanes(
            workload,
            seeds=[setup.first_seed] * 2,
            lrs=[0.0, 0.0],
            batch_size=int(size),
            optimizer=optimizer,
            engine=engine,
            device=device,
            dtype=setup.dtype,
            micro_batch=setup.micro_batch,
            replay=Replay(workload, 0 if engine == "loop" and replayable(workload) else inf),
        )
        lanes.step(0, 0.0)
        lanes.evaluate()


def resolve_device(wanted: str) -> str:
    """A device that exists, from "auto" or a name as torch has it."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("[compute] device", f"{wanted!r} is not there", 'use device = "auto" or "cpu"')
    if wanted == "mps" and not torch.backends.mps.is_available():
        raise UserError("[compute] device", "'mps' is not there", 'use device = "auto" or "cpu"')
    return wanted


def _compiles(device: str) -> None:
    """Refuse to compile where torch can't: every step would go on as if nothing had been asked.

    Raises:
        UserError: what torch says.
    """
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(2, device=device))
    except Exception as error:
        lines = (line.strip() for line in str(error).splitlines())
        first = next(
            (line for line in lines if line and not line.startswith("backend=")), type(error).__name__
        )
        raise UserError(
            '[compute] execution = "compile"',
            f"torch.compile fails here: {first}",
            'install a C++ compiler, or use execution = "replay"',
        ) from error


def versions() -> dict[str, str]:
    return {
        "bscrit": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": _installed("scikit-learn"),
    }


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _facts(setup: Setup, workload: Workload, device: str) -> Preflight:
    workload.prepare(device)
    sizes: Sequence[tuple[int, Mapping[str, Any]]] = setup.optimizers
    if workload.examples is not None:
        sizes = [(size, optimizer) for size, optimizer in sizes if size <= workload.examples]
    smallest, optimizer = sizes[0] if sizes else (1, setup.optimizers[0][1])
    _refuse_sparse(setup, workload)
    lanes = Lanes(
        workload,
        seeds=[setup.first_seed],
        lrs=[0.0],
        batch_size=smallest,
        optimizer=optimizer,
        engine="loop",
        device=device,
        dtype=setup.dtype,
    )
    at = max((size for size, _ in sizes if size <= _TESTED), default=smallest)
    problems = [*_not_finite(lanes), *_repeatable(workload, setup.first_seed, at)]
    engines, reasons = _engines(setup, workload, device, sizes)
    notes = [
        f"one run after the other at batch size {', '.join(map(str, at))}: {reason}"
        for reason, at in reasons.items()
    ]
    splits, reason = _splits(workload, lanes, sizes, setup.dtype, device)
    notes += [f"batches are never split, and no noise scale is measured: {reason}"] if reason else []
    return Preflight(
        unit=workload.unit,
        examples=workload.examples,
        fingerprint=fingerprint(setup.use, workload, _untrained(setup, lanes)),
        untrained_value=float(lanes.evaluate()[0]),
        parameters=_parameters(lanes),
        splits=splits,
        engines=engines,
        device=device,
        problems=tuple(problems),
        notes=tuple(notes),
        versions=versions(),
    )


def _refuse_sparse(setup: Setup, workload: Workload) -> None:
    """Refuse parameters whose gradients torch keeps sparse, by name."""
    with seeded(torch.device("cpu"), setup.first_seed):
        model = workload.model(setup.first_seed)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
            raise UserError(
                f"{type(workload).__name__}.model",
                f"parameter {(name + '.weight').lstrip('.')!r} has sparse gradients, which are not trained",
                "make the embedding with sparse=False",
            )


def _not_finite(lanes: Lanes) -> list[str]:
    """A problem where a gradient of the untrained model on its first batch is not finite."""
    names = [name for name, gradient in lanes.gradients(0).items() if not gradient.isfinite().all()]
    if not names:
        return []
    return [f"losses or gradients are not finite before training: the gradient of {names[0]!r} is the first"]


def _parameters(lanes: Lanes) -> int:
    return sum(tensor[0].numel() for tensor in lanes.parameters.values())


def _untrained(setup: Setup, lanes: Lanes) -> str:
    """Size and loss of the model at seed 0, which no spec chooses; rounded beyond what threads and devices change."""
    if setup.use in BUILT_IN_WORKLOADS:
        return ""
    if setup.first_seed:
        lanes = Lanes(
            lanes.workload,
            seeds=[0],
            lrs=[0.0],
            batch_size=lanes.batch_size,
            optimizer=setup.optimizers[0][1],
            engine="loop",
            device=str(lanes.device),
            dtype=setup.dtype,
        )
    digits = 4 if setup.dtype in ("float32", "float64") else 2
    return f"{_parameters(lanes)} {float(lanes.evaluate()[0]):.{digits}g}"


def _repeatable(workload: Workload, seed: int, size: int) -> list[str]:
    """Reasons why a run that is interrupted and resumed would be another run.

    Torch's own random numbers are seeded around these calls; what draws from elsewhere is found here. So many steps
    are compared, 64 examples or more, that examples drawn by chance are not all the same.
    """
    name, cpu = type(workload).__name__, torch.device("cpu")

    def batch(start: int, seed: int = seed) -> list[torch.Tensor]:
        with seeded(cpu, seed, start):
            return tensors_of(workload.batch(seed, start, size))

    def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    def model() -> dict[str, torch.Tensor]:
        with seeded(cpu, seed):
            return workload.model(seed).state_dict()

    problems = []
    first = batch(0)
    starts = range(0, max(4 * size, _TESTED), size)
    if not same(first, batch(0)):
        problems.append(
            f"{name}.batch draws another batch each time: it must depend on (seed, start, size) alone"
        )
    elif workload.examples != size and all(same(first, batch(start)) for start in starts[1:]):
        problems.append(f"{name}.batch returns the same batch at every step: it must depend on `start`")
    elif workload.examples != size and all(same(batch(start), batch(start, seed + 1)) for start in starts):
        problems.append(f"{name}.batch returns the same batches at every seed: it must depend on `seed`")
    one, other = model(), model()
    if any(not torch.equal(one[key], other[key]) for key in one):
        problems.append(f"{name}.model differs from call to call: it must depend on the seed alone")
    return problems


def _splits(
    workload: Workload, lanes: Lanes, sizes: Sequence[tuple[int, Mapping[str, Any]]], dtype: str, device: str
) -> tuple[bool, str]:
    """Whether a batch is the sum of its parts, and if not, why."""
    if not workload.sums_over_examples:
        return False, "the workload says that its loss is not a sum over examples"
    kinds = {type(module).__name__ for module in workload.model(lanes.seeds[0]).modules()}
    mixing = sorted(kind for kind in kinds if "BatchNorm" in kind)
    if mixing:
        return False, f"{mixing[0]} mixes the examples of a batch"
    size, optimizer = max(
        ((s, o) for s, o in sizes if s <= _TESTED), default=(1, {}), key=lambda pair: pair[0]
    )
    if size == 1:
        return True, ""
    test = accumulation_test(workload, size, optimizer, dtype, device)
    return test.ok, "" if test.ok else test.reason


def _engines(
    setup: Setup, workload: Workload, device: str, sizes: Sequence[tuple[int, Mapping[str, Any]]]
) -> tuple[dict[int, str], dict[str, list[int]]]:
    """The engine at each batch size; and why it is not the one that was wished for, with the sizes where.

    From the largest size down: vectorising gains most where batches are small, so that where it is clearly faster,
    smaller batches need no timing.
    """
    arguments: dict[str, Any] = {"dtype": setup.dtype, "device": device, "micro_batch": setup.micro_batch}
    engines: dict[int, str] = {}
    reasons: dict[str, list[int]] = {}
    wished = setup.lanes
    for size, optimizer in sorted(sizes, key=lambda pair: pair[0], reverse=True):
        engine, reason = wished, ""
        if wished == "vmap":
            test = self_test(workload, size, optimizer, **arguments)
            engine, reason = ("vmap", "") if test.ok else ("loop", test.reason)
        elif wished == "auto":
            choice = choose_engine(
                workload, size, _LANES_TIMED, optimizer=optimizer, seconds=0.15, **arguments
            )
            engine = choice.engine
            if choice.speedup is None and not choice.reason.startswith("a step"):
                reason = choice.reason
            if choice.speedup is not None and choice.speedup >= _CLEARLY:
                wished = "vmap"
        engines[size] = engine
        if reason:
            reasons.setdefault(_plainly(reason), []).insert(0, size)
    return dict(sorted(engines.items())), reasons


def _plainly(reason: str) -> str:
    """Torch's own words for the commonest reason speak of vmap, which is no concern of the user's."""
    return "the model draws random numbers (dropout)" if "randomness" in reason else reason
