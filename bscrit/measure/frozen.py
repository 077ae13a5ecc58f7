"""The noise scale at frozen parameters, on fresh data until its interval is as narrow as asked.

Fresh batches are dealt to blocks in turn. |G|^2 is the mean product of the mean gradients of two blocks, so all the
data count at once: its noise falls with the square of their number, where the mean over single batches would fall
with their number alone. A metric that is estimated itself (the Hessian's) has no products of blocks: there each
block is the mean of its batches' own samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan

import numpy as np
import torch
from torch import Tensor

from bscrit.frozen_noise import FrozenNoise
from bscrit.measure.metrics import Metric
from bscrit.measure.sums import Sample, Sums

BLOCKS = 16
ESTIMATED = {"hessian"}  # metrics that differ from batch to batch


def measure_frozen(
    draw: Callable[[int], Sums],
    metrics: Mapping[str, Metric],
    *,
    at: tuple[float, float, float],
    precision: float,
    draws: int,
) -> list[FrozenNoise]:
    """One measurement per metric.

    Args:
        draw: sums of one lane over fresh batch number 0, 1, ..., every batch cut in the same way.
        metrics: those in `draw`; one that is estimated from batch to batch is only named here.
        at: step, examples and loss of the run.
        precision: half-width of the interval in ln(noise scale) in every metric at which it is done.
        draws: most batches.
    """
    blocks = [Sums(1, metrics) for _ in range(BLOCKS)]
    alone: dict[str, list[list[Sample]]] = {name: [[] for _ in blocks] for name in ESTIMATED & set(metrics)}
    measured: list[FrozenNoise] = []
    for first in range(0, max(draws - BLOCKS, 0) + 1, BLOCKS):
        for place in range(BLOCKS):
            batch = draw(first + place)
            blocks[place].merge(batch)
            for name, samples in alone.items():
                samples[place] += batch.samples([name])[name]
        measured = [_measured(at, name, metrics[name], blocks, alone.get(name)) for name in metrics]
        if all(frozen.scale().ln_half_width <= precision for frozen in measured):
            break
    return measured


def _measured(
    at: tuple[float, float, float],
    name: str,
    metric: Metric,
    blocks: list[Sums],
    alone: list[list[Sample]] | None,
) -> FrozenNoise:
    """The measurement in one metric; `alone` are the samples of each block's batches where blocks have no products."""
    if alone is not None:
        samples, dots = np.array(alone).mean(axis=1), np.full(len(blocks), nan)
    else:
        samples = np.array([block.samples([name])[name][0] for block in blocks])
        means = [block.mean() for block in blocks]
        total = [torch.stack(tensors).sum(0) for tensors in zip(*means, strict=True)]
        dots = np.array([_product(metric, mean, total) for mean in means]) - samples[:, 3]
    step, examples, loss = at
    n_small, sq_small, n_big, sq_big = samples.T
    sizes = np.array([block.examples for block in blocks])
    return FrozenNoise(step, examples, loss, name, sizes, n_small, sq_small, n_big, sq_big, dots)


def _product(metric: Metric, left: list[Tensor], right: list[Tensor]) -> float:
    """The inner product that belongs to a metric, by polarisation."""
    plus, minus = (
        float(metric([(a + sign * b).unsqueeze(1) for a, b in zip(left, right, strict=True)]))
        for sign in (1, -1)
    )
    return (plus - minus) / 4
