"""Checks of a workload's settings: a ValueError is a sentence that names the key."""

from __future__ import annotations

import math


def check_whole(**settings: object) -> None:
    """Whole numbers, at least 1."""
    for key, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{key} = {value!r} must be a whole number, at least 1")


def check_problem(variance: str, **settings: float) -> None:
    """Finite numbers, of which `variance` is not negative and `start` not 0."""
    for key, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{key} = {value!r} must be a finite number")
    if settings[variance] < 0:
        raise ValueError(f"{variance} = {settings[variance]} is a variance and can't be negative")
    if settings["start"] == 0:
        raise ValueError("start = 0 is the minimum already: there would be nothing to train")
