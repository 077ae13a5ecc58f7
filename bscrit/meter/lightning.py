"""The meter as a callback of Lightning.

from bscrit.meter.lightning import NoiseCallback

noise = NoiseCallback(path="noise.csv")
lightning.Trainer(accumulate_grad_batches=4, callbacks=[noise]).fit(module, loader)
print(noise.meter.result())
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch

from bscrit.errors import UserError
from bscrit.meter.callbacks import MeterSettings, check_names
from bscrit.meter.history import Log
from bscrit.meter.noise_meter import NoiseMeter
from bscrit.meter.own_passes import examples_in

try:
    import lightning.pytorch as pl
except ImportError as error:
    raise UserError(
        "bscrit.meter.lightning",
        f"Lightning can't be imported ({error})",
        "pip install 'bscrit[lightning]'",
    ) from error


class NoiseCallback(pl.Callback):
    """Measures the noise scale between the batches that Lightning accumulates, and between ranks.

    Lightning divides each loss by `accumulate_grad_batches`, so that batches count alike. Without accumulation and
    on one process there is nothing to compare. The meter's state goes into Lightning's checkpoints.

    Args:
        settings: every, path, metric, batch_norm, as of NoiseMeter.
        log: as of NoiseMeter; the loggers of the trainer by default.
        size: examples in a batch, where not all of its tensors begin with that number.

    Attributes:
        meter: None until training starts.
    """

    def __init__(
        self,
        *,
        log: Log | None = None,
        size: Callable[[Any], int] | None = None,
        **settings: Unpack[MeterSettings],
    ) -> None:
        check_names(settings)
        self.meter: NoiseMeter | None = None
        self._log, self._size, self._settings = log, size, settings
        self._state: Mapping[str, Any] | None = None
        self._examples = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _check(trainer, pl_module)
        if self.meter is not None and self._state is None:
            self._state = self.meter.state_dict()

        def log(values: dict[str, float], step: int) -> None:  # noqa: ARG001 (loggers know the trainer's steps)
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)

        self.meter = NoiseMeter(
            trainer.strategy.model or pl_module,
            log=self._log or log,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            optimizer=trainer.optimizers[0],
            state=self._state,
            **self._settings,
        )
        self._state = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        examples = self._size(batch) if self._size is not None else examples_in(batch)
        self._examples = examples or 0
        if not examples:
            text = (
                "NoiseCallback can't see how many examples a batch has: pass size=, a function of the batch"
            )
            warnings.warn(text, UserWarning, stacklevel=2)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        if self.meter is not None:
            self.meter.micro_batch(self._examples)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        if self.meter is not None:
            self.meter.step()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        if self.meter is not None:
            self.meter.close()

    def state_dict(self) -> dict[str, Any]:
        return {} if self.meter is None else self.meter.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict or None


def _check(trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Raises UserError where backwards and updates do not come one after the other, or gradients are not whole."""
    if not module.automatic_optimization:
        raise UserError(
            "NoiseCallback", "the module optimizes by hand", "call bscrit.NoiseMeter in its training_step"
        )
    if len(trainer.optimizers) != 1 or isinstance(trainer.optimizers[0], torch.optim.LBFGS):
        kinds = ", ".join(type(optimizer).__name__ for optimizer in trainer.optimizers) or "none"
        raise UserError("NoiseCallback", f"optimizers: {kinds}", "use one that takes one gradient a step")
    if trainer.strategy.handles_gradient_accumulation:
        name = type(trainer.strategy).__name__
        raise UserError("NoiseCallback", f"{name} accumulates gradients itself", 'use strategy="ddp"')
