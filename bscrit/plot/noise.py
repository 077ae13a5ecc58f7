"""The gradient noise scale over training, beside B_crit.

tr(Sigma)/|G|^2 is one ratio of two sums over a window of steps, pooled over the seeds of a batch size; a mean
of ratios would be off by any factor (McCandlish et al. 2018, appendix A.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from bscrit.curve import Floats
from bscrit.fit.result import Fit
from bscrit.noise import NoiseSamples
from bscrit.plot import words
from bscrit.plot.runs import by_batch_size
from bscrit.plot.series import say_left_out, shown
from bscrit.plot.style import SERIES, batch_colours, sign
from bscrit.plot.ticks import limits, log_axis
from bscrit.record import Record

WINDOW = 0.35
FEWEST = 8
NAMES = {"identity": "$B_{simple}$", "hessian": "$B_{noise}$", "adam": "$B_{simple}$ in Adam's metric"}


def noise(ax: Axes, records: Sequence[Record], fits: Sequence[Fit], unit: str) -> None:
    """Draw the windowed noise scale of each batch size against steps, and B_crit with its interval as lines.

    Windows whose signal is not distinguishable from 0 have no ratio: they leave a gap and a mark at the top.
    The colour bar (`style.batch_bar`) and the legend are left to the caller.
    """
    metric = _metric(records)
    same = [record for record in records if len(record.noise) and record.noise.metric == metric]
    groups = by_batch_size(same)
    windows = {size: _windows([record.noise for record in group]) for size, group in groups.items()}
    drawn = shown(fits)
    marks = [fit.b_crit.value for fit in drawn if fit.b_crit.value is not None]
    every = np.concatenate([ratio for _, ratio in windows.values()]) if windows else np.empty(0)
    steps = [step for center, _ in windows.values() for step in center.tolist()]
    log_axis(ax.xaxis, "Optimizer steps", limits(steps, pad=0.03))
    log_axis(ax.yaxis, f"Noise scale ({words.plural(unit)})", limits([*every.tolist(), *marks], least=1.5))
    colours = batch_colours(list(windows))
    for size, (center, ratio) in windows.items():
        ax.plot(center, ratio, "-o", ms=2, lw=1, color=colours(size), label="_noise scale")
        gone = center[~np.isfinite(ratio)]
        top = ax.get_xaxis_transform()
        ax.plot(
            gone, np.full(len(gone), 0.98), "|", ms=5, color=colours(size), transform=top, label="_unresolved"
        )
    for index, fit in enumerate(drawn):
        _critical(ax, fit, SERIES[index], f"{words.name(fit, fits)}: {words.b_crit(fit, unit)}")
    named = NAMES.get(metric, words.safe(metric))
    what = f"noise scale {named}, ratio of sums over windows of steps"
    sign(ax, what, marker="o", markersize=2, linestyle="-")
    if any(not np.isfinite(ratio).all() for _, ratio in windows.values()):
        sign(ax, "unresolved: the signal is not distinguishable from 0", marker="|", markersize=5)
    say_left_out(ax, "fits", len(fits) - len(drawn))


def _metric(records: Sequence[Record]) -> str:
    """The metric to draw, one as norms in different geometries do not add up; the identity if it is there."""
    metrics = {record.noise.metric for record in records if len(record.noise)}
    return "identity" if "identity" in metrics else min(metrics, default="identity")


def _windows(samples: Sequence[NoiseSamples]) -> tuple[Floats, Floats]:
    """Steps (geometric mean) and noise scale of each window; NaN where the signal is within two errors of 0.

    A window spans at least WINDOW in ln(step) and holds at least FEWEST samples; what is left at the end
    joins the last one.
    """
    steps, signal, trace = (
        np.concatenate([getattr(one, column) for one in samples]) for column in ("steps", "signal", "noise")
    )
    keep = steps >= 1
    order = np.argsort(steps[keep], kind="stable")
    steps, signal, trace = (column[keep][order] for column in (steps, signal, trace))
    centers, ratios = [], []
    for start, end in _bounds(np.log(steps)):
        total = float(signal[start:end].sum())
        scatter = signal[start:end].std(ddof=1) * (end - start) ** 0.5 if end - start > 1 else np.inf
        centers.append(float(np.exp(np.log(steps[start:end]).mean())))
        ratio = float(trace[start:end].sum()) / total if total > 2 * scatter else np.nan
        ratios.append(ratio if ratio > 0 else np.nan)
    return np.array(centers), np.array(ratios)


def _bounds(x: Floats) -> list[tuple[int, int]]:
    cuts = [0]
    for index in range(len(x)):
        if index - cuts[-1] >= FEWEST and x[index] - x[cuts[-1]] >= WINDOW:
            cuts.append(index)
    if len(cuts) > 1 and len(x) - cuts[-1] < FEWEST:
        cuts.pop()
    return list(zip(cuts, [*cuts[1:], len(x)], strict=True)) if len(x) else []


def _critical(ax: Axes, fit: Fit, look: tuple[str, str], label: str) -> None:
    """A line across the axes, the fit's marker at its right end; only the legend where there is no value."""
    colour, marker = look
    value = fit.b_crit.value
    ax.plot([], [], "--", marker=marker, color=colour, lw=1.1, label=label)
    if value is None:
        return
    ax.plot(
        [0, 1],
        [value, value],
        "--",
        marker=marker,
        markevery=[1],
        color=colour,
        lw=1.1,
        transform=ax.get_yaxis_transform(),
        clip_on=False,
        label="_b_crit",
    )
    if fit.b_crit.low is not None and fit.b_crit.high is not None:
        ax.axhspan(fit.b_crit.low, fit.b_crit.high, color=colour, alpha=0.12, lw=0, label="_b_crit interval")
