"""The frontier of a family: at each batch size the crossings at the tuned learning rate.

Rows on fresh seeds (role "measure") are taken where there are any. Otherwise it is the rate with most runs,
among equals the fastest: choosing the fastest of noisy runs is biased fast, which `Tuned.chosen_by_speed`
remembers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import hypot, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Crossing
from bscrit.fit.crossings import Family
from bscrit.fit.likelihood import Floats, Sample

MOST_BOUNDS = 40  # of censored runs at a batch size, told apart in its likelihood
FROM_THE_FIRST_POINT = log(100.0)  # a gap as wide as this says only that the target was met by then


@dataclass(frozen=True)
class Tuned:
    """One batch size at its tuned rate.

    Attributes:
        runs: at that rate, censored ones included.
        rates: all rates tried here, ascending, diverged ones included; empty where the source names none.
        diverged: those of them at which a run diverged.
        chosen_by_speed: whether the same runs chose the rate and measure it.
    """

    batch_size: float
    lr: float | None
    runs: tuple[Crossing, ...]
    rates: tuple[float, ...] = ()
    diverged: tuple[float, ...] = ()
    chosen_by_speed: bool = False

    @property
    def reached(self) -> bool:
        return any(not run.censored for run in self.runs)

    @property
    def edge(self) -> str:
        """ "lowest" or "highest" where the tuned rate is the last that was tried on that side, else "".

        A race goes on beyond an edge, unless it knows from other batch sizes what lies there.
        """
        if self.lr is None or len(self.rates) < 2 or any(run.raced for run in self.runs):
            return ""
        return {self.rates[0]: "lowest", self.rates[-1]: "highest"}.get(self.lr, "")

    @property
    def beside_diverged(self) -> bool:
        """Whether the next rate above diverged, or the tuned one itself did with another seed."""
        above = [rate for rate in self.rates if self.lr is not None and rate >= self.lr][:2]
        return any(rate in self.diverged for rate in above)


@dataclass(frozen=True)
class Frontier:
    """Tuned points ascending in batch size, and the batch sizes at which every rate diverged."""

    points: tuple[Tuned, ...]
    infeasible: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rows:
    """The runs of a frontier as arrays, one entry per run, ascending in batch size.

    Attributes:
        x: (k,) ln(batch size) of each point.
        point: (r,) index of the point that a run belongs to.
        y: (r,) ln(steps), the bound of a censored run.
        side: (r,) +1 where the crossing lies beyond y, -1 where it lies before, 0 where it is known.
        gap: (r,) width in ln(steps) of the interval between logged points that holds it; with the metric's fluctuation.
        shared: (r,) whether it is a share of the crossing of a mean curve; none are where it is left out.
    """

    x: Floats
    point: NDArray[np.intp]
    y: Floats
    side: Floats
    gap: Floats
    shared: NDArray[np.bool_] | None = None


def choose(family: Family) -> Frontier:
    """The tuned rate at every batch size."""
    sizes: dict[float, list[Crossing]] = defaultdict(list)
    for row in family.crossings:
        sizes[row.batch_size].append(row)
    lost: dict[float, set[float]] = defaultdict(set)
    for batch_size, lr, _ in family.diverged:
        lost[batch_size].update(() if lr is None else (lr,))
    points = tuple(_tuned(size, sizes[size], lost[size]) for size in sorted(sizes))
    return Frontier(points, tuple(sorted({size for size, *_ in family.diverged} - set(sizes))))


def rows_of(frontier: Frontier) -> Rows:
    """The frontier's runs as arrays."""
    x = np.array([log(point.batch_size) for point in frontier.points])
    runs = [(index, run) for index, point in enumerate(frontier.points) for run in point.runs]
    y, side, gap = (np.array(column) for column in zip(*(_as_numbers(run) for _, run in runs), strict=True))
    shared = np.array([run.shared for _, run in runs])
    return Rows(x, np.array([index for index, _ in runs]), y, side, gap, shared)


def summarise(rows: Rows, keep: NDArray[np.bool_]) -> Sample:
    """Sum up the runs that take part; batch sizes without any are left out.

    A gap of width w between logged points adds w^2/12, the variance of a uniform distribution; it is not
    divided by the number of runs, since runs that are logged at the same steps share it. Where every run at
    a batch size is censored only the largest bound counts, with the runs that reached it.
    """
    points = np.unique(rows.point[keep])
    place = np.searchsorted(points, rows.point).astype(np.intp)
    k = len(points)
    exact = keep & (rows.side == 0)
    n = np.bincount(place[exact], minlength=k).astype(float)
    divisor = np.maximum(n, 1)
    mean = np.bincount(place[exact], rows.y[exact], k) / divisor
    ss = np.bincount(place[exact], (rows.y[exact] - mean[place[exact]]) ** 2, k).astype(float)
    gap = np.bincount(place[exact], rows.gap[exact] ** 2 / 12, k) / divisor
    cells = list(_cells(rows, keep, place, n))
    cell, bound, side, count = (np.array([c[i] for c in cells], float) for i in range(4))
    return Sample(rows.x[points], n, mean, ss, gap, cell.astype(np.intp), bound, side, count)


def _as_numbers(run: Crossing) -> tuple[float, float, float]:
    """(y, side, gap) of a run; an error counts as a gap of the same variance."""
    if run.censored:
        return log(run.steps), 1.0, 0.0
    bounded = run.low < run.high
    if bounded and (run.low <= 0 or log(run.high / run.low) > FROM_THE_FIRST_POINT):
        return log(run.high), -1.0, 0.0
    return log(run.steps), 0.0, hypot(log(run.high / run.low) if bounded else 0.0, sqrt(12) * run.error)


def _tuned(size: float, rows: list[Crossing], lost: set[float]) -> Tuned:
    rates = _by_rate(rows)
    measured = _by_rate(row for row in rows if row.role == "measure")
    candidates = measured or rates
    # A sweep that lost seeds at a rate measures a lower one in its place, with as many seeds.
    lr = min(
        candidates,
        key=lambda rate: (bool(measured) and _lost_some(candidates[rate], lost), _rank(candidates[rate])),
    )
    tried = sorted({rate for rate in rates if rate is not None} | lost)
    return Tuned(
        size,
        lr,
        tuple(candidates[lr]),
        tuple(tried),
        tuple(sorted(lost)),
        chosen_by_speed=not measured and len(rates) > 1,
    )


def _by_rate(rows: Iterable[Crossing]) -> dict[float | None, list[Crossing]]:
    by_rate: dict[float | None, list[Crossing]] = defaultdict(list)
    for row in rows:
        by_rate[row.lr].append(row)
    return by_rate


def _lost_some(runs: list[Crossing], lost: set[float]) -> bool:
    """Whether a run diverged, or wandered without arriving."""
    return runs[0].lr in lost or any(run.censored for run in runs)


def _rank(runs: list[Crossing]) -> tuple[bool, int, float, float]:
    """Smaller is better: some run arrived, more runs, faster; among equals the smaller rate."""
    speed = float(np.median([inf if run.censored else log(run.steps) for run in runs]))
    return (all(run.censored for run in runs), -len(runs), speed, runs[0].lr or 0.0)


def _cells(
    rows: Rows, keep: NDArray[np.bool_], place: NDArray[np.intp], exact: Floats
) -> Iterator[tuple[float, float, float, float]]:
    """(point, bound, side, runs) of every censored group; of many bounds neighbours share their mean."""
    for side in (1.0, -1.0):
        censored = keep & (rows.side == side)
        for point in np.unique(place[censored]):
            bounds, counts = np.unique(rows.y[censored & (place == point)], return_counts=True)
            if not exact[point]:
                outermost = -1 if side > 0 else 0
                yield float(point), float(bounds[outermost]), side, float(counts[outermost])
                continue
            groups = min(len(bounds), MOST_BOUNDS)
            for b, c in zip(np.array_split(bounds, groups), np.array_split(counts, groups), strict=True):
                yield float(point), float(np.average(b, weights=c)), side, float(c.sum())
