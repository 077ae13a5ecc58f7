"""A goal: the metric that targets refer to, and whether it gets better downwards or upwards.

Inside, everything falls: a curve holds a metric that rises with its sign changed, so that smoothing, crossings, judge
and plan know one direction. Whatever is written, printed or drawn holds the metric itself.

>>> Goal("accuracy", "up").falls(0.9), Goal().falls(0.1)
(-0.9, 0.1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Direction = Literal["down", "up"]
Value = TypeVar("Value", float, NDArray[np.float64])


@dataclass(frozen=True)
class Goal:
    """A metric and its direction.

    Attributes:
        metric: its name; "loss" is what an evaluation is called that gives one number.
        direction: "up" for accuracies and returns.
    """

    metric: str = "loss"
    direction: Direction = "down"

    def falls(self, value: Value) -> Value:
        """The metric as a number that gets better downwards; and the metric again from such a number."""
        return -value if self.direction == "up" else value

    def reached(self, value: float, target: float) -> bool:
        """Whether a value is as good as a target."""
        return self.falls(value) <= self.falls(target)

    @property
    def better(self) -> str:
        """Where better values lie, as in "choose targets above"."""
        return "above" if self.direction == "up" else "below"

    @property
    def best(self) -> str:
        """The superlative of its better values."""
        return "highest" if self.direction == "up" else "lowest"


LOSS = Goal()
TRAIN_LOSS = "train_loss"  # the metric that is free: the mean of the batch losses, nothing is evaluated
