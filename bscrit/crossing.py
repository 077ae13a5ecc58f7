"""Where the expected curve meets a target.

An SGD loss fluctuates, so the first evaluation below a target is early, most of all at small batch
(-22 % at B_crit/10 on a noisy quadratic). The convention here, the same at every batch size: average the
runs that differ in their seed only, smooth the mean by a local line (smoothing.py), and take the first crossing of
that. A crossing counts once the curves reach the end of its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, isnan

import numpy as np

from bscrit.curve import Curve, Floats, averaged
from bscrit.goal import Goal
from bscrit.position import examples_at_one_size
from bscrit.smoothing import AFTER, ahead, error_of_crossing, first_below

FARTHEST = 0.5  # in ln(steps), of a run from the mean of its seeds: beyond it a line says nothing
OVERRUN = exp(AFTER)
FURTHEST = 700.0  # of ln(steps), before numbers overflow
Group = tuple[tuple[str, str], ...]  # ordered (name, value) pairs that separate fits
Setting = tuple[float, float | None, Group]  # batch size, learning rate, group


@dataclass(frozen=True, slots=True)
class Crossing:
    """One run (or one row of a table) against one target.

    Attributes:
        batch_size: in the workload's unit.
        steps: to the target; where `censored`, the last step that was seen without crossing it.
        examples: consumed by then; steps times batch size where the source does not count them.
        error: standard error of ln(steps) that the metric's fluctuation leaves, the same for runs that share a mean.
        shared: whether it is one run's share of the crossing of a mean curve, which is that of all of them or of none.
        raced: whether a race settled its rate, so that one at the edge of those that were tried is no edge.
        low, high: bounds when the crossing is only known to lie between two logged points; both equal to
            `steps` when it is known. A censored run has high = inf.
        lr, seed, run: None or "" where the source does not say.
        group: what separates fits, as ordered (name, value) pairs.
        role: "measure" for runs on fresh seeds at a tuned rate, "search" for those that tuned it, "" unknown.
        where: file and line, for messages.
    """

    batch_size: float
    steps: float
    target: float | None = None
    censored: bool = False
    low: float = float("nan")
    high: float = float("nan")
    lr: float | None = None
    seed: str = ""
    group: Group = ()
    role: str = ""
    where: str = ""
    examples: float = float("nan")
    error: float = 0.0
    shared: bool = False
    raced: bool = False

    def __post_init__(self) -> None:
        if isnan(self.examples):
            object.__setattr__(self, "examples", examples_at_one_size(self.steps, self.batch_size))


@dataclass(frozen=True)
class CrossingTable:
    """The crossings of a source, whether records or somebody's table, and what a fit has to know beside them.

    Attributes:
        crossings: one per run and target, in any order.
        diverged: settings at which a run diverged; their learning rate is infeasible, which is not the same as slow.
        notes: rows left out, duplicates, and how the source was understood.
        source: as the user named it.
        unit: what a batch size counts, "" where the source does not say.
        goal: the metric and its direction, None where the source does not say.
        horizons: schedules whose rates depend on the planned length of the run, as words for a caveat.
        averaged: how the metric is an average over past steps, as words for a caveat; "" where it is none.
        lag: steps by which it lags behind, infinite where that is not known.
        warmups: batch size -> steps of warm-up, where there is one.
    """

    crossings: tuple[Crossing, ...]
    diverged: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    unit: str = ""
    goal: Goal | None = None
    averaged: str = ""
    lag: float = 0.0
    horizons: tuple[str, ...] = ()
    warmups: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MeanCrossing:
    """Where the mean of some curves meets a target.

    Attributes:
        steps, examples: of the mean curve.
        runs: (n,) steps of each run's share: where it meets the target alone, all shifted by one factor so that the
            geometric mean of `runs` is `steps`.
        error: standard error of ln(steps) that the fluctuation of the mean curve about its local line leaves.
    """

    steps: float
    examples: float
    runs: Floats
    error: float


def crossing_of(curves: Sequence[Curve], target: float, *, confirmed: bool = True) -> MeanCrossing | None:
    """The crossing of the mean of `curves` with a target of their goal, None while there is none.

    `confirmed` asks for the whole window: a run that still trains waits for it, a reader of finished
    curves takes what there is.

    Curves that share their evaluation steps, as lanes of a cohort do, are averaged up to the shortest one;
    others are first interpolated onto the steps of the one with most points.
    """
    crossed = _crossed(curves, target, confirmed)
    if crossed is None:
        return None
    x, gaps, center = crossed
    mean = gaps.mean(axis=0)
    alone = np.array([min(first_below(x, gap), ahead(x, gap)) for gap in gaps])
    shares = np.clip(alone - center, -FARTHEST, FARTHEST)
    steps = exp(center)
    examples = float(np.mean([examples_at(curve, steps) for curve in curves]))
    runs = np.exp(center + shares - shares.mean())
    return MeanCrossing(steps, examples, runs, min(error_of_crossing(x, mean, center), FARTHEST))


def steps_to(curves: Sequence[Curve], target: float, *, confirmed: bool = True) -> float | None:
    """Steps of the crossing alone, None where there is none: what is asked at every evaluation and of every plan."""
    crossed = _crossed(curves, target, confirmed)
    return None if crossed is None else exp(crossed[2])


def examples_at(curve: Curve, steps: float) -> float:
    """Examples consumed by a step of a curve, which may lie between its evaluations or beyond the last."""
    if len(curve) and steps > curve.steps[-1] > 0:
        return float(curve.examples[-1] / curve.steps[-1] * steps)
    return float(np.interp(steps, curve.steps, curve.examples))


def _crossed(curves: Sequence[Curve], target: float, confirmed: bool) -> tuple[Floats, Floats, float] | None:
    """ln(steps), distances from the target, (n,) and (curves, n), and the ln(steps) at which their smoothed mean is 0.

    Distances, so that a metric and one minus that metric round alike.
    """
    if not curves:
        return None
    goal = curves[0].goal.falls(target)
    if not any((curve.loss <= goal).any() for curve in curves):
        return None
    steps, losses = averaged(curves)
    if len(steps) < 2:
        return None
    x, gaps = np.log(steps), losses - goal
    mean = gaps.mean(axis=0)
    if not (mean <= 0).any():
        return None
    center = first_below(x, mean)
    early = confirmed and center < inf and steps[-1] < max(exp(center + AFTER) - 1, exp(center))
    return None if center == inf or early else (x, gaps, center)


def forecast(curve: Curve, target: float) -> float:
    """Steps at which the curve would meet the target if it went on along its last line; inf if never.

    Used to rank a run that was stopped shortly before it arrived.
    """
    curve = curve.finite()
    keep = curve.steps > 0
    if not keep.any():
        return inf
    last = curve.loss[-1]
    center = ahead(np.log(curve.steps[keep]), curve.loss[keep] - last, curve.goal.falls(target) - last)
    return exp(min(center, FURTHEST)) if center < inf else center
