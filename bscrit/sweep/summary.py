"""The closing summary of a sweep: trials by status, what was reused, what is missing, and the cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bscrit.crossing import CONVENTION
from bscrit.record import Record
from bscrit.spec import Spec
from bscrit.sweep.drive import Outcome
from bscrit.sweep.plan import superseded
from bscrit.sweep.progress import best, duration, short

ORDER = ("reached", "stopped", "exhausted", "diverged", "failed", "running")


def summary(spec: Spec, outcome: Outcome, out: Path) -> str:
    """Lines for people; the same facts stand in the folders."""
    others = {record.trial.name for record in superseded(spec, outcome.preflight, outcome.records)}
    mine = [record for record in outcome.records if record.trial.name not in others]
    unit, target = outcome.preflight.unit, spec.sweep.targets[-1]
    lines = [f"{'batch size':>12} {'rate':>10} {'steps':>10} {unit + 's':>10} {'trials':>8}   to target {target:g}"]
    for size in spec.sweep.batch_sizes:
        here = [record for record in mine if record.trial.batch_size == size]
        found = best(here, target)
        cells = (f"{found[0]:.3g}", f"{found[1]:.4g}", short(found[1] * size)) if found else ("-", "-", "-")
        lines.append(f"{size:>12} {cells[0]:>10} {cells[1]:>10} {cells[2]:>10} {len(here):>8}")
    lines.append(f"steps: {CONVENTION}")
    counts = Counter(record.status for record in mine)
    listed = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    reused = sum(record.trial.name not in outcome.new for record in mine)
    lines.append(f"{len(mine)} trials: {listed or 'none'}; {reused} reused, {len(mine) - reused} new")
    if others:
        lines.append(
            f"{len(others)} other trials lie in this folder that the spec does not ask for: other settings, "
            "data, optimizer, schedule or batch sizes; they are left out"
        )
    trained, winning = cost(spec, mine)
    if winning:
        lines.append(
            f"cost: {short(trained)} {unit}s trained / {short(winning)} of the winning runs = {trained / winning:.2f}"
        )
    lines += _missing(outcome, mine)
    lines.append(f"{duration(outcome.seconds)}; results in {out}")
    return "\n".join(lines)


def cost(spec: Spec, records: Sequence[Record]) -> tuple[float, float]:
    """Examples that all trials trained on, and those that an oracle would have trained on.

    The oracle knows the rates: it makes the measured runs alone, each to the hardest target that it serves.
    """
    groups: dict[tuple[int, tuple[float, ...]], list[Record]] = {}
    for record in records:
        if record.role == "measure" and record.finished:
            groups.setdefault((record.trial.batch_size, record.order.targets), []).append(record)
    winning = 0.0
    for (size, targets), group in groups.items():
        found = best(group, targets[-1])
        if found is not None and targets[-1] in spec.sweep.targets:
            winning += found[1] * size * sum(record.trial.lr == found[0] for record in group)
    return sum(record.examples for record in records), winning


def missing_sizes(spec: Spec, records: Sequence[Record]) -> list[int]:
    """Batch sizes without a measured run, finished or censored."""
    done = {record.trial.batch_size for record in records if record.role == "measure" and record.finished}
    return [size for size in spec.sweep.batch_sizes if size not in done]


def _missing(outcome: Outcome, records: Sequence[Record]) -> list[str]:
    lines = []
    for record in records:
        if record.trial.name in outcome.given_up:
            lines.append(
                f"failed: batch size {record.trial.batch_size}, rate {record.trial.lr:.3g}, seed {record.trial.seed}: "
                f"{record.reason} (log: {record.folder}/log.txt)"
            )
    return lines
