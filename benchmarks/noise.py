"""What measuring the noise scale costs: a sample of each source and metric in steps of training, from one run.

    python benchmarks/noise.py             # five lanes at batch sizes 16 and 128
    python benchmarks/noise.py 64          # at another batch size

Steps and samples take turns, and the fastest of several counts. The last column is what the default cadence makes of
it in a run of a given number of steps: samples taken x cost of one / steps. `python benchmarks/examples.py` sets the
norms of single examples beside those of other libraries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from bscrit.engine.lanes import Lanes
from bscrit.engine.memory import tune_allocator
from bscrit.engine.self_test import choose_engine
from bscrit.engine.workload import Workload
from bscrit.noise_settings import NoiseSettings
from bscrit.sweep.cadence import cadence
from bscrit.train.noise import NoiseSampler
from bscrit.workloads.classifier import Classifier
from bscrit.workloads.language import Language

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "MLP 64-64-10": Classifier,
    "CNN, 6,058 parameters": lambda: Classifier(model="cnn"),
    "transformer, 42,880 parameters": lambda: Language(width=32, sequence=32),
}
ADAM = {"use": "adam"}
LANES, TURNS = 5, 7
RUN = 1000
WAYS = [
    ("micro_batches", "identity"),
    ("micro_batches", "adam"),
    ("micro_batches", "hessian"),
    ("examples", "identity"),
]


def main(batch_sizes: list[int]) -> None:
    torch.set_num_threads(1)
    tune_allocator()
    print(f"torch {torch.__version__}, 1 thread, {LANES} lanes; {RUN} steps take {taken(RUN)} samples\n")
    print(
        f"{'workload':<32}{'batch size':>10} {'source':<15}{'metric':<10}{'sample/step':>11}{'overhead':>10}"
    )
    for name, make in WORKLOADS.items():
        workload = make()
        workload.prepare("cpu")
        for size in batch_sizes:
            for (source, metric), ratio in ratios(workload, size).items():
                share = 100 * ratio * taken(RUN) / RUN
                print(f"{name:<32}{size:>10} {source:<15}{metric:<10}{ratio:>11.2f}{share:>9.1f}%")


def ratios(workload: Workload, size: int, turns: int = TURNS) -> dict[tuple[str, str], float]:
    """Time of one sample over that of one step, per source and metric."""
    engine = choose_engine(workload, size, LANES, optimizer=ADAM).engine
    lanes = Lanes(
        workload, seeds=range(LANES), lrs=[1e-3] * LANES, batch_size=size, optimizer=ADAM, engine=engine
    )
    samplers = {way: NoiseSampler(NoiseSettings(source=way[0], metrics=(way[1],))) for way in WAYS}
    step_times: list[float] = []
    sample_times: dict[tuple[str, str], list[float]] = {way: [] for way in WAYS}
    for turn in range(turns):
        step_times.append(
            min(seconds(lambda at=4 * turn, n=n: lanes.step((at + n) * size, 1.0)) for n in range(4))
        )
        for way, sampler in samplers.items():
            sample_times[way].append(
                seconds(lambda at=turn * size, sampler=sampler: sampler.sums(lanes, at).samples())
            )
    return {way: min(times) / min(step_times) for way, times in sample_times.items()}


def taken(steps: int) -> int:
    """Samples of a run at the default cadence."""
    how, at, count = NoiseSettings(every=cadence(steps)), 0, 0
    while at < steps:
        at, count = how.after(at), count + 1
    return count


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, metavar="BATCH_SIZE", help="16 and 128 by default")
    main(parser.parse_args().sizes or [16, 128])
