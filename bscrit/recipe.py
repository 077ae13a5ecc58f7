"""A recipe: how a run trains besides its batch size, rate and seed. One class for each optimizer and each schedule.

A class declares the keys of its table, with ranges, defaults and meanings, and holds the facts that others need.
One more optimizer is one more class here, and its update in `bscrit.engine.optimizers`.

>>> recipe = Recipe.read({"use": "sgd", "momentum": "1 - 1 / batch_size"}, {"warmup_examples": 100})
>>> recipe.optimizer.at(4)["momentum"], recipe.optimizer.rate_power
(0.75, 1.0)
>>> [recipe.schedule.factor(Position(steps, 32 * steps), batch_size=32) for steps in (0, 1, 3, 99)]
[0.25, 0.5, 1.0, 1.0]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from bscrit.errors import UserError
from bscrit.expression import Expression
from bscrit.position import Position
from bscrit.values import Quantity, Real, Scalar, Table, Whole, choosing, refuse

Share = Annotated[Expression, Quantity(low=0, high=1, open_high=True)]
NotNegative = Annotated[Expression, Quantity(low=0)]
Positive = Annotated[Expression, Quantity(low=0, open_low=True)]


class Optimizer(Table):
    """Keys and facts of any optimizer. Its numbers may be expressions of the batch size.

    Attributes:
        adaptive: whether updates are divided by the root of a mean of squared gradients.
        rate_power: of the best rate's law, lr_max / (1 + b/B)^power: 1 where updates shrink with the gradient,
            0.5 where they don't (McCandlish et al. 2018, eq. 2.7).
    """

    adaptive: ClassVar[bool] = False
    rate_power: ClassVar[float] = 1.0

    use: str
    weight_decay: NotNegative = Field(
        default=0.0,
        validate_default=True,
        description="L2 penalty: the parameters times this are added to the gradient.",
    )
    clip: Annotated[Expression | None, Quantity(low=0, open_low=True)] = Field(
        default=None,
        description="Largest norm of a batch's mean gradient over all parameters: a longer one is scaled down to it "
        "before the update; a number or an expression of batch_size. Noise is measured unclipped.",
    )

    def at(self, batch_size: int) -> dict[str, Scalar]:
        """Every key that has a value, expressions resolved; UserError where one can't be computed."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        return {
            key: value.at(batch_size) if isinstance(value, Expression) else value
            for key, value in values.items()
            if value is not None
        }

    def problems(self, batch_size: int) -> Iterator[tuple[str, str, str]]:
        """Each key whose value makes no sense at this batch size, what is wrong, and the remedy."""
        for key, field in type(self).model_fields.items():
            value, limits = (
                getattr(self, key),
                [mark for mark in field.metadata if isinstance(mark, Quantity)],
            )
            if not limits or value is None:
                continue
            try:
                number = value.at(batch_size)
            except UserError as error:
                yield key, error.what, error.remedy
            else:
                if not limits[0].holds(number):
                    bound = f"must be {limits[0].words} at each batch size; min and max can bound it"
                    yield key, f"is {number:.6g}", bound

    def first_guess(self, batch_size: int) -> float:  # noqa: ARG002
        """A learning rate from which a search may start."""
        return 1e-3

    def temperature(self, lr: float, batch_size: int) -> float | None:  # noqa: ARG002
        """The noise that updates carry, lr/(1 - momentum)/B; None where updates are scaled."""
        return None


class Sgd(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD."""

    use: Literal["sgd"] = Field(default="sgd", description="The optimizer.")
    momentum: Share = Field(
        default=0.0,
        validate_default=True,
        description="Share of the last update that is kept; a number or an expression of batch_size.",
    )
    nesterov: StrictBool = Field(default=False, description="Nesterov momentum; needs a momentum above 0.")

    def problems(self, batch_size: int) -> Iterator[tuple[str, str, str]]:
        problems = list(super().problems(batch_size))
        yield from problems
        if self.nesterov and not problems and self.momentum.at(batch_size) == 0:
            yield "nesterov", "needs momentum, which is 0", "set momentum, as in 0.9"

    def first_guess(self, batch_size: int) -> float:
        return 0.1 * (1 - self.momentum.at(batch_size))

    def temperature(self, lr: float, batch_size: int) -> float:
        return lr / (1 - self.momentum.at(batch_size)) / batch_size


class Adaptive(Optimizer):
    """Facts of optimizers that divide their updates by the root of a mean of squared gradients."""

    adaptive = True
    rate_power = 0.5


class Moments(Adaptive):
    """Keys of Adam and its variants."""

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


class AdamW(Moments):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    use: Literal["adamw"] = Field(description="The optimizer.")
    weight_decay: NotNegative = Field(
        default=0.01,
        validate_default=True,
        description="Decay: the parameters shrink by this times the learning rate at each step.",
    )


class RmsProp(Adaptive):
    """RMSprop, as torch.optim.RMSprop."""

    use: Literal["rmsprop"] = Field(description="The optimizer.")
    alpha: Share = Field(
        default=0.99,
        validate_default=True,
        description="Share of the mean squared gradient kept per step; a number or an expression of batch_size.",
    )
    eps: Positive = Field(
        default=1e-5, validate_default=True, description="Added to the root of the mean squared gradient."
    )
    momentum: Share = Field(
        default=0.0,
        validate_default=True,
        description="Share of the last update that is kept; a number or an expression of batch_size.",
    )

    def first_guess(self, batch_size: int) -> float:
        return super().first_guess(batch_size) * (1 - self.momentum.at(batch_size))


AnyOptimizer = Sgd | Adam | AdamW | RmsProp
OPTIMIZERS: tuple[type[Optimizer], ...] = get_args(AnyOptimizer)


class Schedule(Table):
    """Keys and facts of any schedule: the rate rises over a warm-up, in steps or in examples, and then goes on.

    Lengths are never in epochs or shares of a budget, so that what a batch size does to the schedule is what was
    declared: `warmup_examples` makes the warm-up shorter in steps at a larger batch size, `warmup_steps` does not.

    Attributes:
        ends: whether the rate depends on the planned length of a run.
    """

    ends: ClassVar[bool] = False

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

    def factor(self, position: Position, batch_size: int) -> float:
        """The multiplier of the rate for the next update, which is of this batch size.

        Lengths and what is done of them are counted in steps of the next update's batch size. With W steps of
        warm-up it is (t + 1)/W for t < W.
        """
        done, warmup = _done(self.warmup_examples, position, batch_size), self.warmup_at(batch_size)
        return (done + 1) / warmup if done < warmup else self._after(position, batch_size)

    def _after(self, position: Position, batch_size: int) -> float:  # noqa: ARG002
        return 1.0

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        for length in ("warmup", "horizon"):
            steps, examples = keys = f"{length}_steps", f"{length}_examples"
            if all(getattr(self, key, None) is not None for key in keys):
                remedy = "keep the one that should stay the same at each batch size"
                refuse(f"has both {steps} and {examples}", remedy)
        return self


class Constant(Schedule):
    """The full rate after the warm-up, for ever."""

    use: Literal["constant"] = Field(
        default="constant", description="How the rate goes on after the warm-up."
    )


class Falling(Schedule):
    """Keys of schedules that lead to a final rate."""

    ends = True

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

    def _after(self, position: Position, batch_size: int) -> float:
        """final + (1 - final) left(x) with x = (t - W)/(H - W), H the horizon in steps."""
        warmup, horizon = self.warmup_at(batch_size), self.horizon_at(batch_size)
        done = _done(self.horizon_examples, position, batch_size)
        share = min(max((done - warmup) / (horizon - warmup), 0.0), 1.0) if horizon > warmup else 1.0
        return self.final + (1 - self.final) * self._left(share)

    def _left(self, share: float) -> float:
        """The share of the fall that is still to come after a share of the way."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _has_horizon(self) -> Self:
        if self.horizon_steps is None and self.horizon_examples is None:
            refuse(f'use = "{self.use}" needs a horizon', "add horizon_steps or horizon_examples")
        return self


class Cosine(Falling):
    """Half a cosine from the full rate to the final one."""

    use: Literal["cosine"] = Field(description="How the rate goes on after the warm-up.")

    def _left(self, share: float) -> float:
        return (1 + math.cos(math.pi * share)) / 2


class Linear(Falling):
    """A straight line from the full rate to the final one."""

    use: Literal["linear"] = Field(description="How the rate goes on after the warm-up.")

    def _left(self, share: float) -> float:
        return 1 - share


AnySchedule = Constant | Cosine | Linear
SCHEDULES: tuple[type[Schedule], ...] = get_args(AnySchedule)

OptimizerTable = Annotated[AnyOptimizer, Field(discriminator="use"), BeforeValidator(choosing("use", "sgd"))]
ScheduleTable = Annotated[
    AnySchedule, Field(discriminator="use"), BeforeValidator(choosing("use", "constant"))
]


class Recipe(Table):
    """An optimizer and a schedule."""

    optimizer: OptimizerTable = Sgd()
    schedule: ScheduleTable = Constant()

    @classmethod
    def read(cls, optimizer: Mapping[str, Any], schedule: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe of two tables; raises ValueError for what they can't hold."""
        return cls.model_validate({"optimizer": dict(optimizer), "schedule": dict(schedule or {})})


def _steps(steps: int | None, examples: int | None, batch_size: int, otherwise: float) -> float:
    if examples is not None:
        return math.ceil(examples / batch_size)
    return steps if steps is not None else otherwise


def _done(length_in_examples: int | None, position: Position, batch_size: int) -> float:
    """Steps that count towards a length; those of another batch size count by their examples where the length does."""
    return position.steps if length_in_examples is None else position.examples / batch_size
