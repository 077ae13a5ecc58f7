"""All lanes in one vectorised pass: the engine "vmap"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.engine.calls import Inputs
from bscrit.engine.evaluation import averages_batches, checked_evaluation, evaluate_alone, evaluating
from bscrit.engine.gradients import Groups, Reduce, gradients_of, mean_losses, vectorised_losses
from bscrit.engine.replay import Replay
from bscrit.engine.stacks import Stack
from bscrit.engine.streams import stacked
from bscrit.engine.workload import Workload
from bscrit.measure.holding import Places
from bscrit.measure.metrics import hessian_product
from bscrit.measure.nested import map_tensors

EVALUATION_TOLERANCE = 1e-4


class Vectorised:
    """One module through which all lanes go at once."""

    name = "vmap"

    def __init__(self, workload: Workload, model: nn.Module, replay: Replay) -> None:
        self.model = model
        self._workload = workload
        self._places = Places(model)
        self._losses = vectorised_losses(workload, model, self._places)
        self._groups = Groups(workload, model, replay)
        self._replay = replay
        self._averages = averages_batches(workload)
        self._evaluates_as_one: bool | None = None

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:  # noqa: ARG002 (one module serves any lanes)
        self._stack = stack
        self._inputs = Inputs(stack.tensors)

    def gradients(
        self,
        batches: Sequence[Any],
        which: Sequence[int],
        divisor: int,
        draw: tuple[int, int],  # noqa: ARG002 (a model that draws is refused)
    ) -> list[Tensor]:
        batch = stacked(batches, which)
        return self._replay("step", self._gradients, self.model, self._inputs, batch, (divisor,))

    def _gradients(
        self,
        module: nn.Module,  # noqa: ARG002 (its losses were vectorised once)
        tensors: Mapping[str, Tensor],
        batch: Any,
        divisor: int,
    ) -> list[Tensor]:
        for name in self._stack.parameters:
            tensors[name].requires_grad_()
        lanes, lent = len(self._stack.seeds), tensors
        if lanes == 1:
            # A lane by itself goes twice: kernels for one lane round differently than those for several.
            batch, lent = map_tensors(_twice, batch), map_tensors(_twice, dict(tensors))
        losses = mean_losses(self._workload, self._losses(lent, batch), batch, divisor, lanes=True)
        if lanes == 1:
            for name in self._stack.buffers:
                tensors[name].copy_(lent[name][:1])
        gradients = gradients_of(losses.sum(), {name: lent[name] for name in self._stack.parameters})
        if self._averages:
            gradients.append(losses.detach())
        return [tensor[:lanes] for tensor in gradients]

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        return self._groups(self._stack, batch, examples, reduce)

    def curvature(
        self,
        batches: Sequence[Any],
        which: Sequence[int],
        divisor: int,
        draw: tuple[int, int],  # noqa: ARG002 (a model that draws is refused)
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        buffers = {name: stack.clone() for name, stack in self._stack.buffers.items()}
        with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
            losses = self._losses({**self._stack.parameters, **buffers}, stacked(batches, which))
            return hessian_product(losses.sum() / divisor, list(self._stack.parameters.values()))

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
        return self._replay("evaluation", self._evaluations, self.model, self._inputs)[0]

    def _evaluations(self, module: nn.Module, tensors: Mapping[str, Tensor], batch: Any) -> list[Tensor]:  # noqa: ARG002
        lanes = len(self._stack.seeds)
        copies = {name: _twice(t) if lanes == 1 else t.clone() for name, t in tensors.items()}

        def evaluate(tensors: Mapping[str, Tensor]) -> Tensor:
            with self._places.holding(tensors):
                return checked_evaluation(self._workload.evaluate(module))

        with evaluating(module, self._stack.device):
            losses: Tensor = vmap(evaluate, randomness="error")(copies)
        return [losses[:lanes]]

    def _evaluate_lane(self, row: int) -> Tensor:
        return evaluate_alone(self._workload, self.model, self._places, self._stack.lane(row))


def _twice(stack: Tensor) -> Tensor:
    """A copy of one lane, twice, in its memory order."""
    return stack.detach().expand(2, *stack.shape[1:]).clone().requires_grad_(stack.requires_grad)
