"""The gradient noise of lanes: samples along a run, and measurements at frozen parameters.

Gradients are those of the mean loss at the present parameters, unclipped. Nothing that trains is changed: neither
parameters nor buffers, optimizer, random state or the order of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from bscrit.engine.lanes import Lanes, restored
from bscrit.engine.streams import stacked
from bscrit.errors import UserError
from bscrit.frozen_noise import FrozenNoise
from bscrit.measure.examples import Examples
from bscrit.measure.frozen import BLOCKS, measure_frozen
from bscrit.measure.metrics import Metric, adam, hessian, identity
from bscrit.measure.nested import map_tensors, narrowed, parts_of, tensors_of
from bscrit.measure.sums import Sums
from bscrit.noise_settings import NoiseSettings
from bscrit.position import Position
from bscrit.train.isolation import IsolatedLanes
from bscrit.trial import Trial

FRESH = 1_000_000_007  # added to a seed once or twice: below 2^32, as some generators want
MOST_SIZES = 10_000_000
FROZEN_BATCH = 256
FROZEN_STEPS = 4


class RunNoise:
    """Noise along the run of a cohort, where its order asks for it.

    Attributes:
        next_step: of the next sample.
    """

    def __init__(self, settings: NoiseSettings | None) -> None:
        self._sampler = NoiseSampler(settings) if settings is not None else None
        self.next_step = 0

    def sample(self, live: IsolatedLanes, position: Position) -> None:
        """Write a sample of every lane in every metric, where one is due."""
        sampler = self._sampler
        if sampler is None or position.steps != self.next_step:
            return
        by_metric = live.all(lambda lanes: sampler.sums(lanes, position.examples).samples())
        for metric, samples in by_metric.items():
            for writer, sample in zip(live.writers, samples, strict=True):
                writer.noise(position, metric, sample)
        self.next_step = sampler.settings.after(position.steps)

    def freeze(self, live: IsolatedLanes, position: Position) -> None:
        """Measure at frozen parameters the lanes that have just passed a loss at which the order asks for it."""
        for place, writer in enumerate(live.writers if self._sampler is not None else ()):
            assert self._sampler is not None
            losses = writer.evaluations.losses
            before = min(losses[:-1], default=inf)
            wanted, falls = self._sampler.settings.losses, writer.trial.goal.falls
            passed = [loss for loss in wanted if losses[-1] <= falls(loss) < before]
            if passed:
                measured = self._frozen(self._sampler, live.copy(place), writer.trial, position)
                writer.frozen([replace(noise, loss=loss) for loss in passed for noise in measured])

    def _frozen(
        self, sampler: NoiseSampler, lane: Lanes, trial: Trial, position: Position
    ) -> list[FrozenNoise]:
        """Measurements of one lane, which they train on, at this position and those of the next few updates.

        A loss that oscillates is first passed in a trough, where gradients are small: the steps after it make up for
        that.
        """
        at, measurements = (position.steps, position.examples, inf), list[FrozenNoise]()
        for ahead in range(FROZEN_STEPS):
            measurements += [replace(noise, ahead=ahead) for noise in sampler.frozen(lane, at, ahead)]
            lane.step(position.examples, trial.recipe.schedule.factor(position, trial.batch_size))
            position = position.after(trial.batch_size)
        return measurements


class NoiseSampler:
    """Squared gradient norms of the lanes of one workload, from which their noise scale follows."""

    def __init__(self, settings: NoiseSettings) -> None:
        self.settings = settings
        self._examples: Examples | None = None

    def sums(self, lanes: Lanes, start: int, *, size: int | None = None, apart: int = 0) -> Sums:
        """Squared gradient norms of groups of the batch after the first `start` examples, and of their mean.

        Args:
            size: of the batch; that of the updates by default.
            apart: other than 0, measure on data that are drawn apart from those of the updates, and of other
                numbers.

        Raises:
            UserError: a workload whose loss is not a sum over examples.
        """
        if not lanes.workload.sums_over_examples:
            raise UserError(
                type(lanes.workload).__name__,
                "has a loss that is not a sum over examples: parts of a batch don't add up to its gradient",
                'measure no noise: [noise] source = "none"',
            )
        size = lanes.batch_size if size is None else size
        sums = Sums(
            len(lanes),
            {name: self._metric(name, lanes, start, size, apart) for name in self.settings.metrics},
        )
        with restored(lanes.stack.buffers):
            batches = lanes.batches(start, size, apart)
            if self.settings.source == "examples":
                self._add_examples(sums, lanes, batches)
            else:
                _add_parts(sums, lanes, batches, min(self.settings.parts, size), start)
        return sums

    def frozen(self, lanes: Lanes, at: tuple[float, float, float], number: int = 0) -> list[FrozenNoise]:
        """The noise of one lane on fresh data, its parameters as they are: one measurement per metric.

        Measurements of other numbers and batch sizes are of other data, so that they may be added up.

        It is one of FROZEN_STEPS that share the examples, and that together have the precision. From a data set each
        example is taken once at most, as the same examples in two blocks would pass for signal.
        """
        share = self.settings.max_examples // FROZEN_STEPS
        most = min(lanes.workload.examples or share, share)
        size = min(max(FROZEN_BATCH, lanes.batch_size), most // BLOCKS)
        if size < 2:
            return []  # a data set of a handful of examples
        apart = FRESH + number + FROZEN_STEPS * (lanes.batch_size % MOST_SIZES)
        return measure_frozen(
            lambda number: self.sums(lanes, number * size, size=size, apart=apart),
            {name: _adam(lanes) if name == "adam" else identity for name in self.settings.metrics},
            at=at,
            precision=self.settings.precision * FROZEN_STEPS**0.5,
            draws=most // size,
        )

    def _metric(self, name: str, lanes: Lanes, start: int, size: int, apart: int) -> Metric:
        if name == "hessian":
            # The product of a gradient with the Hessian of its own batch has another mean.
            return hessian(_curvature(lanes, lanes.batches(start, size, FRESH + apart), size, start))
        return _adam(lanes) if name == "adam" else identity

    def _add_examples(self, sums: Sums, lanes: Lanes, batches: list[Any]) -> None:
        if self._examples is None:
            self._examples = Examples(lanes.engine.model, lanes.workload.losses)
        stack = lanes.stack
        self._examples.add(sums, stack.parameters, stack.buffers, stacked(batches, lanes.which))


def _add_parts(sums: Sums, lanes: Lanes, batches: list[Any], parts: int, start: int) -> None:
    """Add the gradients of parts of a batch, as equal as can be; those of one size in one pass if possible."""
    total = len(tensors_of(batches[0])[0])
    shorter, longer = divmod(total, parts)
    first = draw = 0
    for examples, groups in ((shorter + 1, longer), (shorter, parts - longer)):
        if not groups:
            continue
        mine = narrowed(batches, first, examples * groups)
        first += examples * groups
        if (lanes.micro_batch is None or lanes.micro_batch >= total) and _add_at_once(
            sums, lanes, _in_groups(stacked(mine, lanes.which), groups, examples), [examples] * groups
        ):
            continue
        for part in parts_of(mine, examples):
            gradients = lanes.mean_gradients(part, examples, start, draw)
            sums.add([stack.unsqueeze(1) for stack in gradients], [examples])
            draw += 1


def _add_at_once(sums: Sums, lanes: Lanes, batch: Any, sizes: list[int]) -> bool:
    """Add the gradients of groups of one size, where one pass can have them all."""
    alone = set(sums.metrics) == {"identity"}  # then all of it is replayed
    gradients = lanes.engine.grouped(batch, sizes[0], _squares_and_sums if alone else list)
    if gradients is None:
        return False
    if alone:
        squares, *total = gradients
        sums.put({"identity": squares}, [sizes[0] * tensor for tensor in total], sizes)
    else:
        sums.add(gradients, sizes)
    return True


def _squares_and_sums(stacks: list[Tensor]) -> list[Tensor]:
    """|g|^2 of every group, (lanes, groups), and the sums of g over groups, [lanes, ...]; in float64."""
    exact = [stack.double() if stack.dim() > 2 else stack.double().unsqueeze(2) for stack in stacks]
    # Over axes as they lie in memory: to flatten a gradient in another order is to copy it.
    norms = [torch.linalg.vector_norm(stack, dim=tuple(range(2, stack.dim()))) for stack in exact]
    sums = [
        stack.sum(1).reshape(like.shape[:1] + like.shape[2:])
        for stack, like in zip(exact, stacks, strict=True)
    ]
    return [torch.stack(norms).square().sum(0), *sums]


def _curvature(
    lanes: Lanes, batches: list[Any], size: int, start: int
) -> Callable[[list[Tensor]], list[Tensor]]:
    """The Hessian on as much of a batch as fits into memory."""
    fits = size if lanes.micro_batch is None else min(lanes.micro_batch, size)
    with restored(lanes.stack.buffers):
        return lanes.engine.curvature(narrowed(batches, 0, fits), lanes.which, fits, (start, 0))


def _adam(lanes: Lanes) -> Metric:
    """The metric of second moments, of any adaptive optimizer; before the first update there are none: NaN."""
    settings, moments = lanes.optimizer.settings, lanes.optimizer.moments.get("square")
    if moments is None:
        moments = [torch.full_like(stack, nan) for stack in lanes.stack.parameters.values()]
    beta2 = settings.get("beta2", 0.0)  # without one the moments are not corrected for their start at 0
    return adam(moments, max(lanes.optimizer.updates, 1), beta2, settings["eps"])


def _in_groups(batch: Any, groups: int, examples: int) -> Any:
    """[K, groups * examples, ...] as [K, groups, examples, ...]."""
    return map_tensors(lambda tensor: tensor.unflatten(1, (groups, examples)), batch)
