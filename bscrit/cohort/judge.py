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

RESOLUTION = 0.02
EXPLODED = 10.0


@dataclass(frozen=True)
class Ending:
    """How a lane ended."""

    status: Status
    reason: str


def evaluation_after(step: int) -> int:
    """The next evaluation: a grid that is relative, the same at every batch size.

    >>> [evaluation_after(step) for step in (0, 1, 49, 50, 1000)]
    [1, 2, 50, 51, 1020]
    """
    return max(step + 1, math.ceil(step * (1 + RESOLUTION)))


def judge(order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None]) -> list[Ending | None]:
    """The endings of all lanes, given their curves so far and the endings that stand already.

    Curves of lanes that have not ended share their evaluation steps; all curves start with step 0.
    """
    judged = list(endings)
    live = [row for row, ending in enumerate(judged) if ending is None and len(curves[row])]
    for row in live:
        judged[row] = _diverged(order, curves[row])
    live = [row for row in live if judged[row] is None]
    ended = (
        _search(order, curves, judged, live)
        if order.role == "search"
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
    shown = (
        f"{goal.falls(loss):.4g}, {worse} {goal.falls(ceiling):.4g}" if math.isfinite(loss) else "not finite"
    )
    return Ending("diverged", f"{goal.metric} {shown} at step {int(curve.steps[-1])}")


def _search(
    order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None], live: Sequence[int]
) -> dict[int, Ending]:
    """Lanes of one seed race: one that passed every incumbent at the targets it lacks is stopped.

    Lossless for those targets, and 10 % late on purpose: how a close loser would have gone on places the
    optimum between the rates.
    """
    racing = [
        row
        for row, ending in enumerate(endings)
        if ending is None or ending.status not in ("diverged", "failed")
    ]
    reached = {row: [steps_to([curves[row]], target) for target in order.targets] for row in racing}
    best = list(order.incumbents) or [math.inf] * len(order.targets)
    for steps in reached.values():
        best = [b if s is None else min(b, s) for b, s in zip(best, steps, strict=True)]
    ended = {}
    for row in live:
        last = reached[row][-1]
        step = float(curves[row].steps[-1])
        lacking = [b for b, s in zip(best, reached[row], strict=True) if s is None]
        if last is not None:
            ended[row] = Ending("reached", f"{_hardest(order, curves[row])} after {last:.4g} steps")
        elif all(step >= b * OVERRUN for b in lacking):
            ended[row] = Ending("stopped", f"could not win after {step:.0f} steps: best {best[-1]:.4g}")
        elif order.cap_steps and step >= order.cap_steps:
            ended[row] = Ending("stopped", f"given up at {step:.0f} steps, far beyond a smaller batch size")
    return ended


def _measure(
    order: Order, curves: Sequence[Curve], endings: Sequence[Ending | None], live: Sequence[int]
) -> dict[int, Ending]:
    """Lanes of one rate are measured together: they end when their mean arrives, or at the cap.

    Their mean is over those that train or have arrived: one that diverged, failed or was given up never arrives.
    """
    if not live:
        return {}
    averaged = [row for row, ending in enumerate(endings) if ending is None or ending.status == "reached"]
    target = order.targets[-1]
    together = steps_to([curves[row] for row in averaged], target)
    if together is not None:
        metric = curves[live[0]].goal.metric
        reason = f"mean {metric} of {len(averaged)} seeds {target:g} after {together:.4g} steps"
        return {row: Ending("reached", reason) for row in live}
    step = float(curves[live[0]].steps[-1])
    if not order.cap_steps or step < order.cap_steps:
        return {}
    ended = {}
    for row in live:
        alone = steps_to([curves[row]], target)
        ended[row] = (
            Ending("reached", f"{_hardest(order, curves[row])} after {alone:.4g} steps, alone of its seeds")
            if alone is not None
            else Ending("stopped", f"given up at {step:.0f} steps, the cap for a repeat")
        )
    return ended


def _spent(order: Order, curve: Curve) -> Ending | None:
    if curve.steps[-1] < order.max_steps:
        return None
    alone = steps_to([curve], order.targets[-1], confirmed=False)
    if alone is not None:
        return Ending("reached", f"{_hardest(order, curve)} after {alone:.4g} steps, the budget's last")
    return Ending("exhausted", f"budget of {order.max_steps} steps spent")


def _hardest(order: Order, curve: Curve) -> str:
    return f"{curve.goal.metric} {order.targets[-1]:g}"
