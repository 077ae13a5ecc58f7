"""How one run trains: the tables [optimizer] and [schedule] of a spec, one class for each choice of `use`."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from bscrit.spec.expression import Expression
from bscrit.spec.values import Quantity, Real, Whole, refuse
from bscrit.trial import Scalar


class Table(BaseModel):
    """A table of the spec: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Share = Annotated[Expression, Quantity(low=0, high=1, open_high=True)]
NotNegative = Annotated[Expression, Quantity(low=0)]
Positive = Annotated[Expression, Quantity(low=0, open_low=True)]


class Optimizer(Table):
    """What all optimizers have; their numbers may be expressions of the batch size."""

    use: str

    def at(self, batch_size: int) -> dict[str, Scalar]:
        """Every value at one batch size, expressions resolved; UserError where one has no value."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: v.at(batch_size) if isinstance(v, Expression) else v for key, v in values.items()}

    @classmethod
    def ranges(cls) -> dict[str, Quantity]:
        """The range of each number."""
        marked = {key: known.metadata for key, known in cls.model_fields.items()}
        return {key: mark for key, marks in marked.items() for mark in marks if isinstance(mark, Quantity)}


class Sgd(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD."""

    use: Literal["sgd"] = Field(default="sgd", description="The optimizer.")
    momentum: Share = Field(
        default=0.0,
        validate_default=True,
        description="Share of the last update that is kept; a number or an expression of batch_size.",
    )
    nesterov: StrictBool = Field(default=False, description="Nesterov momentum; needs a momentum above 0.")
    weight_decay: NotNegative = Field(
        default=0.0,
        validate_default=True,
        description="L2 penalty: the parameters times this are added to the gradient.",
    )


class Moments(Optimizer):
    """What Adam and its variants have."""

    beta1: Share = Field(
        default=0.9,
        validate_default=True,
        description="Share of the mean gradient kept per step; a number or an expression of batch_size.",
    )
    beta2: Share = Field(
        default=0.999,
        validate_default=True,
        description="Share of the mean squared gradient kept per step; a number or an expression "
        'of batch_size, as in "0.95 ** (batch_size / 64)".',
    )
    eps: Positive = Field(
        default=1e-8, validate_default=True, description="Added to the root of the mean squared gradient."
    )


class Adam(Moments):
    """Adam, as torch.optim.Adam."""

    use: Literal["adam"] = Field(description="The optimizer.")
    weight_decay: NotNegative = Field(
        default=0.0,
        validate_default=True,
        description="L2 penalty: the parameters times this are added to the gradient.",
    )


class AdamW(Moments):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    use: Literal["adamw"] = Field(description="The optimizer.")
    weight_decay: NotNegative = Field(
        default=0.01,
        validate_default=True,
        description="Decay: the parameters shrink by this times the learning rate at each step.",
    )


class Schedule(Table):
    """What all schedules have: a warm-up, in steps or in examples."""

    use: str
    warmup_steps: Annotated[int | None, Whole(low=0)] = Field(
        default=None, description="Steps over which the rate rises to its full value."
    )
    warmup_examples: Annotated[int | None, Whole(low=0)] = Field(
        default=None, description="Examples over which the rate rises to its full value."
    )

    def declared(self) -> dict[str, Scalar]:
        """The keys that have a value."""
        return self.model_dump(exclude_none=True)

    def warmup_at(self, batch_size: int) -> float:
        """The warm-up in steps at one batch size, 0 without one."""
        return _steps(self.warmup_steps, self.warmup_examples, batch_size, otherwise=0)

    def horizon_at(self, batch_size: int) -> float:  # noqa: ARG002
        """The step at which the rate is down to the final one, infinite where it does not fall."""
        return math.inf

    @model_validator(mode="after")
    def _one_warmup(self) -> Self:
        _not_both(self, "warmup")
        return self


class Constant(Schedule):
    """The full rate after the warm-up, for ever."""

    use: Literal["constant"] = Field(
        default="constant", description="How the rate goes on after the warm-up."
    )


class Falling(Schedule):
    """What schedules have that lead to a final rate."""

    horizon_steps: Annotated[int | None, Whole(low=1)] = Field(
        default=None, description="Steps after which the final rate is reached, warm-up included."
    )
    horizon_examples: Annotated[int | None, Whole(low=1)] = Field(
        default=None, description="Examples after which the final rate is reached, warm-up included."
    )
    final: Annotated[float, Real(low=0, high=1)] = Field(
        default=0.0, description="Rate from the horizon on, as a share of the full rate."
    )

    def horizon_at(self, batch_size: int) -> float:
        return _steps(self.horizon_steps, self.horizon_examples, batch_size, otherwise=math.inf)

    @model_validator(mode="after")
    def _one_horizon(self) -> Self:
        _not_both(self, "horizon")
        if self.horizon_steps is None and self.horizon_examples is None:
            refuse(f'use = "{self.use}" needs a horizon', "add horizon_steps or horizon_examples")
        return self


class Cosine(Falling):
    """Half a cosine from the full rate to the final one."""

    use: Literal["cosine"] = Field(description="How the rate goes on after the warm-up.")


class Linear(Falling):
    """A straight line from the full rate to the final one."""

    use: Literal["linear"] = Field(description="How the rate goes on after the warm-up.")


def _steps(steps: int | None, examples: int | None, batch_size: int, otherwise: float) -> float:
    if examples is not None:
        return math.ceil(examples / batch_size)
    return steps if steps is not None else otherwise


def _not_both(schedule: Schedule, length: str) -> None:
    keys = [f"{length}_steps", f"{length}_examples"]
    if set(keys) <= set(schedule.declared()):
        refuse(
            f"has both {keys[0]} and {keys[1]}", "keep the one that should stay the same at each batch size"
        )
