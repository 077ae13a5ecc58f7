"""Measurements at frozen parameters on fresh data, of all runs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, isfinite, sqrt

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.fit.noise.averages import without_vague
from bscrit.fit.result import FrozenScale
from bscrit.frozen_noise import FrozenNoise
from bscrit.noise import MIN_SAMPLES, jackknife, quantile
from bscrit.record import Record

FEWEST_RUNS = 3


def frozen_scales(records: Sequence[Record], metric: str, data: float | None) -> tuple[FrozenScale, ...]:
    """One scale for each loss of the settings, in the order of training.

    The ratio of the sums over all seeds and batch sizes, so that one that is not resolved counts as what it is. The
    interval is a jackknife over the blocks of each measurement, or over runs where these differ by more.
    """
    groups: dict[float, dict[int, list[FrozenNoise]]] = defaultdict(lambda: defaultdict(list))
    for run, record in enumerate(records):
        for measured in record.frozen:
            if measured.metric == metric and len(measured.dot) >= MIN_SAMPLES:
                groups[measured.loss][run].append(measured.from_data_of(data))
    falls = records[0].trial.goal.falls if records else None
    in_training = sorted(groups, key=falls, reverse=True)
    return tuple(_together(loss, [*groups[loss].values()]) for loss in in_training)


def _together(loss: float, runs: Sequence[Sequence[FrozenNoise]]) -> FrozenScale:
    every = [one for run in runs for one in run]
    parts = [np.array(one.noise_and_signal) for one in every]
    whole = np.sum(parts, axis=0)
    within = [
        _spread(whole[:, None] + one.without_each_block - own[:, None])
        for one, own in zip(every, parts, strict=True)
    ]
    spread = np.sum(within, axis=0)
    freedom = sum(len(one.dot) - 1 for one in every)
    if len(runs) >= FEWEST_RUNS:
        of_run = np.array([np.sum([one.noise_and_signal for one in run], axis=0) for run in runs]).T
        # Left out of a mean: a sum over fewer runs would be another number.
        between = _spread((whole[:, None] - of_run) * len(runs) / (len(runs) - 1))
        if between[0] > spread[0]:
            spread, freedom = between, len(runs) - 1
    return FrozenScale(loss, _estimate(whole, spread, freedom), sum(one.measured_on for one in every))


def _spread(left: Floats) -> Floats:
    """(2,): jackknife variances of ln(noise/signal), inf where it has none, and of the signal."""
    noise, signal = left
    of_ratio = jackknife(np.log(noise / signal)) if left.min() > 0 else np.inf
    return np.array([of_ratio, jackknife(signal)])


def _estimate(whole: Floats, spread: Floats, freedom: int) -> Estimate:
    noise, signal = (float(part) for part in whole)
    reach, of_signal = (quantile(freedom) * sqrt(variance) for variance in spread)
    if noise <= 0 or signal + of_signal <= 0:
        return Estimate(None)
    if signal - of_signal <= 0 or not isfinite(reach):
        return Estimate(None, noise / (signal + of_signal))
    value = noise / signal
    return without_vague(Estimate(value, value * exp(-reach), value * exp(reach)))
