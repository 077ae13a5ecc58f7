"""Where runs are stopped before their budget is spent, and how often a rate is lowered for it.

A cap that rests on one run may rest on luck: where most runs meet it, it rises before any rate falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bscrit.sweep.rates import round_rate

PATIENCE = 1.6  # times the steps of smaller batch sizes: a larger one never needs more
CAP = 1.7  # times the steps of the search: a repeat beyond it wanders at the edge of stability
RAISE = 4.0  # factor by which a cap rises after a round in which no run arrived, and of the cap of a rule
RETREAT = 1.35  # factor between the rates, and so at most between the steps, of a retreat
MAX_RETREATS = 3
FEW_STEPS = 10  # allowed beyond every cap, for targets that a few steps reach


def search_cap(smaller: Sequence[float], in_vain: int, max_steps: int) -> int:
    """The cap of a search after some rounds in vain, 0 for none before the budget.

    Args:
        smaller: steps that the searches of smaller batch sizes took; the fewest may be luck, the second fewest counts.
    """
    second = sorted([*smaller, math.inf, math.inf])[1]
    return _before(max_steps, PATIENCE * second * RAISE**in_vain)


def repeat_cap(steps: float, retreats: int, max_steps: int) -> int:
    """The cap of the repeats where other runs took so many steps, after so many retreats; 0 for none."""
    return _before(max_steps, CAP * steps * RETREAT**retreats)


def rule_cap(smaller: Sequence[float], max_steps: int) -> int:
    """The cap of runs at the rate of a rule, where it served smaller batch sizes in so many steps; 0 for none."""
    return _before(max_steps, RAISE * min(smaller, default=math.inf))


def lowered(lr: float) -> float:
    """The rate of the next retreat."""
    return round_rate(lr / RETREAT)


def _before(max_steps: int, steps: float) -> int:
    return math.ceil(steps) + FEW_STEPS if steps + FEW_STEPS < max_steps else 0
