"""Growth of the noise scale as the loss falls: scale = at_one loss^-exponent.

A line in (ln loss, ln scale) over the resolved windows of all runs, against the loss of their mean curve, as in
McCandlish et al. 2018 (section 3) and Kaplan et al. 2020 (B_crit ~ loss^(-1/alpha_B)). A window's scale is an
average over its samples; it is set against the loss whose scale, by the law itself, is the same average. The first
eighth of a run is left out: gradients of an untrained network are small, and its noise scale is on no law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate
from bscrit.fit.noise.averages import average, over_progress
from bscrit.fit.noise.combine import fit_line, variance
from bscrit.fit.noise.windows import ALWAYS, Runs, mean_metric, windows
from bscrit.fit.result import Growth
from bscrit.noise import quantile

FEWEST = 4
NARROWEST = 1.5  # ratio of the losses
VAGUE = 0.7  # half-width of the exponent's interval: beyond it there is no law to speak of
WIDEST = 2.0  # ratio of the losses in a window: an average over more is no point of a law
ROUNDS = 6  # of the law and the losses that it gives its windows


@dataclass(frozen=True)
class _Point:
    """A window: its scale with the variance of its logarithm, and ln(loss) and steps of its samples."""

    batch_size: float
    scale: float
    variance: float
    ln_loss: Floats
    steps: Floats

    def loss(self, exponent: float) -> float:
        """ln of the loss at which the law gives the window's average, weighted by progress 1/(1 + N/B)."""
        if abs(exponent) < 1e-3:
            return float(np.average(self.ln_loss, weights=self.steps))
        law = np.exp(-exponent * (self.ln_loss - self.ln_loss.mean()))
        scale, mean = self.scale, float(np.average(law, weights=self.steps))
        weights = self.steps / (1 + scale * law / mean / self.batch_size)
        return float(self.ln_loss.mean() - log(float(np.average(law, weights=weights))) / exponent)


def growth(several: Sequence[Runs]) -> Growth | None:
    """The law over all windows of some batch sizes; None for too few windows, losses that are too
    alike, or an exponent that they leave open."""
    points = [point for runs in several for point in _points(runs)]
    if len(points) < FEWEST:
        return None
    y = np.array([log(point.scale) for point in points])
    variances = np.array([point.variance for point in points])
    exponent = 0.0
    for _ in range(ROUNDS):
        x = np.array([point.loss(exponent) for point in points])
        if x.max() - x.min() < log(NARROWEST):
            return None
        beta, covariance = fit_line(np.stack([np.ones(len(x)), x], 1), y, variances)
        exponent = -float(beta[1])
    reach = quantile(len(x) - 2) * sqrt(float(covariance[1, 1]))
    if reach > VAGUE:
        return None
    return Growth(
        Estimate(exponent, exponent - reach, exponent + reach),
        exp(float(beta[0])),
        low_loss=exp(float(x.min())),
        high_loss=exp(float(x.max())),
    )


def _points(runs: Runs) -> list[_Point]:
    """Each resolved window whose loss is known, positive, and much the same at its samples."""
    falling = [curve for curve in runs.curves if curve.goal.direction == "down"]
    curves = [finite for curve in falling if len(finite := curve.finite())]
    points = []
    for window in windows(runs) if curves else ():
        if window.high <= ALWAYS[0] * runs.steps:
            continue
        at, steps = window.samples
        loss = mean_metric(curves, at)
        if loss.min() <= 0 or loss.max() > WIDEST * loss.min():
            continue
        scale = average([window], runs.batch_size, over_progress)
        if scale.value is not None:
            points.append(_Point(runs.batch_size, scale.value, variance(scale), np.log(loss), steps))
    return points
