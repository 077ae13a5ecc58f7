"""Where runs are stopped before their budget is spent, and how often a rate is lowered for it."""

from __future__ import annotations

import math

PATIENCE = 1.6  # times the fewest steps of a smaller batch size: a larger one never needs more
CAP = 1.7  # times the steps of the search: a repeat beyond it wanders at the edge of stability
RETREAT = 1.35  # factor between the rates, and so at most between the steps, of a retreat
MAX_RETREATS = 3
FEW_STEPS = 10  # allowed beyond every cap, for targets that a few steps reach


def search_cap(fewest_steps: float, max_steps: int) -> int:
    """The cap of a search where a smaller batch size needed `fewest_steps`, 0 for none before the budget."""
    return _before(max_steps, PATIENCE * fewest_steps)


def repeat_cap(searched_steps: float, retreats: int, max_steps: int) -> int:
    """The cap of the repeats where the search took `searched_steps`, after so many retreats; 0 for none."""
    return _before(max_steps, CAP * searched_steps * RETREAT**retreats)


def lowered(lr: float) -> float:
    """The rate of the next retreat, in three digits."""
    return float(f"{lr / RETREAT:.3g}")


def _before(max_steps: int, steps: float) -> int:
    return math.ceil(steps) + FEW_STEPS if steps + FEW_STEPS < max_steps else 0
