"""An estimate: a value with its interval, or the bounds that the data give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None where the data give none (never NaN, never infinity)."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a positive multiple."""
        ends = (self.value, self.low, self.high)
        return Estimate(*(None if end is None else factor * end for end in ends))
