"""Two ways to get the gradients of K lanes from one stack of parameters.

`Vmap` runs one vectorised forward over all lanes and an ordinary backward of the sum of their losses, from
which each lane gets its own gradient. `Loop` runs ordinary modules one after the other, whose parameters are
rows of the stack: it serves every model, and with large batches it is as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.errors import UserError
from bscrit.measure.nests import map_tensors
from bscrit.train.batching import stacked, tensors_of
from bscrit.train.evaluation import checked_evaluation, evaluate_alone, evaluating
from bscrit.train.gradients import (
    Call,
    fits_in_groups,
    gradients_of,
    grouped_gradients,
    hessian_of,
)
from bscrit.train.replay import Replay, layout
from bscrit.train.seeding import seeded
from bscrit.train.workload import Workload

Reduce = Callable[[list[Tensor]], list[Tensor]]
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

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """Gradients of the mean loss of groups of `examples` each, [K, G, ...]; None where it takes a pass a group.

        Args:
            batch: of every lane and group, leading dimensions K, G, examples.
            reduce: what is returned of them.
        """

    def curvature(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        """The Hessian of (sum of losses)/divisor as a function from stacks [K, ...] to stacks."""

    @property
    def model(self) -> nn.Module:
        """One of the modules, its tensors of no meaning."""

    def evaluate(self) -> Tensor:
        """The workload's evaluation of each lane, (K,)."""


class Vmap:
    """All lanes in one vectorised pass."""

    name = "vmap"

    def __init__(self, workload: Workload, models: Sequence[nn.Module], replay: Replay) -> None:
        self._workload = workload
        self._replay = replay
        self.model = models[0]
        self._losses = Call(workload.losses, self.model)
        self._evaluation = Call(workload.evaluate, self.model)
        self._evaluates_as_one: bool | None = None

        def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any) -> Tensor:
            return functional_call(self._losses, (parameters, buffers), (batch,))  # type: ignore[no-any-return]

        self._forward = vmap(forward, in_dims=(0, 0, 0), randomness="error")

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:  # noqa: ARG002 (one module serves any lanes)
        self._stack = stack
        self._parameters = {f"model.{name}": tensor for name, tensor in stack.parameters.items()}
        self._buffers = {f"model.{name}": tensor for name, tensor in stack.buffers.items()}
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
            parameters, buffers, rest = self._named(tensors)
            for tensor in parameters.values():
                tensor.requires_grad_()
            return self._gradients(parameters, buffers, map_tensors(lambda _: next(rest), batch), divisor)

        def ordinary() -> list[Tensor]:
            return self._gradients(self._parameters, self._buffers, batch, divisor)

        key = (self.name, "gradients", divisor, self._layout, layout(examples))
        return self._replay(key, self.model, [*self._tensors, *examples], function, ordinary)

    def _named(
        self, tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Iterator[Tensor]]:
        """Parameters and buffers by name, and what tensors are left."""
        rest = iter(tensors)
        parameters = {name: next(rest) for name in self._parameters}
        return parameters, {name: next(rest) for name in self._buffers}, rest

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
        if not fits_in_groups(self._parameters.values(), batch):
            return None
        found = tensors_of(batch)

        def function(*tensors: Tensor) -> list[Tensor]:
            parameters, buffers, rest = self._named(tensors)
            nest = map_tensors(lambda _: next(rest), batch)
            return reduce(grouped_gradients(self._forward, parameters, buffers, nest, examples))

        tensors = [*self._tensors, *found]
        key = (self.name, "groups", reduce, examples, self._layout, layout(found))
        return self._replay(key, self.model, tensors, function, lambda: function(*tensors))

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
        lanes, device = len(self._stack.seeds), _device(self._stack)

        def evaluate(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return checked_evaluation(functional_call(self._evaluation, (parameters, buffers), ()))

        def function(*tensors: Tensor) -> list[Tensor]:
            copies = [_doubled(tensor) if lanes == 1 else tensor.clone() for tensor in tensors]
            parameters, buffers, _ = self._named(copies)
            with evaluating(self.model, device):
                losses: Tensor = vmap(evaluate, in_dims=(0, 0), randomness="error")(parameters, buffers)
            return [losses[:lanes]]

        key = (self.name, "evaluation", self._layout)
        return self._replay(key, self.model, self._tensors, function, lambda: function(*self._tensors))[0]

    def _evaluate_lane(self, row: int) -> Tensor:
        return evaluate_alone(self._workload, self.model, self._stack.lane(row), _device(self._stack))


class Loop:
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
            return seeded(_device(self._stack), self._stack.seeds[row], *draw)

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
            rest = iter(tensors)
            state = {f"model.{name}": next(rest) for name in self._names}
            parameters = [state[f"model.{name}"].requires_grad_() for name in self._stack.parameters]
            nest = map_tensors(lambda _: next(rest), batch)
            return gradients(functional_call(Call(self._workload.losses, model), state, (nest,)), parameters)

        examples = tensors_of(batch)
        key = (self.name, "gradients", divisor, self._layout, layout(examples))
        return self._replay(key, model, [*self._tensors[row], *examples], function, ordinary, seeding)

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """Vectorised over groups, where a first try gives what a pass for one group gives."""
        if self._vectorises is None:
            self._vectorises = self._tried(batch, examples)
        return self._as_one(batch, examples, reduce) if self._vectorises else None

    def _as_one(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        stacks = [*self._stack.parameters.values(), *self._stack.buffers.values()]
        if not fits_in_groups(self._stack.parameters.values(), batch):
            return None
        call, found = Call(self._workload.losses, self.model), tensors_of(batch)

        def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any) -> Tensor:
            return functional_call(call, (parameters, buffers), (batch,))  # type: ignore[no-any-return]

        def function(*tensors: Tensor) -> list[Tensor]:
            rest = iter(tensors)
            parameters, buffers = (
                {f"model.{name}": next(rest) for name in named}
                for named in (self._stack.parameters, self._stack.buffers)
            )
            nest = map_tensors(lambda _: next(rest), batch)
            vectorised = vmap(forward, in_dims=(0, 0, 0), randomness="error")
            return reduce(grouped_gradients(vectorised, parameters, buffers, nest, examples))

        tensors = [*stacks, *found]
        key = (self.name, "groups", reduce, examples, layout(tensors))
        return self._replay(key, self.model, tensors, function, lambda: function(*tensors))

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
            with seeded(_device(self._stack), seed, *draw), sdpa_kernel(SDPBackend.MATH):
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
        model, device = self._models[row], _device(self._stack)

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


def make_backend(
    name: str,
    workload: Workload,
    seeds: Sequence[int],
    build: Callable[[int], nn.Module],
    replay: Replay,
) -> Backend:
    """The backend of this name; `build` makes the model of a seed."""
    if name == "vmap":
        return Vmap(workload, [build(seeds[0])], replay)
    if name == "loop":
        return Loop(workload, [build(seed) for seed in seeds], replay)
    raise ValueError(f"backend = {name!r} must be vmap or loop")


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


def _twice(stack: Tensor) -> Tensor:
    return _doubled(stack.detach()).requires_grad_(stack.requires_grad)


def _doubled(stack: Tensor) -> Tensor:
    """A copy of one lane, twice, in its memory order."""
    return stack.expand(2, *stack.shape[1:]).clone()


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
