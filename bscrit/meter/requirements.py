"""Models, settings and optimizers that a meter can measure with, and complaints about the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from bscrit.errors import UserError, nearest
from bscrit.measure.metrics import adam_weight
from bscrit.meter.flat import real
from bscrit.meter.ranks import ranks
from bscrit.meter.step_sums import WEIGHTS

MetricName = Literal["identity", "adam", "hessian"]
METRICS: tuple[MetricName, ...] = ("identity", "adam", "hessian")
SHARDED = (
    "parameters are sharded (FSDP, DTensor, DeepSpeed): each rank holds a part of a gradient that is reduced already; "
    "train with DistributedDataParallel while you measure, or call meter.measure() on an unsharded copy of the model"
)
BATCH_NORM = (
    "with batch norm the loss is no sum over examples, as each depends on its micro-batch; freeze it by .eval() or use "
    "group norm; batch_norm=True measures all the same, for batches that are made of micro-batches of this size"
)

COMPLAINTS = {
    "twice": "a parameter got two gradients before meter.micro_batch(): call it after each backward; with "
    "gradient checkpointing pass use_reentrant=False",
    "open": "a backward was not followed by meter.micro_batch(size): call it after each one; or, with a single "
    "backward a step, call meter.measure(loss, batch)",
    "unseen": "meter.micro_batch() was called without a backward before it: call it once after each backward",
    "size": "meter.micro_batch(size, weight) takes a positive whole number of examples, and a positive weight",
    "rescaled": "the loss scale changed within a step: call scaler.update() once a step, after the last backward",
    "batch": "meter.measure() can't cut this batch: it takes tensors that all begin with the same number of examples",
    "sharded": SHARDED,
    "alone": "every measured step so far had a single micro-batch, and nothing to compare it with: accumulate two or "
    "more (accumulate_grad_batches, gradient_accumulation_steps), or in your own loop call meter.measure(loss, batch)",
    "hessian": 'metric="hessian" is measured by meter.measure(loss, batch) alone, which every step so far lacked',
    "same": "the micro-batches (or the ranks) of a step hold the same data, between which there is no noise: use a "
    "DistributedSampler, and draw each micro-batch anew",
    "parameters": "the ranks hold different parameters (tensor or pipeline parallel?): nothing more is measured; pass "
    "group=, the ranks that train the same parameters on different data",
    "divisor": "the weights of the micro-batches do not add up to what the loss was divided by (transformers: label "
    "smoothing and compute_loss_func take the labels away, so that the model's inputs do not tell how many count); "
    "measure without these, or with as many labels in each micro-batch",
    "batch_norm": BATCH_NORM,
    "adam": "the optimizer keeps no second moments: pass the one that trains the model",
}
"""Mistakes of a loop in a step, and the remedy."""


def check_settings(
    every: object, log: object, weights: str, scaler: object, group: dist.ProcessGroup | None, metric: str
) -> None:
    scales = scaler is None or callable(getattr(scaler, "get_scale", None))
    for right, what, remedy in (
        (_at_least(every, 1), f"every = {every!r}", "a whole number of steps, at least 1"),
        (log is None or callable(log), "log can't be called", "pass a function log(values, step)"),
        (weights in WEIGHTS, f"weights = {weights!r}", nearest(str(weights), WEIGHTS)),
        (metric in METRICS, f"metric = {metric!r}", nearest(str(metric), METRICS)),
        (scales, "scaler has no get_scale()", "pass the torch.amp.GradScaler of the loop"),
        (group is None or ranks(group) > 0, "this rank is not in group", "pass the ranks it trains with"),
    ):
        if not right:
            raise UserError("NoiseMeter", what, remedy)


def check_measure(loss: object, parts: object, least: int) -> None:
    if not callable(loss):
        raise UserError("NoiseMeter.measure", "loss can't be called", "pass a function loss(model, batch)")
    if not _at_least(parts, least):
        raise UserError("NoiseMeter.measure", f"parts = {parts!r}", f"a whole number, at least {least}")


def check_model(model: nn.Module, batch_norm: bool) -> None:
    """Raises UserError where gradients of micro-batches can't be seen, or mean something else."""
    if not isinstance(model, nn.Module):
        raise UserError(
            "NoiseMeter", f"model is a {type(model).__name__}", "pass the torch.nn.Module that is trained"
        )
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise UserError(
            "NoiseMeter",
            "the model has lazy modules, whose parameters have no shape yet",
            "run a batch through the model first",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "NoiseMeter",
            "no parameter of the model is trainable",
            "pass the model that is trained, as it is trained",
        )
    if is_sharded(model):
        what, _, remedy = SHARDED.partition("; ")
        raise UserError("NoiseMeter", what, remedy)
    if not batch_norm and has_batch_norm(model):
        what, _, remedy = BATCH_NORM.partition("; ")
        raise UserError("NoiseMeter", what, remedy)


def has_batch_norm(model: nn.Module) -> bool:
    """Whether batch norm now takes the mean and variance of each micro-batch."""
    return any(
        isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
        for module in model.modules()
    )


def is_sharded(model: nn.Module) -> bool:
    """Whether a rank holds parts of parameters only, by the marks that the libraries leave."""
    wrapped = any(_is_a(module, "FullyShardedDataParallel", "FSDPModule") for module in model.modules())
    return wrapped or any(
        _is_a(p, "DTensor", "FlatParameter") or hasattr(p, "ds_id") for p in model.parameters()
    )


def adam_of(optimizer: object) -> torch.optim.Optimizer:
    """The optimizer within the wrappers of accelerate and Lightning."""
    inner = optimizer
    while not isinstance(inner, torch.optim.Adam | torch.optim.AdamW) and hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Adam | torch.optim.AdamW):
        kind = "no optimizer is given" if optimizer is None else f"optimizer is {type(optimizer).__name__}"
        raise UserError(
            "NoiseMeter",
            f'metric = "adam", but {kind}',
            "pass the torch.optim.Adam or AdamW that trains the model",
        )
    return inner


def adam_weights(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> list[Tensor | None]:
    """`adam_weight` of each parameter; None where Adam has made no update yet."""
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    weights: list[Tensor | None] = []
    for parameter in parameters:
        state, group = optimizer.state.get(parameter, {}), groups.get(id(parameter))
        if group is None or "exp_avg_sq" not in state:
            weights.append(None)
            continue
        moment = real(state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"])
        updates, beta2, eps = float(state["step"]), float(group["betas"][1]), float(group["eps"])
        weights.append(adam_weight(moment.float(), updates, beta2, eps))
    return weights


def _at_least(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_a(thing: object, *names: str) -> bool:
    """By name, as importing these classes takes seconds."""
    return any(base.__name__ in names for base in type(thing).__mro__)
