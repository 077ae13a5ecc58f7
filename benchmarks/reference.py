"""The critical batch size by brute force, to hold sweeps against where no exact answer is known.

    python benchmarks/reference.py digits --seeds 40

At each batch size of a spec, seeds that no sweep uses train at every rate of a fine grid about the optimum, all
seeds at all rates, until their mean curve has met the hardest target and the end of the crossing's window.
The result, benchmarks/references/NAME.json, says how it was made.

Selection. The best rate of several noisy ones looks faster than it is. Here ln S at a rate is that of the mean
curve of all seeds; seeds are the same at each rate, so that most of their noise is common to all of them; and
the optimum is that of a smooth curve through the rates near the best, not the luckiest rate. What is left of
the bias is cancelled to first order: a seed read at the optimum that it helped to choose is too fast on average
by as much as it is too slow where the *other* seeds choose, so the mean of the two is taken. `optimism` says by
how much in ln S they differ, over all seeds.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from workloads import FOLDER, NAMES, identity, machine, named, store, workload_of

from bscrit.crossing import Crossing, CrossingTable, MeanCrossing, crossing_of
from bscrit.curve import Curve
from bscrit.fit.core import fit_table
from bscrit.spec import Spec
from bscrit.sweep.summary import CONVENTION

FIRST_SEED = 900_000  # sweeps count theirs from first_seed, and from 500,000 beyond it
NEAR = math.log(1.15)  # steps above the best rate's, of rates that the smooth curve goes through
LOOK_SEEDS, LOOK_STRIDE = 3, 4  # a coarse look for the optimum before the fine grid
MOST_BELOW = 60  # rates below the first one, before it is given up
LATE = 1.5  # times the steps of the best rate: a rate that has not met the target by then is out


@dataclass(frozen=True)
class Optimum:
    """One target at one batch size: the rate that all seeds choose, and the steps of each; see Selection."""

    target: float
    batch_size: int
    lr: float
    runs: tuple[float, ...]
    optimism: float = 0.0

    @property
    def steps(self) -> float:
        return math.exp(float(np.log(self.runs).mean()))


class Grid:
    """Curves of all seeds at the rates spacing^k of one batch size, trained when they are asked for."""

    def __init__(self, spec: Spec, workload: Any, batch_size: int, spacing: float, seeds: Sequence[int]):
        self.spec, self.workload, self.batch_size = spec, workload, batch_size
        self.spacing, self.seeds = spacing, seeds
        self.targets = spec.sweep.targets
        self.crossings: dict[int, dict[float, MeanCrossing | None]] = {}
        self.examples = 0

    def lr(self, k: int) -> float:
        return float(f"{self.spacing**k:.6g}")

    def steps(self, k: int, target: float) -> float:
        """Steps of the mean curve at rate number k; inf where it does not meet the target in time."""
        found = self.crossings[k][target] if k in self.crossings else None
        return found.steps if found else math.inf

    def best(self, target: float) -> int:
        return min(self.crossings, key=lambda k: self.steps(k, target))

    def train(self, numbers: Iterable[int]) -> None:
        for k in numbers:
            if k not in self.crossings:
                best = min((self.steps(k, self.targets[-1]) for k in self.crossings), default=math.inf)
                curves = train(self.spec, self.workload, self.batch_size, self.lr(k), self.seeds, LATE * best)
                self.examples += int(sum(curve.examples[-1] for curve in curves))
                self.crossings[k] = {target: crossing_of(curves, target) for target in self.targets}

    def search(self, around: int, stride: int, reach: int) -> None:
        """Rates until the best one of every target has `reach` others on either side, or rates that fail there."""
        self.train(range(around - reach * stride, around + reach * stride + 1, stride))
        while True:
            wanted = set()
            for target in self.targets:
                best = self.best(target)
                if not math.isfinite(self.steps(best, target)):
                    best = min(self.crossings) - reach * stride  # all too fast so far
                wanted |= {best + side * stride * n for n in range(1, reach + 1) for side in (-1, 1)}
            missing = wanted - set(self.crossings)
            if not missing:
                return
            if min(missing) < around - MOST_BELOW:
                raise SystemExit(
                    f"no rate from {self.lr(around - MOST_BELOW):.2g} meets the targets in the budget"
                )
            self.train(sorted(missing, reverse=True))

    def optimum(self, target: float) -> Optimum:
        """Smooth ln S over ln lr for every seed, read where all are fastest and where the others are."""
        best = self.best(target)
        used = near(best, {k: math.log(self.steps(k, target)) for k in self.crossings})
        x = np.array(used) * math.log(self.spacing)
        y = np.stack([np.log(m.runs) for k in used if (m := self.crossings[k][target])])  # (rates, seeds)
        lowest, degree = lowest_point(x, y.mean(1))
        by_all = np.array([smooth(x, one, lowest, degree) for one in y.T])
        apart = [lowest_point(x, np.delete(y, seed, axis=1).mean(1)) for seed in range(y.shape[1])]
        by_others = np.array([smooth(x, one, *at) for one, at in zip(y.T, apart, strict=True)])
        runs = tuple(np.exp((by_all + by_others) / 2).tolist())
        optimism = float((by_others - by_all).mean())
        return Optimum(target, self.batch_size, float(f"{math.exp(lowest):.4g}"), runs, optimism)


def near(best: int, logs: Mapping[int, float]) -> list[int]:
    """Numbers of the rates from the first to the last that needs at most 15 % more steps than the best one.

    Those between are taken as they are: left out, noise would choose the points. A rate that failed ends the row.
    """
    used = [best]
    for side in (-1, 1):
        row, k = [], best + side
        while math.isfinite(logs.get(k, math.inf)):
            row.append(k)
            k += side
        close = [place for place, k in enumerate(row) if logs[k] - logs[best] < NEAR]
        used += row[: max(close, default=-1) + 1]
    return sorted(used)


def smooth(x: np.ndarray, y: np.ndarray, at: float, degree: int) -> float:
    """The value at `at` of the polynomial of this degree through the points."""
    return float(np.polyval(np.polyfit(x - x.mean(), y, degree), at - x.mean()))


def lowest_point(x: np.ndarray, y: np.ndarray) -> tuple[float, int]:
    """Where a smooth curve through the points is lowest, and the degree of its polynomial.

    Of the third degree if that has a minimum between the outermost points, else of the second; the lowest point
    itself where neither has.
    """
    fine = np.linspace(x[0], x[-1], 2001)
    for degree in (3, 2):
        if len(x) >= 2 * degree - 1:
            place = int(np.polyval(np.polyfit(x - x.mean(), y, degree), fine - x.mean()).argmin())
            if 0 < place < len(fine) - 1:
                return float(fine[place]), degree
    return float(x[y.argmin()]), min(2, len(x) - 1)


def train(
    spec: Spec, workload: Any, batch_size: int, lr: float, seeds: Sequence[int], most_steps: float
) -> list[Curve]:
    """Curves of some seeds at one rate, as lanes, until their mean meets the hardest target or fails to."""
    from bscrit.cohort.evaluations import evaluation_after
    from bscrit.engine.lanes import Lanes
    from bscrit.position import Position

    lanes = Lanes(
        workload,
        seeds=seeds,
        lrs=[lr] * len(seeds),
        batch_size=batch_size,
        optimizer=spec.optimizer.at(batch_size),
        dtype=spec.compute.dtype,
    )
    most = min(spec.max_steps_at(batch_size), most_steps)
    target = spec.sweep.targets[-1]
    grid, losses, step = [0], [lanes.evaluate()], 0
    while True:
        upcoming = evaluation_after(step)
        for number in range(step, upcoming):
            lanes.step(
                number * batch_size, spec.schedule.factor(Position(number, number * batch_size), batch_size)
            )
        step = upcoming
        grid.append(step)
        losses.append(lanes.evaluate())
        lost = not np.isfinite(losses[-1]).all() or losses[-1].max() > 10 * losses[0].max()
        met = bool(losses[-1].mean() <= 1.2 * target) and crossing_of(
            _curves(grid, losses, batch_size), target
        )
        if lost or met or step >= most:
            return _curves(grid, losses, batch_size)


def _curves(grid: Sequence[int], losses: Sequence[np.ndarray], batch_size: int) -> list[Curve]:
    steps = np.array(grid, dtype=float)
    return [Curve(steps, steps * batch_size, loss, np.zeros(len(steps))) for loss in np.stack(losses).T]


def refer(spec: Spec, seeds: int, spacing: float, reach: int) -> dict[str, Any]:
    """The reference of a spec: its optima, their fit, and every rate that was tried."""
    from bscrit.engine.memory import tune_allocator

    tune_allocator()
    began = time.process_time()
    workload, fingerprint = workload_of(spec)
    numbers = [FIRST_SEED + seed for seed in range(seeds)]
    around = round(math.log(spec.first_guess()) / math.log(spacing))
    stride = max(2, round(math.log(1.5) / math.log(spacing)))
    optima: list[Optimum] = []
    sizes: list[dict[str, Any]] = []
    for batch_size in spec.sweep.batch_sizes:
        look = Grid(spec, workload, batch_size, spacing, numbers[:LOOK_SEEDS])
        look.search(around, stride, 1)
        around = look.best(spec.sweep.targets[-1])
        grid = Grid(spec, workload, batch_size, spacing, numbers)
        grid.search(around, 1, reach)
        around = grid.best(spec.sweep.targets[-1])
        found = [grid.optimum(target) for target in spec.sweep.targets]
        optima += found
        sizes.append(_told(grid, found, look.examples))
        shown = ", ".join(f"{one.steps:.4g} steps to {one.target:g} at rate {one.lr:g}" for one in found)
        print(
            f"[{time.process_time() - began:7.1f} s of CPU] {batch_size}: {shown}",
            file=sys.stderr,
            flush=True,
        )
    return {
        "fits": fitted(optima, workload.unit),
        "sizes": sizes,
        "seeds": numbers,
        "spacing": spacing,
        "reach": reach,
        "fingerprint": fingerprint,
        "cpu_seconds": round(time.process_time() - began),
    }


def fitted(optima: Sequence[Optimum], unit: str) -> list[dict[str, Any]]:
    """The hyperbola of every target, fitted as a sweep's is."""
    rows = [
        Crossing(one.batch_size, steps, one.target, lr=one.lr, seed=str(seed), low=steps, high=steps)
        for one in optima
        for seed, steps in enumerate(one.runs)
    ]
    return [
        {"target": fit.target, "verdict": fit.verdict, "unit": unit}
        | {name: asdict(getattr(fit, name)) for name in ("b_crit", "s_min", "e_min", "sigma")}
        for fit in fit_table(CrossingTable(tuple(rows), unit=unit)).fits
    ]


def _told(grid: Grid, found: Sequence[Optimum], looked: int) -> dict[str, Any]:
    """What was tried at one batch size: steps per target at each rate, None where the mean did not meet it."""
    tried = {
        f"{grid.lr(k):g}": [round(m.steps, 2) if m else None for m in grid.crossings[k].values()]
        for k in sorted(grid.crossings)
    }
    optima = [
        {
            "target": one.target,
            "lr": one.lr,
            "steps": round(one.steps, 3),
            "optimism": round(one.optimism, 4),
            "runs": [round(run, 2) for run in one.runs],
        }
        for one in found
    ]
    return {
        "batch_size": grid.batch_size,
        "optima": optima,
        "rates": tried,
        "examples": grid.examples + looked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=[name for name in NAMES if name != "quadratic"])
    parser.add_argument("--seeds", type=int, default=10, help="runs at each rate")
    parser.add_argument("--spacing", type=float, default=1.12, help="factor between neighbouring rates")
    parser.add_argument("--reach", type=int, default=3, help="rates to either side of the best, at least")
    parser.add_argument("--out", type=Path, help="file to write, references/NAME.json by default")
    options = parser.parse_args()

    import torch

    from bscrit.train.preflight import versions

    torch.set_num_threads(1)
    spec = named(options.name)
    found = refer(spec, options.seeds, options.spacing, options.reach)
    told = {
        "name": options.name,
        "command": shlex.join(["python", "benchmarks/reference.py", *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "steps": CONVENTION.removeprefix("steps: "),
        "spec": identity(spec),
        **found,
    }
    store(options.out or FOLDER / f"{options.name}.json", told)
    for fit in told["fits"]:
        b = fit["b_crit"]
        print(f"target {fit['target']:g}: {fit['verdict']}, B_crit {b['value']} [{b['low']}, {b['high']}]")


if __name__ == "__main__":
    main()
