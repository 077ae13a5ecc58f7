"""The workload's evaluation of one model, which changes neither tensors nor random state."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.engine.seeding import seeded
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, nearest
from bscrit.goal import LOSS, TRAIN_LOSS
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


def measuring(workload: Workload, metric: str) -> Workload:
    """The workload with this metric, of those that it evaluates or that of its batches, as its evaluation."""
    if metric == LOSS.metric:
        return workload
    made = copy.copy(workload)
    if metric == TRAIN_LOSS:
        made.evaluate = _of_batches  # type: ignore[method-assign]
        return made

    def evaluate(model: nn.Module) -> Tensor:
        return checked_evaluation(workload.evaluate(model), metric)

    made.evaluate = evaluate  # type: ignore[method-assign]
    return made


def averages_batches(workload: Workload) -> bool:
    """Whether its metric is the mean of the losses of its batches, and nothing is evaluated."""
    return workload.evaluate is _of_batches


def _of_batches(model: nn.Module) -> Tensor:
    raise AssertionError(model)


def checked_evaluation(value: Any, metric: str = LOSS.metric) -> Tensor:
    """An evaluation as a tensor without dimensions: a number, which is called loss, or one of a mapping of several.

    Raises:
        UserError: anything else.
    """
    if isinstance(value, Mapping):
        if metric not in value:
            what = f"is {metric!r}, which is not among what `evaluate` returns"
            raise UserError("[sweep] metric", what, nearest(metric, map(str, value)))
        value = value[metric]
    elif metric != LOSS.metric:
        what = f"is {metric!r}, but `evaluate` returns a single value, which is called {LOSS.metric!r}"
        raise UserError("[sweep] metric", what, "leave it out, or return a mapping of names to values")
    if isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float64)
    if not isinstance(value, Tensor) or value.dim():
        returned = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UserError(
            "evaluate", f"returned {returned}, expected a scalar", "return the mean over the evaluation set"
        )
    return value
