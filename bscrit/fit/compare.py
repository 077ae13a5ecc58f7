"""The measured gradient noise scale beside B_crit.

B_crit is the average over the progress of a run of the noise scale that its curvature weighs (B_noise);
what is measured is B_simple = tr(Sigma)/|G|^2, equal to it where the Hessian is near the identity
(McCandlish et al. 2018, section 2.2). In published tasks their ratio runs from 0.05 to 8, so the comparison can
fail, and says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, hypot, log

import numpy as np

from bscrit.fit.result import Estimate, Fit, NoiseComparison
from bscrit.noise import NoiseSamples, NoiseScale, noise_scale
from bscrit.record import Record

WINDOWS = 5
NEAR = 2.0


def with_noise(fit: Fit, records: Iterable[Record]) -> Fit:
    """The fit with its noise comparison, unchanged where no noise scale was measured.

    Measured along the runs of the batch size nearest to B_crit (nearest to the middle of the batch sizes
    where there is no B_crit): the start, the average over steps to the target, and the last fifth.
    """
    steps = {point.batch_size: point.steps for point in fit.points if point.censored < point.runs}
    lrs = {point.batch_size: point.lr for point in fit.points}
    runs: dict[float, list[NoiseSamples]] = defaultdict(list)
    for record in records:
        size = float(record.trial.batch_size)
        if record.role == "measure" and size in steps and record.trial.lr == lrs[size] and len(record.noise):
            runs[size].append(record.noise.until(steps[size]))
    if not runs:
        return fit
    wanted = fit.b_crit.value or exp(float(np.mean([log(size) for size in steps])))
    path = {size: _along(runs[size], steps[size]) for size in runs}
    resolved = [size for size in runs if path[size].value is not None]
    size = min(resolved or runs, key=lambda candidate: abs(log(candidate / wanted)))
    start = noise_scale([run.until(0) for run in runs[max(runs)]])
    mean, end = path[size], noise_scale(_part(runs[size], steps[size], WINDOWS - 1))
    ratio = _ratio(mean, fit.b_crit)
    text = _words(mean, ratio, size)
    found = NoiseComparison(
        metric=runs[size][0].metric,
        start=_estimate(start),
        mean=_estimate(mean),
        at_target=_estimate(end),
        ratio=ratio,
        text=text,
    )
    return replace(fit, noise=found)


def _along(runs: Sequence[NoiseSamples], steps: float) -> NoiseScale:
    """The noise scale averaged over steps: a ratio of sums in each window, then the mean of the windows.

    Pooling the whole run instead would weigh its beginning, where gradients are largest, above all.
    """
    scales = [noise_scale(_part(runs, steps, window)) for window in range(WINDOWS)]
    values = [(s.value, s.low, s.high) for s in scales if s.value and s.low and s.high]
    if len(values) < WINDOWS:
        return noise_scale(runs)
    mean = float(np.mean([value for value, _, _ in values]))
    variance = sum((value * log(high / low) / 2) ** 2 for value, low, high in values)
    error = variance**0.5 / len(values) / mean
    return NoiseScale(mean, mean * exp(-error), mean * exp(error))


def _part(runs: Sequence[NoiseSamples], steps: float, window: int) -> list[NoiseSamples]:
    return [run.between(steps * window / WINDOWS, steps * (window + 1) / WINDOWS) for run in runs]


def _ratio(mean: NoiseScale, b_crit: Estimate) -> Estimate:
    if mean.value is None or b_crit.value is None:
        return Estimate(None)
    value = mean.value / b_crit.value
    if mean.low and mean.high and b_crit.low and b_crit.high:
        error = hypot(log(mean.high / mean.low), log(b_crit.high / b_crit.low)) / 2
        return Estimate(value, value * exp(-error), value * exp(error))
    return Estimate(value)


def _words(mean: NoiseScale, ratio: Estimate, size: float) -> str:
    where = f"measured along the runs at batch size {size:g}"
    if mean.value is None:
        at_least = f", at least {mean.low:.3g}" if mean.low else ""
        return f"the noise scale is not resolved{at_least}: too few or too small batches ({where})"
    if ratio.value is None:
        return f"there is no B_crit to compare it with ({where})"
    if 1 / NEAR <= ratio.value <= NEAR:
        return f"the noise scale agrees with B_crit to within a factor of {NEAR:g} ({where})"
    side = "above" if ratio.value > 1 else "below"
    factor = max(ratio.value, 1 / ratio.value)
    return f"the noise scale is {factor:.2g} times {side} B_crit: it cannot stand in for it here ({where})"


def _estimate(scale: NoiseScale) -> Estimate:
    return Estimate(scale.value, scale.low, scale.high)
