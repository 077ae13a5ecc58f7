"""One ordinary module per lane, one after the other: the backend "loop"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.engine.evaluation import check_losses, evaluate_alone
from bscrit.engine.gradients import Call, Reduce, gradients_of, hessian_of
from bscrit.engine.recording import NotRecorded
from bscrit.engine.replay import Replay, form, layout
from bscrit.engine.seeding import seeded
from bscrit.engine.stacks import Stack
from bscrit.engine.vectorised import grouped_at_once, vectorised_losses
from bscrit.engine.workload import Workload
from bscrit.measure.nested import map_tensors, tensors_of


class InTurn:
    """One ordinary module per lane, one after the other."""

    name = "loop"

    def __init__(self, workload: Workload, models: Sequence[nn.Module], replay: Replay) -> None:
        self._workload = workload
        self._replay = replay
        self._models = list(models)
        self._vectorises: bool | None = None

    @property
    def model(self) -> nn.Module:
        return self._models[0]

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:
        self._stack = stack
        self._models = [self._models[row] for row in rows]
        self._buffers: list[list[tuple[nn.Module, str, Tensor]]] = []
        self._tensors: list[list[Tensor]] = []
        for row, model in enumerate(self._models):
            lane = stack.lane(row)
            for name, parameter in model.named_parameters():
                parameter.data = lane[name]
            self._buffers.append(_bind_buffers(model, lane))
            self._tensors.append(list(lane.values()))
        self._names = [*stack.parameters, *stack.buffers]
        self._layout = layout(self._tensors[0])
        self._parameters = [
            [parameter for parameter in model.parameters() if parameter.requires_grad]
            for model in self._models
        ]

    def gradients(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        rows = range(len(self._models))
        lanes = [self._gradients_of_lane(row, batches[which[row]], divisor, draw) for row in rows]
        if len(lanes) == 1:
            return [gradient.unsqueeze(0) for gradient in lanes[0]]
        return [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]

    def _gradients_of_lane(self, row: int, batch: Any, divisor: int, draw: tuple[int, int]) -> list[Tensor]:
        model = self._models[row]

        def seeding() -> AbstractContextManager[None]:
            return seeded(self._stack.device, self._stack.seeds[row], *draw)

        def gradients(losses: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
            check_losses(self._workload, getattr(losses, "shape", ()), batch)
            total = losses.sum() / divisor if self._workload.sums_over_examples else losses.mean()
            return gradients_of(total, parameters)

        def ordinary() -> list[Tensor]:
            with seeding():
                found = gradients(self._workload.losses(model, batch), self._parameters[row])
            self._collect_buffers(row)
            return found

        def function(*tensors: Tensor) -> list[Tensor]:
            if any(parameter._backward_hooks for parameter in self._parameters[row]):
                raise NotRecorded("hooks of parameters see no copies")
            rest = iter(tensors)
            state = {f"model.{name}": next(rest) for name in self._names}
            parameters = [state[f"model.{name}"].requires_grad_() for name in self._stack.parameters]
            nest = map_tensors(lambda _: next(rest), batch)
            return gradients(functional_call(Call(self._workload.losses, model), state, (nest,)), parameters)

        examples = tensors_of(batch)
        key = (self.name, "gradients", divisor, self._layout, form(batch))
        return self._replay(key, model, [*self._tensors[row], *examples], function, ordinary, seeding)

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """Vectorised over groups, where a first try gives what a pass for one group gives."""
        if self._vectorises is None:
            self._vectorises = self._tried(batch, examples)
        return self._as_one(batch, examples, reduce) if self._vectorises else None

    def _as_one(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        forward = vectorised_losses(self._workload, self.model)
        return grouped_at_once(self._replay, forward, self.model, self._stack, batch, examples, reduce)

    def _tried(self, batch: Any, examples: int) -> bool:
        try:
            found = self._as_one(batch, examples)
        except Exception:
            return False  # what can't be vectorised goes group by group
        if found is None:
            return False
        first = map_tensors(lambda tensor: tensor[:, 0].contiguous(), batch)
        lanes = range(len(self._models))
        rows = [map_tensors(lambda tensor, row=row: tensor[row], first) for row in lanes]
        expected = self.gradients(rows, lanes, examples, (0, 0))
        pairs = zip(found, expected, strict=True)
        return all(torch.allclose(a[:, 0], b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in pairs)

    def curvature(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        products = []
        for row, model in enumerate(self._models):
            seed = self._stack.seeds[row]
            with seeded(self._stack.device, seed, *draw), sdpa_kernel(SDPBackend.MATH):
                total = self._workload.losses(model, batches[which[row]]).sum() / divisor
                products.append(hessian_of(total, self._parameters[row]))
            self._collect_buffers(row)

        def product(stacks: list[Tensor]) -> list[Tensor]:
            rows = [one([stack[row] for stack in stacks]) for row, one in enumerate(products)]
            return [torch.stack(tensors) for tensors in zip(*rows, strict=True)]

        return product

    def evaluate(self) -> Tensor:
        return torch.stack([self._evaluate_lane(row) for row in range(len(self._models))])

    def _evaluate_lane(self, row: int) -> Tensor:
        model, device = self._models[row], self._stack.device

        def function(*tensors: Tensor) -> list[Tensor]:
            state = dict(zip(self._names, tensors, strict=True))
            return [evaluate_alone(self._workload, model, state, device)]

        tensors, key = self._tensors[row], (self.name, "evaluation", self._layout)
        return self._replay(key, model, tensors, function, lambda: function(*tensors))[0]

    def _collect_buffers(self, row: int) -> None:
        """Bring home the buffers that forward replaced instead of updating them in place."""
        for owner, name, view in self._buffers[row]:
            tensor = getattr(owner, name)
            if tensor is not view:
                view.copy_(tensor.detach())
                setattr(owner, name, view)


def _bind_buffers(model: nn.Module, lane: dict[str, Tensor]) -> list[tuple[nn.Module, str, Tensor]]:
    """Make the model's buffers views of the stack, those that several modules share included."""
    names = {id(tensor): name for name, tensor in model.named_buffers()}
    bound = []
    for owner in model.modules():
        for key, tensor in list(owner.named_buffers(recurse=False)):
            view = lane[names[id(tensor)]]
            setattr(owner, key, view)
            bound.append((owner, key, view))
    return bound
