"""Functions of tensors that are called again and again, replayed from recordings that proved to give the same bits.

A step of a small model takes most of its time in Python modules, vmap and autograd, not in arithmetic. So what an
engine computes from tensors (gradients, gradients of groups, evaluations) goes through `Replay`. A function that has
been called often with tensors of the same shapes is recorded (recording.py), and at the next calls the recording runs
on copies beside the ordinary call: on other batches, so that what depends on the data in a way that a recording
cannot hold shows. It takes over if

- all results, and all tensors that were written into, are the same to the last bit (to rounding on a GPU),
- the ordinary call left everything else as it was: attributes of the modules and of the workload (a counter, a
  running mean that is no buffer), and the random numbers of Python and NumPy.

Otherwise the calls stay ordinary, and the reason is kept. Each module that shares a recording proves it for itself, and
again at growing intervals; with a workload whose attributes change calls are ordinary again. What a function reads
elsewhere cannot all be seen (a schedule in a nested object, a global): a workload must say that it is `replayable`.

With `execution = "compile"` torch.compile makes kernels from a recording (on a GPU, CUDA graphs of them): they round
otherwise, so they serve from the first call on, and are held against an ordinary call to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from bscrit.engine.calls import Call, Function, Inputs, Seeding, form
from bscrit.engine.precision import rounding
from bscrit.engine.proof import attributes, copied, same, surroundings, unchanged
from bscrit.engine.recording import NotRecorded, Recording, record
from bscrit.measure.nested import tensors_of

Kind = Literal["step", "evaluation", "sample"]
"""Steps are counted; a sample of the noise is taken seldom: it is recorded late and never compiled."""
OFTEN = 16  # recording takes as long as ten to thirty ordinary calls of a small model
SELDOM = 4  # as many times as often before a sample is recorded: there are few of them
ENOUGH = 8  # numbers that are compared before a recording takes over
AGAIN = 100  # replays until the next proof, and four times as many until each further one
MOST_RECORDINGS = 64


class Replay:
    """Recordings of functions, for one workload.

    Args:
        owner: the workload.
        often: calls after which one is recorded.
        compiles: whether functions are recorded at the first call, and compiled.
        rounding: by what results may differ where they need not have the same bits.

    Attributes:
        steps, replayed: calls of the kind "step" so far, and how many of them were replayed.
        refused: why functions are not replayed, by kind.
    """

    def __init__(
        self, owner: object, often: float = OFTEN, *, compiles: bool = False, rounding: float = 1e-3
    ) -> None:
        self._owner = ref(owner)
        self._often = often
        self._compiles = compiles
        self._rounding = rounding
        self._recorded: dict[Hashable, _Recorded] = {}
        self.steps = self.replayed = 0
        self.refused: dict[Kind, str] = {}

    def __call__(
        self,
        kind: Kind,
        function: Function,
        module: nn.Module,
        inputs: Inputs,
        batch: Any = (),
        settings: tuple[Hashable, ...] = (),
        seeding: Seeding = nullcontext,
    ) -> list[Tensor]:
        """`function(module, tensors, batch, *settings)`, replayed where that gives the same.

        Args:
            module: whose forward pass it is.
            settings: whatever else decides which operations they are.
            seeding: in which random numbers are drawn.
        """
        key = (function.__qualname__, settings, inputs.layout, form(batch))
        recorded = self._recorded.get(key) or self._begun(key)
        step = kind == "step"
        self.steps += step
        if recorded.serves(module):
            if unchanged(recorded.attributes, attributes(self._owner())):
                self.replayed += step
                return recorded.replay([*inputs.flat, *tensors_of(batch)], seeding)
            self._refuse(recorded, kind, "attributes of the workload change")
        call = Call(function, module, inputs, batch, settings, seeding)
        if recorded.refused or (self._often == inf and not self._compiles):
            return call.ordinary()
        compiles = self._compiles and kind != "sample"
        if compiles and recorded.run is None:
            self._record(recorded, kind, call, compiles)
        if recorded.run is not None:
            return self._proving(recorded, kind, call)
        recorded.calls += 1
        if recorded.calls <= self._often * (SELDOM if kind == "sample" else 1) or recorded.refused:
            return call.ordinary()
        # Recording is one call more than there are steps: of a function that counts its calls there is none.
        results = self._watched(recorded, kind, call)
        if not recorded.refused:
            self._record(recorded, kind, call, compiles)
        return results

    def facts(self, steps: int, replayed: int) -> dict[str, Any]:
        """For a record: the share of replayed steps since there were so many, and why something was not replayed."""
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in self.refused.items())
        return {
            "replayed": round((self.replayed - replayed) / max(self.steps - steps, 1), 3),
            **({"not_replayed": reasons} if reasons else {}),
        }

    def _begun(self, key: Hashable) -> _Recorded:
        while len(self._recorded) >= MOST_RECORDINGS:
            self._recorded.pop(next(iter(self._recorded)))
        return self._recorded.setdefault(key, _Recorded())

    def _record(self, recorded: _Recorded, kind: Kind, call: Call, compiles: bool) -> None:
        tensors = call.flat()
        try:
            if any(parameter._backward_hooks for parameter in call.module.parameters()):
                raise NotRecorded("hooks of parameters see no copies")
            with call.seeding():
                recording = record(call.of_tensors, [copied(tensor) for tensor in tensors])
            recorded.take(recording, compiles, on_gpu=any(tensor.is_cuda for tensor in tensors))
        except Exception as error:
            # What cannot be recorded goes on as it is, and says itself if something is wrong with it.
            self._refuse(recorded, kind, str(error))

    def _proving(self, recorded: _Recorded, kind: Kind, call: Call) -> list[Tensor]:
        """An ordinary call, with the recording on copies beside it."""
        tensors = call.flat()
        copies: list[Tensor] = []
        results: list[Tensor] = []
        with suppress(Exception):  # no memory for copies, or a recording that fails: it is refused
            copies = [copied(tensor) for tensor in tensors]
            results = recorded.replay(copies, call.seeding)
        expected = self._watched(recorded, kind, call)
        on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
        allowed = 0.0 if on_cpu and not recorded.compiled else self._rounding
        if not same([*results, *copies], [*expected, *tensors], allowed):
            self._refuse(recorded, kind, "a recording gave other results than an ordinary call")
        if recorded.refused:
            return expected
        recorded.proved(call.module, sum(map(Tensor.numel, expected)), attributes(self._owner()))
        if not recorded.compiled:
            return expected
        # A run that is resumed here must get what one gets that was compiled before.
        for tensor, copy in zip(tensors, copies, strict=True):
            if not torch.equal(tensor, copy):
                tensor.data.copy_(copy)
        return results

    def _watched(self, recorded: _Recorded, kind: Kind, call: Call) -> list[Tensor]:
        """An ordinary call, after which nothing is replayed if it changed anything besides its tensors."""
        before = surroundings(self._owner(), call.module)
        results = call.ordinary()
        if before != surroundings(self._owner(), call.module):
            self._refuse(recorded, kind, "a call changes attributes or random numbers")
        return results

    def _refuse(self, recorded: _Recorded, kind: Kind, reason: str) -> None:
        recorded.refused, recorded.run = True, None
        self.refused.setdefault(kind, reason)


def replay_of(
    owner: object, dtype: str, device: str, execution: str = "replay", splits: bool = True
) -> Replay:
    """The recordings of a workload, kept as long as it is.

    Args:
        execution: "replay", for a workload that is replayable; "compile"; "eager", always ordinary.
    """
    often = OFTEN if execution != "eager" and replayable(owner) else inf
    made = Replay(owner, often, compiles=execution == "compile", rounding=rounding(dtype, device))
    try:
        return _REPLAYS.setdefault(owner, {}).setdefault((dtype, device, execution, splits), made)
    except TypeError:  # no key of a dictionary
        return made


def replayable(owner: object) -> bool:
    """Whether a workload says of itself that it is; one that is derived from it must say so again."""
    return bool(vars(type(owner)).get("replayable", False))


@dataclass
class _Recorded:
    """The calls of one key: how many there were, and their recording once there is one.

    Attributes:
        compared: how many of its numbers each module has compared with those of ordinary calls.
        due, interval: replays until the next proof, and from that one to the next.
        attributes: of the workload, at the last proof.
    """

    calls: int = 0
    run: Callable[..., list[Tensor]] | None = None
    draws: bool = False
    compiled: bool = False
    refused: bool = False
    compared: WeakKeyDictionary[nn.Module, int] = field(default_factory=WeakKeyDictionary)
    due: int = AGAIN
    interval: int = AGAIN
    attributes: list[Any] = field(default_factory=list)

    def take(self, recording: Recording, compiles: bool, *, on_gpu: bool) -> None:
        self.draws, self.compiled = recording.draws, compiles
        self.run = _compiled(recording, on_gpu) if compiles else recording.module.forward

    def serves(self, module: nn.Module) -> bool:
        """Whether the recording may stand for a call of this module's."""
        return self.run is not None and self.due > 0 and self.compared.get(module, 0) >= ENOUGH

    def proved(self, module: nn.Module, numbers: int, attributes: list[Any]) -> None:
        self.compared[module] = self.compared.get(module, 0) + (ENOUGH if self.compiled else numbers)
        self.attributes = attributes
        if self.due <= 0:
            self.interval *= 4
            self.due = self.interval

    def replay(self, tensors: Sequence[Tensor], seeding: Seeding) -> list[Tensor]:
        assert self.run is not None
        self.due -= 1
        with torch.no_grad(), seeding() if self.draws else nullcontext():
            return self.run(*tensors)


def _compiled(recording: Recording, on_gpu: bool) -> Callable[..., list[Tensor]]:
    kernels = torch.compile(recording.module, dynamic=False, mode="reduce-overhead" if on_gpu else None)
    # The next replay of a CUDA graph writes into the same results.
    return lambda *tensors: [tensor.clone() if on_gpu else tensor for tensor in kernels(*tensors)]


_REPLAYS: WeakKeyDictionary[object, dict[tuple[str, str, str, bool], Replay]] = WeakKeyDictionary()
