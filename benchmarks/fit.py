"""How long `bscrit fit` takes, printed as ratios and totals of one run.

    python benchmarks/fit.py

Start-up is set against the same interpreter importing pandas and scipy.optimize, alternating, the fastest of
several counts. Nothing here is a test: timings depend on the machine and on what else it does.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

REPEATS = 7
BASE = [sys.executable, "-c", "import pandas, scipy.optimize"]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def fastest(commands: dict[str, list[str]]) -> dict[str, float]:
    """The fastest of each, in turns, so that a busy moment does not hit one alone."""
    found = {name: [seconds(command)] for name, command in commands.items()}
    for _ in range(REPEATS - 1):
        for name, command in commands.items():
            found[name].append(seconds(command))
    return {name: min(times) for name, times in found.items()}


def small_table(path: Path) -> Path:
    rows = [f"{2**k},{1000 * (1 + 300 / 2**k):.1f},{seed}" for k in range(4, 13) for seed in range(3)]
    path.write_text("\n".join(["batch_size,steps,seed", *rows]) + "\n")
    return path


def many_crossings(path: Path) -> Path:
    """100,000 crossings in 200 groups."""
    random = np.random.default_rng(0)
    lines = ["workload,batch_size,steps,seed"]
    for group in range(200):
        for k in range(10):
            steps = 1000 * (1 + 300 / 2 ** (k + 4)) * np.exp(0.05 * random.standard_normal(50))
            lines += [f"w{group},{2 ** (k + 4)},{value:.2f},{seed}" for seed, value in enumerate(steps)]
    path.write_text("\n".join(lines) + "\n")
    return path


def many_points(path: Path) -> Path:
    """Curves of a million logged points: 10 batch sizes, 10 seeds, 10,000 points each."""
    random = np.random.default_rng(0)
    steps = np.arange(1, 10_001)
    with path.open("w") as stream:
        stream.write("batch_size,seed,step,loss\n")
        for k in range(10):
            scale = 500 * (1 + 300 / 2 ** (k + 4))
            for seed in range(10):
                loss = 2 / (1 + steps / scale) + 0.005 * random.standard_normal(len(steps))
                stream.writelines(
                    f"{2 ** (k + 4)},{seed},{step},{value:.5f}\n"
                    for step, value in zip(steps.tolist(), loss.tolist(), strict=True)
                )
    return path


def main() -> None:
    fit = [sys.executable, "-m", "bscrit", "fit"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = str(small_table(folder / "small.csv"))
        times = fastest(
            {
                "python -c pass": [sys.executable, "-c", "pass"],
                "import pandas": [sys.executable, "-c", "import pandas"],
                "import pandas, scipy.optimize": BASE,
                "bscrit --help": [sys.executable, "-m", "bscrit", "--help"],
                "bscrit fit small.csv": [*fit, small],
            }
        )
        base = times["import pandas, scipy.optimize"]
        print("start to exit, fastest of", REPEATS)
        for label, value in times.items():
            print(f"  {label:<32} {value:6.3f} s   {value / base:5.2f} of pandas + scipy.optimize")
        for label, make in (
            ("100,000 crossings, 200 groups", many_crossings),
            ("1,000,000 points", many_points),
        ):
            path = str(make(folder / "large.csv"))
            extra = ["--targets", "0.5"] if make is many_points else []
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            took = seconds([*fit, path, *extra])
            peak = max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, before) / 1024
            print(f"  {label:<32} {took:6.2f} s   peak of all so far {peak:.0f} MB")


if __name__ == "__main__":
    main()
