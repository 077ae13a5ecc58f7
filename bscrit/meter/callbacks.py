"""Settings that the callbacks of all trainers hand on to their meter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from bscrit.errors import UserError, nearest
from bscrit.meter.requirements import MetricName


class MeterSettings(TypedDict, total=False):
    """Arguments of NoiseMeter that a callback takes, with their meaning and defaults."""

    every: int
    path: str | Path | None
    metric: MetricName
    batch_norm: bool


def check_names(settings: Mapping[str, object]) -> None:
    """Raises UserError for a setting that there is not, before training starts."""
    names = MeterSettings.__annotations__
    for name in settings.keys() - names.keys():
        raise UserError("NoiseCallback", f"has no setting {name!r}", nearest(name, names))
