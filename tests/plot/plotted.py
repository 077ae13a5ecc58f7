"""Fits and records written by hand, and what can be read off an Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bscrit.curve import Curve
from bscrit.fit.result import Estimate, Fit, Point, Report, Verdict
from bscrit.noise import NO_NOISE, NoiseSamples
from bscrit.record import Order, Record, Role
from bscrit.trial import Status, Trial

ZHANG_SIZES = tuple(64 * 2**i for i in range(9))
ZHANG_STEPS = (46000, 23000, 13282, 7000, 3840, 2528, 1917, 1600, 1600)
S_MIN, B_CRIT = 1293.8268694659, 2190.600
NOTHING = Estimate(None)


def make_fit(
    sizes: Sequence[float] = ZHANG_SIZES,
    steps: Sequence[float] = ZHANG_STEPS,
    s_min: float | None = S_MIN,
    b_crit: float | None = B_CRIT,
    *,
    target: float | None = 3.42,
    verdict: Verdict = "identified",
    censored: Sequence[int] = (),
    partly: Sequence[int] = (),
    aside: Sequence[int] = (),
    lrs: Sequence[float] | None = None,
    group: Mapping[str, str] | None = None,
    region: bool = False,
) -> Fit:
    """A fit with intervals of 10 %; `censored`, `partly` and `aside` are indices of points."""
    points = tuple(
        Point(
            size,
            count,
            size * count,
            lr=None if lrs is None else lrs[i],
            runs=3,
            censored=3 if i in censored else int(i in partly),
            low=None if i in censored else 0.9 * count,
            high=None if i in censored else 1.1 * count,
            robust_weight=0.1 if i in aside else 1.0,
        )
        for i, (size, count) in enumerate(zip(sizes, steps, strict=True))
    )
    angle = np.linspace(0, 2 * np.pi, 9)
    pairs: tuple[tuple[float, float], ...] = ()
    if region and s_min is not None and b_crit is not None:
        pairs = tuple(
            zip(s_min * np.exp(0.1 * np.cos(angle)), b_crit * np.exp(0.1 * np.sin(angle)), strict=True)
        )
    e_min = None if s_min is None or b_crit is None else s_min * b_crit
    return Fit(
        group or {},
        target,
        verdict,
        s_min=around(s_min),
        e_min=around(e_min),
        b_crit=around(b_crit),
        cbs_20=around(None if b_crit is None else 0.2 * b_crit),
        sigma=Estimate(0.05),
        points=points,
        region=pairs,
    )


def around(value: float | None) -> Estimate:
    return NOTHING if value is None else Estimate(value, 0.9 * value, 1.1 * value)


def make_record(
    batch_size: int,
    lr: float,
    *,
    meets: float = 100,
    seed: int = 0,
    role: Role = "search",
    status: Status = "reached",
    last: float = 150,
    count: int = 100,
    noise: NoiseSamples = NO_NOISE,
) -> Record:
    """A run whose loss falls as 1/step from 1 at the first step and meets 0.5 after `meets` steps."""
    steps = np.unique(np.geomspace(1, last, count).round())
    loss = 0.5 * (steps / meets) ** -0.2
    order = Order(role, 0, ((lr, seed),), targets=(0.5,), max_steps=10**6)
    curve = Curve(steps, steps * batch_size, loss, steps * 0.01)
    return Record(Trial("quadratic", batch_size, lr, seed), order, status, "", curve, noise)


def make_noise(
    scale: float, *, signal: float = 1.0, count: int = 64, metric: str = "identity"
) -> NoiseSamples:
    """Noiseless samples of a gradient with this signal and with tr(Sigma) = scale."""
    steps = np.arange(1.0, count + 1)
    small, big = np.full(count, 8.0), np.full(count, 64.0)
    return NoiseSamples(
        steps, steps * 64, small, signal + scale / small, big, signal + scale / big, metric=metric
    )


def sweep(batch_sizes: Sequence[int] = (4, 16, 64)) -> tuple[Report, list[Record]]:
    """Three rates and two measuring runs at each batch size, with noise samples, and the report on them."""
    records = []
    for size in batch_sizes:
        lr = 0.01 * size**0.5
        records += [
            make_record(size, lr / 2, meets=200, status="stopped"),
            make_record(size, lr, meets=100),
            make_record(size, lr * 2, status="diverged", last=10),
            *(make_record(size, lr, seed=s, role="measure", noise=make_noise(50)) for s in (1, 2)),
        ]
    lrs = [0.01 * size**0.5 for size in batch_sizes]
    fit = make_fit(batch_sizes, [100.0] * len(batch_sizes), 90, 8, target=0.5, lrs=lrs)
    return Report("results/x", "image", (fit,)), records


def named(ax: Axes, label: str) -> list[Line2D]:
    """Lines that were given this label."""
    return [line for line in ax.lines if line.get_label() == label]


def legend_texts(ax: Axes) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def arrows(ax: Axes) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """(from, to) of every arrow."""
    return [(text.xyann, text.xy) for text in ax.texts if text.get_label() == "_censored"]


def tick_texts(ax: Axes, which: str) -> list[str]:
    """Labels of the major ticks as they would be printed."""
    ax.get_figure(root=True).draw_without_rendering()
    axis = getattr(ax, f"{which}axis")
    return [tick.label1.get_text() or tick.label2.get_text() for tick in axis.get_major_ticks()]
