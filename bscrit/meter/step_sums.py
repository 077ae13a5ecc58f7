"""Sums of a loop's own gradients in one measured step: seen by hooks, added over micro-batches and ranks.

A backward adds d_i = c w_i g_i to a parameter's gradient: g_i is the mean gradient of micro-batch i, w_i its
weight in the update, c common to all. Data-parallel training averages over R ranks, so that the update sees

    G_B = (1/R) sum d = sum w g / W,   W = sum w over all micro-batches of all ranks,   c = R/W,

and whatever the loop divides its losses by, g_i = (W/R) d_i/w_i has G_B as its mean. `Sums` takes g_i R/W.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bscrit.measure.sums import Sample, Sums

Weights = Literal["equal", "examples", "examples_per_rank"]
WEIGHTS: tuple[Weights, ...] = ("equal", "examples", "examples_per_rank")
CHUNK = 2**24
"""Numbers that ranks send each other, and that are squared, at a time: 64 MB in float32."""
PIECE = 2**18
"""Numbers that are squared at a time on a CPU: what its cache holds."""


@dataclass(frozen=True)
class StepOutcome:
    """A measured step, added over all ranks.

    Attributes:
        sample: None where there is none.
        examples: that the ranks counted, together.
        groups: of which the step consisted.
        fault: a rank's loop did not keep to the rules.
    """

    sample: Sample | None
    examples: int
    groups: int
    fault: bool


class StepSums:
    """Sums over the micro-batches of one step on this rank.

    Attributes:
        fault: what the loop did that makes the sums worthless, a key of the meter's complaints.
        own: the gradients are none of the loop's own.
        ready: false where the preconditioner has no weights for any parameter yet.

    Args:
        parameters: to be measured; hooks stay on them until `close`.
        preconditioner: gives, when the first gradient is seen, the weights of the squares per parameter; None for
            parameters without. Without a preconditioner, squares are |g|^2.
        per_rank: shares are relative to those of the same rank, which count alike; else to those of all ranks.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        preconditioner: Callable[[], Sequence[Tensor | None]] | None,
        per_rank: bool,
    ) -> None:
        self.parameters = parameters
        self.preconditioner = preconditioner
        self.per_rank = per_rank
        self.fault = ""
        self.own = False
        self.ready = True
        self._handles = [_hook_on(p, partial(self._hook, i)) for i, p in enumerate(parameters)]
        self._clear()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def restart(self) -> None:
        """Forget the loop's own gradients and look away: somebody puts others by `see` and `end_group`."""
        self.close()
        self._clear()
        self.own, self.per_rank, self.fault = True, True, ""

    def see(self, index: int, gradient: Tensor, factor: float = 1.0) -> None:
        """Add d = factor * gradient of one parameter, as the backward under way will accumulate it."""
        if self.fault:
            return
        if index in self._seen:
            self.fault = "twice"
            return
        self._seen.add(index)
        weight = None
        if self.preconditioner is not None:
            weight = self._weights()[index]
            if weight is None:
                return
        plain = real(gradient)
        square = _square(plain, weight) * factor**2
        if plain.device in self._now:
            self._now[plain.device] += square
        else:
            self._now[plain.device] = square
        if index in self._totals:
            self._totals[index].add_(plain, alpha=factor)
        else:
            self._totals[index] = plain.to(_wide(self.parameters[index]), copy=True).mul_(factor)

    def end_group(self, size: int, share: float, loss_scale: float) -> None:
        """The gradients seen since the last call are those of `size` examples."""
        if not self._seen:
            self.fault = self.fault or "unseen"
        if self._scales and self._scales[0] != loss_scale:
            self.fault = self.fault or "rescaled"
        self._squares.append(list(self._now.values()))
        self._sizes.append(size)
        self._shares.append(share)
        self._scales.append(loss_scale)
        self._seen.clear()
        self._now.clear()

    def outcome(self, examples: int, device: torch.device, group: dist.ProcessGroup | None) -> StepOutcome:
        """End the step; every rank of the group calls this.

        Args:
            examples: that this rank counted.
            device: on which ranks exchange numbers.
        """
        if self._seen:
            self.fault = self.fault or "open"
        self.close()
        unit = sum(self._shares) if self.per_rank else 1.0
        weights = [share / unit for share in self._shares]
        scale = self._scales[0] if self._scales else 1.0
        seen = [sum(float(part) for part in parts) for parts in self._squares]
        if not math.isfinite(scale) or scale <= 0:
            scale = math.nan
        sums = Sums(lanes=1)
        if weights and not self.fault:
            squares = [square / scale**2 / weight**2 for square, weight in zip(seen, weights, strict=True)]
            sums.put({"identity": torch.tensor([squares], dtype=torch.float64)}, [], self._sizes, weights)
        facts = [*sums.squares["identity"].tolist(), *sums.weights.tolist()]
        facts += [float(examples), float(len(weights)), float(bool(self.fault))]
        square, w, w_m, ww_m, all_examples, groups, faults = add_over_ranks(facts, device, group)
        sample = None
        if not faults and groups >= 2 and math.isfinite(square) and self.ready:
            sums.squares["identity"].fill_(square)
            sums.weights = torch.tensor([w, w_m, ww_m], dtype=torch.float64)
            length = math.sqrt(self._squared_total(scale, group))
            sums.total = [torch.tensor([[length]], dtype=torch.float64)]
            to_update = (w / ranks(group)) ** 2
            n_small, sq_small, n_big, sq_big = sums.samples()["identity"][0]
            sample = (n_small, sq_small * to_update, n_big, sq_big * to_update)
        self._clear()
        return StepOutcome(sample, round(all_examples), round(groups), bool(faults))

    def _clear(self) -> None:
        self._totals: dict[int, Tensor] = {}
        self._preconditioners: Sequence[Tensor | None] | None = None
        self._squares: list[list[Tensor]] = []
        self._sizes: list[int] = []
        self._shares: list[float] = []
        self._scales: list[float] = []
        self._seen: set[int] = set()
        self._now: dict[torch.device, Tensor] = {}

    def _hook(self, index: int, gradient: Tensor) -> None:
        """The hook of a parameter: sees the gradient of this backward alone, before it is accumulated and reduced."""
        with torch.no_grad():
            self.see(index, gradient.detach())

    def _squared_total(self, scale: float, group: dist.ProcessGroup | None) -> float:
        """|sum d|^2 over all ranks, the loss scale undone; chunk by chunk, so that little lies twice in memory."""
        squares: dict[torch.device, Tensor] = {}
        for chunk in _chunks(self.parameters):
            flat = torch.cat([self._total(index) for index in chunk])
            flat.mul_(1 / scale)
            if ranks(group) > 1:
                dist.all_reduce(flat, group=group)
            weight = None
            if self.preconditioner is not None:
                weight = torch.cat([_flat(self._weights()[index], self.parameters[index]) for index in chunk])
            square = _square(flat, weight)
            squares[flat.device] = squares[flat.device] + square if flat.device in squares else square
        return sum(float(square) for square in squares.values())

    def _total(self, index: int) -> Tensor:
        """Flat; zeros where no micro-batch of this rank reached the parameter."""
        return _flat(self._totals.pop(index, None), self.parameters[index])

    def _weights(self) -> Sequence[Tensor | None]:
        if self._preconditioners is None and self.preconditioner is not None:
            self._preconditioners = self.preconditioner()
            self.ready = any(weight is not None for weight in self._preconditioners)
        return self._preconditioners or []


def add_over_ranks(
    numbers: Sequence[float], device: torch.device, group: dist.ProcessGroup | None
) -> list[float]:
    """Each number added over the ranks of the group."""
    if ranks(group) == 1:
        return list(numbers)
    packed = torch.tensor(list(numbers), dtype=torch.float64, device=device)
    dist.all_reduce(packed, group=group)
    added: list[float] = packed.tolist()
    return added


def _hook_on(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle


def is_first_rank(group: dist.ProcessGroup | None) -> bool:
    return not _distributed() or dist.get_rank(group) == 0


def ranks(group: dist.ProcessGroup | None) -> int:
    return dist.get_world_size(group) if _distributed() else 1


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def real(values: Tensor) -> Tensor:
    """The same numbers, real and dense."""
    dense = values if values.layout == torch.strided else values.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def _wide(parameter: Tensor) -> torch.dtype:
    """The real type in which gradients of a parameter are added."""
    return torch.promote_types(parameter.dtype.to_real(), torch.float32)


def _flat(values: Tensor | None, parameter: Tensor) -> Tensor:
    """In one dimension; zeros instead of nothing."""
    if values is not None:
        return values.reshape(-1)
    numbers = parameter.numel() * (2 if parameter.is_complex() else 1)
    return torch.zeros(numbers, dtype=_wide(parameter), device=parameter.device)


def _square(values: Tensor, weight: Tensor | None) -> Tensor:
    """sum weight values^2, in float64 where the device has it, without waiting for the device."""
    exact = torch.float32 if values.device.type == "mps" else torch.float64
    piece = PIECE if values.device.type == "cpu" else CHUNK
    square = torch.zeros((), dtype=exact, device=values.device)
    flat, flat_weight = values.reshape(-1), None if weight is None else weight.reshape(-1)
    for start in range(0, flat.numel(), piece):
        part = slice(start, start + piece)
        wide = flat[part].to(exact)
        square += torch.dot(wide, wide if flat_weight is None else wide * flat_weight[part])
    return square


def _chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[int]]:
    """Indices of neighbours of one device and type, up to CHUNK numbers together."""
    chunk: list[int] = []
    numbers = 0
    for index, parameter in enumerate(parameters):
        same = chunk and (parameter.device, _wide(parameter)) == (
            parameters[chunk[0]].device,
            _wide(parameters[chunk[0]]),
        )
        if chunk and (not same or numbers + parameter.numel() > CHUNK):
            yield chunk
            chunk, numbers = [], 0
        chunk.append(index)
        numbers += parameter.numel()
    if chunk:
        yield chunk
