"""Checks before training: whether lanes of a workload compute what single runs would, and how fast.

A vectorised pass is silently wrong for some models (a buffer that forward replaces, the padding row of an
embedding), refuses others (LSTM, dropout), and is slower for some. And a batch made of micro-batches is one
batch only if the losses are sums over examples.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.engine.lanes import Lanes
from bscrit.engine.replay import Replay, replayable
from bscrit.engine.workload import Workload
from bscrit.errors import in_short

WORTH_IT = 1.15
WARM = 3  # steps in which one is counted, one is recorded and one proves
MOST_LANES_TIMED = 32


@dataclass(frozen=True)
class Choice:
    """An engine, why, and how many times as fast per lane "vmap" was where both were timed."""

    engine: str
    reason: str
    speedup: float | None = None


def resting(
    workload: Workload,
    engine: str,
    batch_size: int,
    optimizer: Mapping[str, Any],
    seeds: Sequence[int] = (0, 1),
    **compute: Any,
) -> Lanes:
    """Lanes at rate 0, whose steps leave parameters alone."""
    lrs = [0.0] * len(seeds)
    return Lanes(
        workload, seeds=seeds, lrs=lrs, batch_size=batch_size, optimizer=optimizer, engine=engine, **compute
    )


def self_test(workload: Workload, batch_size: int, optimizer: Mapping[str, Any], **compute: Any) -> str:
    """The first difference of two lanes through "vmap" from the same two as single modules; "" where there is none.

    Compared are gradients, buffers and evaluation, on two batches: a lost buffer shows in the second one only.

    Args:
        compute: dtype, device and micro_batch, as `Lanes` has them.
    """
    single = resting(workload, "loop", batch_size, optimizer, **compute)
    expected = _two_batches(single)
    try:
        vectorised = _two_batches(resting(workload, "vmap", batch_size, optimizer, **compute))
    except Exception as error:
        # What single modules just did can't be the workload's own mistake.
        return f"can't be vectorised: {in_short(error)}"
    return _compared(vectorised, expected, single.rounding, "vectorised and single runs differ in")


def accumulation_test(
    workload: Workload, batch_size: int, optimizer: Mapping[str, Any], **compute: Any
) -> str:
    """The first difference of the gradient of a batch in two or three parts (uneven ones where 3 doesn't divide).

    "" where there is none, and where batches are never split or the model draws random numbers besides dropout, which
    is switched off.
    """
    if not workload.sums_over_examples or batch_size == 1:
        return ""
    repeated = _with_one_batch(workload)
    whole = resting(repeated, "loop", batch_size, optimizer, **compute)
    expected = whole.gradients(0)
    for size in dict.fromkeys((-(-batch_size // 2), -(-batch_size // 3))):
        parts = resting(repeated, "loop", batch_size, optimizer, **compute, micro_batch=size)
        words = f"{batch_size} examples at once and in parts of {size} differ in"
        if difference := _compared(parts.gradients(0), expected, whole.rounding, words):
            again = whole.gradients(batch_size)
            same = all(torch.equal(again[name], tensor) for name, tensor in expected.items())
            return difference if same else ""
    return ""


def choose_engine(
    workload: Workload,
    batch_size: int,
    lanes: int,
    *,
    optimizer: Mapping[str, Any],
    seconds: float = 0.3,
    **compute: Any,
) -> Choice:
    """The vectorised engine where it is right (`self_test`) and 1.15 times as fast per lane, else the loop.

    Both take turns: two lanes in the loop and all (32 at most, fewer if steps are long) through vmap; the fastest step
    counts. Timing begins with the first replayed step and goes on for three to six of them, about `seconds`. Where
    steps take a good part of that, it doesn't try.
    """
    if lanes == 1:
        return Choice("loop", "one lane")
    often = 1 if replayable(workload) else inf
    loop = resting(workload, "loop", batch_size, optimizer, **compute, replay=Replay(workload, often))
    _seconds_of_step(loop, 0)
    slow = _seconds_of_step(loop, 1)
    if slow < seconds:
        slow = min(_seconds_of_step(loop, step) for step in range(2, WARM + 2))
    if slow > seconds / 10:
        return Choice("loop", f"a step of one lane takes {slow / 2:.2g} s, in which vectorising saves little")
    if difference := self_test(workload, batch_size, optimizer, **compute):
        return Choice("loop", difference)
    timed = min(lanes, MOST_LANES_TIMED, max(2, int(seconds / 5 / (slow / 2))))
    replay = Replay(workload, often)
    vectorised = resting(
        workload,
        "vmap",
        batch_size,
        optimizer,
        [0, 1] * (timed // 2) + [0] * (timed % 2),
        **compute,
        replay=replay,
    )
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


def _with_one_batch(workload: Workload) -> Workload:
    """The workload with its first batch as every batch, and without dropout."""

    def model(seed: int) -> nn.Module:
        made = workload.model(seed)
        for module in made.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
        return made

    def batch(seed: int, start: int, size: int) -> Any:  # noqa: ARG001 (every step has the first one)
        return workload.batch(seed, 0, size)

    repeated = copy.copy(workload)
    repeated.model, repeated.batch = model, batch  # type: ignore[method-assign]
    return repeated


def _two_batches(lanes: Lanes) -> dict[str, Tensor]:
    """Buffers after a step whose rate is zero, which leaves the parameters alone."""
    tensors = {f"gradient of {name}": tensor for name, tensor in lanes.gradients(0).items()}
    lanes.step(0, 0.0)
    tensors |= {f"buffer {name}": tensor.clone() for name, tensor in lanes.stack.buffers.items()}
    second = lanes.gradients(lanes.batch_size)
    tensors |= {f"second gradient of {name}": tensor for name, tensor in second.items()}
    return {**tensors, "evaluation": torch.from_numpy(lanes.evaluate())}


def _compared(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float, words: str
) -> str:
    """Each tensor to a share of its largest entry, or of a hundredth of the largest of all gradients.

    A gradient that is zero but for rounding, as that of a bias before batch norm, has no share of its own.
    """
    filled = {name: tensor for name, tensor in expected.items() if tensor.numel()}
    largest = max((float(t.abs().max()) for name, t in filled.items() if "gradient" in name), default=0.0)
    for name, tensor in filled.items():
        scale = float(tensor.abs().nan_to_num(posinf=0.0).max())
        allowed = tolerance * max(scale, largest / 100 if "gradient" in name else 0.0)
        difference = float(_difference(tensors[name], tensor).max())
        if not difference <= allowed:
            return f"{words} the {name}: by {difference:.2g}, where {allowed:.2g} is rounding"
    return ""


def _difference(tensor: Tensor, expected: Tensor) -> Tensor:
    """0 where both are the same infinity or both are NaN, as in the mask of an attention."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    same = (tensor == expected) | (tensor.isnan() & expected.isnan())
    return torch.where(same, 0.0, (tensor.to(wide) - expected.to(wide)).abs())


def _seconds_of_step(lanes: Lanes, number: int) -> float:
    began = time.perf_counter()
    lanes.step(number * lanes.batch_size, 0.0)
    if lanes.device.type == "cuda":
        torch.cuda.synchronize(lanes.device)
    return time.perf_counter() - began
