"""When a lane ends: it arrived, it cannot win any more, it diverged, or its budget is spent.

A pure function of the curves of a cohort and of its order, so that an interrupted cohort ends as an
undisturbed one does.
"""

from __future__ import annotations

import math
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


def judge(order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None]) -> list[Ending | None]:
    """The endings of all lanes, given their curves so far and the endings that stand already.

    Curves of lanes that have not ended share their evaluation steps; all curves start with step 0.
    """
    judged = [
        ending or (_diverged(order, curve) if len(curve) else None)
        for curve, ending in zip(curves, endings, strict=True)
    ]
    live = [row for row, ending in enumerate(judged) if ending is None and len(curves[row])]
    if live:
        rule = _search if order.role == "search" else _measure
        ended = rule(order, curves, judged, live)
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
    order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None], live: Sequence[int]
) -> dict[int, Ending | None]:
    """Lanes of one seed race: one that passed every incumbent at the targets it lacks is stopped.

    Lossless for those targets, and 10 % late on purpose: how a close loser would have gone on places the
    optimum between the rates.
    """
    racing = [
        row for row, end in enumerate(endings) if end is None or end.status not in ("diverged", "failed")
    ]
    reached = {row: [steps_to([curves[row]], target) for target in order.targets] for row in racing}
    best = list(order.incumbents) or [math.inf] * len(order.targets)
    for steps in reached.values():
        best = [b if s is None else min(b, s) for b, s in zip(best, steps, strict=True)]
    ended: dict[int, Ending | None] = {}
    for row in live:
        step = float(curves[row].steps[-1])
        lacking = [b for b, s in zip(best, reached[row], strict=True) if s is None]
        if reached[row][-1] is not None:
            ended[row] = _reached(order, curves[row])
        elif all(step >= b * OVERRUN for b in lacking):
            ended[row] = Ending("stopped", f"could not win after {step:.0f} steps: best {best[-1]:.4g}")
        elif order.cap_steps and step >= order.cap_steps:
            ended[row] = Ending("stopped", f"given up at {step:.0f} steps, far beyond a smaller batch size")
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
    if together is not None or not order.cap_steps or step < order.cap_steps:
        return dict.fromkeys(live, together)
    given_up = Ending("stopped", f"given up at {step:.0f} steps, the cap for a repeat")
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
