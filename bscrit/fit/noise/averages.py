"""Averages of the noise scale along a run, and the frontier that they predict, with jackknife intervals.

Over windows of L steps with the mean rates t = tr(Sigma)/Q and g = |G|^2/Q, Q = |G|^2 + tr(Sigma)/B,

    S_min = int dS/(1 + N/B) = sum L g      E_min = int N dS/(1 + N/B) = sum L t      B_crit = E_min/S_min

(McCandlish et al. 2018, section 2.3 and appendix D). S_min + E_min/B is the number of steps: that fixes the common
factor by which an error of Q moves both. An average over steps has a ratio in every window, sum L t/g / sum L.

Every average is pushed through whole for each block of samples that is left out. Windows are independent, so
their variances add up, and so do their corrections of the bias that a ratio has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, inf, log, sqrt

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.fit.noise.windows import Runs, Window, last_window, windows
from bscrit.fit.result import Forecast, NoiseWindows
from bscrit.noise import jackknife, noise_scale, quantile

START, END = 0.02, 0.2  # shares of the steps to the target
SETTLED = 0.1  # the start is no later than this, even where samples are few
UNEQUAL = 0.8  # quantile of F beyond which runs are taken to differ as wholes
VAGUEST = 2.3  # half-width in ln, a factor of 10 to each side: beyond it a number says no more than a bound
Average = Callable[[Floats, Floats, float], Floats]
"""(rates t and g (..., windows, 2), steps (windows,), batch size) -> (...,)."""


def s_min(rates: Floats, steps: Floats, batch_size: float) -> Floats:
    return np.asarray(steps.sum() / (1 + over_progress(rates, steps, batch_size) / batch_size))


def e_min(rates: Floats, steps: Floats, batch_size: float) -> Floats:
    return np.asarray(steps.sum() / (1 / over_progress(rates, steps, batch_size) + 1 / batch_size))


def over_progress(rates: Floats, steps: Floats, batch_size: float) -> Floats:  # noqa: ARG001
    total = (rates * steps[:, None]).sum(-2)
    return np.asarray(total[..., 0] / total[..., 1])


def over_steps(rates: Floats, steps: Floats, batch_size: float) -> Floats:  # noqa: ARG001
    return np.asarray((steps * rates[..., 0] / rates[..., 1]).sum(-1) / steps.sum())


def along(runs: Runs) -> NoiseWindows:
    """The averages that are reported of the runs at one batch size."""
    cut = [samples.until(runs.steps) for samples in runs.samples]
    windowed = windows(runs)
    return NoiseWindows(
        start=start_of([runs]),
        mean=average(windowed, runs.batch_size, over_progress),
        mean_steps=average(windowed, runs.batch_size, over_steps),
        at_target=end_of([runs]),
        temperature=runs.temperature,
        samples=sum(map(len, cut)),
        dropped=sum(samples.dropped for samples in cut),
    )


def start_of(several: Sequence[Runs]) -> Estimate:
    """The scale of the first samples of all runs together: those of the first steps, or a few."""
    every = [(run, runs.steps) for runs in several for run in runs.samples if len(run)]
    first = [run.until(START * steps) for run, steps in every]
    for place in range(1, 4):
        if sum(map(len, first)) >= 4:
            break
        first = [run.until(min(run.steps[min(place, len(run) - 1)], SETTLED * steps)) for run, steps in every]
    return without_vague(noise_scale(first))


def end_of(several: Sequence[Runs]) -> Estimate:
    """The scale of the samples of all runs in the last fifth of the steps to the target."""
    return average(last_window(several, END), 1.0, over_progress)


def forecast(runs: Runs, b_crit: Estimate) -> Forecast | None:
    """The frontier as one batch size predicts it; None where its noise scale is not resolved."""
    windowed = windows(runs)
    predicted = average(windowed, runs.batch_size, over_progress)
    if predicted.value is None:
        return None
    return Forecast(
        runs.batch_size,
        s_min=average(windowed, runs.batch_size, s_min, runs.ln_error),
        e_min=average(windowed, runs.batch_size, e_min, runs.ln_error),
        b_crit=predicted,
        error=ratio(predicted, b_crit),
    )


def average(windowed: Sequence[Window], batch_size: float, of: Average, ln_error: float = 0.0) -> Estimate:
    """An average over windows; a lower bound alone where |G|^2 is not distinguishable from 0.

    Args:
        ln_error: standard error of ln(steps), for averages that grow with them.
    """
    if not windowed:
        return Estimate(None)
    each = [[window] for window in windowed] if of is over_steps else [windowed]
    noise, signal, reach, lengths = np.array([_summed(part) for part in each]).T
    bound = None
    bounded = (noise > 0) & (signal + reach > 0) & np.isfinite(reach)
    if of in (over_steps, over_progress) and bounded.all():
        bound = float(of(np.stack([noise, signal + reach], 1) / lengths[:, None], lengths, batch_size))
    several = all(len(window.blocks) > 1 for window in windowed)
    if not several or (signal <= reach).any() or (noise <= 0).any():
        return Estimate(None, bound)
    steps = np.array([window.length for window in windowed])
    rates = np.array([window.rates for window in windowed])
    value, bias, variances, freedoms = log(float(of(rates, steps, batch_size))), 0.0, [], []
    for place, window in enumerate(windowed):
        n = len(window.blocks)
        replaced = np.repeat(rates[None], n, 0)
        replaced[:, place] = window.without
        left = of(replaced, steps, batch_size)
        if not (left > 0).all():
            return Estimate(None, bound)
        left = np.log(left)
        bias += (n - 1) * (float(left.mean()) - value)
        variances.append(jackknife(left))
        freedoms.append(n - 1)
    variance, freedom = _sum(variances, freedoms)
    within = quantile(freedom) * sqrt(variance)
    half_width = max(within, _between_runs(windowed, batch_size, of, variance, freedom))
    half_width = hypot(half_width, 1.96 * ln_error)
    middle = value - bias
    if half_width > VAGUEST:
        return Estimate(None, exp(middle - half_width))
    return Estimate(exp(middle), exp(middle - half_width), exp(middle + half_width))


def _summed(windowed: Sequence[Window]) -> tuple[float, float, float, float]:
    """sum tr(Sigma)/Q and |G|^2/Q over the steps of windows, half the interval of the latter, and the steps."""
    noise, signal = (sum(float(window.length * window.rates[i]) for window in windowed) for i in (0, 1))
    variances = [(window.length * window.error) ** 2 for window in windowed]
    variance, freedom = _sum(variances, [max(len(window.blocks) - 1, 1) for window in windowed])
    return noise, signal, quantile(freedom) * sqrt(variance), sum(window.length for window in windowed)


def _between_runs(
    windowed: Sequence[Window], batch_size: float, of: Average, variance: float, freedom: float
) -> float:
    """Half-width in ln of the average where runs differ as wholes, 0 where no more than their blocks say.

    A run that has a larger noise scale from its beginning to its end is one observation, not one per window.
    """
    from scipy.special import fdtri  # slow to import

    runs = np.unique(np.concatenate([window.run for window in windowed]))
    if len(runs) < 2 or not variance:
        return 0.0
    steps = np.array([window.length for window in windowed])
    rates = np.array([[window.without_run(run) for window in windowed] for run in runs])
    left = of(rates, steps, batch_size)
    if not (left > 0).all():
        return 0.0
    between = jackknife(np.log(left))
    if between < variance * float(fdtri(len(runs) - 1, freedom, UNEQUAL)):
        return 0.0
    return quantile(len(runs) - 1) * sqrt(between)


def _sum(variances: Sequence[float], freedoms: Sequence[int]) -> tuple[float, float]:
    """A sum of variances with its degrees of freedom (Satterthwaite 1946)."""
    total = sum(variances)
    squares = sum(v * v / f for v, f in zip(variances, freedoms, strict=True))
    return total, total * total / squares if 0 < squares < float("inf") else float(max(freedoms))


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """one/other with the errors of both, each towards its own side, in ln."""
    if one.value is None or other.value is None:
        return Estimate(None)
    value = one.value / other.value
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Estimate(value)
    below = hypot(log(one.value / one.low), log(other.high / other.value))
    above = hypot(log(one.high / one.value), log(other.value / other.low))
    return Estimate(value, value * exp(-below), value * exp(above))


def without_vague(scale: Estimate) -> Estimate:
    """A scale as it is, or its bound alone where its interval is too wide for a number."""
    wide = scale.value is not None and VAGUEST < scale.ln_half_width < inf
    return Estimate(None, scale.low) if wide else scale
