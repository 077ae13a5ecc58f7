"""When a lane ends: it arrived, it cannot win any more, it diverged, or its budget is spent.

A pure function of the curves of a cohort and of its order, so that an interrupted cohort ends as an
undisturbed one does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bscrit.crossing import OVERRUN, steps_to
from bscrit.curve import Curve
from bscrit.order import Order
from bscrit.trial import Status

EXPLODED = 10.0


@dataclass(frozen=True)
class Ending:
    """How a lane ended."""

    status: Status
    reason: str


def judge(
    order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None], rates: Sequence[float] = ()
) -> list[Ending | None]:
    """The endings of all lanes, given their curves so far and the endings that stand already.

    Curves of lanes that have not ended share their evaluation steps; all curves start with step 0.

    Args:
        rates: of the lanes, where several seeds of a search share one; else each lane is a rate of its own.
    """
    judged = [
        ending or (_diverged(order, curve) if len(curve) else None)
        for curve, ending in zip(curves, endings, strict=True)
    ]
    live = [row for row, ending in enumerate(judged) if ending is None and len(curves[row])]
    if live:
        search = order.role == "search"
        ended = (
            _search(order, curves, judged, live, rates or range(len(curves)))
            if search
            else _measure(order, curves, judged, live)
        )
        for row in live:
            judged[row] = ended.get(row) or _spent(order, curves[row])
    return judged


def _diverged(order: Order, curve: Curve) -> Ending | None:
    """A lane whose metric is not finite, or is far worse than at the start.

    Far is ten times as far as the hardest target is on the other side. A metric that rises obeys the same rule with its
    sign changed: a return may fall that far, an accuracy cannot.
    """
    goal, loss, start = curve.goal, float(curve.loss[-1]), float(curve.loss[0])
    # A target near the start, as in fine-tuning, must not make an ordinary spike a divergence.
    ceiling = start + EXPLODED * max(abs(start - goal.falls(order.targets[-1])), abs(start) / 5)
    if math.isfinite(loss) and loss <= ceiling:
        return None
    worse = "below" if goal.direction == "up" else "above"
    far = f"{goal.falls(loss):.4g}, {worse} {goal.falls(ceiling):.4g}"
    shown = far if math.isfinite(loss) else "not finite"
    return Ending("diverged", f"{goal.metric} {shown} at step {int(curve.steps[-1])}")


def _search(
    order: Order,
    curves: Sequence[Curve],
    endings: Sequence[Ending | None],
    live: Sequence[int],
    rates: Sequence[float],
) -> dict[int, Ending | None]:
    """Rates race by the mean curves of their seeds: one that passed every incumbent at the targets it lacks is stopped.

    Lossless for those targets, and 10 % late on purpose: how a close loser would have gone on places the
    optimum between the rates. A rate that lost a seed is out.
    """
    lost = {
        rate
        for rate, end in zip(rates, endings, strict=True)
        if end is not None and end.status in ("diverged", "failed")
    }
    racing: dict[float, list[Curve]] = defaultdict(list)
    for rate, curve in zip(rates, curves, strict=True):
        if rate not in lost:
            racing[rate].append(curve)
    reached = {rate: [steps_to(seeds, target) for target in order.targets] for rate, seeds in racing.items()}
    best = list(order.incumbents) or [math.inf] * len(order.targets)
    for steps in reached.values():
        best = [b if s is None else min(b, s) for b, s in zip(best, steps, strict=True)]
    ended: dict[int, Ending | None] = {}
    for row in live:
        step, rate = float(curves[row].steps[-1]), rates[row]
        if rate in lost:
            ended[row] = Ending("stopped", f"another seed was lost at its rate by step {step:.0f}")
            continue
        lacking = [b for b, s in zip(best, reached[rate], strict=True) if s is None]
        if reached[rate][-1] is not None:
            ended[row] = _reached(order, *racing[rate])
        elif all(step >= b * OVERRUN for b in lacking):
            ended[row] = Ending("stopped", f"could not win after {step:.0f} steps: best {best[-1]:.4g}")
        elif order.cap_steps and step >= order.cap_steps:
            ended[row] = Ending(
                "stopped", f"met the cap of {order.cap_steps} steps: smaller batch sizes need fewer"
            )
    return ended


def _measure(
    order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None], live: Sequence[int]
) -> dict[int, Ending | None]:
    """Lanes of one rate are measured together: they end when their mean arrives, or at the cap.

    Their mean is over those that train or have arrived: one that diverged, failed or was given up never arrives.
    """
    averaged = [curves[row] for row, end in enumerate(endings) if end is None or end.status == "reached"]
    together = _reached(order, *averaged)
    step = curves[live[0]].steps[-1]
    if step < order.least_steps:
        return {}
    if together is not None or not order.cap_steps or step < order.cap_steps:
        return dict.fromkeys(live, together)
    given_up = Ending("stopped", f"met the cap of {order.cap_steps} steps for a repeat")
    return {row: _reached(order, curves[row], remark=", alone of its seeds") or given_up for row in live}


def _spent(order: Order, curve: Curve) -> Ending | None:
    if curve.steps[-1] < order.max_steps:
        return None
    exhausted = Ending("exhausted", f"budget of {order.max_steps} steps spent")
    return _reached(order, curve, remark=", the budget's last", confirmed=False) or exhausted


def _reached(order: Order, *curves: Curve, remark: str = "", confirmed: bool = True) -> Ending | None:
    """The ending of lanes whose mean has met the hardest target, None where it has not."""
    target, metric = order.targets[-1], curves[0].goal.metric
    steps = steps_to(curves, target, confirmed=confirmed)
    if steps is None:
        return None
    mean = f"mean {metric} of {len(curves)} seeds" if order.role == "measure" and not remark else metric
    return Ending("reached", f"{mean} {target:g} after {steps:.4g} steps{remark}")
