"""Measurements at frozen parameters on fresh data, of all runs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from bscrit.fit.noise.averages import estimated
from bscrit.fit.noise.combine import pooled
from bscrit.fit.result import Estimate, FrozenScale
from bscrit.noise import FrozenNoise
from bscrit.record import Record


def frozen_scales(records: Iterable[Record], metric: str, data: float | None) -> tuple[FrozenScale, ...]:
    """One scale for each loss that was asked for, ascending; the state at a loss is taken to be the same one for
    every seed and batch size, and what they differ by widens the interval.
    """
    groups: dict[float, list[FrozenNoise]] = defaultdict(list)
    for record in records:
        for one in record.frozen:
            if one.metric == metric:
                groups[one.loss].append(one.from_data_of(data))
    return tuple(_together(loss, groups[loss]) for loss in sorted(groups))


def _together(loss: float, measured: list[FrozenNoise]) -> FrozenScale:
    """Where one is not resolved, to leave it out would choose the low ones: then there is a bound alone."""
    scales = [estimated(one.scale()) for one in measured]
    if all(scale.value is not None for scale in scales):
        scale = pooled(scales)
    else:
        lows = [one.low for one in scales]
        scale = Estimate(None, min((low for low in lows if low is not None), default=None))
        scale = scale if None not in lows else Estimate(None)
    return FrozenScale(loss, scale, sum(one.measured_on for one in measured))
