"""A position: where a run is, in applied updates and in the examples that they consumed.

>>> Position().after(batch_size=64).after(batch_size=128)
Position(steps=2, examples=192)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Count = TypeVar("Count", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Position:
    """Steps and examples travel together: their ratio need not be the same along a run.

    Attributes:
        steps: optimizer updates that were applied.
        examples: consumed by them, in the workload's unit.
    """

    steps: int = 0
    examples: int = 0

    def after(self, batch_size: int) -> Position:
        """The position one update of `batch_size` examples later."""
        return Position(self.steps + 1, self.examples + batch_size)


def examples_at_one_size(steps: Count, batch_size: Count) -> Count:
    """Examples after so many steps of a run whose batch size never changes, for sources that count steps alone."""
    return steps * batch_size
