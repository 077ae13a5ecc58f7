"""The workload's evaluation of one model, which changes neither tensors nor random state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.engine.seeding import seeded
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.measure.holding import Places


def evaluate_alone(
    workload: Workload, model: nn.Module, places: Places, tensors: Mapping[str, Tensor]
) -> Tensor:
    """The evaluation of one model with these tensors, a scalar."""
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    with places.holding(copies), evaluating(model, next(iter(tensors.values())).device):
        return checked_evaluation(workload.evaluate(model))


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
        returned = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UserError(
            "evaluate", f"returned {returned}, expected a scalar", "return the mean over the evaluation set"
        )
    return value
