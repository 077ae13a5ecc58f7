"""Calls that repeat, replayed from a recording once it has proved that it gives the same bits.

A step of a small model takes most of its time in Python modules, vmap and autograd, not in arithmetic. So a
function that has been called often with tensors of the same shapes is recorded (recording.py), and at the next
call the recording runs on copies beside the ordinary call: on another batch, so that whatever depends on the
data in a way that a recording cannot hold shows. It takes over if

- all results, and all tensors that were written into, are the same to the last bit (to rounding on a GPU),
- the ordinary call left everything else as it was: attributes of the modules and of the workload (a counter, a
  running mean that is no buffer), and the random numbers of Python and NumPy.

Otherwise the calls stay ordinary. Each module that shares a recording proves it once for itself, and a workload
whose attributes change is recorded anew. What a function reads elsewhere cannot all be seen (a schedule in a nested
object, a global): a workload must say that it is `replayable`.

With `execution = "compile"` torch.compile makes kernels from a recording (on a GPU, CUDA graphs of them): they round
otherwise, so they serve from the first call on, and are held against an ordinary call to rounding.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from bscrit.engine.precision import rounding
from bscrit.engine.recording import Function, Recording, record

Seeding = Callable[[], AbstractContextManager[None]]
OFTEN = 24  # recording takes as long as some fifty ordinary calls of a small model
MOST_RECORDINGS = 64
MOST_MOVES = 3


class Replay:
    """Recordings of calls, for one workload.

    Args:
        owner: whose methods the functions call.
        often: calls after which one is recorded.
        compiles: whether functions are recorded at the first call, and compiled.
        rounding: by what results may differ where they need not have the same bits.
    """

    def __init__(
        self, owner: object, often: float = OFTEN, *, compiles: bool = False, rounding: float = 1e-3
    ) -> None:
        self._owner = weakref.ref(owner)
        self._often = often
        self._compiles = compiles
        self._rounding = rounding
        self._kept: dict[Hashable, _Kept] = {}

    def __call__(
        self,
        key: Hashable,
        module: nn.Module,
        tensors: Sequence[Tensor],
        function: Function,
        ordinary: Callable[[], list[Tensor]],
        seeding: Seeding | None = None,
        *,
        rare: bool = False,
    ) -> list[Tensor]:
        """What `ordinary()` returns and does to `tensors`, replayed where that gives the same.

        Args:
            key: says all that the operations depend on, shapes and strides of `tensors` included (`layout`).
            module: whose forward pass it is.
            tensors: all that is computed from, in the order of the arguments of `function`.
            function: the same computation as a function of these tensors.
            seeding: in which `ordinary` draws its random numbers; None where it may draw none.
            rare: called too seldom to be compiled.
        """
        compiles = self._compiles and not rare
        kept = self._kept.get(key)
        if kept is None:
            kept = self._begun(key, tensors)
        if module in kept.proved and kept.run is not None:
            if _unchanged(kept.attributes, self._attributes()):
                return kept.replayed(tensors, seeding)
            kept.moved()
        if kept.refused:
            return ordinary()
        if compiles and kept.run is None:
            kept.record(function, tensors, seeding, compiled=True)
        if kept.run is not None:
            return self._tried(kept, module, tensors, ordinary, seeding)
        kept.calls += 1
        if kept.calls <= self._often or kept.refused:
            return ordinary()
        before = self._surroundings(module)
        result = ordinary()
        if isinstance(key, tuple) and "evaluation" in key and _takes_fast_path(module):
            kept.refuse()
            return result
        # Recording is one call more than there are steps: of a function that counts its calls there is none.
        if before == self._surroundings(module):
            kept.record(function, tensors, seeding)
        else:
            kept.refuse()
        return result

    def _begun(self, key: Hashable, tensors: Iterable[Tensor]) -> _Kept:
        while len(self._kept) >= MOST_RECORDINGS:
            self._kept.pop(next(iter(self._kept)))
        dense = all(t.layout is torch.strided and not t.is_conj() and not t.is_neg() for t in tensors)
        return self._kept.setdefault(key, _Kept(refused=not dense))

    def _tried(
        self,
        kept: _Kept,
        module: nn.Module,
        tensors: Sequence[Tensor],
        ordinary: Callable[[], list[Tensor]],
        seeding: Seeding | None,
    ) -> list[Tensor]:
        """An ordinary call, with the recording on copies beside it."""
        copies: list[Tensor] = []
        found: list[Tensor] = []
        with suppress(Exception):  # no memory for copies, or a recording that fails: it is refused
            copies = [_copied(tensor) for tensor in tensors]
            found = kept.replayed(copies, seeding)
        before = self._surroundings(module)
        expected = ordinary()
        alone = before == self._surroundings(module)
        on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
        allowed = 0.0 if on_cpu and not kept.compiled else self._rounding
        if not alone or not _same([*found, *copies], [*expected, *tensors], allowed):
            kept.refuse()
            return expected
        kept.proved.add(module)
        kept.attributes = self._attributes()
        if not kept.compiled:
            return expected
        # A run that is resumed here must get what one gets that was compiled before.
        for tensor, copy in zip(tensors, copies, strict=True):
            if not torch.equal(tensor, copy):
                tensor.data.copy_(copy)
        return found

    def _attributes(self) -> list[Any]:
        """The values of the workload's attributes: another one may mean other operations."""
        return list(getattr(self._owner(), "__dict__", {}).values())

    def _surroundings(self, module: nn.Module) -> list[Any]:
        """What a call could change besides its tensors, as far as it can be seen."""
        numpy: Any = np.random.get_state()
        seen: list[Any] = [random.getstate(), numpy[1].tobytes(), *numpy[2:]]
        for one in (self._owner(), *module.modules()):
            seen += [(name, _identity(value)) for name, value in getattr(one, "__dict__", {}).items()]
        return seen


def replay_of(owner: object, dtype: str, device: str, execution: str = "replay") -> Replay:
    """The recordings of a workload, kept as long as it is.

    Args:
        execution: "replay", for a workload that is replayable; "compile"; "eager", always ordinary.
    """
    often = OFTEN if execution != "eager" and replayable(owner) else inf
    made = Replay(owner, often, compiles=execution == "compile", rounding=rounding(dtype, device))
    try:
        return _REPLAYS.setdefault(owner, {}).setdefault((dtype, device, execution), made)
    except TypeError:  # no key of a dictionary
        return made


def replayable(owner: object) -> bool:
    """Whether a workload says of itself that it is; one that is derived from it must say so again."""
    return bool(vars(type(owner)).get("replayable", False))


def layout(tensors: Iterable[Tensor]) -> tuple[Hashable, ...]:
    """What of tensors decides which operations they take."""
    return tuple((t.shape, t.dtype, _strides(t), t.is_conj(), t.is_neg()) for t in tensors)


def form(batch: Any) -> Hashable:
    """What of a batch decides which operations it takes: which tensors it has where, and their layout."""
    if isinstance(batch, Tensor):
        return layout([batch])
    if isinstance(batch, dict):
        return tuple((key, form(part)) for key, part in batch.items())
    return type(batch), *map(form, batch)


def _strides(tensor: Tensor) -> Hashable:
    return tensor.stride() if tensor.layout is torch.strided else tensor.layout


@dataclass
class _Kept:
    """What is known of the calls of one key."""

    calls: int = 0
    run: Function | None = None
    seeded: bool = False
    compiled: bool = False
    refused: bool = False
    proved: WeakSet[nn.Module] = field(default_factory=WeakSet)
    attributes: list[Any] = field(default_factory=list)
    moves: int = 0

    def record(
        self,
        function: Function,
        tensors: Sequence[Tensor],
        seeding: Seeding | None,
        *,
        compiled: bool = False,
    ) -> None:
        try:
            with (seeding or nullcontext)():
                recording = record(function, [_copied(tensor) for tensor in tensors])
        except Exception:
            # What cannot be recorded goes on as it is, and says itself if something is wrong with it.
            self.refuse()
            return
        self.run, self.seeded = recording.module.forward, recording.draws
        self.compiled = compiled
        if compiled:
            self.run = _compiled(recording, on_gpu=any(tensor.is_cuda for tensor in tensors))

    def replayed(self, tensors: Sequence[Tensor], seeding: Seeding | None) -> list[Tensor]:
        assert self.run is not None
        with torch.no_grad(), seeding() if self.seeded and seeding else nullcontext():
            return self.run(*tensors)

    def moved(self) -> None:
        """Record anew; a workload that changes all the time is not worth it."""
        self.proved.clear()
        self.calls, self.run = 0, None
        self.moves += 1
        if self.moves > MOST_MOVES:
            self.refuse()

    def refuse(self) -> None:
        self.refused, self.run = True, None


def _compiled(recording: Recording, *, on_gpu: bool) -> Function:
    kernels = torch.compile(recording.module, dynamic=False, mode="reduce-overhead" if on_gpu else None)

    def run(*tensors: Tensor) -> list[Tensor]:
        # The next replay of a CUDA graph writes into the same results.
        return [tensor.clone() if on_gpu else tensor for tensor in kernels(*tensors)]

    return run


def _takes_fast_path(module: nn.Module) -> bool:
    """Whether torch evaluates it by a kernel of its own, which it takes for plain tensors only."""
    encoders = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    return any(isinstance(one, encoders) for one in module.modules())


def _unchanged(before: Sequence[Any], after: Sequence[Any]) -> bool:
    if len(before) != len(after):
        return False
    return all(map(is_, before, after)) or all(
        one is other or (isinstance(one, int | float | str) and type(one) is type(other) and one == other)
        for one, other in zip(before, after, strict=True)
    )


def _same(found: Sequence[Tensor], expected: Sequence[Tensor], allowed: float) -> bool:
    """Whether all tensors are the same, in the same memory order where nothing is allowed."""
    if len(found) != len(expected):
        return False
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        if not allowed and one.stride() != other.stride():
            return False
        scale = float(other.detach().abs().nan_to_num(posinf=0.0).max()) if allowed and other.numel() else 0.0
        if not torch.allclose(one, other, rtol=0.0, atol=allowed * scale, equal_nan=True):
            return False
    return True


def _copied(tensor: Tensor) -> Tensor:
    """A copy in the same memory order; what lanes share is not copied, as nothing can be written into it."""
    tensor = tensor.detach()
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
        tensor
    )


def _identity(value: Any) -> Hashable:
    """Changes when another value takes its place, or that of an element, or a tensor is written into."""
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, dict):
        return tuple(map(id, value.values()))
    return tuple(map(id, value)) if isinstance(value, list | tuple | set) else id(value)


_REPLAYS: WeakKeyDictionary[object, dict[tuple[str, str, str], Replay]] = WeakKeyDictionary()
