"""The closing summary of a sweep: trials by status, what was reused, what is missing, and the cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bscrit.crossing import CONVENTION
from bscrit.order import Order
from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.spec import Spec
from bscrit.sweep.auto import active, choose
from bscrit.sweep.drive import Outcome
from bscrit.sweep.plan import asked_for
from bscrit.sweep.progress import best, duration, failure, short
from bscrit.trial import Status
from bscrit.words import plural

ORDER: tuple[Status, ...] = ("reached", "stopped", "exhausted", "diverged", "failed", "running")


def summary(spec: Spec, outcome: Outcome, out: Path) -> str:
    """Lines for people; the same facts stand in the folders."""
    mine = [record for record in outcome.records if asked_for(spec, outcome.preflight, record)]
    others = len(outcome.records) - len(mine)
    units = plural(outcome.preflight.unit)
    sizes = batch_sizes(spec, outcome.preflight, mine)
    lines = [*_table(spec, sizes, mine), f"steps: {CONVENTION}"]
    lines += _chosen(spec, outcome.preflight, mine) if spec.sweep.auto else []
    counts = Counter(record.status for record in mine)
    listed = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    reused = sum(record.trial.name not in outcome.new for record in mine)
    lines.append(f"{len(mine)} trials: {listed or 'none'}; {reused} reused, {len(mine) - reused} new")
    if others:
        lines.append(
            f"{others} other trials lie in this folder that the spec does not ask for: other batch sizes, or "
            "other settings, data, optimizer or schedule, which `bscrit fit` leaves out"
        )
    trained, winning = cost(spec, mine)
    if winning:
        lines.append(
            f"cost: {short(trained)} {units} trained / {short(winning)} of the winning runs alone = "
            f"{trained / winning:.2f}"
        )
    lines += _noise(mine)
    lines += _missing(outcome, mine)
    lines.append(f"{duration(outcome.seconds)}; results in {out}")
    return "\n".join(lines)


def batch_sizes(spec: Spec, preflight: Preflight, records: Sequence[Record]) -> tuple[int, ...]:
    """Those that the spec lists, or those that the sweep chose."""
    return active(spec, preflight, records) if spec.sweep.auto else spec.sweep.batch_sizes


def _chosen(spec: Spec, preflight: Preflight, records: Sequence[Record]) -> list[str]:
    choice = choose(spec, preflight, records)
    reason = choice.reason or f"nothing could be trained at batch size {choice.batch_size}"
    return [f"no batch size is added: {reason}"]


def _table(spec: Spec, sizes: Sequence[int], records: Sequence[Record]) -> list[str]:
    """One row a batch size, one column a target: steps at the rate that was measured."""
    rows = [["batch size", "trials", *(f"steps to {target:g}" for target in spec.sweep.targets)]]
    for size in sizes:
        here = [record for record in records if record.trial.batch_size == size]
        found = [best(here, target) for target in spec.sweep.targets]
        cells = [f"{one[1]:.4g} at rate {one[0]:.3g}" if one else "-" for one in found]
        rows.append([str(size), str(len(here)), *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


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


def _noise(records: Sequence[Record]) -> list[str]:
    """What measuring the noise scale took of the time of all cohorts."""
    cohorts: dict[tuple[int, Order], Mapping[str, float]] = {}
    for record in records:
        key, facts = (record.trial.batch_size, record.order), record.facts
        if facts.get("seconds", 0) >= cohorts.get(key, {}).get("seconds", 0):
            cohorts[key] = facts
    measuring, training = (
        sum(facts.get(what, 0.0) for facts in cohorts.values()) for what in ("noise_seconds", "seconds")
    )
    samples = sum(len(one) for record in records for one in record.noise.values())
    if not samples or not training:
        return []
    share = measuring / training
    told = f"{100 * share:.2g} % of" if share < 1 else f"{short(share)} times"
    lines = [f"noise scale: {samples} samples, {told} the training time"]
    frozen = {one.loss for record in records for one in record.frozen}
    asked = {loss for record in records if record.order.noise for loss in record.order.noise.losses}
    for loss in sorted(asked - frozen, reverse=True):
        lines.append(f"noise scale: no run passed the loss {loss:g}, where one was to be measured")
    return lines


@dataclass(frozen=True)
class Missing:
    """A target that no measured run reached, the batch sizes where, and the lowest loss seen there."""

    target: float
    batch_sizes: tuple[int, ...]
    lowest: float

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.batch_sizes))
        seen = f": the lowest loss seen is {self.lowest:.4g}" if self.lowest < float("inf") else ""
        return f"missing: no run reached {self.target:g} at batch size {sizes}{seen}"


def missing(spec: Spec, preflight: Preflight, records: Sequence[Record]) -> list[Missing]:
    """The points of the frontiers that the sweep did not get, per target."""
    found, tried = [], batch_sizes(spec, preflight, [r for r in records if asked_for(spec, preflight, r)])
    for target in spec.sweep.targets:
        sizes, lowest = [], float("inf")
        for size in tried:
            here = [record for record in records if record.trial.batch_size == size]
            if best([record for record in here if record.role == "measure"], target) is None:
                sizes.append(size)
                seen = [float(np.nanmin(r.curve.loss)) for r in here if np.isfinite(r.curve.loss).any()]
                lowest = min([lowest, *seen])
        if sizes:
            found.append(Missing(target, tuple(sizes), lowest))
    return found


def _missing(outcome: Outcome, records: Sequence[Record]) -> list[str]:
    return [
        f"failed: batch size {record.trial.batch_size}: {failure(record)}"
        for record in records
        if record.trial.name in outcome.given_up
    ]
