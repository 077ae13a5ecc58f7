"""What a workload returns: its evaluation of one model, which changes neither model nor random state, and checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bscrit.engine.gradients import Call
from bscrit.engine.seeding import seeded
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.measure.nested import tensors_of


def evaluate_alone(
    workload: Workload, model: nn.Module, lane: dict[str, Tensor], device: torch.device
) -> Tensor:
    """The workload's evaluation of one model with these tensors, a scalar; the tensors stay as they are."""
    state = {f"model.{name}": tensor.clone() for name, tensor in lane.items()}
    with evaluating(model, device):
        return checked_evaluation(functional_call(Call(workload.evaluate, model), state, ()))


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
