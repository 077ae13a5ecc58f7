"""What a race knows of each rate and what it comes to; the rates that it begins with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bscrit.rate_law import RateEstimate

Kind = Literal["met", "slow", "diverged", "exhausted"]
FAN = 4.0  # factor between the first rates of a sweep
NARROWEST, WIDEST = 1.1, 2.0  # factor between the first rates at a batch size
SURE = 0.2  # error of a prediction, in ln(rate), below which two first rates, and one beyond the better, are cheaper


@dataclass(frozen=True)
class Lane:
    """The outcome of one rate at one target.

    Attributes:
        lr: learning rate.
        kind: "met" the target; "slow" was stopped since it could not win; "diverged"; "exhausted" its budget.
        steps: to the target; forecast for a lane that did not arrive, infinite where there is no saying.
        loss: the lowest one, to rank lanes when none arrived.
    """

    lr: float
    kind: Kind
    steps: float
    loss: float = math.inf


@dataclass(frozen=True)
class Tuned:
    """The rate of fewest steps.

    Attributes:
        lr: interpolated.
        steps: that the parabola predicts there.
        curvature: of ln(steps) in ln(rate), 0 where unknown.
    """

    lr: float
    steps: float
    curvature: float = 0.0

    def loss_at(self, lr: float) -> float:
        """Predicted ln(steps) above the optimum at another rate; like 1/rate where no parabola was found."""
        distance = abs(math.log(lr) - math.log(self.lr))
        return 0.5 * self.curvature * distance**2 if self.curvature else distance


@dataclass(frozen=True)
class Try:
    """Rates to try next."""

    rates: tuple[float, ...]


@dataclass(frozen=True)
class Infeasible:
    """No rate reaches the target.

    Attributes:
        reason: in words.
        exhausted: whether it was the budget that the best rate lacked.
    """

    reason: str
    exhausted: bool = False


def first_rates(guess: float) -> Try:
    """The first batch size knows only a guess: a fan that forgives a factor of 64 either way.

    Rates that are far too high diverge at once and those far too low stop when the winner arrives, so the
    width costs little.
    """
    return Try(rounded(guess * FAN**power for power in range(-3, 4)))


def rates_around(lr: float, spacing: float) -> Try:
    return Try(rounded((lr / spacing, lr, lr * spacing)))


def predicted_rates(predicted: RateEstimate) -> Try:
    """First rates around the one that other batch sizes predict: two close by, or three where that is unsure."""
    spacing = min(max(math.exp(predicted.error), NARROWEST), WIDEST)
    if predicted.error >= SURE:
        return rates_around(predicted.rate, spacing)
    half = math.sqrt(spacing)
    return Try(rounded((predicted.rate / half, predicted.rate * half)))


def rounded(rates: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted({round_rate(rate) for rate in rates}))


def round_rate(rate: float) -> float:
    """Three digits: enough to tune with, and a folder's name stays readable."""
    return float(f"{rate:.3g}")
