"""Gradients of losses that are one per example: of a batch, and of groups of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from bscrit.engine.calls import Inputs
from bscrit.engine.replay import Replay
from bscrit.engine.stacks import Stack
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.measure.holding import Places
from bscrit.measure.losses import check_losses
from bscrit.measure.nested import map_tensors, tensors_of

Reduce = Callable[[list[Tensor]], list[Tensor]]
MOST_EXPANDED = 2**20  # elements of parameters copied for groups


def gradients_of(total: Tensor, parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """
    Raises:
        UserError: a gradient that torch keeps sparse, by the name of its parameter.
    """
    leaves = list(parameters.values())
    gradients = list(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient.layout is not torch.strided:
            what = "has sparse gradients, which are not trained"
            raise UserError(
                f"parameter {name!r}", what, "make them dense: sparse=False in an embedding, or .to_dense()"
            )
    return gradients


def mean_losses(workload: Workload, returned: Any, batch: Any, divisor: int, *, lanes: bool) -> Tensor:
    """(Sum of losses)/divisor, or their mean where they are no sum over examples.

    Args:
        lanes: whether losses and batch have an axis of lanes in front, which is kept.

    Raises:
        UserError: losses that are not one per example.
    """
    count = tensors_of(batch)[0].shape[int(lanes)] if workload.sums_over_examples else None
    losses = check_losses(returned, (count,), f"{type(workload).__name__}.losses", leading=int(lanes))
    flat = losses.flatten(1) if lanes else losses.flatten()
    return flat.sum(-1) / divisor if workload.sums_over_examples else flat.mean(-1)


def vectorised_losses(workload: Workload, model: nn.Module, places: Places) -> Callable[..., Tensor]:
    """Losses of all lanes, [K, n], from stacks of parameters and buffers by name, and a batch of each lane."""

    def forward(tensors: Mapping[str, Tensor], batch: Any) -> Tensor:
        with places.holding(tensors):
            return workload.losses(model, batch)

    return vmap(forward, randomness="error")


class Groups:
    """Gradients of groups of examples in one pass, from copies of the parameters for each lane and group."""

    def __init__(self, workload: Workload, model: nn.Module, replay: Replay) -> None:
        self._model = model
        self._losses = vectorised_losses(workload, model, Places(model))
        self._replay = replay

    def __call__(self, stack: Stack, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """As `Engine.grouped`; None where the copies cost more than a pass for each group."""
        groups = tensors_of(batch)[0].shape[1]
        if groups * sum(map(Tensor.numel, stack.parameters.values())) > MOST_EXPANDED:
            return None
        inputs, settings = Inputs(stack.tensors), (tuple(stack.parameters), examples, reduce)
        return self._replay("sample", self._gradients, self._model, inputs, batch, settings)

    def _gradients(
        self,
        module: nn.Module,  # noqa: ARG002 (its losses were vectorised once)
        tensors: Mapping[str, Tensor],
        batch: Any,
        parameters: Sequence[str],
        examples: int,
        reduce: Reduce,
    ) -> list[Tensor]:
        lanes, groups = tensors_of(batch)[0].shape[:2]
        copies = {name: stack.detach().repeat_interleave(groups, 0) for name, stack in tensors.items()}
        leaves = {name: copies[name].requires_grad_() for name in parameters}
        losses = self._losses(copies, map_tensors(lambda tensor: tensor.flatten(0, 1), batch))
        gradients = gradients_of(losses.sum() / examples, leaves)
        return reduce([gradient.reshape(lanes, groups, *gradient.shape[1:]) for gradient in gradients])
