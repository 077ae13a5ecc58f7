"""Gradients of parts of a batch by passes of the meter's own, where a loop has only the gradient of all of it.

They leave no trace: parameters are seen through aliases that carry no hooks and no `.grad`, buffers are copies,
and random states are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DataParallel, DistributedDataParallel

from bscrit.errors import UserError
from bscrit.measure.metrics import hessian, hessian_product
from bscrit.measure.nested import map_tensors, tensors_of
from bscrit.measure.sums import Sums
from bscrit.meter.ranks import add_over_ranks
from bscrit.meter.step_sums import StepOutcome, StepSums
from bscrit.noise import two_sizes

Loss = Callable[[Any, Any], Tensor]
"""loss(model, batch): the mean over the examples of the batch."""
Solution = tuple[float, float, float, float]
"""Unbiased tr(Sigma) and |G|^2, and the sizes of the small and large batches that they come from."""


class LossGradients:
    """Gradients of a loss, at the parameters as they are.

    Args:
        model: whose data-parallel wrapper is left away, as it would wait for a backward of its own.
        parameters: of it, to be differentiated by.
    """

    def __init__(self, model: nn.Module, loss: Loss, parameters: Sequence[nn.Parameter]) -> None:
        self.whole = _LossOf(_inner(model), loss)
        aliases = {parameter: parameter.detach() for parameter in self.whole.parameters()}
        self.leaves = [aliases[parameter].requires_grad_() for parameter in parameters]
        self.values = {name: aliases[parameter] for name, parameter in self.whole.named_parameters()}
        self.values |= {name: buffer.clone() for name, buffer in self.whole.named_buffers()}

    def of(self, batch: Any) -> list[Tensor | None]:
        """Per parameter; None where it plays no part."""
        return list(torch.autograd.grad(self._loss(batch), self.leaves, allow_unused=True))

    def hessian_product(self, batch: Any) -> Callable[[list[Tensor]], list[Tensor]]:
        """v -> Hv, per parameter, as stacks with one lane in front."""
        product = hessian_product(self._loss(batch), self.leaves)
        return lambda vector: [image[None] for image in product([stack[0] for stack in vector])]

    def _loss(self, batch: Any) -> Tensor:
        value = torch.func.functional_call(self.whole, self.values, (batch,))
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise UserError(
                "NoiseMeter.measure",
                "the loss is not a single number that can be differentiated",
                "loss(model, batch) returns the mean loss of the batch, without .item() or no_grad()",
            )
        return value.reshape(())


class RankAverage:
    """The mean over ranks of the noise and signal that each has solved for: squares of a Hessian can't be added."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.fault = ""
        self.ready = True
        self.solution: Solution | None = None

    def close(self) -> None:
        """Nothing is held."""

    def outcome(self, examples: int, device: torch.device, group: dist.ProcessGroup | None) -> StepOutcome:
        """The mean over the ranks that have a solution."""
        mine = [*(self.solution or (0.0, 0.0, 0.0, 0.0)), float(self.solution is not None)]
        added = add_over_ranks([*mine, float(examples), float(bool(self.fault))], device, group)
        *sums, answers, all_examples, faults = added
        sample = None
        if answers and not faults:
            noise, signal, n_small, n_big = (value / answers for value in sums)
            sample = (n_small, signal + noise / n_small, n_big, signal + noise / n_big)
        fault = self.fault or ("elsewhere" if faults else "")
        return StepOutcome(sample, round(all_examples), 2 * round(answers), fault)


def parts_apart(sums: StepSums, gradients: LossGradients, batch: Any, examples: int, parts: int) -> None:
    """Put the gradients of parts of a batch as micro-batches, weighted as the mean over the batch weighs them."""
    for part, count in split(batch, examples, parts):
        for index, gradient in enumerate(gradients.of(part)):
            if gradient is not None:
                sums.see(index, gradient, count / examples)
        sums.end_group(count, count, 1.0)


def half_against_half(gradients: LossGradients, batch: Any, examples: int, parts: int) -> Solution:
    """tr(H Sigma) and G'HG: the gradients of one half with the Hessian of the other, and the other way round.

    With the Hessian of the same examples, E g'Hg would be another number.
    """
    halves = list(split(batch, examples, 2))
    solutions = []
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
        for (mine, size), (other, _) in zip(halves, reversed(halves), strict=True):
            sums = Sums(1, {"hessian": hessian(gradients.hessian_product(other))})
            for part, count in split(mine, size, parts // 2):
                pairs = zip(gradients.of(part), gradients.leaves, strict=True)
                sums.add([_or_zeros(g, leaf)[None, None] for g, leaf in pairs], [count])
            n_small, sq_small, n_big, sq_big = sums.samples()["hessian"][0]
            noise, signal = two_sizes(n_small, sq_small, n_big, sq_big)
            solutions.append((noise, signal, n_small, n_big))
    noise, signal, n_small, n_big = (sum(column) / 2 for column in zip(*solutions, strict=True))
    return noise, signal, n_small, n_big


def examples_in(batch: Any) -> int | None:
    """The length that all tensors of a batch have; None without tensors, or where they differ."""
    lengths = {len(tensor) for tensor in tensors_of(batch, keep_others=True) if tensor.dim()}
    return lengths.pop() if len(lengths) == 1 else None


def split(batch: Any, examples: int, parts: int) -> Iterator[tuple[Any, int]]:
    """Parts as equal as can be, each with its number of examples."""
    for low, high in pairwise(examples * part // parts for part in range(parts + 1)):
        yield _examples_of(batch, low, high), high - low


def _examples_of(batch: Any, low: int, high: int) -> Any:
    """These examples of each tensor that has a length; all else as it is."""
    return map_tensors(lambda tensor: tensor[low:high] if tensor.dim() else tensor, batch, keep_others=True)


class _LossOf(nn.Module):
    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> Tensor:
        return self.loss(self.model, batch)


def _inner(model: nn.Module) -> nn.Module:
    inner = getattr(model, "_orig_mod", model)
    return inner.module if isinstance(inner, DataParallel | DistributedDataParallel) else model


def _or_zeros(values: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if values is None else values
