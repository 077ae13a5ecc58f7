"""Optimizers on stacks: the parameters of K lanes in tensors of shape [K, ...], a learning rate per lane.

The updates are those of torch.optim, operation by operation, so that a lane follows the run it stands for:
rates and bias corrections stay in float64 until the last cast, as they do there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bscrit.engine.stacks import joined, rows_of, zeros_like_strided
from bscrit.recipe import Recipe

Stacks = list[Tensor]


class StackedOptimizer:
    """One optimizer for all lanes; they take their updates together, so they share the count of updates.

    Args:
        settings: an [optimizer] table; ValueError where it is none. Numbers, no expressions.
        lrs: (K,) rates at full strength.

    Attributes:
        settings: the table with its defaults filled in.
        lrs: (K,) float64.
        updates: applied so far.
        clipped: (K,) updates whose gradient `clip` shortened.
        moments: stacks per kind ("momentum", or "mean" and "square"), one per parameter, empty before the first
            update.
    """

    def __init__(self, settings: Mapping[str, Any], lrs: Sequence[float]) -> None:
        self.settings: Mapping[str, Any] = Recipe.read(settings).optimizer.at(1)
        self.lrs = torch.tensor(list(lrs), dtype=torch.float64)
        self.updates = 0
        self.clipped = torch.zeros(len(self.lrs), dtype=torch.int64)
        self.moments: dict[str, Stacks] = {}
        self._sizes: tuple[float, Stacks] | None = None  # rates as the last update had them

    @torch.no_grad()
    def step(self, parameters: Stacks, gradients: Stacks, factor: float = 1.0) -> None:
        """Apply one update in place, with rates `factor * lrs`."""
        if not parameters:
            return
        self.updates += 1
        if "clip" in self.settings:
            gradients = self._clip(gradients, self.settings["clip"])
        RULES[self.settings["use"]](self, parameters, gradients, factor)

    def clipped_shares(self) -> list[float] | None:
        """The share of each lane's updates that were clipped; None without `clip`."""
        return (self.clipped.double() / max(self.updates, 1)).tolist() if "clip" in self.settings else None

    def keep(self, rows: Sequence[int]) -> None:
        """Drop every lane but these."""
        state = self.state_dict(rows)
        self.lrs, self.clipped, self.moments = state["lrs"], state["clipped"], state["moments"]
        self._sizes = None

    def state_dict(self, rows: Sequence[int]) -> dict[str, Any]:
        """A copy of the state of these lanes, tensors with their strides."""
        return {
            "updates": self.updates,
            "lrs": self.lrs[list(rows)],
            "clipped": self.clipped[list(rows)],
            "moments": {
                kind: [rows_of(stack, rows) for stack in stacks] for kind, stacks in self.moments.items()
            },
        }

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]], device: torch.device) -> None:
        """Continue from one or several results of `state_dict`, whose lanes replace those there were.

        Raises:
            ValueError: states after different numbers of updates.
        """
        updates = {state["updates"] for state in states}
        if len(updates) != 1:
            raise ValueError(f"lanes after {sorted(updates)} updates can't go on together")
        self.updates = updates.pop()
        self.lrs, self._sizes = torch.cat([state["lrs"] for state in states]), None
        self.clipped = torch.cat([state["clipped"].to(device) for state in states])
        self.moments = {
            kind: [
                joined([stack.to(device) for stack in stacks])
                for stacks in zip(*(state["moments"][kind] for state in states), strict=True)
            ]
            for kind in states[0]["moments"]
        }

    def kept(self, kind: str, parameters: Stacks) -> Stacks:
        """The moments of one kind, zeros before the first update."""
        if kind not in self.moments:
            self.moments[kind] = [zeros_like_strided(parameter) for parameter in parameters]
        return self.moments[kind]

    def sizes(self, parameters: Stacks, factor: float) -> Stacks:
        """The rates, shaped for each parameter; cast anew where they change."""
        if self._sizes is None or self._sizes[0] != factor:
            self._sizes = factor, _per_lane(self.lrs * factor, parameters)
        return self._sizes[1]

    def _clip(self, gradients: Stacks, most: float) -> Stacks:
        """Gradients as torch.nn.utils.clip_grad_norm_ has them; NaN where the norm is no finite number."""
        norms = _norms(gradients)
        shares = most / (norms + 1e-6)
        self.clipped = self.clipped.to(norms.device) + (shares < 1)
        shares = torch.where(norms.isfinite(), shares.clamp(max=1), torch.nan)
        return list(torch._foreach_mul(gradients, _per_lane(shares, gradients)))


def _sgd(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks, factor: float) -> None:
    momentum = optimizer.settings["momentum"]
    gradients = _with_penalty(optimizer, parameters, gradients)
    if momentum:
        first = not optimizer.moments
        buffers = optimizer.kept("momentum", parameters)
        if first:
            torch._foreach_copy_(buffers, gradients)
        else:
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gradients)
        if optimizer.settings["nesterov"]:
            gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum))
        else:
            gradients = buffers
    torch._foreach_addcmul_(parameters, gradients, optimizer.sizes(parameters, factor), value=-1)


def _adam(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks, factor: float) -> None:
    _moments(optimizer, parameters, _with_penalty(optimizer, parameters, gradients), factor)


def _adamw(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks, factor: float) -> None:
    if decay := optimizer.settings["weight_decay"]:
        torch._foreach_mul_(parameters, _per_lane(1 - optimizer.lrs * factor * decay, parameters))
    _moments(optimizer, parameters, gradients, factor)


def _moments(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks, factor: float) -> None:
    """The update that Adam and AdamW share."""
    beta1, beta2 = optimizer.settings["beta1"], optimizer.settings["beta2"]
    means, squares = (optimizer.kept(kind, parameters) for kind in ("mean", "square"))
    torch._foreach_lerp_(means, gradients, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_div_(denominators, (1 - beta2**optimizer.updates) ** 0.5)
    torch._foreach_add_(denominators, optimizer.settings["eps"])
    rates = optimizer.lrs * factor / (1 - beta1**optimizer.updates)
    updates = torch._foreach_mul(means, _per_lane(rates, parameters))
    torch._foreach_addcdiv_(parameters, updates, denominators, value=-1)


def _rmsprop(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks, factor: float) -> None:
    alpha, momentum = optimizer.settings["alpha"], optimizer.settings["momentum"]
    gradients = _with_penalty(optimizer, parameters, gradients)
    squares = optimizer.kept("square", parameters)
    torch._foreach_mul_(squares, alpha)
    torch._foreach_addcmul_(squares, gradients, gradients, value=1 - alpha)
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_add_(denominators, optimizer.settings["eps"])
    sizes = optimizer.sizes(parameters, factor)
    if momentum:
        buffers = optimizer.kept("momentum", parameters)
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_addcdiv_(buffers, gradients, denominators)
        torch._foreach_addcmul_(parameters, buffers, sizes, value=-1)
    else:
        updates = torch._foreach_mul(gradients, sizes)
        torch._foreach_addcdiv_(parameters, updates, denominators, value=-1)


Rule = Callable[[StackedOptimizer, Stacks, Stacks, float], None]
RULES: Mapping[str, Rule] = {"sgd": _sgd, "adam": _adam, "adamw": _adamw, "rmsprop": _rmsprop}
"""The update of each optimizer of `bscrit.recipe`."""


def _with_penalty(optimizer: StackedOptimizer, parameters: Stacks, gradients: Stacks) -> Stacks:
    """Gradients of the loss with its L2 penalty."""
    decay = optimizer.settings["weight_decay"]
    return list(torch._foreach_add(gradients, parameters, alpha=decay)) if decay else gradients


def _norms(gradients: Stacks) -> Tensor:
    """(K,) float64: each lane's norm over all parameters, by sums that don't depend on the other lanes."""
    lanes = torch.cat([gradient.double().reshape(len(gradient), -1) for gradient in gradients], dim=1)
    return torch.stack([torch.linalg.vector_norm(lane) for lane in lanes])


def _per_lane(values: Tensor, parameters: Stacks) -> Stacks:
    """(K,) float64 values cast once and shaped [K, 1, ...] for each parameter."""
    cast = {
        (dtype, device): values.to(dtype=dtype, device=device)
        for dtype, device in {(parameter.dtype, parameter.device) for parameter in parameters}
    }
    return [
        cast[parameter.dtype, parameter.device].view(-1, *(1,) * (parameter.dim() - 1))
        for parameter in parameters
    ]
