"""The meter as a callback of the transformers Trainer.

    from bscrit.meter.transformers import NoiseCallback

    noise = NoiseCallback(path="noise.csv")
    Trainer(model, TrainingArguments(gradient_accumulation_steps=4), ..., callbacks=[noise]).train()
    print(noise.meter.result())

Callbacks get nothing of the Trainer's batches, so a hook on the model sees its inputs: they show how many examples
and labels a micro-batch has, and whether the loss is divided by the labels of all micro-batches (num_items_in_batch).
Label smoothing and compute_loss_func take the labels away before. Then tokens stand for them, which must add up to
that divisor; where it is not seen either, micro-batches count alike, which must be of one size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bscrit.errors import UserError, nearest
from bscrit.meter.callbacks import MeterSettings, check_names
from bscrit.meter.history import Log
from bscrit.meter.noise_meter import NoiseMeter
from bscrit.meter.requirements import SHARDED

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.loss.loss_utils import LOSS_MAPPING
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise UserError(
        "bscrit.meter.transformers",
        f"the transformers Trainer can't be imported ({error})",
        "pip install 'bscrit[transformers]'",
    ) from error

Unit = Literal["examples", "items"]
IGNORED = -100
"""Labels that the losses of transformers leave out."""


class NoiseCallback(TrainerCallback, ExportableState):
    """Measures the noise scale between the micro-batches that the Trainer accumulates, and between ranks.

    Without accumulation and on one process there is nothing to compare. The meter's state goes into the Trainer's
    checkpoints, and is found again when training resumes from one.

    Args:
        log: as of NoiseMeter; `log=lambda values, step: trainer.log(values)` hands the values to everything that the
            Trainer reports to.
        unit: what the noise scale counts: "examples", the length of the inputs; or "items", labels in the loss, which
            waits for the device once per micro-batch to count them.
        settings: every, path, metric, batch_norm, as of NoiseMeter.

    Attributes:
        meter: None until training starts.
    """

    def __init__(
        self, *, log: Log | None = None, unit: Unit = "examples", **settings: Unpack[MeterSettings]
    ) -> None:
        check_names(settings)
        if unit not in ("examples", "items"):
            raise UserError("NoiseCallback", f"unit = {unit!r}", nearest(str(unit), ("examples", "items")))
        self.meter: NoiseMeter | None = None
        self.saved: Mapping[str, Any] | None = None
        self.log, self.unit, self._settings = log, unit, settings
        self._inputs_hook: RemovableHandle | None = None
        self._seen: _Seen | None = None
        self._sizes: set[int] = set()
        self._divisor: float | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del control
        if args.deepspeed or args.fsdp:
            what, _, remedy = SHARDED.partition("; ")
            raise UserError("NoiseCallback", what, remedy)
        if args.n_gpu > 1:
            raise UserError(
                "NoiseCallback",
                f"one process uses {args.n_gpu} devices",
                "start one per device, with torchrun",
            )
        self._end()
        self._smooths = args.label_smoothing_factor != 0
        # The Trainer's own saving fails where a checkpoint that it resumes from knows a callback not.
        stored: Any = state.stateful_callbacks
        stored.setdefault(type(self).__name__, self.state())
        model, optimizer = kwargs["model"], kwargs.get("optimizer")
        self.meter = NoiseMeter(
            model,
            log=self.log,
            weights="examples" if args.average_tokens_across_devices else "examples_per_rank",
            scaler=getattr(optimizer, "scaler", None),
            optimizer=optimizer,
            state=self._state_at(args, state),
            **self._settings,
        )
        unseen: Any = torch.compiler.disable(self._see)  # type: ignore[no-untyped-call]
        self._inputs_hook = model.register_forward_pre_hook(unseen, with_kwargs=True)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, state, control, kwargs
        if self.meter is not None:
            seen, self._seen = self._seen or _Seen(), None
            self._divisor = seen.divisor
            self._sizes.add(seen.guessed)
            size = seen.items if self.unit == "items" else seen.examples
            self.meter.micro_batch(size, weight=seen.items if seen.divisor is not None else 1.0)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.on_substep_end(args, state, control, **kwargs)
        if self.meter is not None:
            self.meter.step(self._divisor if len(self._sizes) == 1 else math.nan)
        self._sizes = set()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, state, control, kwargs
        self._end()

    def state(self) -> dict[str, Any]:
        """For the Trainer's checkpoints."""
        saved = self.saved if self.meter is None else self.meter.state_dict()
        plain = {
            name: str(value) if isinstance(value, Path) else value for name, value in self._settings.items()
        }
        return {"args": {**plain, "unit": self.unit}, "attributes": {"saved": saved}}

    def _end(self) -> None:
        if self.meter is not None:
            self.meter.close()
        if self._inputs_hook is not None:
            self._inputs_hook.remove()
            self._inputs_hook = None

    def _state_at(self, args: TrainingArguments, state: TrainerState) -> Mapping[str, Any] | None:
        """The state of the meter, where training resumes; without one in the checkpoint, examples are reckoned."""
        if not state.global_step:
            return None
        callbacks: Any = state.stateful_callbacks
        stored = callbacks[type(self).__name__]
        stored = stored[0] if isinstance(stored, list) else stored
        saved = self.saved or stored["attributes"]["saved"]
        a_step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return saved or {"step": state.global_step, "examples": state.global_step * a_step}

    def _see(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a forward pass of the model: note what the next backward will be of."""
        if not model.training or not torch.is_grad_enabled() or self._seen is not None or self.meter is None:
            return
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()]
        divisor = kwargs.get("num_items_in_batch") if self.meter.measuring else None
        without_labels = not self._smooths and not any("labels" in name for name in kwargs)
        self._seen = _Seen(
            examples=len(inputs[0]) if inputs else 0,
            items=_items(model, kwargs) if self.unit == "items" or divisor is not None else 0,
            divisor=None if divisor is None else float(divisor),
            guessed=inputs[0].numel() if inputs and without_labels and divisor is None else 0,
        )


@dataclass(frozen=True)
class _Seen:
    """The inputs of a micro-batch.

    Attributes:
        examples, items: how many.
        divisor: labels of the whole update, where the loss is divided by these.
        guessed: numbers in the first input, where that is all there is to guess a weight from.
    """

    examples: int = 0
    items: int = 0
    divisor: float | None = None
    guessed: int = 0


def _items(model: nn.Module, inputs: Mapping[str, Any]) -> int:
    """Labels in the loss, as the Trainer counts them; without labels among the inputs, tokens."""
    if isinstance(labels := inputs.get("shift_labels"), Tensor):
        return int((labels != IGNORED).sum())
    loss = LOSS_MAPPING.get(str(getattr(model, "loss_type", "")))
    shifts = getattr(loss, "__name__", "") == "ForCausalLMLoss"
    first = int(shifts and not getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    if isinstance(labels := inputs.get("labels"), Tensor):
        return int((labels[..., first:] != IGNORED).sum())
    if isinstance(mask := inputs.get("attention_mask"), Tensor):
        return int(mask[..., first:].sum())
    tokens = inputs.get("input_ids")
    return tokens[..., first:].numel() if isinstance(tokens, Tensor) else 0
