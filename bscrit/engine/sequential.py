"""One ordinary module per lane, one after the other: the engine "loop"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.engine.calls import Inputs
from bscrit.engine.evaluation import averages_batches, evaluate_alone
from bscrit.engine.gradients import Groups, Reduce, gradients_of, mean_losses
from bscrit.engine.replay import Replay
from bscrit.engine.seeding import seeded
from bscrit.engine.stacks import Stack
from bscrit.engine.workload import Workload
from bscrit.measure.holding import Places
from bscrit.measure.metrics import hessian_product
from bscrit.measure.nested import map_tensors


class Sequential:
    """A module per lane, whose parameters and buffers are rows of the stack."""

    name = "loop"

    def __init__(self, workload: Workload, models: Sequence[nn.Module], replay: Replay) -> None:
        self._workload = workload
        self._models = list(models)
        self._places = {model: Places(model) for model in models}
        self._replay = replay
        self._groups = Groups(workload, models[0], replay)
        self._vectorises: bool | None = None

    @property
    def model(self) -> nn.Module:
        return self._models[0]

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:
        self._stack = stack
        self._models = [self._models[row] for row in rows]
        self._inputs: list[Inputs] = []
        for row, model in enumerate(self._models):
            lane, own = stack.lane(row), dict(model.named_parameters())
            for name, parameter in own.items():
                parameter.data = lane[name]
            _bind_buffers(model, lane)
            self._inputs.append(Inputs({**lane, **own}))

    def gradients(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        lanes = []
        for row, (model, inputs) in enumerate(zip(self._models, self._inputs, strict=True)):

            def seeding(row: int = row) -> AbstractContextManager[None]:
                return seeded(self._stack.device, self._stack.seeds[row], *draw)

            lanes.append(
                self._replay("step", self._gradients, model, inputs, batches[which[row]], (divisor,), seeding)
            )
        if len(lanes) == 1:
            return [gradient.unsqueeze(0) for gradient in lanes[0]]
        return [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]

    def _gradients(
        self, model: nn.Module, tensors: Mapping[str, Tensor], batch: Any, divisor: int
    ) -> list[Tensor]:
        # What holds other tensors than its own holds them in backward, too: a checkpoint runs again there.
        with self._places[model].holding(tensors, keeps=True):
            parameters = {name: tensors[name].requires_grad_() for name in self._stack.parameters}
            losses = self._workload.losses(model, batch)
            loss = mean_losses(self._workload, losses, batch, divisor, lanes=False)
            gradients = gradients_of(loss, parameters)
            return [*gradients, loss.detach()] if averages_batches(self._workload) else gradients

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """Vectorised over groups, where a first try gives what a pass for one group gives."""
        if self._vectorises is None:
            self._vectorises = self._can_vectorise(batch, examples)
        return self._groups(self._stack, batch, examples, reduce) if self._vectorises else None

    def _can_vectorise(self, batch: Any, examples: int) -> bool:
        try:
            gradients = self._groups(self._stack, batch, examples)
        except Exception:
            return False  # what can't be vectorised goes group by group
        if gradients is None:
            return False
        first = map_tensors(lambda tensor: tensor[:, 0].contiguous(), batch)
        lanes = range(len(self._models))
        rows = [map_tensors(lambda tensor, row=row: tensor[row], first) for row in lanes]
        expected = self.gradients(rows, lanes, examples, (0, 0))[: len(gradients)]
        pairs = zip(gradients, expected, strict=True)
        return all(torch.allclose(a[:, 0], b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in pairs)

    def curvature(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        products = []
        for row, (model, inputs) in enumerate(zip(self._models, self._inputs, strict=True)):
            parameters = [inputs.tensors[name] for name in self._stack.parameters]
            with (
                seeded(self._stack.device, self._stack.seeds[row], *draw),
                sdpa_kernel(SDPBackend.MATH),
                self._places[model].holding(inputs.tensors, keeps=True),
            ):
                total = self._workload.losses(model, batches[which[row]]).sum() / divisor
                products.append(hessian_product(total, parameters))

        def product(stacks: list[Tensor]) -> list[Tensor]:
            rows = [of_lane([stack[row] for stack in stacks]) for row, of_lane in enumerate(products)]
            return [torch.stack(tensors) for tensors in zip(*rows, strict=True)]

        return product

    def evaluate(self) -> Tensor:
        lanes = zip(self._models, self._inputs, strict=True)
        return torch.stack(
            [self._replay("evaluation", self._evaluation, model, inputs)[0] for model, inputs in lanes]
        )

    def _evaluation(self, model: nn.Module, tensors: Mapping[str, Tensor], batch: Any) -> list[Tensor]:  # noqa: ARG002
        return [evaluate_alone(self._workload, model, self._places[model], tensors)]


def _bind_buffers(model: nn.Module, lane: Mapping[str, Tensor]) -> None:
    """Make the model's buffers views of the stack, those that several modules share included."""
    names = {id(tensor): name for name, tensor in model.named_buffers()}
    for owner in model.modules():
        for key, tensor in list(owner.named_buffers(recurse=False)):
            setattr(owner, key, lane[names[id(tensor)]])
