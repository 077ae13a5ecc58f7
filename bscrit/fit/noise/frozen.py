"""Measurements at frozen parameters on fresh data, of all runs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bscrit.fit.noise.averages import without_vague
from bscrit.fit.result import FrozenScale
from bscrit.frozen_noise import FrozenNoise
from bscrit.noise import MIN_SAMPLES, jackknifed, scale_of
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
    every = [measured for run in runs for measured in run]
    whole = np.sum([measured.noise_and_signal[:, 0] for measured in every], axis=0)
    within = [measured.noise_and_signal - measured.noise_and_signal[:, :1] for measured in every]
    spread = np.sum([jackknifed(*(whole[:, None] + change[:, 1:])) for change in within], axis=0)
    freedom = sum(len(measured.dot) - 1 for measured in every)
    if len(runs) >= FEWEST_RUNS:
        of_run = np.array(
            [np.sum([measured.noise_and_signal[:, 0] for measured in run], axis=0) for run in runs]
        ).T
        # Left out of a mean: a sum over fewer runs would be another number.
        between = jackknifed(*((whole[:, None] - of_run) * len(runs) / (len(runs) - 1)))
        if between[0] > spread[0]:
            spread, freedom = np.array(between), len(runs) - 1
    scale = scale_of(float(whole[0]), float(whole[1]), float(spread[0]), float(spread[1]), freedom)
    return FrozenScale(loss, without_vague(scale), sum(measured.measured_on for measured in every))
