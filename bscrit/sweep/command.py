"""`bscrit sweep`: read the spec, run the sweep or print what it would do, and print the summary."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bscrit.order import Cohort
from bscrit.preflight import Preflight
from bscrit.results import Results, is_results, read_records
from bscrit.spec import Spec, read_spec
from bscrit.sweep.auto import MOST
from bscrit.sweep.cadence import measured_otherwise
from bscrit.sweep.executors import executor_of
from bscrit.sweep.largest_cost import largest_cost
from bscrit.sweep.plan import plan
from bscrit.sweep.preflight import inspect
from bscrit.sweep.run import check_torch, default_folder, run
from bscrit.sweep.summary import evaluation, not_reused
from bscrit.sweep.view import Plain
from bscrit.words import compact, counted, plural


def sweep(path: Path, out: Path | None, overrides: Sequence[str], dry_run: bool) -> int:
    """Run the command and return its exit code."""
    spec = read_spec(path, overrides)
    out = out or default_folder(spec)
    if dry_run:
        check_torch("bscrit sweep")
        for sentence in spec.source.dropped:
            print(sentence, file=sys.stderr)
        print(_dry(spec, out))
        return 0
    swept = run(spec, out, "bscrit sweep")
    if swept.interrupted:
        print("interrupted; what is finished is kept, and the same command goes on", file=sys.stderr)
        return 128 + swept.interrupted
    print(swept)
    for point in swept.missing:
        print(point, file=sys.stderr)
    for remedy in () if swept.given_up else dict.fromkeys(point.remedy for point in swept.missing):
        print(f"  hint: {remedy}", file=sys.stderr)
    if swept.given_up:
        print("  hint: mend what failed; the same command tries it again", file=sys.stderr)
    if swept.missing or swept.given_up:
        return 1
    print(f"next: bscrit fit {shlex.quote(str(out))}", file=sys.stderr)
    return 0


def _dry(spec: Spec, out: Path) -> str:
    """The cohorts that the sweep would train now, and the most it can cost."""
    folder = Path(tempfile.mkdtemp(prefix="bscrit-"))
    with executor_of(spec, folder, workers=1) as executor:
        facts = inspect(spec, folder, executor, Plain(spec, sys.stderr))
    shutil.rmtree(folder)  # after an error it stays: the remedy names the log in it
    assert facts is not None
    results = Results(out, tuple(read_records(out)) if is_results(out) else (), spec, facts)
    cohorts = plan(spec, facts, results.records)
    own = f"{counted(len(results.asked_for), 'trial')} of this sweep in {out} already"
    trials, examples = largest_cost(spec, facts.examples)
    data = "drawn without end" if facts.examples is None else f"{facts.examples} {plural(facts.unit)}"
    lines = [
        f"{spec.name}: {spec.workload.use}, {facts.parameters} parameters, data: {data}",
        f"untrained {spec.sweep.metric} {facts.untrained_value:.4g}; "
        f"targets {', '.join(f'{t:g}' for t in spec.sweep.targets)}",
        *_batch_sizes(spec, facts),
        *evaluation(facts.evaluation_share),
        *_schedule(spec, facts),
        own if results.records else f"results would go to {out}",
        *not_reused(results),
        *measured_otherwise(results),
        "next:" if cohorts else "nothing is left to train",
        *(f"  {_describe(cohort)}" for cohort in cohorts),
    ]
    if cohorts:
        lines.append(
            f"at most {trials} trials and {compact(examples)} {plural(facts.unit)}, if every one spent its budget; "
            "a race usually takes a few per cent of that"
        )
    return "\n".join(lines)


def _batch_sizes(spec: Spec, facts: Preflight) -> list[str]:
    sweep, beginning = spec.sweep, ", ".join(map(str, spec.beginning(facts.examples)))
    if not sweep.auto:
        return [f"batch sizes {beginning} [{plural(facts.unit)}]"]
    candidates, total = spec.candidates(facts.examples), sweep.max_total_examples
    unless = (
        f", unless that would take more than {compact(total)} {plural(facts.unit)} in all" if total else ""
    )
    return [
        f"batch sizes {beginning} to begin with [{plural(facts.unit)}], then one at a time from {candidates[0]} to "
        f"{candidates[-1]}, {MOST} at most:",
        f"  each time the one that narrows the interval of B_crit most for what it costs{unless}, until ln B_crit at "
        f"{sweep.targets[-1]:g} is known to +-{sweep.precision:g}",
    ]


def _describe(cohort: Cohort) -> str:
    rates = ", ".join(f"{lr:.3g}" for lr in sorted({trial.lr for trial in cohort.trials}))
    seeds = counted(len({trial.seed for trial in cohort.trials}), "seed")
    return (
        f"batch size {cohort.batch_size}: {cohort.order.role}, rates {rates}; {seeds}, "
        f"at most {cohort.order.max_steps} steps each"
    )


def _schedule(spec: Spec, facts: Preflight) -> list[str]:
    """Warm-up and horizon in steps at every batch size, where there are any."""
    lines = []
    for size in spec.beginning(facts.examples):
        lengths = {"warm-up": spec.schedule.warmup_at(size), "horizon": spec.schedule.horizon_at(size)}
        finite = [f"{name} {steps:.0f} steps" for name, steps in lengths.items() if 0 < steps < math.inf]
        lines += [f"  batch size {size}: {', '.join(finite)}"] if finite else []
    return lines
