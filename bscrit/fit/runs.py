"""The runs of a sweep as figures show them: curves, how each ended, and the noise scale along those at the tuned rates.

The windows of the noise scale and their averages are those of `bscrit.fit.noise`: ratios of two sums, pooled over
the seeds of a batch size. A mean of ratios would be off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log

import numpy as np

from bscrit.crossing import crossing_of
from bscrit.curve import Curve
from bscrit.fit.noise.averages import average, over_progress
from bscrit.fit.noise.compare import metrics_of
from bscrit.fit.noise.frozen import frozen_scales
from bscrit.fit.noise.windows import Runs, Window, windows
from bscrit.fit.result import Attempt, Fit, NoiseAlong, NoisePoint, SweepRuns, TunedRun
from bscrit.goal import LOSS
from bscrit.noise import samples_of
from bscrit.rate_law import BestRate, RateEstimate, RateLaw, fit_law
from bscrit.record import Record
from bscrit.trial import CENSORED

UNSOUND = ("failed", "diverged")
FEWEST_RATES = 3  # batch sizes, below which a law says no more than its points
INSIDE = 9  # steps of a window at which the loss is read


def sweep_runs(records: Sequence[Record], fits: Sequence[Fit], data: float | None = None) -> SweepRuns:
    """The runs behind some fits, as figures show them.

    Args:
        data: examples of the training set, None where they are drawn without end.
    """
    tuned = winners(records)
    return SweepRuns(
        batch_sizes=tuple(by_batch_size(records)),
        tuned=tuple(TunedRun(record.trial.batch_size, record.curve) for record in tuned),
        attempts={target: attempts(records, target) for target in targets(fits, records)},
        least_diverged=least_diverged(records),
        noise=tuple(noise_along(at_one_rate(tuned, fits), metric, data) for metric in metrics_of(tuned)),
        rate_law=_rate_law(records, fits),
    )


def by_batch_size(records: Iterable[Record]) -> Mapping[float, Sequence[Record]]:
    """Records of each batch size, ascending."""
    groups: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.trial.batch_size].append(record)
    return dict(sorted(groups.items()))


def targets(fits: Sequence[Fit], records: Sequence[Record]) -> list[float]:
    """Targets of the fits, or those that the runs were given; easiest first."""
    fitted = {fit.target for fit in fits if fit.target is not None}
    goal = records[0].trial.goal if records else LOSS
    ordered = {target for record in records for target in record.order.targets}
    return sorted(fitted or ordered, key=goal.falls, reverse=True)


def winners(records: Sequence[Record]) -> list[Record]:
    """The runs at the tuned rate of each batch size: those that measure.

    Where a batch size has none, the search run that got farthest stands in.
    """
    chosen: list[Record] = []
    for group in by_batch_size(records).values():
        sound = [record for record in group if len(record.curve) and record.status not in UNSOUND]
        every = [one for record in records for one in record.frozen]
        measured = [one for one in every if (one.metric, one.loss) == (metric, frozen.loss)]
        steps = exp(sum(log(max(one.step, 0.5)) for one in measured) / len(measured))
        points.append(NoisePoint(steps, frozen.loss, frozen.scale))
    return tuple(points)
