"""Schedules: the multiplier of the rate along a run, one class for each, with the keys of its table.

Lengths are never in epochs or shares of a budget, so that what a batch size does to the schedule is what was
declared: `warmup_examples` makes the warm-up shorter in steps at a larger batch size, `warmup_steps` does not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from bscrit.position import Position
from bscrit.values import Real, Scalar, Table, Whole, refuse


class Schedule(Table):
    """Keys and facts of any schedule: the rate rises over a warm-up, in steps or in examples, and then goes on.

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

    @abstractmethod
    def _left(self, share: float) -> float:
        """The share of the fall that is still to come after a share of the way."""

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


def _steps(steps: int | None, examples: int | None, batch_size: int, otherwise: float) -> float:
    if examples is not None:
        return math.ceil(examples / batch_size)
    return steps if steps is not None else otherwise


def _done(length_in_examples: int | None, position: Position, batch_size: int) -> float:
    """Steps that count towards a length; those of another batch size count by their examples where the length does."""
    return position.steps if length_in_examples is None else position.examples / batch_size
