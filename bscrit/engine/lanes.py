"""Lanes: K runs of one batch size that train in lockstep on one device.

    lanes = Lanes(Quadratic(), seeds=[0, 0], lrs=[0.1, 0.2], batch_size=16, optimizer={"use": "sgd"})
    position = Position()
    for _ in range(100):
        lanes.step(position.examples, schedule.factor(position, 16))
        position = position.after(16)
    lanes.evaluate()    # (2,) losses

On the CPU a lane's numbers don't depend, to the last bit, on how many lanes there are, on its place among
them, or on what happens in the others (with batch norm in "vmap", and on a GPU: to rounding).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bscrit.engine.engines import make_engine
from bscrit.engine.evaluation import averages_batches
from bscrit.engine.memory import out_of_memory
from bscrit.engine.optimizers import StackedOptimizer
from bscrit.engine.precision import computing_in, in_storage, rounding, set_products, storage
from bscrit.engine.replay import Replay, replay_of
from bscrit.engine.seeding import seeded, seeding
from bscrit.engine.stacks import Stack, laid_out_as
from bscrit.engine.streams import moved
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.measure.nested import parts_of, tensors_of


class Lanes:
    """Trials that differ in seed and learning rate.

    Args:
        workload: prepared for the device.
        seeds, lrs: (K,) of each lane; lanes of one seed see the same batches.
        batch_size: in the workload's unit.
        optimizer: an [optimizer] table without expressions, see `bscrit.recipe`.
        engine: "vmap" or "loop", see `bscrit.engine.engines`.
        dtype: what is computed in, see `bscrit.engine.precision`.
        micro_batch: larger batches are accumulated from parts of this size; None for never.
        splits: whether parts of a batch may be accumulated; by default as the workload has it.
        execution: as in [compute].
        replay: recordings of steps and evaluations; by default those of the workload for this execution.

    Attributes:
        micro_batch: as given, or smaller once the device ran out of memory (the batch never shrinks).
        stack, engine, optimizer: the tensors, how their gradients are computed, and their updates.
        rounding: how much two ways to compute the same may differ, as a share of the largest entry.
        which: (K,) for each lane the place of its batch among those of the distinct seeds.
    """

    stack: Stack
    which: list[int]

    def __init__(
        self,
        workload: Workload,
        *,
        seeds: Sequence[int],
        lrs: Sequence[float],
        batch_size: int,
        optimizer: Mapping[str, Any],
        engine: str = "vmap",
        device: str = "cpu",
        dtype: str = "float32",
        micro_batch: int | None = None,
        splits: bool = True,
        execution: str = "replay",
        replay: Replay | None = None,
    ) -> None:
        if len(seeds) != len(lrs) or not seeds:
            raise ValueError(f"{len(seeds)} seeds and {len(lrs)} rates: each lane needs one of both")
        self.batch_size = batch_size
        self.micro_batch = micro_batch
        self.device = torch.device(device)
        self.dtype = storage(dtype)
        self.rounding = rounding(dtype, device)
        set_products(dtype)
        self.workload = computing_in(workload, dtype, self.device)
        self._averages = averages_batches(self.workload)
        if self.workload.sums_over_examples and not splits:
            self.workload = copy.copy(self.workload)
            self.workload.sums_over_examples = False
        self.optimizer = StackedOptimizer(optimizer, lrs)
        self._replay = replay or replay_of(workload, dtype, device, execution, splits)
        self._before = self._replay.steps, self._replay.replayed
        self.engine = make_engine(engine, self.workload, seeds, self._model, self._replay)
        self._laid_out = False
        self._losses, self._batches = (
            torch.zeros(len(seeds), dtype=torch.float64),
            0,
        )  # since the last evaluation
        self._bind(self._initial(seeds), range(len(seeds)))

    def __len__(self) -> int:
        return len(self.stack.seeds)

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """Trainable parameters by name, [K, ...]; not copies."""
        return {name: tensor.detach() for name, tensor in self.stack.parameters.items()}

    def step(self, start: int, factor: float) -> None:
        """Update every lane with the batch after its first `start` examples, at rates `factor * lrs`."""
        gradients = self._noted(start)
        if not self._laid_out:
            stacks = zip(self.stack.parameters.items(), gradients, strict=True)
            self.stack.parameters = {
                name: laid_out_as(stack, like).requires_grad_() for (name, stack), like in stacks
            }
            self._bind(self.stack, range(len(self)))
            self._laid_out = True
        parameters = list(self.stack.parameters.values())
        self.optimizer.step(parameters, gradients, factor)

    def gradients(self, start: int) -> dict[str, Tensor]:
        """The mean gradients of the update after `start` examples, unclipped, by name, [K, ...].

        Buffers stay as they are.
        """
        with restored(self.stack.buffers):
            gradients = self.mean_gradients(self.batches(start), self.batch_size, start)
        return dict(zip(self.stack.parameters, gradients, strict=True))

    def evaluate(self) -> NDArray[np.float64]:
        """The loss on the evaluation set, (K,); changes neither parameters nor buffers nor random state.

        Where the metric is that of the batches: the mean of their losses, each before its update, since the last call;
        before the first update the loss of the first batch.
        """
        if not self._averages:
            return self.engine.evaluate().double().cpu().numpy()
        if not self._batches:
            with restored(self.stack.buffers):
                self._noted(0)
        mean = (self._losses / self._batches).cpu().numpy()
        self._losses, self._batches = torch.zeros_like(self._losses), 0
        return mean

    def facts(self, row: int) -> dict[str, Any]:
        """How these lanes were trained, for the record of one."""
        shares = self.optimizer.clipped_shares()
        return {
            **({} if shares is None else {"clipped": shares[row]}),
            "engine": self.engine.name,
            **self._replay.facts(*self._before),
            "micro_batch": self.micro_batch or self.batch_size,
        }

    def keep(self, rows: Sequence[int]) -> None:
        """Drop every lane but these; the others go on as they would have."""
        self.optimizer.keep(rows)
        self._losses = self._losses[list(rows)]
        self._bind(self.stack.selected(rows), rows)

    def state_dict(self, rows: Sequence[int] | None = None) -> dict[str, Any]:
        """A copy of all that these lanes (default: all) need to go on bit for bit, with memory order.

        Tensors, numbers and strings only: torch.load with weights_only=True reads it.
        """
        rows = range(len(self)) if rows is None else rows
        stack = self.stack.selected(rows)
        return {
            "engine": self.engine.name,
            "micro_batch": self.micro_batch,
            "laid_out": self._laid_out,
            "losses": self._losses[list(rows)],
            "batches": self._batches,
            "seeds": list(stack.seeds),
            "parameters": {name: tensor.detach() for name, tensor in stack.parameters.items()},
            "buffers": stack.buffers,
            "optimizer": self.optimizer.state_dict(rows),
        }

    def load_state_dict(self, *states: Mapping[str, Any]) -> None:
        """Go on from saved lanes, one state or several; these lanes replace those there were.

        Raises:
            ValueError: states saved at different numbers of updates, which can't train in lockstep.
        """
        self.optimizer.load_state_dicts([state["optimizer"] for state in states], self.device)
        stack = Stack.joined(
            [Stack(tuple(state["seeds"]), state["parameters"], state["buffers"]) for state in states],
            self.device,
        )
        sizes = [state["micro_batch"] for state in states if state["micro_batch"] is not None]
        self.micro_batch = min(sizes) if sizes else None
        self._laid_out = all(state["laid_out"] for state in states)
        self._losses = torch.cat([state["losses"].to(self.device) for state in states])
        self._batches = states[0]["batches"]
        self.engine = make_engine(self.engine.name, self.workload, stack.seeds, self._model, self._replay)
        self._bind(stack, range(len(stack.seeds)))

    def _initial(self, seeds: Sequence[int]) -> Stack:
        models = {seed: self._model(seed) for seed in dict.fromkeys(seeds)}
        stack = Stack.of_models(seeds, [models[seed] for seed in seeds])
        if not stack.parameters:
            raise UserError(
                f"{type(self.workload).__name__}.model", "has no parameters that require a gradient"
            )
        return stack

    def _model(self, seed: int) -> nn.Module:
        with seeded(self.device, seed):
            return in_storage(
                self.workload.model(seed), self.device, self.dtype, type(self.workload).__name__
            )

    def _bind(self, stack: Stack, rows: Sequence[int]) -> None:
        self.stack = stack
        distinct = list(dict.fromkeys(stack.seeds))
        self.which = [distinct.index(seed) for seed in stack.seeds]
        self._distinct = distinct
        self.engine.bind(stack, rows)

    def batches(self, start: int, size: int | None = None, apart: int = 0) -> list[Any]:
        """The batch of each distinct seed, on the device; `apart` draws other examples than the updates see."""
        size = self.batch_size if size is None else size
        batches = []
        with seeding(self.device) as seed_all:
            for seed in self._distinct:
                seed_all(seed, start)
                batches.append(moved(self.workload.batch(seed + apart, start, size), self.device, self.dtype))
        self._check_size(batches[0], size)
        return batches

    def _check_size(self, batch: Any, asked: int) -> None:
        """Refuse a batch of another size: its steps would be counted as steps of this one."""
        sizes = {len(tensor) if tensor.ndim else 0 for tensor in tensors_of(batch)}
        if self.workload.sums_over_examples and sizes != {asked}:
            returned = ", ".join(str(size) for size in sorted(sizes)) or "no"
            raise UserError(
                f"{type(self.workload).__name__}.batch",
                f"returned {returned} examples where {asked} were asked for",
                "return tensors whose first dimension is `size`",
            )

    def _noted(self, start: int) -> list[Tensor]:
        """The gradients of the batch after `start` examples; its loss is added to those since the last evaluation."""
        gradients = self._computed(self.batches(start), self.batch_size, start, 0)
        if self._averages:
            self._losses, self._batches = self._losses.to(self.device) + gradients.pop(), self._batches + 1
        return gradients

    def mean_gradients(self, batches: list[Any], divisor: int, start: int, part: int = 0) -> list[Tensor]:
        """Gradients of (sum of losses)/divisor, [K, ...]; where memory runs out, again from smaller parts."""
        return self._computed(batches, divisor, start, part)[: len(self.stack.parameters)]

    def _computed(self, batches: list[Any], divisor: int, start: int, part: int) -> list[Tensor]:
        """The engine's gradients, and the losses where they are wanted."""
        while True:
            size = divisor if self.micro_batch is None else min(self.micro_batch, divisor)
            try:
                return self._accumulated(batches, divisor, size, (start, part))
            except RuntimeError as error:
                if not out_of_memory(error) or size == 1 or not self.workload.sums_over_examples:
                    raise
            torch.cuda.empty_cache()
            self.micro_batch = (size + 1) // 2

    def _accumulated(
        self, batches: list[Any], divisor: int, size: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        start, first = draw
        if size >= divisor or not self.workload.sums_over_examples:
            return self.engine.gradients(batches, self.which, divisor, draw)
        total: list[Tensor] = []
        for index, part in enumerate(parts_of(batches, size), first):
            gradients = self.engine.gradients(part, self.which, divisor, (start, index))
            # Not in place: parameters that are only added to one another may share one gradient.
            total = list(torch._foreach_add(total, gradients)) if total else gradients
        return total


@contextlib.contextmanager
def restored(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The values of these tensors afterwards as before."""
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    try:
        yield
    finally:
        for name, tensor in tensors.items():
            tensor.copy_(before[name])
