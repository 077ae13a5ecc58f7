"""The most that a sweep can cost, known before anything trains."""

from __future__ import annotations

import math

from bscrit.spec import Spec
from bscrit.sweep.auto import MOST
from bscrit.sweep.batch_size import SEEDS_AGAIN
from bscrit.sweep.caps import MAX_RETREATS
from bscrit.sweep.tune import MAX_LANES


def largest_cost(spec: Spec, examples: int | None = None) -> tuple[int, float]:
    """The most trials and examples that the whole sweep can take, were every lane to spend its budget.

    Args:
        examples: the data set's size.
    """
    tuning = spec.learning_rate
    lanes = spec.sweep.seeds * len(spec.sweep.targets)
    if tuning.tune == "race":  # searched again, too, measured before that, and at lower rates
        lanes = MAX_LANES * (1 + SEEDS_AGAIN) + lanes * 2 * (1 + MAX_RETREATS)
    elif tuning.tune == "grid":
        lanes += len(tuning.rates)
    each = sorted(
        (lanes * spec.max_steps_at(size) * size for size in spec.candidates(examples)), reverse=True
    )
    if not spec.sweep.auto:
        return lanes * len(each), sum(each)
    total, beginning = spec.sweep.max_total_examples or math.inf, len(spec.beginning(examples))
    # The last batch size may turn out dearer than it was expected to be.
    most = max(sum(each[:beginning]), min(sum(each[:MOST]), total + each[0]))
    return lanes * min(len(each), MOST), most
