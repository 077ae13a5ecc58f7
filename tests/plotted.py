"""Fits and records written by hand, and what can be read off an Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bscrit.curve import Curve, Floats
from bscrit.estimate import Estimate
from bscrit.fit.report import Report
from bscrit.fit.result import (
    Fit,
    Forecast,
    FrozenScale,
    Growth,
    NoiseComparison,
    NoiseWindows,
    Point,
    Verdict,
)
from bscrit.fit.runs import sweep_runs
from bscrit.frozen_noise import FrozenNoise
from bscrit.noise import NoiseSamples
from bscrit.order import Order, Role
from bscrit.record import Record
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
    noise: NoiseSamples | Sequence[NoiseSamples] = (),
    frozen: Sequence[FrozenNoise] = (),
) -> Record:
    """A run whose loss falls as 1/step from 1 at the first step and meets 0.5 after `meets` steps."""
    steps = np.unique(np.geomspace(1, last, count).round())
    loss = 0.5 * (steps / meets) ** -0.2
    order = Order(role, 0, ((lr, seed),), targets=(0.5,), max_steps=10**6)
    curve = Curve(steps, steps * batch_size, loss, steps * 0.01)
    samples = [noise] if isinstance(noise, NoiseSamples) else noise
    by_metric = {one.metric: one for one in samples}
    return Record(
        Trial("quadratic", batch_size, lr, seed), order, status, "", curve, by_metric, tuple(frozen)
    )


def make_noise(
    trace: float | Floats,
    *,
    signal: float = 1.0,
    steps: Sequence[float] = range(1, 65),
    metric: str = "identity",
) -> NoiseSamples:
    """Noiseless samples of a gradient with this signal and with this tr(Sigma)."""
    at = np.array(steps, dtype=float)
    small, big = np.full(len(at), 8.0), np.full(len(at), 64.0)
    return NoiseSamples(at, at * 64, small, signal + trace / small, big, signal + trace / big, metric=metric)


def gaussian_noise(
    trace: float, batch_size: int, steps: Sequence[float], dimensions: int = 200, seed: int = 0
) -> NoiseSamples:
    """Samples as four micro-batches of a gradient of length 1 with isotropic Gaussian noise give them."""
    rng = np.random.default_rng(seed)
    mean = np.zeros(dimensions)
    mean[0] = 1.0
    scatter = np.sqrt(trace / dimensions / (batch_size / 4))
    parts = mean + scatter * rng.normal(size=(len(steps), 4, dimensions))
    at, whole = np.array(steps, dtype=float), np.full(len(steps), float(batch_size))
    squares = (parts**2).sum(-1).mean(1), (parts.mean(1) ** 2).sum(-1)
    return NoiseSamples(at, at * batch_size, whole / 4, squares[0], whole, squares[1])


def make_frozen(
    trace: float,
    step: float,
    loss: float,
    *,
    signal: float = 1.0,
    scatter: float = 0.1,
    metric: str = "identity",
) -> FrozenNoise:
    """A measurement in eight blocks whose mean squares alternate by `scatter`, relatively."""
    ones = np.ones(8)
    squares = (signal + trace / 8) * (1 + scatter * (-1.0) ** np.arange(8))
    columns = (64 * ones, 8 * ones, squares, 64 * ones, (signal + trace / 64) * ones, 7 * signal * ones)
    return FrozenNoise(step, step * 64, loss, metric, *columns)


def make_comparison(
    metric: str = "identity",
    *,
    forecast: Forecast | None = None,
    growth: Growth | None = None,
    frozen: Sequence[FrozenScale] = (),
) -> NoiseComparison:
    windows = NoiseWindows(NOTHING, NOTHING, NOTHING, NOTHING)
    found = NoiseComparison(metric, windows, (), NOTHING, "unresolved", "")
    return replace(found, forecast=forecast, growth=growth, frozen=tuple(frozen))


def report_on(records: Sequence[Record], fits: Sequence[Fit] = (), data: float | None = None) -> Report:
    return Report("results/x", "image", tuple(fits), deferred_runs=lambda: sweep_runs(records, fits, data))


def sweep_records(batch_sizes: Sequence[int] = (4, 16, 64)) -> list[Record]:
    """Three rates and two measuring runs at each batch size, with noise samples."""
    records = []
    for size in batch_sizes:
        lr = 0.01 * size**0.5
        records += [
            make_record(size, lr / 2, meets=200, status="stopped"),
            make_record(size, lr, meets=100),
            make_record(size, lr * 2, status="diverged", last=10),
            *(make_record(size, lr, seed=s, role="measure", noise=make_noise(50)) for s in (1, 2)),
        ]
    return records


def sweep(batch_sizes: Sequence[int] = (4, 16, 64), *more: Record) -> Report:
    """The report on those, and on further records."""
    lrs = [0.01 * size**0.5 for size in batch_sizes]
    fit = make_fit(batch_sizes, [100.0] * len(batch_sizes), 90, 8, target=0.5, lrs=lrs)
    return report_on([*sweep_records(batch_sizes), *more], [fit])


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
