"""The learning rate at one batch size: which rates to try next, or which one it is.

Lanes of one seed race at several rates, first around the rate that the law of the other batch sizes predicts. A
best lane at an edge extends the rates, below only where neither the law nor the steps of smaller batch sizes know
better; so does one that is hardly faster than the highest. The rate is settled when its neighbours are at most sqrt(2)
away and no rate on the way to the next one can win much: at large batch the steps fall like 1/lr up to a cliff, a tent
that a wide spacing would miss. Then a parabola in (ln rate, ln steps) interpolates, and the law pulls its vertex as far
as that costs little: without that pull simulated sweeps find B_crit lower by up to 2 %.

Caution. One seed flatters high rates: near the edge of stability it may be lucky, while the mean curve of several
seeds is as late as its unlucky ones. So lanes are compared by steps * lr^CAUTION: a higher rate has to win by
something. Where steps fall like 1/lr this changes nothing, and in a bowl of curvature 1 to 2 it costs about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bscrit.rate_law import RateEstimate
from bscrit.sweep.rates import FAN, SURE, Infeasible, Lane, Try, Tuned, round_rate, rounded

SPACING = math.sqrt(2)
CAUTION = 0.15  # see above
LOWEST = 0.5  # ln(rate) below the fastest lane from which caution asks for no less: a flat bowl has no end
TENT = 0.1  # ln(steps) that may be lost at the top of a tent, which is cut no finer
CLEAR = 0.04  # ln(steps) by which the highest rate is slower than the best one: less is a matter of the seed
GIVE = 0.01  # ln(steps) that the law's pull may cost by the parabola's own account
MAX_LANES = 24
MOST_IN_VAIN = 12  # whole budgets that are spent before a target counts as out of reach


def tune(
    lanes: Iterable[Lane], *, fine: bool = True, predicted: RateEstimate | None = None, most: float = 0.0
) -> Tuned | Try | Infeasible:
    """Settle the rate from the lanes so far (at least one), or name the rates to try next.

    Args:
        fine: without it, rates that bracket the optimum are enough.
        predicted: by the rate law of the other batch sizes.
        most: steps that the best rate should not exceed, as smaller batch sizes took them; 0 where that is not known.
    """
    ladder = sorted(lanes, key=lambda lane: lane.lr)
    met = [lane for lane in ladder if lane.kind == "met"]
    if not met:
        return _none_met(ladder)
    fastest = min(met, key=lambda lane: (lane.steps, -lane.lr))
    ladder = [replace(lane, steps=lane.steps * _caution(lane.lr, fastest.lr)) for lane in ladder]
    best = min(
        range(len(ladder)), key=lambda row: (ladder[row].kind != "met", ladder[row].steps, -ladder[row].lr)
    )
    held = predicted is not None and predicted.error < SURE and predicted.rate > ladder[0].lr
    held = held and len(ladder) > 1 and fastest.steps <= most
    wanted = _missing_neighbours(ladder, best, fine, held)
    if wanted and len(ladder) + len(wanted) <= MAX_LANES:
        return Try(rounded(wanted))
    tuned = _interpolate(ladder, best)
    tuned = replace(tuned, steps=tuned.steps / _caution(tuned.lr, fastest.lr))
    if predicted is None or not tuned.curvature:
        return tuned
    return _pulled(tuned, RateEstimate(math.log(tuned.lr)).combined(predicted))


def _caution(lr: float, fastest: float) -> float:
    """By how much more steps count at a rate than at that of the fastest lane."""
    return math.exp(CAUTION * max(math.log(lr / fastest), -LOWEST))


def _missing_neighbours(ladder: Sequence[Lane], best: int, fine: bool, held: bool) -> list[float]:
    """Rates that are still to be tried about the best lane.

    Args:
        held: whether the law knows that no lower rate is better than the lowest.
    """
    lane, top = ladder[best], len(ladder) - 1
    edges = [lane.lr / _gap(ladder)] if best == 0 and not held else []
    edges += [lane.lr * _gap(ladder)] if best == top else []
    if edges or not fine:
        return edges
    near = {side: ladder[best + side] for side in (-1, 1) if 0 <= best + side <= top}
    wide = [other.lr for other in near.values() if _distance(lane, other) > math.log(SPACING) + 0.02]
    if not wide and math.isfinite(lane.steps):
        rise = math.log(near[1].steps / lane.steps)
        fall = math.log(near[-1].steps / lane.steps) if best else 0.0
        # Steps fall like 1/lr at most, up to the cliff: a rate on the way to it may win by as much.
        slope = min(fall / _distance(lane, near[-1]), 1.0) if best else 1.0
        if rise > TENT and slope * _distance(lane, near[1]) > TENT:
            wide = [near[1].lr]
        elif best and min(fall, rise, _distance(lane, near[-1])) > TENT:
            wide = [near[-1].lr]
        elif math.log(ladder[top].steps / lane.steps) < CLEAR:
            return [ladder[top].lr * SPACING]
    return [math.sqrt(lane.lr * other) for other in wide]


def _distance(one: Lane, other: Lane) -> float:
    return abs(math.log(one.lr / other.lr))


def _gap(ladder: Sequence[Lane]) -> float:
    """How far beyond an edge to go: as far as the rates stand apart already, and farther the more were tried."""
    if len(ladder) < 2:
        return FAN
    far = min(math.sqrt(ladder[-1].lr / ladder[0].lr), FAN)
    return max(far, *(b.lr / a.lr for a, b in pairwise(ladder)))


def _none_met(ladder: Sequence[Lane]) -> Try | Infeasible:
    in_vain = sum(lane.kind == "exhausted" for lane in ladder)
    if len(ladder) >= MAX_LANES or in_vain >= MOST_IN_VAIN:
        return Infeasible(f"no rate of {len(ladder)} from {ladder[0].lr:.3g} to {ladder[-1].lr:.3g} arrives")
    if all(lane.kind == "diverged" for lane in ladder):
        step = max(_gap(ladder), SPACING)
        few = min(3, MAX_LANES - len(ladder))
        return Try(rounded(ladder[0].lr / step**power for power in range(1, few + 1)))
    best = min(range(len(ladder)), key=lambda row: ladder[row].loss)
    lane = ladder[best]
    # One that met a cap goes on: the cap rises by the round.
    if wanted := _missing_neighbours(ladder, best, True, False) or [lane.lr] * (lane.kind == "slow"):
        return Try(rounded(wanted))
    reason = f"the best rate, {lane.lr:.3g}, does not arrive within the budget"
    return Infeasible(reason, exhausted=lane.kind == "exhausted")


def _interpolate(ladder: Sequence[Lane], best: int) -> Tuned:
    """The vertex of a parabola through the best lane and its neighbours, within half of the way to them."""
    lane = ladder[best]
    near = ladder[max(best - 1, 0) : best + 2]
    as_tried = Tuned(round_rate(lane.lr), lane.steps)
    if len(near) < 3 or not math.isfinite(near[0].steps):
        return as_tried
    x = np.log([other.lr for other in near]) - math.log(lane.lr)
    y = np.log([other.steps for other in near])
    if not math.isfinite(y[2]):
        # beside a cliff: as fast half a step lower, and other seeds stay on the safe side
        shift = x[0] / 2 if y[0] - y[1] < TENT else 0.0
        return replace(as_tried, lr=round_rate(lane.lr * math.exp(shift)))
    curvature, slope, _ = np.polyfit(x, y, 2)
    if curvature <= 0:
        return as_tried
    shift = float(np.clip(-slope / (2 * curvature), x[0] / 2, x[2] / 2))
    steps = math.exp(max(y[1] + slope * shift + curvature * shift**2, y.min() - TENT))
    return Tuned(round_rate(lane.lr * math.exp(shift)), steps, curvature=2 * float(curvature))


def _pulled(tuned: Tuned, wanted: RateEstimate) -> Tuned:
    """The rate moved toward a better estimate, as far as the parabola allows at a cost of GIVE."""
    most = math.sqrt(2 * GIVE / tuned.curvature)
    shift = wanted.ln_rate - math.log(tuned.lr)
    return replace(tuned, lr=round_rate(tuned.lr * math.exp(min(max(shift, -most), most))))
