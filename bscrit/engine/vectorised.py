"""All lanes in one vectorised pass: the backend "vmap"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.engine.evaluation import check_losses, checked_evaluation, evaluate_alone, evaluating
from bscrit.engine.gradients import (
    Call,
    Reduce,
    fits_in_groups,
    gradients_of,
    grouped_gradients,
    hessian_of,
)
from bscrit.engine.replay import Replay, form, layout
from bscrit.engine.stacks import Stack
from bscrit.engine.streams import stacked
from bscrit.engine.workload import Workload
from bscrit.measure.nested import map_tensors, tensors_of

EVALUATION_TOLERANCE = 1e-4


class Vectorised:
    """All lanes in one vectorised pass."""

    name = "vmap"

    def __init__(self, workload: Workload, models: Sequence[nn.Module], replay: Replay) -> None:
        self._workload = workload
        self._replay = replay
        self.model = models[0]
        self._forward = vectorised_losses(workload, self.model)
        self._evaluation = Call(workload.evaluate, self.model)
        self._evaluates_as_one: bool | None = None

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:  # noqa: ARG002 (one module serves any lanes)
        self._stack = stack
        self._parameters, self._buffers = _prefixed(stack.parameters), _prefixed(stack.buffers)
        self._tensors = [*stack.parameters.values(), *stack.buffers.values()]
        self._layout = layout(self._tensors)

    def gradients(
        self,
        batches: Sequence[Any],
        which: Sequence[int],
        divisor: int,
        draw: tuple[int, int],  # noqa: ARG002 (a model that draws is refused)
    ) -> list[Tensor]:
        batch = stacked(batches, which)
        examples = tensors_of(batch)

        def function(*tensors: Tensor) -> list[Tensor]:
            parameters, buffers, rest = _named(self._stack, tensors)
            for tensor in parameters.values():
                tensor.requires_grad_()
            return self._gradients(parameters, buffers, map_tensors(lambda _: next(rest), batch), divisor)

        def ordinary() -> list[Tensor]:
            return self._gradients(self._parameters, self._buffers, batch, divisor)

        key = (self.name, "gradients", divisor, self._layout, form(batch))
        return self._replay(key, self.model, [*self._tensors, *examples], function, ordinary)

    def _gradients(
        self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any, divisor: int
    ) -> list[Tensor]:
        lanes, mine = len(self._stack.seeds), buffers
        if lanes == 1:
            # A lane by itself goes twice: kernels for one lane round differently than those for several.
            batch, parameters, buffers = (map_tensors(_twice, nest) for nest in (batch, parameters, buffers))
        losses = self._forward(parameters, buffers, batch)
        check_losses(self._workload, losses.shape[1:], map_tensors(lambda tensor: tensor[0], batch))
        if lanes == 1:
            for name, tensor in mine.items():
                tensor.copy_(buffers[name][:1])
        total = (
            losses.sum() / divisor if self._workload.sums_over_examples else losses.flatten(1).mean(1).sum()
        )
        return [gradient[:lanes] for gradient in gradients_of(total, list(parameters.values()))]

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        return grouped_at_once(self._replay, self._forward, self.model, self._stack, batch, examples, reduce)

    def curvature(
        self,
        batches: Sequence[Any],
        which: Sequence[int],
        divisor: int,
        draw: tuple[int, int],  # noqa: ARG002 (a model that draws is refused)
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        buffers = {name: stack.clone() for name, stack in self._buffers.items()}
        with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
            losses = self._forward(self._parameters, buffers, stacked(batches, which))
            return hessian_of(losses.sum() / divisor, list(self._parameters.values()))

    def evaluate(self) -> Tensor:
        if self._evaluates_as_one is None:
            self._evaluates_as_one = self._can_evaluate_as_one()
        if self._evaluates_as_one:
            try:
                return self._evaluate_as_one()
            except torch.OutOfMemoryError:
                self._evaluates_as_one = False
        return torch.stack([self._evaluate_lane(row) for row in range(len(self._stack.seeds))])

    def _can_evaluate_as_one(self) -> bool:
        """Whether the workload's evaluation can be vectorised; an error of its own shows lane by lane."""
        try:
            as_one = self._evaluate_as_one()[:1]
        except Exception:
            return False
        alone = self._evaluate_lane(0).reshape(1)
        return torch.allclose(
            as_one.double(), alone.double(), EVALUATION_TOLERANCE, EVALUATION_TOLERANCE, equal_nan=True
        )

    def _evaluate_as_one(self) -> Tensor:
        lanes, device = len(self._stack.seeds), self._stack.device

        def evaluate(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return checked_evaluation(functional_call(self._evaluation, (parameters, buffers), ()))

        def function(*tensors: Tensor) -> list[Tensor]:
            copies = [_doubled(tensor) if lanes == 1 else tensor.clone() for tensor in tensors]
            parameters, buffers, _ = _named(self._stack, copies)
            with evaluating(self.model, device):
                losses: Tensor = vmap(evaluate, in_dims=(0, 0), randomness="error")(parameters, buffers)
            return [losses[:lanes]]

        key = (self.name, "evaluation", self._layout)
        return self._replay(key, self.model, self._tensors, function, lambda: function(*self._tensors))[0]

    def _evaluate_lane(self, row: int) -> Tensor:
        return evaluate_alone(self._workload, self.model, self._stack.lane(row), self._stack.device)


def vectorised_losses(workload: Workload, model: nn.Module) -> Callable[..., Tensor]:
    """Losses of all lanes, [K, n], from stacks of parameters and buffers by name, and a batch of each lane."""
    call = Call(workload.losses, model)

    def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any) -> Tensor:
        return functional_call(call, (parameters, buffers), (batch,))  # type: ignore[no-any-return]

    return vmap(forward, in_dims=(0, 0, 0), randomness="error")


def grouped_at_once(
    replay: Replay,
    forward: Callable[..., Tensor],
    model: nn.Module,
    stack: Stack,
    batch: Any,
    examples: int,
    reduce: Reduce,
) -> list[Tensor] | None:
    """What `Backend.grouped` returns, in one pass; None where copies of the parameters cost more than a pass a group.

    Args:
        forward: `vectorised_losses` of `model`.
    """
    if not fits_in_groups(stack.parameters.values(), batch):
        return None

    def function(*tensors: Tensor) -> list[Tensor]:
        parameters, buffers, rest = _named(stack, tensors)
        nest = map_tensors(lambda _: next(rest), batch)
        return reduce(grouped_gradients(forward, parameters, buffers, nest, examples))

    stacks = [*stack.parameters.values(), *stack.buffers.values()]
    tensors = [*stacks, *tensors_of(batch)]
    key = ("vmap", "groups", reduce, examples, layout(stacks), form(batch))
    return replay(key, model, tensors, function, lambda: function(*tensors), rare=True)


def _named(
    stack: Stack, tensors: Sequence[Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor], Iterator[Tensor]]:
    """Parameters and buffers by name, and what tensors are left."""
    rest = iter(tensors)
    parameters, buffers = (
        _prefixed({name: next(rest) for name in kind}) for kind in (stack.parameters, stack.buffers)
    )
    return parameters, buffers, rest


def _prefixed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By the names that they have in a `Call`."""
    return {f"model.{name}": tensor for name, tensor in tensors.items()}


def _twice(stack: Tensor) -> Tensor:
    return _doubled(stack.detach()).requires_grad_(stack.requires_grad)


def _doubled(stack: Tensor) -> Tensor:
    """A copy of one lane, twice, in its memory order."""
    return stack.expand(2, *stack.shape[1:]).clone()
