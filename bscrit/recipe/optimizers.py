"""Optimizers: one class for each, with the keys of its table and the facts that others need.

One more optimizer is one more class here, and its update in `bscrit.engine.optimizers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, StrictBool

from bscrit.errors import UserError
from bscrit.expression import Expression
from bscrit.values import Quantity, Scalar, Table

Share = Annotated[Expression, Quantity(low=0, high=1, open_high=True)]
NotNegative = Annotated[Expression, Quantity(low=0)]
Positive = Annotated[Expression, Quantity(low=0, open_low=True)]


def _key(default: float, description: str) -> Any:
    return Field(default=default, validate_default=True, description=description)


_MOMENTUM = _key(0.0, "Share of the last update that is kept; a number or an expression of batch_size.")


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
    weight_decay: NotNegative = _key(0.0, "L2 penalty: the parameters times this are added to the gradient.")
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
            value = getattr(self, key)
            marks = dict.fromkeys(mark for mark in field.metadata if isinstance(mark, Quantity))
            for limit in marks if value is not None else ():  # once each: pydantic 2.10 lists them twice
                try:
                    number = value.at(batch_size)
                except UserError as error:
                    yield key, error.what, error.remedy
                    continue
                if not limit.holds(number):
                    bound = f"must be {limit.words} at each batch size; min and max can bound it"
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
    momentum: Share = _MOMENTUM
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

    beta1: Share = _key(
        0.9, "Share of the mean gradient kept per step; a number or an expression of batch_size."
    )
    beta2: Share = _key(
        0.999,
        "Share of the mean squared gradient kept per step; a number or an expression of batch_size, as in "
        '"0.95 ** (batch_size / 64)".',
    )
    eps: Positive = _key(1e-8, "Added to the root of the mean squared gradient.")


class Adam(Moments):
    """Adam, as torch.optim.Adam."""

    use: Literal["adam"] = Field(description="The optimizer.")


class AdamW(Moments):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    use: Literal["adamw"] = Field(description="The optimizer.")
    weight_decay: NotNegative = _key(
        0.01, "Decay: the parameters shrink by this times the learning rate at each step."
    )


class RmsProp(Adaptive):
    """RMSprop, as torch.optim.RMSprop."""

    use: Literal["rmsprop"] = Field(description="The optimizer.")
    alpha: Share = _key(
        0.99, "Share of the mean squared gradient kept per step; a number or an expression of batch_size."
    )
    eps: Positive = _key(1e-5, "Added to the root of the mean squared gradient.")
    momentum: Share = _MOMENTUM

    def first_guess(self, batch_size: int) -> float:
        return super().first_guess(batch_size) * (1 - self.momentum.at(batch_size))


AnyOptimizer = Sgd | Adam | AdamW | RmsProp
OPTIMIZERS: tuple[type[Optimizer], ...] = get_args(AnyOptimizer)
