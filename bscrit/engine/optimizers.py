"""Optimizers on stacks: the parameters of K lanes in tensors of shape [K, ...], a learning rate per lane.

The updates are those of torch.optim, operation by operation, so that a lane follows the run it stands for:
rates and bias corrections stay in float64 until the last cast, as they do there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bscrit.engine.stacks import joined, rows_of, zeros_like_strided
from bscrit.errors import nearest

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    "adam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
}


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with torch's defaults filled in.

    Raises:
        ValueError: unknown optimizer or key, or a value out of its range; the sentence names the key.
    """
    use = settings.get("use", "sgd")
    if use not in DEFAULTS:
        raise ValueError(f"use = {use!r} is no optimizer; {nearest(str(use), DEFAULTS)}")
    known = DEFAULTS[use]
    for key in settings:
        if key not in known and key != "use":
            raise ValueError(f"{key} is no setting of {use}; {nearest(key, known)}")
    values = {"use": use, **known, **settings}
    for key, value in values.items():
        if key == "use":
            continue
        if key == "nesterov":
            if not isinstance(value, bool):
                raise ValueError(f"nesterov = {value!r} must be true or false")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} = {value!r} must be a number")
        elif key in ("beta1", "beta2", "momentum") and not 0 <= value < 1:
            raise ValueError(f"{key} = {value} must be at least 0 and below 1")
        elif not 0 <= value < float("inf"):
            raise ValueError(f"{key} = {value} must be finite and not negative")
    if values.get("nesterov") and values["momentum"] == 0:
        raise ValueError("nesterov = true needs a momentum above 0")
    return values


class StackedOptimizer:
    """One optimizer for all lanes; they take their updates together, so they share the count of updates.

    Attributes:
        lrs: (K,) float64, the rates at full strength.
        updates: applied so far.
        moments: per kind ("momentum", or "mean" and "square"), one stack per parameter, empty before the
            first update.
    """

    def __init__(self, settings: Mapping[str, Any], lrs: Sequence[float]) -> None:
        self.settings = resolve(settings)
        self.lrs = torch.tensor(list(lrs), dtype=torch.float64)
        self.updates = 0
        self.moments: dict[str, list[Tensor]] = {}
        self._steps: tuple[float, list[Tensor]] | None = None  # rates as the last update had them

    @torch.no_grad()
    def step(self, parameters: list[Tensor], gradients: list[Tensor], factor: float = 1.0) -> None:
        """Apply one update in place, with rates `factor * lrs`."""
        if not parameters:
            return
        self.updates += 1
        if self.settings["use"] == "sgd":
            self._sgd(parameters, gradients, factor)
        else:
            self._adam(parameters, gradients, self.lrs * factor)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop every lane but these."""
        self.lrs, self._steps = self.lrs[list(rows)], None
        self.moments = {kind: [rows_of(stack, rows) for stack in s] for kind, s in self.moments.items()}

    def state_dict(self, rows: Sequence[int]) -> dict[str, Any]:
        """A copy of the state of these lanes, tensors with their strides."""
        moments = {kind: [rows_of(stack, rows) for stack in s] for kind, s in self.moments.items()}
        return {"updates": self.updates, "lrs": self.lrs[list(rows)], "moments": moments}

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]], device: torch.device) -> None:
        """Continue from one or several results of `state_dict`, whose lanes replace those there were.

        Raises:
            ValueError: states after different numbers of updates.
        """
        updates = {state["updates"] for state in states}
        if len(updates) != 1:
            raise ValueError(f"lanes after {sorted(updates)} updates can't go on together")
        self.updates = updates.pop()
        self.lrs, self._steps = torch.cat([state["lrs"] for state in states]), None
        self.moments = {
            kind: [
                joined([stack.to(device) for stack in stacks])
                for stacks in zip(*(state["moments"][kind] for state in states), strict=True)
            ]
            for kind in states[0]["moments"]
        }

    def _sgd(self, parameters: list[Tensor], gradients: list[Tensor], factor: float) -> None:
        momentum, decay = self.settings["momentum"], self.settings["weight_decay"]
        if decay:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
        if momentum:
            if self.moments:
                buffers = self.moments["momentum"]
                torch._foreach_mul_(buffers, momentum)
                torch._foreach_add_(buffers, gradients)
            else:
                buffers = self._moments("momentum", parameters)
                torch._foreach_copy_(buffers, gradients)
            if self.settings["nesterov"]:
                gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum))
            else:
                gradients = buffers
        if self._steps is None or self._steps[0] != factor:
            self._steps = factor, _per_lane(self.lrs * factor, parameters)
        torch._foreach_addcmul_(parameters, gradients, self._steps[1], value=-1)

    def _adam(self, parameters: list[Tensor], gradients: list[Tensor], rates: Tensor) -> None:
        beta1, beta2 = self.settings["beta1"], self.settings["beta2"]
        decay = self.settings["weight_decay"]
        if decay and self.settings["use"] == "adamw":
            torch._foreach_mul_(parameters, _per_lane(1 - rates * decay, parameters))
        elif decay:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
        means, squares = (self._moments(kind, parameters) for kind in ("mean", "square"))
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, (1 - beta2**self.updates) ** 0.5)
        torch._foreach_add_(denominators, self.settings["eps"])
        sizes = _per_lane(rates / (1 - beta1**self.updates), parameters)
        torch._foreach_addcdiv_(parameters, torch._foreach_mul(means, sizes), denominators, value=-1)

    def _moments(self, kind: str, parameters: list[Tensor]) -> list[Tensor]:
        if kind not in self.moments:
            self.moments[kind] = [zeros_like_strided(parameter) for parameter in parameters]
        return self.moments[kind]


def _per_lane(values: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """(K,) float64 values cast once and shaped [K, 1, ...] for each parameter."""
    cast = {
        (dtype, device): values.to(dtype=dtype, device=device)
        for dtype, device in {(parameter.dtype, parameter.device) for parameter in parameters}
    }
    return [
        cast[parameter.dtype, parameter.device].view(-1, *(1,) * (parameter.dim() - 1))
        for parameter in parameters
    ]
