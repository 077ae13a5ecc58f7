"""Noise samples along the runs of the toy trainer, with the scatter that Gaussian gradients have.

N(s) = scale s^power along S(s) = s + (scale/B) s^(power + 1)/(power + 1); a gradient over n examples is
N(G, Sigma/n), Sigma = N |G|^2/d times the identity in d dimensions. Then n d/(N |G|^2) |g|^2 is non-central
chi-squared, and so is, centrally, the scatter of the parts about their mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from exact import ToyTrainer

from bscrit.curve import Curve
from bscrit.estimate import Estimate
from bscrit.fit.noise.windows import Runs
from bscrit.fit.result import Fit, Point
from bscrit.noise import NoiseSamples
from bscrit.noise_settings import NoiseSettings
from bscrit.order import Order
from bscrit.record import Record
from bscrit.trial import Trial

TOY = ToyTrainer(scale=3.0, power=0.5, progress=2000.0)  # B_crit 89.4427
DIMENSIONS = 100


def grid(steps: float, every: int = 10) -> np.ndarray:
    """Steps at which a run takes samples."""
    how, found = NoiseSettings(every=every), [0]
    while how.after(found[-1]) <= steps:
        found.append(how.after(found[-1]))
    return np.array(found, float)


def progress(toy: ToyTrainer, batch_size: float, steps: np.ndarray) -> np.ndarray:
    """s(S), by Newton's method."""
    s, p = np.array(steps, float), toy.power
    for _ in range(100):
        excess = s + toy.scale / batch_size * s ** (p + 1) / (p + 1) - steps
        s = np.maximum(s - excess / (1 + toy.scale * s**p / batch_size), 0)
    return s


def scales(toy: ToyTrainer, batch_size: float, steps: np.ndarray) -> np.ndarray:
    return np.maximum(toy.scale * progress(toy, batch_size, steps) ** toy.power, 1e-3)


def sampled(
    scale: np.ndarray,
    batch_size: float,
    steps: np.ndarray,
    random: np.random.Generator,
    signal: np.ndarray | float = 1.0,
    parts: int = 4,
) -> NoiseSamples:
    """Samples of given noise scales and |G|^2 at given steps."""
    d, small = DIMENSIONS, batch_size / parts
    big = scale / d / batch_size * random.noncentral_chisquare(d, d * batch_size / scale)
    apart = scale / d / small * random.chisquare((parts - 1) * d, len(scale)) / parts
    one = np.ones(len(scale))
    return NoiseSamples(
        steps, steps * batch_size, one * small, signal * (big + apart), one * batch_size, signal * big
    )


def runs(
    batch_size: float,
    seeds: int,
    random: np.random.Generator,
    toy: ToyTrainer = TOY,
    decay: float = 0.0,
    every: int = 10,
    unlike: float = 0.0,
    loss: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Runs:
    """The runs at one batch size to the end of the toy's progress.

    Args:
        decay: of ln |G|^2 along the run.
        unlike: scatter of ln N between the runs, each as a whole.
        loss: of the progress s, for a curve.
    """
    steps = toy.steps(batch_size)
    at = grid(steps, every)
    exact, signal = scales(toy, batch_size, at), np.exp(-decay * at / steps)
    factors = np.exp(unlike * random.standard_normal(seeds) - unlike**2 / 2)
    samples = tuple(sampled(exact * factor, batch_size, at, random, signal) for factor in factors)
    if loss is None:
        return Runs(batch_size, steps, samples)
    every_step = np.concatenate([[0.0], np.geomspace(1, steps, 300)])
    curve = Curve(
        every_step, every_step * batch_size, loss(progress(toy, batch_size, every_step)), every_step
    )
    return Runs(batch_size, steps, samples, (curve,) * seeds)


def records(found: Runs, metric: str = "identity", lr: float = 0.1, **trial: object) -> list[Record]:
    """The runs as a sweep's records."""
    order = Order("measure", 0, ((lr, 0),), (0.1,), 10_000)
    at = np.concatenate([[0.0], np.geomspace(1, found.steps, 50)])
    curves = found.curves or (Curve(at, at * found.batch_size, 2 - at / found.steps, at),) * len(
        found.samples
    )
    return [
        Record(
            Trial("toy", int(found.batch_size), lr, seed, **trial),
            order,
            "reached",
            "",
            curve,
            {metric: samples},
        )
        for seed, (samples, curve) in enumerate(zip(found.samples, curves, strict=True))
    ]


def fit(
    b_crit: float | None, batch_sizes: tuple[int, ...] = (16, 64, 256), toy: ToyTrainer = TOY, lr: float = 0.1
) -> Fit:
    """A fit of the toy's frontier with an interval of 10 %."""
    value = Estimate(b_crit, b_crit and b_crit / 1.1, b_crit and b_crit * 1.1)
    points = tuple(Point(float(b), toy.steps(b), toy.steps(b) * b, lr=lr) for b in batch_sizes)
    verdict = "identified" if b_crit else "not identified"
    return Fit({}, 0.1, verdict, value, value, value, value, Estimate(0.05), points)
