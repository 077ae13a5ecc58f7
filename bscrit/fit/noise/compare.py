"""The measured gradient noise scale beside B_crit.

B_crit is the average over the progress of a run of the noise scale that its curvature weighs, B_noise, along the
path of large batches (McCandlish et al. 2018, section 2.3). B_simple = tr(Sigma)/|G|^2 is equal to it where the
Hessian is near the identity alone: their ratio runs from 0.05 to 8 in published tasks, so the comparison can
fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from bscrit.estimate import Estimate
from bscrit.fit.caveats.codes import with_noise_caveats
from bscrit.fit.noise.averages import along, end_of, forecast, ratio, start_of
from bscrit.fit.noise.combine import NORMAL, pooled
from bscrit.fit.noise.frozen import frozen_scales
from bscrit.fit.noise.growth import growth
from bscrit.fit.noise.verdict import judged, said
from bscrit.fit.noise.windows import Runs
from bscrit.fit.result import Fit, NoiseComparison, NoiseWindows, Point
from bscrit.noise import samples_of
from bscrit.record import Record

METRICS = ("identity", "hessian", "adam")  # in the order in which they are reported


def with_noise(fit: Fit, records: Iterable[Record], data: float | None = None) -> Fit:
    """The fit with a comparison for each metric, and their caveats; unchanged where nothing was measured.

    Args:
        records: of the sweep; what counts are the measured runs at the tuned rates.
        data: examples of the training set, None where they are drawn without end.
    """
    points = {point.batch_size: point for point in fit.points if point.censored < point.runs}
    cells: dict[float, list[Record]] = {size: [] for size in sorted(points)}
    for record in records:
        point = points.get(float(record.trial.batch_size))
        if record.role == "measure" and point and record.trial.lr == point.lr:
            cells[point.batch_size].append(record)
    tuned = [record for cell in cells.values() for record in cell]
    comparisons = []
    for metric in metrics_of(tuned):
        by_size = {size: _runs(points[size], cell, metric, data) for size, cell in cells.items() if cell}
        measured = {size: runs for size, runs in by_size.items() if any(map(len, runs.samples))}
        frozen = frozen_scales(tuned, metric, data)
        if measured or frozen:
            comparisons.append(replace(compare(fit, metric, measured), frozen=frozen))
    optimizers = (record.trial.recipe.optimizer for record in tuned)
    adaptive = {optimizer.use for optimizer in optimizers if optimizer.adaptive}
    return noted(fit, comparisons, sorted(adaptive))


def metrics_of(records: Sequence[Record]) -> list[str]:
    """The metrics in which any noise was measured, in the order in which they are reported."""
    sampled = {name for record in records for name, samples in record.noise.items() if len(samples)}
    return in_order(sampled | {measured.metric for record in records for measured in record.frozen})


def noted(fit: Fit, comparisons: Sequence[NoiseComparison], adaptive: Sequence[str] = ()) -> Fit:
    """The fit with comparisons and the caveats that they call for."""
    if not comparisons:
        return fit
    return with_noise_caveats(replace(fit, noise=tuple(comparisons)), adaptive)


def in_order(metrics: Iterable[str]) -> list[str]:
    return sorted(metrics, key=lambda name: (METRICS.index(name) if name in METRICS else len(METRICS), name))


def compare(fit: Fit | None, metric: str, by_size: Mapping[float, Runs]) -> NoiseComparison:
    """The noise scale in one metric beside the B_crit of a fit.

    Pooled are the batch sizes of the large-batch path, those at or above B_crit (the middle of the batch sizes
    where there is none), whose scale is resolved; without any, the nearest resolved one. Averages along runs of
    different batch sizes are averages along different paths: they are weighted by the inverse of their variances
    in ln, and what they disagree by widens the interval. Start and target are the same states on each path: there
    the sums are added.
    """
    each = {size: along(by_size[size]) for size in sorted(by_size)}
    b_crit = Estimate(None) if fit is None else fit.b_crit
    over = _large(each, b_crit.value)
    together = _pooled([each[size] for size in over], [by_size[size] for size in over])
    to_b_crit = ratio(together.mean, b_crit)
    verdict = judged(together.mean, to_b_crit)
    largest = max((size for size, windows in each.items() if windows.mean.value is not None), default=None)
    return NoiseComparison(
        metric=metric,
        pooled=together,
        pooled_over=over,
        ratio=to_b_crit,
        verdict=verdict,
        text=said(metric, verdict, together.mean, to_b_crit, b_crit, each),
        by_batch_size=each,
        forecast=None if largest is None or fit is None else forecast(by_size[largest], b_crit),
        growth=growth([by_size[size] for size in over]),
    )


def _runs(point: Point, records: Sequence[Record], metric: str, data: float | None) -> Runs:
    error = log(point.high / point.low) / 2 / NORMAL if point.low and point.high else 0.0
    trial = records[0].trial
    return Runs(
        point.batch_size,
        point.steps,
        tuple(samples_of(record.noise, metric).from_data_of(data) for record in records),
        tuple(record.curve for record in records),
        trial.recipe.optimizer.temperature(trial.lr, trial.batch_size),
        error,
    )


def _large(each: Mapping[float, NoiseWindows], b_crit: float | None) -> tuple[float, ...]:
    """The batch sizes that are pooled, ascending."""
    if not each:
        return ()
    wanted = b_crit or exp(float(np.mean([log(size) for size in each])))
    resolved = [size for size, windows in each.items() if windows.mean.value is not None]
    large = [size for size in resolved if size >= wanted * (1 - 1e-9)]
    return tuple(large) or (min(resolved or each, key=lambda size: abs(log(size / wanted))),)


def _pooled(each: Sequence[NoiseWindows], runs: Sequence[Runs]) -> NoiseWindows:
    if len(each) == 1:
        return each[0]
    return NoiseWindows(
        start=start_of(runs),
        mean=pooled([windows.mean for windows in each]),
        mean_steps=pooled([windows.mean_steps for windows in each]),
        at_target=end_of(runs),
        samples=sum(windows.samples for windows in each),
        dropped=sum(windows.dropped for windows in each),
    )
