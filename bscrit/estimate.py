"""An estimate: a value with its interval, or the bounds that the data give."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

CONFIDENCE = 0.95  # of every interval


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None where the data give none (never NaN, never infinity)."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def ln_half_width(self) -> float:
        """Half the width of the interval of ln(value), inf where there is no value with an interval."""
        if not self.value or not self.low or not self.high:
            return inf
        return log(self.high / self.low) / 2

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a positive multiple."""
        ends = (self.value, self.low, self.high)
        return Estimate(*(None if end is None else factor * end for end in ends))
