"""Advice from a fit: the cost of a batch size, and which one is fastest or cheapest.

At batch size B the steps are (1 + b_crit/B) times the fewest and the examples (1 + B/b_crit) times. With n
devices and a step of t0 + t1 B/n seconds the time to the target is T(B) = s_min (1 + b_crit/B) (t0 + t1 B/n),
least at B = sqrt(b_crit n t0/t1); what it costs is n T.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.result import Fit
from bscrit.words import counted, size


@dataclass(frozen=True)
class Overhead:
    """The cost of a batch size beyond the least, as shares: 0.2 is 20 % more."""

    batch_size: float
    steps: Estimate
    examples: Estimate


@dataclass(frozen=True)
class StepTime:
    """One measurement: seconds that a step of `batch_size` examples takes on `devices` devices."""

    batch_size: float
    seconds: float
    devices: int = 1


@dataclass(frozen=True)
class StepCost:
    """seconds = fixed + per_example * batch_size / devices."""

    fixed: float
    per_example: float

    def seconds(self, batch_size: float, devices: int = 1) -> float:
        return self.fixed + self.per_example * batch_size / devices


@dataclass(frozen=True)
class Option:
    """One way to train to the target.

    Attributes:
        seconds: to the target.
        device_seconds: seconds times devices, what it costs.
    """

    batch_size: float
    devices: int
    seconds: float
    device_seconds: float


@dataclass(frozen=True)
class Advice:
    """Attributes:
    fastest, cheapest: among the options.
    trade_off: options that no other beats in both time and cost, fastest first.
    """

    fastest: Option
    cheapest: Option
    trade_off: tuple[Option, ...]


def overheads(fit: Fit, batch_sizes: Iterable[float]) -> tuple[Overhead, ...]:
    """Step overhead b_crit/B and example overhead B/b_crit, with the interval of b_crit."""
    b = fit.b_crit

    def overhead(batch_size: float) -> Overhead:
        steps = b.scaled(1 / batch_size)
        examples = Estimate(*(None if v is None else batch_size / v for v in (b.value, b.high, b.low)))
        return Overhead(batch_size, steps, examples)

    return tuple(map(overhead, batch_sizes))


def step_cost(times: Sequence[StepTime]) -> StepCost:
    """Fit measured step times by least squares of relative errors; neither part is negative.

    Raises:
        UserError: fewer than two different loads per device, or a time that is not positive.
    """
    from scipy.optimize import nnls

    loads = np.array([time.batch_size / time.devices for time in times])
    seconds = np.array([time.seconds for time in times])
    if len(np.unique(loads)) < 2 or not (seconds > 0).all():
        raise UserError(
            "--step-times",
            f"{len(times)} given, of {counted(len(np.unique(loads)), 'batch size')} per device",
            "measure steps at two or more batch sizes per device, in seconds above 0",
        )
    design = np.stack([1 / seconds, loads / seconds], axis=1)
    (fixed, per_example), _ = nnls(design, np.ones(len(times)))
    return StepCost(float(fixed), float(per_example))


def fastest_batch_size(b_crit: Estimate, cost: StepCost, devices: int = 1) -> Estimate:
    """sqrt(b_crit n t0/t1) with the interval of b_crit; none where a step takes as long at any batch size."""
    if cost.per_example == 0:
        return Estimate(None)
    factor = cost.fixed * devices / cost.per_example
    ends = (b_crit.value, b_crit.low, b_crit.high)
    return Estimate(*(None if end is None else sqrt(end * factor) for end in ends))


def advise(fit: Fit, cost: StepCost, batch_sizes: Sequence[float], devices: Sequence[int] = (1,)) -> Advice:
    """Compare batch sizes and numbers of devices.

    Raises:
        UserError: the fit has no value of b_crit and s_min, or no batch size feeds so many devices.
    """
    if fit.b_crit.value is None or fit.s_min.value is None:
        what = f"B_crit is not known: {fit.verdict}"
        raise UserError("advice", what, "widen the range of batch sizes first")
    options = [
        _option(fit.s_min.value * (1 + fit.b_crit.value / batch_size), cost, batch_size, count)
        for batch_size in batch_sizes
        for count in devices
        if count <= batch_size
    ]
    if not options:
        largest = f"the largest batch size compared, {size(max(batch_sizes))},"
        what = f"{largest} has no example for each of {min(devices)} devices"
        raise UserError("advice", what, "use fewer devices")
    options.sort(key=lambda option: (option.seconds, option.device_seconds))
    kept: list[Option] = []
    for option in options:
        if not kept or option.device_seconds < kept[-1].device_seconds:
            kept.append(option)
    return Advice(options[0], kept[-1], tuple(kept))


def _option(steps: float, cost: StepCost, batch_size: float, devices: int) -> Option:
    seconds = steps * cost.seconds(batch_size, devices)
    return Option(batch_size, devices, seconds, devices * seconds)
