"""The noise scale along the runs at one batch size B, window by window of steps.

With Q = |G|^2 + tr(Sigma)/B, the mean squared norm of the gradient that updates, noiseless progress is
ds = dS/(1 + N/B) = |G|^2/Q dS, and N ds = tr(Sigma)/Q dS. So both integrals are sums over samples with the weights
(steps that a sample stands for)/Q, linear in what was measured: no ratio of single samples, and no run or phase of
training with large gradients drowns the others. Q comes from the neighbours of a sample, whose errors are not its
own; as it weighs numerator and denominator alike, its errors change precision and not what is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from bscrit.curve import Curve, Floats
from bscrit.noise import NoiseSamples

ALWAYS = (1 / 8, 1 / 4, 1 / 2)  # of the steps to the target, where windows end in any case
PRECISE = 0.15  # relative error of |G|^2: a ratio is biased by its square
FINEST = 1 / 40  # of the steps to the target
BLOCKS = 5  # a window at least, so that its scatter is seen
FEWEST = 4  # blocks of a window that is halved off
NEIGHBOURS = 2  # on each side
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Runs:
    """The noise samples of the runs at one batch size, in one metric.

    Attributes:
        batch_size, steps: at which they were made, and to the target.
        samples: one per run.
        curves: of the same runs, none where there are none.
        temperature: lr/(1 - momentum)/B.
        ln_error: standard error of ln(steps), 0 where unknown.
    """

    batch_size: float
    steps: float
    samples: tuple[NoiseSamples, ...]
    curves: tuple[Curve, ...] = ()
    temperature: float | None = None
    ln_error: float = 0.0


@dataclass(frozen=True)
class Window:
    """A window of steps.

    Attributes:
        low, high: the steps that it covers.
        blocks: (n, 3) sums of tr(Sigma)/Q, |G|^2/Q and 1 over the steps that samples stand for, in blocks of
            neighbouring samples of one run.
        run: (n,) whose block it is.
        samples: (2, m) when samples were taken, and the steps that they stand for.
    """

    low: float
    high: float
    blocks: Floats
    run: NDArray[np.intp]
    samples: Floats

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def rates(self) -> Floats:
        """(2,): tr(Sigma)/Q and |G|^2/Q of a step, on average."""
        return _rates(self.blocks.sum(0))

    @property
    def without(self) -> Floats:
        """(n, 2) the same without each block."""
        return _rates(self.blocks.sum(0) - self.blocks)

    def without_run(self, run: int) -> Floats:
        """(2,) the same without all blocks of one run; with them where nothing else is here."""
        left = self.blocks[self.run != run]
        return _rates(left.sum(0)) if len(left) else self.rates

    @property
    def error(self) -> float:
        """Standard error of |G|^2/Q, from the scatter of the blocks about their common mean; inf for one block."""
        n = len(self.blocks)
        if n < 2:
            return float("inf")
        signal, steps = self.blocks[:, 1], self.blocks[:, 2]
        residual = signal - self.rates[1] * steps
        return sqrt(n / (n - 1) * float((residual**2).sum())) / float(steps.sum())

    @property
    def precise(self) -> bool:
        return len(self.blocks) >= FEWEST and self.error < PRECISE * self.rates[1]


def windows(runs: Runs) -> tuple[Window, ...]:
    """The windows of some runs, ascending and without gaps from 0 to the target; none without samples.

    The last half of a run, the quarter before it and the eighth before that are windows of their own, whatever
    they hold, and each is halved as long as the halves are precise.
    """
    tables = _tables(runs)
    if not tables:
        return ()
    grid = np.unique(np.concatenate([table[0] for table in tables]))
    cuts = np.concatenate([[0.0], (grid[1:] + grid[:-1]) / 2, [max(runs.steps, grid[-1] + 0.5)]])

    def window(first: int, last: int) -> Window:
        """The window of the samples at grid[first:last]."""
        low, high = grid[first], grid[last - 1]
        samples = np.concatenate([t[::3, (t[0] >= low) & (t[0] <= high)] for t in tables], axis=1)
        return Window(float(cuts[first]), float(cuts[last]), *_blocks(tables, low, high), samples)

    def halved(first: int, last: int) -> list[Window]:
        middle = int(np.searchsorted(grid, (cuts[first] + cuts[last]) / 2))
        wide = first < middle < last and cuts[last] - cuts[first] >= 2 * FINEST * runs.steps
        if wide and window(first, middle).precise and window(middle, last).precise:
            return [*halved(first, middle), *halved(middle, last)]
        return [window(first, last)]

    bounds = [0]
    for share in ALWAYS:
        place = int(np.searchsorted(grid, share * runs.steps))
        if bounds[-1] < place < len(grid):
            sides = window(bounds[-1], place), window(place, len(grid))
            bounds += [place] if all(len(side.blocks) >= 2 for side in sides) else []
    pairs = zip(bounds, [*bounds[1:], len(grid)], strict=True)
    return tuple(part for first, last in pairs for part in halved(first, last))


def last_window(several: Sequence[Runs], share: float) -> tuple[Window, ...]:
    """One window of the runs at all batch sizes together, over the last `share` of their steps; none if empty."""
    blocks, run, count = [np.empty((0, 3))], [np.empty(0, np.intp)], 0
    for runs in several:
        tables = _tables(runs)
        own, whose = _blocks(tables, (1 - share) * runs.steps, runs.steps)
        blocks.append(own)
        run.append(whose + count)
        count += len(tables)
    window = Window(0.0, 1.0, np.concatenate(blocks), np.concatenate(run), np.empty((2, 0)))
    return (window,) if len(window.blocks) else ()


def mean_metric(curves: Sequence[Curve], steps: Floats) -> Floats:
    """The mean of curves at some steps, interpolated in ln(step)."""
    wanted = np.log(np.maximum(steps, 0.5))
    each = [np.interp(wanted, np.log(np.maximum(curve.steps, 0.5)), curve.loss) for curve in curves]
    return np.asarray(np.mean(each, axis=0))


def _tables(runs: Runs) -> list[Floats]:
    """The table of each run with samples, (4, n): their steps, and tr(Sigma)/Q, |G|^2/Q and 1 over what they stand for.

    A sample stands for the steps from halfway after the one before to halfway before the next; the last one for no
    more steps after it than before it.
    """
    cut = [part for samples in runs.samples if len(part := samples.until(runs.steps))]
    tables = []
    for samples in cut:
        at = samples.steps
        between = (at[1:] + at[:-1]) / 2
        reach = (at[-1] - at[-2]) / 2 if len(at) > 1 else runs.steps
        last = max(min(runs.steps, at[-1] + reach), at[-1] + 0.5)
        steps = np.diff(np.concatenate([[min(0.0, at[0])], between, [last]]))
        weights = steps / _around(samples, cut)
        tables.append(np.stack([at, weights * samples.noise, weights * samples.signal, steps]))
    return tables


def _around(samples: NoiseSamples, others: Sequence[NoiseSamples]) -> Floats:
    """Q of each sample, (n,): the mean of as many neighbours on either side; of all runs for a run of one sample."""
    norms = np.abs(samples.sq_big)  # in the metric of an indefinite Hessian a square may be negative
    last = len(norms) - 1
    if not last:
        norms = np.concatenate([np.abs(other.sq_big) for other in others])
        return np.array([max(float(norms.mean()), TINY)])
    means = []
    for index in range(last + 1):
        side = min(max(min(index, last - index), 1), NEIGHBOURS)
        near = [*norms[max(index - side, 0) : index], *norms[index + 1 : index + side + 1]]
        means.append(np.mean(near))
    return np.maximum(means, max(float(norms.max()) * 1e-12, TINY))


def _blocks(tables: Sequence[Floats], low: float, high: float) -> tuple[Floats, NDArray[np.intp]]:
    """Each run's samples at low <= step <= high are one block, or several where runs are few."""
    inside = [table[1:, (table[0] >= low) & (table[0] <= high)] for table in tables]
    each = ceil(BLOCKS / max(sum(table.shape[1] > 0 for table in inside), 1))
    parts = [
        (part.sum(axis=1), run)
        for run, table in enumerate(inside)
        if table.shape[1]
        for part in np.array_split(table, min(each, table.shape[1]), axis=1)
    ]
    blocks = np.array([part for part, _ in parts]).reshape(-1, 3)
    return blocks, np.array([run for _, run in parts], dtype=np.intp)


def _rates(sums: Floats) -> Floats:
    return sums[..., :2] / sums[..., 2:]
