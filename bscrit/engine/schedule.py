"""Learning-rate schedules: the multiplier of the rate at each update.

Lengths are declared in steps or in examples, never in epochs or shares of a budget, so that what a batch
size does to the schedule is what the user said: `warmup_examples` makes the warm-up shorter in steps at a
larger batch size, `warmup_steps` does not.

>>> [factor({"warmup_steps": 4}, step, batch_size=32) for step in (0, 1, 3, 99)]
[0.25, 0.5, 1.0, 1.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bscrit.errors import nearest

USES = ("constant", "cosine", "linear")
KEYS = ("use", "warmup_steps", "warmup_examples", "horizon_steps", "horizon_examples", "final")


def factor(schedule: Mapping[str, Any], step: int, batch_size: int) -> float:
    """The multiplier of the learning rate for update number `step` (from 0).

    With W steps of warm-up and a horizon of H steps (which includes the warm-up): (step + 1)/W below W;
    then 1 if constant, and with x = (step - W)/(H - W) from there, up to 1,
    cosine: final + (1 - final)(1 + cos(pi x))/2, linear: 1 - (1 - final) x. After H it stays at `final`.

    Raises:
        ValueError: a schedule that contradicts itself; the sentence names the key.
    """
    lengths = horizon(schedule, batch_size)
    warmup = lengths["warmup_steps"]
    if step < warmup:
        return (step + 1) / warmup
    if "horizon_steps" not in lengths:
        return 1.0
    final = float(schedule.get("final", 0.0))
    share = min((step - warmup) / (lengths["horizon_steps"] - warmup), 1.0)
    left = (1 + math.cos(math.pi * share)) / 2 if schedule["use"] == "cosine" else 1 - share
    return final + (1 - final) * left


def horizon(schedule: Mapping[str, Any], batch_size: int) -> dict[str, int]:
    """Lengths in steps at this batch size: "warmup_steps", and "horizon_steps" where the rate decays.

    A length in examples becomes ceil(examples / batch_size) steps.

    >>> horizon({"use": "cosine", "warmup_examples": 100, "horizon_examples": 6400}, batch_size=64)
    {'warmup_steps': 2, 'horizon_steps': 100}

    Raises:
        ValueError: a schedule that contradicts itself; the sentence names the key.
    """
    use = schedule.get("use", "constant")
    if use not in USES:
        raise ValueError(f"use = {use!r} is no schedule; {nearest(str(use), USES)}")
    for key in schedule:
        if key not in KEYS:
            raise ValueError(f"{key} is no setting of a schedule; {nearest(key, KEYS)}")
    lengths = {"warmup_steps": _steps(schedule, "warmup", batch_size) or 0}
    end = _steps(schedule, "horizon", batch_size)
    if use == "constant":
        for key in ("horizon_steps", "horizon_examples", "final"):
            if key in schedule:
                raise ValueError(f"{key} has no meaning where use is constant; choose cosine or linear")
        return lengths
    if end is None:
        raise ValueError(f"use = {use!r} needs its length: give horizon_steps or horizon_examples")
    if end <= lengths["warmup_steps"]:
        raise ValueError(
            f"the horizon of {end} steps at batch size {batch_size} must be longer than the warm-up of "
            f"{lengths['warmup_steps']} steps, which it includes"
        )
    final = schedule.get("final", 0.0)
    if isinstance(final, bool) or not isinstance(final, int | float) or not 0 <= final <= 1:
        raise ValueError(f"final = {final!r} must be a share between 0 and 1 of the rate")
    return {**lengths, "horizon_steps": end}


def _steps(schedule: Mapping[str, Any], name: str, batch_size: int) -> int | None:
    steps, examples = schedule.get(f"{name}_steps"), schedule.get(f"{name}_examples")
    if steps is not None and examples is not None:
        raise ValueError(f"give {name}_steps or {name}_examples, not both")
    unit, value, per_step = ("steps", steps, 1) if examples is None else ("examples", examples, batch_size)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name}_{unit} = {value!r} must be a number, not negative")
    return math.ceil(value / per_step)
