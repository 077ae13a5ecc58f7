"""What bscrit's training loop costs beside one written by hand, and what its planner costs.

    python benchmarks/loop.py                    # throughput at four batch sizes, executions, and the planner
    python benchmarks/loop.py --oracle FOLDER    # train a sweep's winning runs by hand, one after the other

The loop by hand is what one would write without bscrit: an nn.Module, torch.optim, batches cut from a shuffled
tensor, an evaluation at the same steps. bscrit's is that of a worker, with its judge and its files. Both take
turns in one process with one thread, and the fastest of several turns counts, in processor time, which a busy
neighbour disturbs less. Nothing here is a test: timings depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in a worker; set before torch is imported

import numpy as np
import torch
from torch import Tensor

from bscrit.cohort.evaluations import evaluation_after
from bscrit.curve import Curve
from bscrit.engine.lanes import Lanes
from bscrit.engine.loading import load_workload
from bscrit.engine.memory import tune_allocator
from bscrit.engine.replay import replay_of
from bscrit.engine.self_test import choose_engine
from bscrit.engine.workload import Workload
from bscrit.order import Cohort, Order
from bscrit.preflight import Preflight
from bscrit.record import Record, begin
from bscrit.results import read_records
from bscrit.spec import Spec, parse_spec, restore_spec
from bscrit.sweep.plan import plan
from bscrit.sweep.progress import point_of
from bscrit.train.loop import train
from bscrit.trial import Trial
from bscrit.workloads.classifier import Classifier

TURNS = 7
LANES = 10
STEPS = {1: 1000, 16: 1000, 256: 600, 4096: 60}
SYNTHETIC = 16_384
NEVER = -1.0  # a loss that no run meets


@dataclass(frozen=True)
class Run:
    """One run of an oracle, who knows its best rate and how many steps it needs."""

    batch_size: int
    lr: float
    seed: int
    steps: int


def by_hand(workload: Workload, run: Run, optimizer: Mapping[str, Any]) -> list[float]:
    """Train one run the ordinary way; its evaluations."""
    torch.manual_seed(run.seed)
    model = workload.model(run.seed)
    updates = torch_optimizer(model, run.lr, optimizer)
    batches = shuffled(workload, run)
    losses, upcoming = [], 0
    for step in range(run.steps + 1):
        if step >= upcoming or step == run.steps:
            model.eval()
            with torch.no_grad():
                losses.append(float(workload.evaluate(model)))
            model.train()
            upcoming = evaluation_after(step)
        if step == run.steps:
            break
        updates.zero_grad()
        workload.losses(model, next(batches)).mean().backward()
        updates.step()
    return losses


def torch_optimizer(model: torch.nn.Module, lr: float, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    keys = {key: value for key, value in settings.items() if key not in ("use", "beta1", "beta2")}
    if settings["use"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, **keys)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings["use"]]
    return kind(model.parameters(), lr=lr, betas=(settings["beta1"], settings["beta2"]), **keys)


def shuffled(workload: Workload, run: Run) -> Iterator[Any]:
    """Batches of the whole data, shuffled anew in each epoch; what is drawn without end comes as it is drawn."""
    size, n = run.batch_size, workload.examples
    if n is None:
        for step in range(run.steps):
            yield workload.batch(run.seed, step * size, size)
        return
    whole = workload.batch(run.seed, 0, n)
    while True:
        order = torch.randperm(n)
        for first in range(0, n - size + 1, size):
            rows = order[first : first + size]
            yield whole[rows] if isinstance(whole, Tensor) else tuple(tensor[rows] for tensor in whole)


def by_bscrit(
    workload: Workload, runs: Sequence[Run], optimizer: Mapping[str, Any], engine: str, folder: Path
) -> None:
    """Train runs of one batch size and length as the lanes of one cohort, as a worker does."""
    lanes = tuple((run.lr, run.seed) for run in runs)
    order = Order("measure", 0, lanes, (NEVER,), max_steps=runs[0].steps, engine=engine)
    trials = [Trial("bench", run.batch_size, run.lr, run.seed, optimizer=optimizer) for run in runs]
    folders = [folder / trial.name for trial in trials]
    for one, trial in zip(folders, trials, strict=True):
        begin(one, trial, order)
    train(folders, workload, {})


def digits(batch_size: int) -> Workload:
    """The digits, or where a batch is larger than they are, as many random images as it takes."""
    workload = Classifier()
    if batch_size > (workload.examples or 0):
        draw = torch.Generator().manual_seed(0)
        images, labels = torch.rand(SYNTHETIC, 1, 8, 8, generator=draw), torch.arange(SYNTHETIC) % 10
        workload.examples, workload._tensors = SYNTHETIC, (images, labels, images[:360], labels[:360])
    return workload


def fastest(runs: Mapping[str, Callable[[], object]], turns: int = TURNS) -> dict[str, float]:
    """Processor seconds of each, in turns, so that a busy moment does not hit one alone."""
    found = {name: float("inf") for name in runs}
    for turn in range(turns + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:  # the first warms up
                found[name] = min(found[name], time.process_time() - start)
    return found


def throughput(batch_size: int, steps: int, turns: int = TURNS) -> dict[str, float | str]:
    """Examples per second by hand, through bscrit with one lane, and with ten."""
    workload, settings = digits(batch_size), {"use": "sgd"}
    optimizer = {"use": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    engine = choose_engine(workload, batch_size, LANES, optimizer=settings).engine
    runs = [Run(batch_size, 0.01, seed, steps) for seed in range(LANES)]

    def ours(count: int, engine: str) -> None:
        with tempfile.TemporaryDirectory() as name:
            by_bscrit(workload, runs[:count], optimizer, engine, Path(name))

    times = fastest(
        {
            "by hand": lambda: by_hand(workload, runs[0], optimizer),
            "one lane": lambda: ours(1, "loop"),
            "ten lanes": lambda: ours(LANES, engine),
        },
        turns,
    )
    lanes = {"by hand": 1, "one lane": 1, "ten lanes": LANES}
    rates = {name: batch_size * steps * lanes[name] / seconds for name, seconds in times.items()}
    return {**rates, "engine": engine}


def executions(workload: Workload, batch_size: int) -> dict[str, float]:
    """Seconds of a step of five lanes in one stack, by how it runs."""
    lanes = {
        how: Lanes(
            workload,
            seeds=range(5),
            lrs=[0.01] * 5,
            batch_size=batch_size,
            optimizer={"use": "sgd"},
            replay=replay_of(workload, "float32", "cpu", how),
        )
        for how in ("eager", "replay", "compile")
    }

    def steps(how: str, first: int) -> None:
        for step in range(first, first + 20):
            lanes[how].step(step * batch_size, 0.0)

    for how in lanes:  # until it is recorded, or compiled
        steps(how, 0)
    return {
        how: time / 20
        for how, time in fastest({how: lambda how=how: steps(how, 20) for how in lanes}).items()
    }


def planning(batch_sizes: Sequence[int], seeds: int) -> tuple[int, float, float]:
    """Records of a finished sweep, seconds of a plan on them, and on as many of which the last batch size lacks."""
    table = {"batch_sizes": list(batch_sizes), "targets": [0.3, 0.1], "seeds": seeds, "max_examples": 10**9}
    spec = parse_spec({"workload": {"use": "quadratic"}, "sweep": table, "noise": {"source": "none"}})
    records: dict[str, Record] = {}
    while cohorts := plan(spec, Preflight(), records.values()):
        for cohort in cohorts:
            records |= {record.trial.name: record for record in pretended(cohort)}
    unfinished = [record for record in records.values() if record.trial.batch_size < batch_sizes[-1]]
    seconds = fastest(
        {
            "finished": lambda: plan(spec, Preflight(), records.values()),
            "unfinished": lambda: plan(spec, Preflight(), unfinished),
        },
        turns=3,
    )
    return len(records), seconds["finished"], seconds["unfinished"]


def pretended(cohort: Cohort) -> list[Record]:
    """Records of a cohort whose runs follow S = 30 (1 + 60/B), and need more steps at other rates than 1/(1 + 60/B)."""
    need = 1 + 60 / cohort.batch_size
    records = []
    for trial in cohort.trials:
        off = np.log(trial.lr * need)
        if off > 0.4:
            curve = pretended_curve(np.array([0.0, 1.0]), np.array([1.0, np.nan]), cohort.batch_size)
            records.append(Record(trial, cohort.order, "diverged", "the rate is too high", curve))
            continue
        last = 30 * need * float(np.exp(off**2 - 0.2 * min(off, 0.0)))
        grid = [0]
        while grid[-1] < 1.12 * last:
            grid.append(evaluation_after(grid[-1]))
        steps = np.array(grid, dtype=float)
        curve = pretended_curve(steps, 1 / (1 + 9 * steps / last), cohort.batch_size)
        records.append(Record(trial, cohort.order, "reached", "it arrived", curve))
    return records


def pretended_curve(steps: np.ndarray, loss: np.ndarray, batch_size: int) -> Curve:
    return Curve(steps, steps * batch_size, loss, np.zeros(len(steps)))


def winning(spec: Spec, records: Sequence[Record]) -> list[Run]:
    """The runs that a summary's cost is held against: the measured ones, each to the steps of their mean."""
    groups: dict[tuple[int, tuple[float, ...]], list[Record]] = {}
    for record in records:
        if record.role == "measure" and record.finished and record.order.targets[-1] in spec.sweep.targets:
            groups.setdefault((record.trial.batch_size, record.order.targets), []).append(record)
    runs = []
    for (size, targets), group in groups.items():
        point = point_of(group, targets[-1])
        if point is not None:
            seeds = [record.trial.seed for record in group if record.trial.lr == point.lr]
            runs += [Run(size, point.lr, seed, round(point.steps)) for seed in seeds]
    return sorted(runs, key=lambda run: (run.batch_size, run.lr, run.seed))


def oracle(folder: Path) -> dict[str, dict[str, float]]:
    """Train the winning runs of a sweep by hand: seconds, processor seconds and examples of each batch size."""
    spec = restore_spec(folder / "spec.toml")
    workload = load_workload(spec.workload.use, spec.workload.settings)
    workload.prepare("cpu")
    # Torch imports much when a first optimizer is made: that is start-up.
    by_hand(workload, Run(spec.sweep.batch_sizes[0], 0.0, 0, 1), spec.optimizer.at(spec.sweep.batch_sizes[0]))
    found: dict[str, dict[str, float]] = {}
    for run in winning(spec, read_records(folder)):
        start, cpu = time.perf_counter(), time.process_time()
        by_hand(workload, run, spec.optimizer.at(run.batch_size))
        here = found.setdefault(str(run.batch_size), {"seconds": 0.0, "cpu_seconds": 0.0, "examples": 0.0})
        here["seconds"] += time.perf_counter() - start
        here["cpu_seconds"] += time.process_time() - cpu
        here["examples"] += run.steps * run.batch_size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--oracle", type=Path, help="results folder of a finished sweep; prints JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.oracle:
        print(json.dumps(oracle(options.oracle)))
        return
    tune_allocator()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"digits MLP 64-64-10, one thread, fastest of {TURNS} turns, load average {load}")
    print(f"{'batch size':>10}{'by hand':>12}{'one lane':>12}{'ratio':>8}{'ten lanes':>12}{'multiple':>10}")
    for size, steps in STEPS.items():
        found = throughput(size, steps)
        hand, one, ten = (float(found[key]) for key in ("by hand", "one lane", "ten lanes"))
        cells = f"{hand:>12,.0f}{one:>12,.0f}{one / hand:>8.2f}{ten:>12,.0f}{ten / hand:>10.2f}"
        print(f"{size:>10}{cells}  images a second; ten lanes by {found['engine']}", flush=True)
    for model in ("mlp", "cnn"):
        for size in (4, 16, 64):
            steps = executions(Classifier(model=model), size)
            ratios = ", ".join(f"{how} {steps['eager'] / steps[how]:.2f}" for how in ("replay", "compile"))
            print(
                f"five lanes, {model}, batch size {size}: a step takes {1e6 * steps['eager']:.0f} us eager;",
                end=" ",
            )
            print(f"times as fast: {ratios}", flush=True)
    count, finished, unfinished = planning([2**k for k in range(3, 13)], 990)
    print(f"planner: {finished:.3f} s for {count:,} records of a finished sweep,", end=" ")
    print(f"{unfinished:.3f} s where the last batch size is missing")


if __name__ == "__main__":
    main()
