"""The gradient noise scale of any PyTorch loop, from the gradients that the loop computes anyway.

    meter = bscrit.NoiseMeter(model, path="noise.csv")
    for batch in loader:                          # one update
        for micro in batch:
            (loss(model, micro) / len(batch)).backward()
            meter.micro_batch(len(micro))         # after each backward
        meter.step()                              # once per update, before or after optimizer.step()
    print(meter.result())

On measured steps hooks on the parameters see the gradient of each backward before it is accumulated, reduced
over ranks, unscaled or clipped. On all others there are no hooks. Nothing that the loop uses is touched.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bscrit.measure.random_states import random_states_kept
from bscrit.meter.count import Count, Scaler
from bscrit.meter.history import History, Log, NoiseReading, restore
from bscrit.meter.own_passes import (
    Loss,
    LossGradients,
    RankAverage,
    examples_in,
    half_against_half,
    parts_apart,
)
from bscrit.meter.ranks import is_first_rank, ranks, same_parameters
from bscrit.meter.requirements import (
    COMPLAINTS,
    MetricName,
    adam_of,
    adam_weights,
    check_measure,
    check_model,
    check_settings,
    has_batch_norm,
    is_sharded,
)
from bscrit.meter.step_sums import StepSums, Weights
from bscrit.noise import NoiseSamples
from bscrit.noise_settings import NoiseSettings

PATIENCE_SAMPLES = 3  # measured steps without anything to compare, after which it is said
PATIENCE_STEPS = 100  # steps after which an optimizer that keeps no moments is taken for the wrong one


class NoiseMeter:
    """Measures the gradient noise scale while somebody else trains.

    Once it is built it raises no error for what the loop does wrong: it drops the step, counts it, and warns
    once. Every rank of a data-parallel group calls it alike.

    Args:
        model: whose trainable parameters count; wrapped in DistributedDataParallel or not.
        every: fewest steps from one measured step to the next; they lie 5 % of the steps so far apart at least.
        path: noise.csv, written by the first rank.
        log: called with {"noise/signal", "noise/noise", "noise/scale"} and the step, on the first rank; the scale
            rests on the last 20 samples, and is absent where they do not resolve it.
        weights: how micro-batches count in an update. "equal": each loss is a mean, and they count alike.
            "examples": each loss is a sum, divided by the examples of all micro-batches of all ranks.
            "examples_per_rank": divided by those of the same rank.
        scaler: torch.amp.GradScaler of the loop, if it has one.
        group: ranks whose gradients are averaged; all by default, where torch.distributed is initialised.
        metric: "identity" (B_simple), "adam" (squares over sqrt(v) + eps), "hessian" (B_noise, by `measure` only).
        optimizer: the torch.optim.Adam or AdamW whose second moments "adam" takes.
        batch_norm: measure although batch norm ties the examples of a micro-batch together.
        state: `state_dict()` of the meter of a run that goes on; its step and examples suffice.

    Raises:
        UserError: something here can't be measured; `path` belongs to another run.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 10,
        path: str | Path | None = None,
        log: Log | None = None,
        weights: Weights = "equal",
        scaler: Scaler | None = None,
        group: dist.ProcessGroup | None = None,
        metric: MetricName = "identity",
        optimizer: torch.optim.Optimizer | None = None,
        batch_norm: bool = False,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._sums: StepSums | RankAverage | None = None
        check_settings(every, log, weights, scaler, group, metric)
        check_model(model, batch_norm)
        self.model, self.weights = model, weights
        self.group, self.metric, self.batch_norm = group, metric, batch_norm
        self._optimizer = adam_of(optimizer) if metric == "adam" else None
        self._warned: set[str] = set()
        self._closed = self._same_parameters = False
        self._micro_batches = self._measured = 0  # examples of this step
        self._count = Count(NoiseSettings(every=every), scaler)
        self._history = History(metric, log)
        if state is not None:
            restore(state, self._history, self._count)
        if path is not None and is_first_rank(group):
            self._history.write_to(Path(path), None if state is None else self._count.step)
        self._arm()

    def micro_batch(self, size: int, weight: float | None = None) -> None:
        """The backward that just ended was that of `size` examples.

        Args:
            weight: its share in the update where that is not `size` (tokens in the loss, say), in any unit; without
                effect where micro-batches count alike.
        """
        try:
            examples = 0 if isinstance(size, bool) else operator.index(size)
            share = 1.0 if self.weights == "equal" else float(examples if weight is None else weight)
        except (TypeError, ValueError, RuntimeError):
            examples, share = 0, 0.0
        if examples < 1 or not 0 < share < math.inf:
            self._warn(COMPLAINTS["size"])
            if self._sums is not None:
                self._sums.fault = self._sums.fault or "size"
            return
        if self._sums is not None and not self._micro_batches:
            self._count.take_back_skipped()
        self._micro_batches += examples
        if isinstance(self._sums, StepSums) and not self._sums.own:
            self._check_norms(self._sums)
            self._sums.end_group(examples, share, self._count.scale())

    def measure(self, loss: Loss, batch: Any, parts: int = 4) -> bool:
        """Compare parts of a batch by passes of the meter's own, where a loop has one backward a step.

        To be called once in each step, with its parameters and batch; it does nothing where the step is not measured.
        It costs about one more pass, for the Hessian parts + 2 double ones.

        Args:
            loss: loss(model, batch), the mean over the examples of the batch.
            batch: a nest of tensors that all begin with the same number of examples.
            parts: into which the batch is cut.

        Returns:
            Whether this step was measured.

        Raises:
            UserError: `loss` is no function, or gives no number that can be differentiated; `parts` is too small.
        """
        least = 4 if self.metric == "hessian" else 2
        check_measure(loss, parts, least)
        length = examples_in(batch)
        examples = self._measured = length or 0
        sums = self._sums
        if sums is None:
            return False
        self._count.take_back_skipped()
        if isinstance(sums, StepSums):
            sums.restart()
        self._check_norms(sums)
        if length is None:
            sums.fault = "batch"
        if examples < least:
            return False
        devices = [parameter.device for parameter in self.model.parameters()]
        with random_states_kept(devices), torch.enable_grad():
            gradients = LossGradients(self.model, loss, sums.parameters)
            if isinstance(sums, StepSums):
                parts_apart(sums, gradients, batch, examples, min(parts, examples))
            else:
                sums.solution = half_against_half(gradients, batch, examples, min(parts, examples))
        return True

    def step(self, divisor: float | None = None) -> None:
        """All backwards of an update are done; whether the update itself is, does not matter.

        Args:
            divisor: that the losses were divided by, where they are sums: a step is dropped whose weights (those of
                all ranks, or of this one) do not add up to it.
        """
        sums = self._sums
        if sums is not None:
            if isinstance(sums, StepSums):
                sums.divisor = divisor
            if trouble := self._settle(sums):
                self._warn(trouble)
            self._count.plan_next(ready=sums.ready)
            self._sums = None
        self._count.advance(self._micro_batches or self._measured)
        self._micro_batches = self._measured = 0
        self._arm()

    def result(self, last: int | None = None, since: int | None = None) -> NoiseReading:
        """The noise scale over all samples, over the last ones, or over those from a step on."""
        return self._history.reading(last, since)

    @property
    def measuring(self) -> bool:
        """Whether the step under way is measured."""
        return self._sums is not None

    @property
    def samples(self) -> NoiseSamples:
        """All samples, as from noise.csv."""
        return self._history.samples()

    def state_dict(self) -> dict[str, Any]:
        """The state with which a meter goes on, after `step()`; plain numbers, for JSON too."""
        return {**self._count.state(ranks(self.group)), **self._history.state()}

    def close(self) -> None:
        """Take the hooks off; what was measured stays."""
        self._closed = True
        if self._sums is not None:
            self._sums.close()
            self._sums = None

    def __del__(self) -> None:
        self.close()

    def _arm(self) -> None:
        """Put the hooks on where the coming step is to be measured."""
        if self._closed or self._count.calls != self._count.due:
            return
        parameters = self._trainable()
        if is_sharded(self.model):
            self._warn(COMPLAINTS["sharded"], level=4)
            self.close()
            return
        if not parameters:
            self._count.due += 1
        elif self.metric == "hessian":
            self._sums = RankAverage(parameters)
        else:
            moments = partial(adam_weights, self._optimizer, parameters) if self._optimizer else None
            self._sums = StepSums(parameters, moments, self.weights != "examples")

    def _settle(self, sums: StepSums | RankAverage) -> str:
        """End a measured step; what went wrong with it, or nothing."""
        device = next(self.model.parameters()).device
        history = self._history
        if not self._same_parameters and not same_parameters(sums.parameters, device, self.group):
            self.close()
            return COMPLAINTS["parameters"]
        self._same_parameters = True
        outcome = sums.outcome(self._count.here, device, self.group)
        self._count.examples += outcome.examples
        self._count.here = 0
        if outcome.sample is not None and all(map(math.isfinite, outcome.sample)):
            return history.keep(
                self._count.step, self._count.examples, outcome.sample, is_first_rank(self.group)
            )
        if not sums.ready:
            return COMPLAINTS["adam"] if self._count.calls > PATIENCE_STEPS else ""
        if outcome.groups < 2 and not outcome.fault:
            history.alone += 1
            if history.alone == PATIENCE_SAMPLES and not history.rows:
                return COMPLAINTS["hessian" if self.metric == "hessian" else "alone"]
            return ""
        if outcome.fault == "same":
            history.same += 1
            often = history.same >= PATIENCE_SAMPLES and history.same > len(history.rows)
            return COMPLAINTS["same"] if often else ""
        history.dropped += 1
        return COMPLAINTS.get(outcome.fault, "")

    def _check_norms(self, sums: StepSums | RankAverage) -> None:
        """Batch norm may be switched on while a run goes on."""
        if not self.batch_norm and has_batch_norm(self.model):
            sums.fault = sums.fault or "batch_norm"

    def _trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _warn(self, text: str, level: int = 3) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"NoiseMeter: {text}", UserWarning, stacklevel=level)
