"""The numbers in which a run computes, from one word: part of its identity, since they change its curve.

float64    everything in float64
float32    everything in float32, products too
tf32       float32, products of matrices rounded to 10 bits where the device has such units
bfloat16   parameters, gradients and updates in float32, the forward pass in bfloat16 where that is safe (autocast)
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bscrit.engine.evaluation import averages_batches
from bscrit.engine.workload import Workload
from bscrit.errors import UserError


def storage(dtype: str) -> torch.dtype:
    """Type of parameters, buffers and floating inputs."""
    return torch.float64 if dtype == "float64" else torch.float32


def in_storage(model: nn.Module, device: torch.device, dtype: torch.dtype, owner: str) -> nn.Module:
    """The model on the device, its floating tensors of this type; complex buffers stay complex.

    Raises:
        UserError: a parameter that is complex, which an update would not treat as two numbers; one without a shape.
    """
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise UserError(
                f"{owner}.model",
                f"parameter {name!r} has no shape before the first batch: it is of a lazy module",
                "give the module its sizes, or run a batch through the model before it is returned",
            )
        if parameter.is_complex():
            raise UserError(
                f"{owner}.model",
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}: complex ones are not trained",
                "keep it as two real numbers, torch.view_as_complex in forward",
            )

    def move(tensor: Tensor) -> Tensor:
        kind = tensor.dtype
        if tensor.is_complex():
            kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        elif tensor.is_floating_point():
            kind = dtype
        return tensor.to(device, kind)

    model._apply(move)  # type: ignore[no-untyped-call]
    return model


def rounding(dtype: str, device: str) -> float:
    """How much two ways to compute the same may differ, as a share of the largest entry.

    TF32 rounds to 10 bits and bfloat16 to 7, before sums; a GPU sums in any order.
    """
    if dtype == "float32":
        return 1e-3 if device.startswith("cuda") else 1e-4
    return {"float64": 1e-9, "tf32": 5e-3, "bfloat16": 0.15}[dtype]


def set_products(dtype: str) -> None:
    """Whether products of float32 matrices may be rounded; holds for the whole process."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def computing_in(workload: Workload, dtype: str, device: torch.device) -> Workload:
    """The workload with its losses and evaluation computed as `dtype` says; itself where nothing is to be done."""
    if dtype != "bfloat16":
        return workload
    made = copy.copy(workload)

    def losses(model: nn.Module, batch: Any) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return workload.losses(model, batch).float()

    def evaluate(model: nn.Module) -> Tensor | Mapping[str, Tensor]:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return workload.evaluate(model)

    made.losses = losses  # type: ignore[method-assign]
    if not averages_batches(workload):
        made.evaluate = evaluate  # type: ignore[method-assign]
    return made
