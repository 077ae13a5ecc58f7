"""The runs of a sweep as figures show them: curves, how each ended, and the noise scale along those at the tuned rates.

The windows of the noise scale and their averages are those of `bscrit.fit.noise`: ratios of two sums, pooled over
the seeds of a batch size. A mean of ratios would be off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log

import numpy as np

from bscrit.curve import Curve
from bscrit.fit.noise.averages import average, over_progress
from bscrit.fit.noise.compare import metrics_of
from bscrit.fit.noise.frozen import frozen_scales
from bscrit.fit.noise.windows import Runs, Window, mean_metric, windows
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
        measured = [record for record in sound if record.role == "measure"]
        chosen += measured or sorted(sound, key=_lowest)[:1]
    return chosen


def at_one_rate(records: Sequence[Record], fits: Sequence[Fit]) -> list[Record]:
    """At each batch size the runs at one learning rate: that of the hardest target, or the one that got farthest.

    Runs at two rates are two paths, and what is measured along them doesn't add up.
    """
    tuned = {point.batch_size: point.lr for fit in fits for point in fit.points if point.lr is not None}
    chosen: list[Record] = []
    for size, group in by_batch_size(records).items():
        rates = {record.trial.lr for record in group}
        lr = tuned[size] if tuned.get(size) in rates else min(group, key=_lowest).trial.lr
        chosen += [record for record in group if record.trial.lr == lr]
    return chosen


def attempts(records: Iterable[Record], target: float) -> tuple[Attempt, ...]:
    """How each run fared against a target, ascending in batch size and rate."""
    every = [_attempt(record, target) for record in records]
    return tuple(sorted(every, key=lambda attempt: (attempt.batch_size, attempt.lr, attempt.steps or 0.0)))


def least_diverged(records: Iterable[Record]) -> dict[float, float]:
    """Batch size -> the least learning rate that diverged there."""
    least: dict[float, float] = {}
    for record in records:
        if record.status == "diverged":
            size, lr = record.trial.batch_size, record.trial.lr
            least[size] = min(lr, least.get(size, inf))
    return dict(sorted(least.items()))


def noise_along(records: Sequence[Record], metric: str, data: float | None = None) -> NoiseAlong:
    """The noise scale in one metric along runs, at one learning rate for each batch size."""
    groups = by_batch_size(records)
    return NoiseAlong(
        metric,
        {size: _in_windows(group, metric, data) for size, group in groups.items()},
        {size: _at_frozen(group, metric, data) for size, group in groups.items()},
        records[0].trial.goal if records else LOSS,
    )


def _lowest(record: Record) -> float:
    return float(record.curve.loss.min()) if len(record.curve) else inf


def _attempt(record: Record, target: float) -> Attempt:
    size, lr = float(record.trial.batch_size), record.trial.lr
    if record.status == "diverged":
        return Attempt(size, lr, "diverged")
    if record.status != "failed" and (steps := record.steps_to(target)) is not None:
        return Attempt(size, lr, "reached", steps)
    if record.status in CENSORED and len(record.curve):
        return Attempt(size, lr, "censored", float(record.curve.steps[-1]))
    return Attempt(size, lr, "unknown")


def _rate_law(records: Sequence[Record], fits: Sequence[Fit]) -> RateLaw | None:
    """The law of the best rate at the hardest target, from the rates of its points; three batch sizes at least."""
    tuned = [(point.batch_size, point.lr) for fit in fits[-1:] for point in fit.points if point.lr]
    if len(tuned) < FEWEST_RATES:
        return None
    best = [BestRate(batch_size, RateEstimate(log(lr))) for batch_size, lr in tuned]
    return fit_law(best, records[0].trial.recipe.optimizer.rate_power)


def _in_windows(records: Sequence[Record], metric: str, data: float | None) -> tuple[NoisePoint, ...]:
    """Each window of the runs at one batch size, ascending in steps."""
    samples = [samples_of(record.noise, metric).from_data_of(data) for record in records]
    last = max((float(series.steps[-1]) for series in samples if len(series)), default=0.0)
    curves = tuple(finite for record in records if len(finite := record.curve.finite()))
    runs = Runs(records[0].trial.batch_size, last, tuple(samples), curves)
    return tuple(
        NoisePoint(
            window.low + window.length / 2,
            _mean_loss(curves, window),
            average([window], runs.batch_size, over_progress),
        )
        for window in windows(runs)
    )


def _mean_loss(curves: Sequence[Curve], window: Window) -> float | None:
    """The mean over a window's steps of the runs' mean metric, geometric where it falls."""
    if not curves:
        return None
    steps = window.low + window.length * (np.arange(INSIDE) + 0.5) / INSIDE
    loss = mean_metric(curves, steps)
    goal = curves[0].goal
    if goal.direction == "up":
        return goal.falls(float(loss.mean()))
    return float(np.exp(np.log(loss).mean())) if (loss > 0).all() else None


def _at_frozen(records: Sequence[Record], metric: str, data: float | None) -> tuple[NoisePoint, ...]:
    """Each measurement at frozen parameters of the runs at one batch size, all seeds together."""
    every = [measured for record in records for measured in record.frozen if measured.metric == metric]
    points = []
    for frozen in frozen_scales(records, metric, data):
        ln_steps = [log(max(measured.step, 0.5)) for measured in every if measured.loss == frozen.loss]
        points.append(NoisePoint(exp(sum(ln_steps) / len(ln_steps)), frozen.loss, frozen.scale))
    return tuple(points)
