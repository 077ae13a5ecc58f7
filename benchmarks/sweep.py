"""What a sweep costs, and whether its answer is true.

    python benchmarks/sweep.py                      # cost and answer on each workload: some twenty minutes
    python benchmarks/sweep.py digits quadratic     # on these
    python benchmarks/sweep.py --truth 20 digits    # twenty sweeps from other seeds and other first guesses

Cost is set against an oracle who knows every best rate and the steps it takes: a loop written by hand
(benchmarks/loop.py) trains the sweep's winning runs, one after the other, in one process with one thread.
Truth is an exact answer where there is one, else a stored reference by brute force (benchmarks/reference.py).
Nothing here is a test: timings depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from workloads import HERE, NAMES, machine, named, stored, workload_of

from bscrit.estimate import Estimate
from bscrit.fit.result import Fit
from bscrit.fit.source import fit
from bscrit.results import read_records
from bscrit.spec import Spec
from bscrit.sweep.summary import cost

sys.path.append(str(HERE.parent / "tests"))
from exact import hyperbola, power_law

GRID = [2 ** (k / 2) for k in range(-6, 7)]  # rates of a plain grid about the middle of the best ones
GUESS = 1.2  # standard deviation of ln(first guess) from sweep to sweep


@dataclass(frozen=True)
class Ran:
    """A command that ended: seconds from start to exit, processor seconds and the largest resident memory [MB]
    of any of its processes, and what it printed."""

    seconds: float
    cpu_seconds: float
    peak: float
    printed: str


def run(command: Sequence[str]) -> Ran:
    """Run a command to its end; SystemExit with what it complained of where it fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as talk:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=talk, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), talk.seek(0)
        if process.returncode:
            last = "\n".join(talk.read().strip().splitlines()[-3:])
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{last}")
        return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read())


def swept(name: str, out: Path, *overrides: str) -> Ran:
    path, own = NAMES[name]
    command = [sys.executable, "-m", "bscrit", "sweep", str(HERE.parent / path), "--out", str(out)]
    return run([*command, *(part for override in (*own, *overrides) for part in ("--set", override))])


def training_seconds(out: Path) -> float:
    """Of a sweep: from the end of its first look at the workload to the end of its last trial."""
    ends = [file.stat().st_mtime for file in out.glob("trials/*/status.json")]
    return max(ends) - (out / "preflight.json").stat().st_mtime


def truths(name: str) -> dict[float, Estimate]:
    """B_crit per target: exact, or by brute force; none where there is no reference of today's spec and data."""
    spec = named(name)
    if spec.workload.use == "quadratic":
        return {target: exact(spec, target) for target in spec.sweep.targets}
    reference = stored(name, workload_of(spec)[1])
    return (
        {} if reference is None else {one["target"]: Estimate(**one["b_crit"]) for one in reference["fits"]}
    )


def exact(spec: Spec, target: float) -> Estimate:
    """The hyperbola through the exact tuned crossings of the expected loss at the batch sizes of the spec."""
    problem = power_law(**spec.workload.settings)
    sizes = spec.sweep.batch_sizes
    return Estimate(hyperbola(sizes, [problem.tuned(target, size)[1] for size in sizes])[2])


def measure(name: str, folder: Path) -> None:
    """Sweep, let the oracle train, sweep again with the noise scale, and print what it all took."""
    spec = named(name)
    out = folder / name
    sweep = swept(name, out, "noise.source=none")
    trained, winning = cost(spec, read_records(out))
    training = training_seconds(out)
    by_hand = run([sys.executable, str(HERE / "loop.py"), "--oracle", str(out)])
    sizes: dict[str, dict[str, float]] = json.loads(by_hand.printed)
    oracle, cpu = (sum(size[key] for size in sizes.values()) for key in ("seconds", "cpu_seconds"))
    print(
        f"\n{name}: {spec.workload.use}, batch sizes {', '.join(map(str, spec.sweep.batch_sizes))}", end="; "
    )
    print(f"{spec.sweep.seeds} seeds")
    print(
        f"  cost           {trained / winning:.2f}: {trained:,.0f} examples, {winning:,.0f} of the winning runs"
    )
    print(
        f"  wall           {training:.1f} s of training against {oracle:.1f} s by hand: {training / oracle:.2f}"
    )
    print(f"                 {sweep.seconds:.1f} s with start-up against {by_hand.seconds:.1f} s: ", end="")
    print(f"{sweep.seconds / by_hand.seconds:.2f}")
    print(
        f"  processor      {sweep.cpu_seconds:.1f} s, all processes, against {cpu:.1f} s of training by hand: ",
        end="",
    )
    print(f"{sweep.cpu_seconds / cpu:.2f}")
    seconds, examples = plain_grid(spec, out, sizes)
    print(f"  plain grid     estimated: at least {seconds:,.0f} s and {examples:,.0f} examples, ", end="")
    print(f"so the sweep takes {training / seconds:.2f} of its time")
    print(f"  memory         {sweep.peak:.0f} MB, the largest process")
    known = truths(name)
    for target in spec.sweep.targets:
        print(f"  B_crit         {_compared(target, _fit(out, target), known.get(target))}")
    if spec.noise.source != "none":
        again = swept(name, folder / f"{name}-noise")
        line = re.search(r"noise scale: (.*)", again.printed)
        print(f"  noise scale    {line[1] if line else 'nothing measured'}", flush=True)


def plain_grid(spec: Spec, out: Path, sizes: dict[str, dict[str, float]]) -> tuple[float, float]:
    """Seconds and examples that a grid of 13 rates sqrt(2) apart would take by hand, at the least.

    Every rate with every seed at every batch size, in the time per example that the oracle took: below the best rate
    a run takes steps in proportion to 1/rate, within its budget; those beyond 1.3 times the best rate are taken to
    diverge at once, although many would wander until their budget is spent.
    """
    fitted = _fit(out, spec.sweep.targets[-1])
    rates = [point.lr for point in fitted.points if point.lr]
    middle = math.sqrt(min(rates) * max(rates))
    seconds = examples = 0.0
    for point in fitted.points:
        size = sizes[str(round(point.batch_size))]
        ratios = [middle * factor / (point.lr or middle) for factor in GRID]
        runs = [
            min(point.examples / min(ratio, 1.0), spec.sweep.max_examples) for ratio in ratios if ratio < 1.3
        ]
        here = spec.sweep.seeds * sum(runs)
        examples += here
        seconds += here * size["seconds"] / size["examples"]
    return seconds, examples


def truth(name: str, sweeps: int, folder: Path) -> None:
    """Sweeps from other seeds and first guesses: how often the interval holds the truth, the bias, the cost."""
    spec = named(name)
    found: dict[float, list[Fit]] = {target: [] for target in spec.sweep.targets}
    costs: list[float] = []
    failed = 0
    for number in range(1, sweeps + 1):
        guess = spec.first_guess() * math.exp(GUESS * np.random.default_rng(number).standard_normal())
        seeds, rate = f"sweep.first_seed={1000 * number}", f"learning_rate.guess={guess:.3g}"
        out = folder / f"{name}-{number}"
        try:
            swept(name, out, "noise.source=none", seeds, rate)
        except SystemExit as error:
            failed += 1
            print(f"  {number}: {error}", file=sys.stderr, flush=True)
            continue
        known = truths(name)
        if not known:
            raise SystemExit(
                f"{name}: no reference of this spec and data; run benchmarks/reference.py {name}"
            )
        trained, winning = cost(spec, read_records(out))
        costs.append(trained / winning)
        for target, fits in found.items():
            fits.append(_fit(out, target))
        shown = "; ".join(_compared(target, fits[-1], known[target]) for target, fits in found.items())
        print(f"  {number}: cost {costs[-1]:.2f}; {shown}", file=sys.stderr, flush=True)
    lost = f", {failed} of which failed" if failed else ""
    print(f"\n{name}: {sweeps} sweeps{lost}")
    if costs:
        print(f"  cost           median {np.median(costs):.2f}, largest {max(costs):.2f}")
        for target, fits in found.items():
            print(f"  B_crit         at {target:g}: {tally([one.b_crit for one in fits], known[target])}")


def tally(measured: Sequence[Estimate], known: Estimate) -> str:
    """How often intervals hold the truth, and the bias, scatter and half-width of ln B_crit in per cent.

    Where the truth is a bound, how often no more than a bound was given.
    """
    whole = [(one.value, one.low, one.high) for one in measured if one.value and one.low and one.high]
    if known.value is None:
        return f"{len(measured) - len(whole)} of {len(measured)} give a bound, as brute force does"
    if not whole:
        return "never identified"
    value, low, high = (np.log(column) - math.log(known.value) for column in np.array(whole).T)
    held = int(((low <= 0) & (high >= 0)).sum())
    return (
        f"{held} of {len(measured)} intervals hold {known.value:.4g}; bias {100 * np.median(value):+.1f} % (median), "
        f"scatter {100 * value.std():.1f} %, half-width {100 * np.median((high - low) / 2):.1f} % (median)"
    )


def _fit(out: Path, target: float) -> Fit:
    return next(one for one in fit(out).fits if one.target == target)


def _compared(target: float, found: Fit, known: Estimate | None) -> str:
    b = found.b_crit
    measured = f"{b.value:.3g} [{b.low:.3g}, {b.high:.3g}]" if b.value and b.low and b.high else found.verdict
    if known is None:
        return f"at {target:g}: {measured}; no reference, run benchmarks/reference.py"
    if known.value is None:
        return f"at {target:g}: {measured}; by brute force a bound, too"
    if known.low is None or known.high is None:
        return f"at {target:g}: {measured}; exactly {known.value:.4g}"
    return f"at {target:g}: {measured}; by brute force {known.value:.3g} [{known.low:.3g}, {known.high:.3g}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--truth", type=int, metavar="N", help="sweep N times from other seeds instead")
    parser.add_argument("--keep", type=Path, help="folder to leave the results in")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"{', '.join(unknown)}: no workload of these benchmarks; {', '.join(NAMES)} are")
    print(f"{machine()}; load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or NAMES:
            if options.truth:
                truth(name, options.truth, options.keep or Path(folder))
            else:
                measure(name, options.keep or Path(folder))


if __name__ == "__main__":
    main()
