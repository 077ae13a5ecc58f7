"""Checks before training: whether lanes of a workload compute what single runs would, and how fast.

A vectorised pass is silently wrong for some models (a buffer that forward replaces, the padding row of an
embedding), refuses others (LSTM, dropout), and is slower for some. And a batch made of micro-batches is one
batch only if the losses are sums over examples.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.engine.lanes import Lanes
from bscrit.engine.precision import rounding
from bscrit.engine.replay import Replay, replayable
from bscrit.engine.workload import Workload
from bscrit.errors import in_short

WORTH_IT = 1.15
WARM = 3  # steps in which one is counted, one is recorded and one proves
MOST_LANES_TIMED = 32
_SEEDS = (0, 1)


@dataclass(frozen=True)
class SelfTest:
    """Whether a check passed, and if not, what differed."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class Choice:
    """A engine, why, and how many times as fast per lane "vmap" was where both were timed."""

    engine: str
    reason: str
    speedup: float | None = None


def self_test(
    workload: Workload,
    batch_size: int,
    optimizer: Mapping[str, Any],
    dtype: str = "float32",
    device: str = "cpu",
    micro_batch: int | None = None,
) -> SelfTest:
    """Two lanes through "vmap" against the same two as single modules: gradients, buffers, evaluation.

    On two batches, since a lost buffer shows in the second one only.
    """
    arguments = _arguments(batch_size, optimizer, dtype, device, micro_batch)
    expected = _two_batches(Lanes(workload, engine="loop", **arguments))
    try:
        found = _two_batches(Lanes(workload, engine="vmap", **arguments))
    except Exception as error:
        # What single modules just did can't be the workload's own mistake.
        return SelfTest(False, f"can't be vectorised: {in_short(error)}")
    return _compared(found, expected, dtype, device, "vectorised and single runs differ in")


def accumulation_test(
    workload: Workload,
    batch_size: int,
    optimizer: Mapping[str, Any],
    dtype: str = "float32",
    device: str = "cpu",
) -> SelfTest:
    """The gradient of one batch whole, in halves and in three parts (uneven ones where 3 doesn't divide).

    Dropout modules are switched off for it; a model that still draws random numbers can't be tested.
    """
    if not workload.sums_over_examples or batch_size == 1:
        return SelfTest(True, "batches are never split")
    sizes = dict.fromkeys((batch_size, -(-batch_size // 2), -(-batch_size // 3)))
    found = {
        size: Lanes(
            _OneBatch(workload),  # type: ignore[arg-type]
            engine="loop",
            **_arguments(batch_size, optimizer, dtype, device, size),
        )
        for size in sizes
    }
    whole = found.pop(batch_size)
    expected = whole.gradients(0)
    for size, lanes in found.items():
        test = _compared(
            lanes.gradients(0),
            expected,
            dtype,
            device,
            f"{batch_size} examples at once and in parts of {size} differ in",
        )
        if not test.ok:
            again = whole.gradients(batch_size)
            if any(not torch.equal(again[name], tensor) for name, tensor in expected.items()):
                return SelfTest(True, "not tested: the model draws random numbers in training")
            return test
    return SelfTest(True)


def choose_engine(
    workload: Workload,
    batch_size: int,
    lanes: int,
    *,
    optimizer: Mapping[str, Any],
    device: str = "cpu",
    dtype: str = "float32",
    micro_batch: int | None = None,
    seconds: float = 0.3,
) -> Choice:
    """The vectorised engine where it is right (`self_test`) and 1.15 times as fast per lane, else the loop.

    Both take turns: two lanes in the loop and all (32 at most, fewer if steps are long) through vmap; the fastest step
    counts. Timing begins with the first replayed step and goes on for three to six of them, about `seconds`. Where
    steps take a good part of that, it doesn't try.
    """
    if lanes == 1:
        return Choice("loop", "one lane")
    arguments = _arguments(batch_size, optimizer, dtype, device, micro_batch)
    often = 1 if replayable(workload) else inf
    loop = Lanes(workload, engine="loop", replay=Replay(workload, often), **arguments)
    _seconds_of_step(loop, 0)
    slow = _seconds_of_step(loop, 1)
    if slow < seconds:
        slow = min(_seconds_of_step(loop, step) for step in range(2, WARM + 2))
    if slow > seconds / 10:
        return Choice("loop", f"a step of one lane takes {slow / 2:.2g} s, in which vectorising saves little")
    test = self_test(workload, batch_size, optimizer, dtype, device, micro_batch)
    if not test.ok:
        return Choice("loop", test.reason)
    timed = min(lanes, MOST_LANES_TIMED, max(2, int(seconds / 5 / (slow / 2))))
    arguments = {**arguments, "seeds": (_SEEDS * timed)[:timed], "lrs": (1.0,) * timed}
    vectorised = Lanes(workload, engine="vmap", replay=Replay(workload, often), **arguments)
    for step in range(WARM):
        _seconds_of_step(vectorised, step)
    loops, vmaps = [slow], []
    end = time.perf_counter() + seconds
    for step in range(WARM, WARM + 6):
        loops.append(_seconds_of_step(loop, step + 2))
        vmaps.append(_seconds_of_step(vectorised, step))
        if len(vmaps) >= 3 and time.perf_counter() > end:
            break
    speedup = (min(loops) / 2) / (min(vmaps) / timed)
    reason = f"{timed} lanes at once run {speedup:.2g} times as fast as one after the other"
    return Choice("vmap" if speedup >= WORTH_IT else "loop", reason, speedup)


class _OneBatch:
    """A workload whose every batch is the first one and whose dropout is off."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __getattr__(self, name: str) -> Any:
        if name == "_workload":  # of a copy that is still being made
            raise AttributeError(name)
        return getattr(self._workload, name)

    def model(self, seed: int) -> nn.Module:
        model = self._workload.model(seed)
        for module in model.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
        return model

    def batch(self, seed: int, start: int, size: int) -> Any:  # noqa: ARG002 (every step has the first batch)
        return self._workload.batch(seed, 0, size)


def _arguments(
    batch_size: int, optimizer: Mapping[str, Any], dtype: str, device: str, micro_batch: int | None
) -> dict[str, Any]:
    return {
        "seeds": _SEEDS,
        "lrs": (1.0, 1.0),
        "batch_size": batch_size,
        "optimizer": optimizer,
        "dtype": dtype,
        "device": device,
        "micro_batch": micro_batch,
    }


def _two_batches(lanes: Lanes) -> dict[str, Tensor]:
    """Buffers after a step whose rate is zero, which leaves the parameters alone."""
    tensors = {f"gradient of {name}": tensor for name, tensor in lanes.gradients(0).items()}
    lanes.step(0, 0.0)
    tensors |= {f"buffer {name}": tensor.clone() for name, tensor in lanes.buffers.items()}
    tensors |= {
        f"second gradient of {name}": tensor for name, tensor in lanes.gradients(lanes.batch_size).items()
    }
    return {**tensors, "evaluation": torch.from_numpy(lanes.evaluate())}


def _compared(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], dtype: str, device: str, words: str
) -> SelfTest:
    """Each tensor to a share of its largest entry, or of a hundredth of the largest of all gradients.

    A gradient that is zero but for rounding, as that of a bias before batch norm, has no share of its own.
    """
    tolerance = rounding(dtype, device)
    largest = max((float(t.abs().max()) for name, t in expected.items() if "gradient" in name), default=0.0)
    for name, tensor in expected.items():
        scale = float(tensor.abs().nan_to_num(posinf=0.0).max()) if tensor.numel() else 0.0
        allowed = tolerance * max(scale, largest / 100 if "gradient" in name else 0.0)
        difference = float(_difference(found[name], tensor).max()) if tensor.numel() else 0.0
        if not difference <= allowed:
            return SelfTest(
                False, f"{words} the {name}: by {difference:.2g}, where {allowed:.2g} is rounding"
            )
    return SelfTest(True)


def _difference(found: Tensor, expected: Tensor) -> Tensor:
    """0 where both are the same infinity or both are NaN, as in the mask of an attention."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    same = (found == expected) | (found.isnan() & expected.isnan())
    return torch.where(same, 0.0, (found.to(wide) - expected.to(wide)).abs())


def _seconds_of_step(lanes: Lanes, number: int) -> float:
    began = time.perf_counter()
    lanes.step(number * lanes.batch_size, 0.0)
    if lanes.device.type == "cuda":
        torch.cuda.synchronize(lanes.device)
    return time.perf_counter() - began
