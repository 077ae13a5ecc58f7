"""The contract between a workload and the training loop.

A workload is a class with four methods and a unit. Its losses come *per example*, and that settles what
usually goes wrong: sum or mean, uneven last micro-batches, per-example gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor, nn


class Workload:
    """Subclass it, or write any class with the same members; the spec's other keys go to `__init__`.

    Attributes:
        unit: what a batch size counts: "image", "token", "frame".
        examples: size of the training set in that unit, None where data are drawn without end.
        sums_over_examples: False where the loss of a batch is not a mean of per-example losses that depend
            on one example each (batch norm, contrastive losses). Then a batch is never split into
            micro-batches and no noise scale is measured.
        validation_examples: most examples of one evaluation, as [sweep] has it; None for all. A class that names it
            evaluates on the first so many of its validation set.
        replayable: True where `losses` and `evaluate` depend on their arguments alone, the same from the first step
            to the last, and change nothing else. Their kernel calls may then be recorded once and replayed,
            several times as fast for a small model. A class that is derived from such a one says it anew.
    """

    unit: ClassVar[str] = "example"
    examples: int | None = None
    sums_over_examples: bool = True
    validation_examples: int | None = None
    replayable: ClassVar[bool] = False

    def model(self, seed: int) -> nn.Module:
        """A new model on the CPU, its initial parameters a function of the seed alone."""
        raise NotImplementedError

    def batch(self, seed: int, start: int, size: int) -> Any:
        """The `size` examples after the first `start` of a run: a function of these three numbers alone.

        Returns a tensor or a nest of tuples, lists and dicts of tensors, each with leading dimension `size`.
        """
        raise NotImplementedError

    def losses(self, model: nn.Module, batch: Any) -> Tensor:
        """Per-example losses, shape (size,), of the model in training mode."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module) -> Tensor | Mapping[str, Tensor]:
        """The loss that targets refer to, a scalar: sum over count on a fixed evaluation set.

        Or a mapping of several such metrics by name, of which [sweep] metric names one.
        """
        raise NotImplementedError

    def fingerprint(self) -> str:
        """An identity of the data, so that other data never reuse old trials; "" where settings say it all."""
        return ""

    def prepare(self, device: str) -> None:
        """Called once before training: load the data, and put it on the device if it fits there."""
