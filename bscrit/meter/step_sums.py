"""Sums of a loop's own gradients in one measured step: seen by hooks, added over micro-batches and ranks.

A backward adds d_i = c w_i g_i to a parameter's gradient: g_i is the mean gradient of micro-batch i, w_i its
weight in the update, c common to all. Data-parallel training averages over R ranks, so that the update sees

    G_B = (1/R) sum d = sum w g / W,   W = sum w over all micro-batches of all ranks,   c = R/W,

and whatever the loop divides its losses by, g_i = (W/R) d_i/w_i has G_B as its mean. With it, the sums are those of
`bscrit.measure.sums`, of which ranks exchange the numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bscrit.measure.sums import Sample
from bscrit.meter.flat import chunks, flat, read, real, squared_norm, wide
from bscrit.meter.ranks import add_over_ranks, fingerprint, of_all_ranks, ranks, twins

Weights = Literal["equal", "examples", "examples_per_rank"]
WEIGHTS: tuple[Weights, ...] = ("equal", "examples", "examples_per_rank")


@dataclass(frozen=True)
class StepOutcome:
    """A measured step, added over all ranks.

    Attributes:
        sample: None where there is none.
        examples: that the ranks counted, together.
        groups: of which the step consisted.
        fault: what makes the sums worthless, a key of the meter's complaints; "elsewhere" on another rank.
    """

    sample: Sample | None
    examples: int
    groups: int
    fault: str


@dataclass(frozen=True)
class _Group:
    """A micro-batch: |d|^2 by parameter, its examples, its weight in the update, and the scale of its loss."""

    squares: Mapping[int, Tensor]
    size: int
    share: float
    loss_scale: float


class StepSums:
    """Sums over the micro-batches of one step on this rank.

    Attributes:
        fault: what the loop did that makes the sums worthless, a key of the meter's complaints.
        own: the gradients are none of the loop's own.
        ready: false where the preconditioner has no weights for any parameter yet.
        divisor: that the shares add up to, where the loop knows it.

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
        self.divisor: float | None = None
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
        if index in self._now:
            self.fault = self.fault or "twice"
        if self.fault:
            return
        weight = None if self.preconditioner is None else self._weights()[index]
        if self.preconditioner is not None and weight is None:
            self._now[index] = torch.zeros((), dtype=torch.float64)
            return
        plain = real(gradient)
        self._now[index] = squared_norm(plain, weight) * factor**2
        if index in self._totals:
            self._totals[index].add_(plain, alpha=factor)
        else:
            self._totals[index] = plain.to(wide(self.parameters[index]), copy=True).mul_(factor)

    def end_group(self, size: int, share: float, loss_scale: float) -> None:
        """The gradients seen since the last call are those of `size` examples."""
        if not self._now:
            self.fault = self.fault or "unseen"
        if self._groups and self._groups[0].loss_scale != loss_scale:
            self.fault = self.fault or "rescaled"
        self._groups.append(_Group(dict(self._now), size, share, loss_scale))
        self._now.clear()

    def outcome(self, examples: int, device: torch.device, group: dist.ProcessGroup | None) -> StepOutcome:
        """End the step; every rank of the group calls this.

        Args:
            examples: that this rank counted.
            device: on which ranks exchange numbers.
        """
        if self._now:
            self.fault = self.fault or "open"
        self.close()
        shares = np.array([each.share for each in self._groups])
        if self.per_rank and not self._adds_up(float(shares.sum())):
            self.fault = self.fault or "divisor"
        scale = self._groups[0].loss_scale if self._groups else 1.0
        if not math.isfinite(scale) or scale <= 0:
            scale = math.nan
        squares = self._read_squares()
        marks = [fingerprint(row, self.parameters) for row in squares]
        sums = [0.0] * 4
        if not self.fault:
            w, m = shares / (shares.sum() if self.per_rank else 1.0), [each.size for each in self._groups]
            d = np.array([sum(row) for row in squares]) / scale**2
            sums = [(d / w).sum(), w.sum(), (w / m).sum(), (w * w / m).sum()]
        facts = [*sums, examples, len(squares), bool(self.fault), twins(marks)]
        square, w, w_m, ww_m, all_examples, groups, faults, alike = add_over_ranks(facts, device, group)
        fault = self.fault or ("elsewhere" if faults else "")
        if not fault and not self.per_rank and not self._adds_up(w):
            fault = "divisor"
        measured = not fault and groups >= 2 and math.isfinite(square)
        if measured:
            mine = sum(total for total, _ in marks), sum(mean for _, mean in marks)
            alike_ranks = twins(of_all_ranks(mine, device, group))
            if 2 * alike >= groups or 2 * alike_ranks >= ranks(group):
                fault = "same"
        sample = None
        if measured and not fault and self.ready:
            to_update = ranks(group) ** 2
            square_of_total = self._squared_total(scale, group)
            sample = (w / w_m, square * w / to_update, w * w / ww_m, square_of_total / to_update)
        self._clear()
        return StepOutcome(sample, round(all_examples), round(groups), fault)

    def _clear(self) -> None:
        self._totals: dict[int, Tensor] = {}
        self._preconditioners: Sequence[Tensor | None] | None = None
        self._groups: list[_Group] = []
        self._now: dict[int, Tensor] = {}

    def _adds_up(self, shares: float) -> bool:
        return self.divisor is None or self.own or math.isclose(shares, self.divisor)

    def _hook(self, index: int, gradient: Tensor) -> None:
        """The hook of a parameter: sees the gradient of this backward alone, before it is accumulated and reduced."""
        with torch.no_grad():
            self.see(index, gradient.detach())

    def _read_squares(self) -> list[list[float]]:
        """|d|^2 per group and parameter."""
        numbers = iter(read([square for each in self._groups for square in each.squares.values()]))
        rows = [{index: next(numbers) for index in each.squares} for each in self._groups]
        return [[row.get(index, 0.0) for index in range(len(self.parameters))] for row in rows]

    def _squared_total(self, scale: float, group: dist.ProcessGroup | None) -> float:
        """|sum d|^2 over all ranks, the loss scale undone; chunk by chunk, so that little lies twice in memory."""
        squares = []
        for chunk in chunks(self.parameters):
            # Zeros where no micro-batch of this rank reached the parameter.
            total = torch.cat([flat(self._totals.pop(i, None), self.parameters[i]) for i in chunk])
            total.mul_(1 / scale)
            if ranks(group) > 1:
                dist.all_reduce(total, group=group)
            weight = None
            if self.preconditioner is not None:
                weight = torch.cat([flat(self._weights()[i], self.parameters[i]) for i in chunk])
            squares.append(squared_norm(total, weight))
        return sum(read(squares))

    def _weights(self) -> Sequence[Tensor | None]:
        if self._preconditioners is None and self.preconditioner is not None:
            self._preconditioners = self.preconditioner()
            self.ready = any(weight is not None for weight in self._preconditioners)
        return self._preconditioners or []


def _hook_on(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle
