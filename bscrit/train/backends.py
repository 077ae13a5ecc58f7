"""Two ways to get the gradients of K lanes from one stack of parameters.

`Vmap` runs one vectorised forward over all lanes and an ordinary backward of the sum of their losses, from
which each lane gets its own gradient. `Loop` runs ordinary modules one after the other, whose parameters are
rows of the stack: it serves every model, and with large batches it is as fast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from bscrit.errors import UserError
from bscrit.train.batching import map_tensors, stacked, tensors_of
from bscrit.train.seeding import seeded
from bscrit.train.stacks import rows_of
from bscrit.train.workload import Workload

EVALUATION_TOLERANCE = 1e-4


@dataclass
class Stack:
    """The tensors of K lanes.

    Attributes:
        seeds: of each lane.
        parameters: trainable ones by name, [K, ...].
        buffers: buffers, and parameters that don't require a gradient, by name, [K, ...].
    """

    seeds: tuple[int, ...]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def lane(self, row: int) -> dict[str, Tensor]:
        """Views of one lane's tensors, without gradients."""
        return {name: tensor.detach()[row] for name, tensor in {**self.parameters, **self.buffers}.items()}


class Backend(Protocol):
    """What `Lanes` asks of either way."""

    name: str

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:
        """Work on this stack from now on; its lanes are those `rows` of the lanes there were before."""

    def gradients(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        """Gradients of (sum of per-example losses)/divisor, [K, ...] each; lane k has `batches[which[k]]`.

        What the model draws at random depends on the lane's seed and on `draw`, (step, part) of the batch.
        """

    def evaluate(self) -> Tensor:
        """The workload's evaluation of each lane, (K,)."""


class Vmap:
    """All lanes in one vectorised pass."""

    name = "vmap"

    def __init__(self, workload: Workload, models: Sequence[nn.Module]) -> None:
        self._workload = workload
        self._model = models[0]
        self._losses = _Call(workload.losses, self._model)
        self._evaluation = _Call(workload.evaluate, self._model)
        self._evaluates_as_one: bool | None = None

        def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any) -> Tensor:
            return functional_call(self._losses, (parameters, buffers), (batch,))  # type: ignore[no-any-return]

        self._forward = vmap(forward, in_dims=(0, 0, 0), randomness="error")

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:  # noqa: ARG002 (one module serves any lanes)
        self._stack = stack
        self._parameters = {f"model.{name}": tensor for name, tensor in stack.parameters.items()}
        self._buffers = {f"model.{name}": tensor for name, tensor in stack.buffers.items()}

    def gradients(
        self,
        batches: Sequence[Any],
        which: Sequence[int],
        divisor: int,
        draw: tuple[int, int],  # noqa: ARG002 (a model that draws is refused)
    ) -> list[Tensor]:
        lanes = len(self._stack.seeds)
        batch, parameters, buffers = stacked(batches, which), self._parameters, self._buffers
        if lanes == 1:
            # A lane by itself goes twice: kernels for one lane round differently than those for several.
            batch, parameters, buffers = (map_tensors(_twice, nest) for nest in (batch, parameters, buffers))
        losses = self._forward(parameters, buffers, batch)
        check_losses(self._workload, losses.shape[1:], batches[0])
        if lanes == 1:
            for name, tensor in self._buffers.items():
                tensor.copy_(buffers[name][:1])
        total = (
            losses.sum() / divisor if self._workload.sums_over_examples else losses.flatten(1).mean(1).sum()
        )
        return [gradient[:lanes] for gradient in _gradients(total, list(parameters.values()))]

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
        rows = range(len(self._stack.seeds)) if len(self._stack.seeds) > 1 else (0, 0)
        parameters, buffers = (
            {name: rows_of(tensor, rows) for name, tensor in tensors.items()}
            for tensors in (self._parameters, self._buffers)
        )

        def evaluate(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return checked_evaluation(functional_call(self._evaluation, (parameters, buffers), ()))

        with evaluating(self._model, _device(self._stack)):
            losses: Tensor = vmap(evaluate, in_dims=(0, 0), randomness="error")(parameters, buffers)
        return losses[: len(self._stack.seeds)]

    def _evaluate_lane(self, row: int) -> Tensor:
        return evaluate_alone(self._workload, self._model, self._stack.lane(row), _device(self._stack))


class Loop:
    """One ordinary module per lane, one after the other."""

    name = "loop"

    def __init__(self, workload: Workload, models: Sequence[nn.Module]) -> None:
        self._workload = workload
        self._models = list(models)

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:
        self._stack = stack
        self._models = [self._models[row] for row in rows]
        self._buffers: list[list[tuple[nn.Module, str, Tensor]]] = []
        for row, model in enumerate(self._models):
            lane = stack.lane(row)
            for name, parameter in model.named_parameters():
                parameter.data = lane[name]
            self._buffers.append(_bind_buffers(model, lane))
        self._parameters = [
            [parameter for parameter in model.parameters() if parameter.requires_grad]
            for model in self._models
        ]

    def gradients(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        lanes = []
        for row, model in enumerate(self._models):
            batch = batches[which[row]]
            with seeded(_device(self._stack), self._stack.seeds[row], *draw):
                losses = self._workload.losses(model, batch)
                check_losses(self._workload, getattr(losses, "shape", ()), batch)
                total = losses.sum() / divisor if self._workload.sums_over_examples else losses.mean()
                lanes.append(_gradients(total, self._parameters[row]))
            self._collect_buffers(row)
        return [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]

    def evaluate(self) -> Tensor:
        lanes = enumerate(self._models)
        device = _device(self._stack)
        return torch.stack(
            [evaluate_alone(self._workload, model, self._stack.lane(row), device) for row, model in lanes]
        )

    def _collect_buffers(self, row: int) -> None:
        """Bring home the buffers that forward replaced instead of updating them in place."""
        for owner, name, view in self._buffers[row]:
            tensor = getattr(owner, name)
            if tensor is not view:
                view.copy_(tensor.detach())
                setattr(owner, name, view)


def make_backend(
    name: str, workload: Workload, seeds: Sequence[int], build: Callable[[int], nn.Module]
) -> Backend:
    """The backend of this name; `build` makes the model of a seed."""
    if name == "vmap":
        return Vmap(workload, [build(seeds[0])])
    if name == "loop":
        return Loop(workload, [build(seed) for seed in seeds])
    raise ValueError(f"backend = {name!r} must be vmap or loop")


def evaluate_alone(
    workload: Workload, model: nn.Module, lane: dict[str, Tensor], device: torch.device
) -> Tensor:
    """The workload's evaluation of one model with these tensors, a scalar; the tensors stay as they are."""
    state = {f"model.{name}": tensor.clone() for name, tensor in lane.items()}
    with evaluating(model, device):
        return checked_evaluation(functional_call(_Call(workload.evaluate, model), state, ()))


@contextlib.contextmanager
def evaluating(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards each submodule's mode and the random state as before."""
    training = [module for module in model.modules() if module.training]
    try:
        with torch.no_grad(), seeded(device, 0):
            for module in training:
                module.training = False
            yield
    finally:
        for module in training:
            module.training = True


def check_losses(workload: Workload, shape: Sequence[int], batch: Any) -> None:
    """Refuse losses that are not one per example.

    Raises:
        UserError: naming the shape found and the one expected.
    """
    count = len(tensors_of(batch)[0]) if workload.sums_over_examples else None
    if len(shape) != 1 or (count is not None and shape[0] != count) or not shape[0]:
        expected = f"({count},)" if count is not None else "(n,)"
        raise UserError(
            f"{type(workload).__name__}.losses",
            f"returned shape {tuple(shape)}, expected {expected}: one loss per example",
            'return the losses before averaging, such as cross_entropy(..., reduction="none")',
        )


def checked_evaluation(value: Any) -> Tensor:
    """An evaluation as a tensor without dimensions; a plain number is as good.

    Raises:
        UserError: anything else.
    """
    if isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float64)
    if not isinstance(value, Tensor) or value.dim():
        found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UserError(
            "evaluate", f"returned {found}, expected a scalar", "return the mean over the evaluation set"
        )
    return value


class _Call(nn.Module):
    """A workload's method on a model as a module's forward, which is what functional_call can call."""

    def __init__(self, function: Callable[..., Tensor], model: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.model = model

    def forward(self, *arguments: Any) -> Tensor:
        return self.function(self.model, *arguments)


def _gradients(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    if not parameters:
        return []
    return list(torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True))


def _twice(stack: Tensor) -> Tensor:
    return rows_of(stack, [0, 0]).requires_grad_(stack.requires_grad)


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


def _device(stack: Stack) -> torch.device:
    return next(iter(stack.parameters.values())).device
