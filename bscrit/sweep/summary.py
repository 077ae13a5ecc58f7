"""The closing summary of a sweep: trials by status, those that were reused, points that are missing, and the cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from bscrit.fit.points import measured_points
from bscrit.fit.result import Point
from bscrit.goal import LOSS, Goal
from bscrit.order import Order
from bscrit.record import Record
from bscrit.results import Results
from bscrit.spec import Spec
from bscrit.sweep.auto import active, choose
from bscrit.sweep.cadence import measured_otherwise
from bscrit.sweep.drive import Outcome
from bscrit.sweep.progress import failure, point_of
from bscrit.trial import Status
from bscrit.words import compact, counted, duration, number, plural

CONVENTION = (
    "steps: until the mean loss over seeds, smoothed over -18 % to +10.5 % of the steps, meets the target"
)
MOSTLY = 0.5  # share of a run's updates above which it is noted that they were clipped
DEAR = 0.5
CHEAPER = '; [sweep] validation_examples makes it cheaper, and metric = "train_loss" free'
ENDS: dict[Status, str] = {
    "exhausted": "spent the budget",
    "stopped": "met a cap",
    "diverged": "diverged",
    "failed": "failed",
}
STATUSES: tuple[Status, ...] = ("reached", "stopped", "exhausted", "diverged", "failed", "running")


def summary(outcome: Outcome) -> str:
    """Lines for people; the same facts stand in the folders."""
    results = outcome.results
    spec, records = _spec(results), results.asked_for
    lines = [*_table(spec, batch_sizes(results), records), CONVENTION]
    if spec.sweep.auto:
        choice = choose(spec, results.preflight, records)
        reason = choice.reason or f"nothing could be trained at batch size {choice.batch_size}"
        lines.append(f"no batch size is added: {reason}")
    counts = Counter(record.status for record in records)
    listed = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    new = sum(record.trial.name in outcome.new for record in records)
    lines.append(f"{len(records)} trials: {listed or 'none'}; {len(records) - new} reused, {new} new")
    lines += not_reused(results)
    trained, winning = cost(spec, records)
    if winning:
        lines.append(
            f"cost: {compact(trained)} {plural(results.preflight.unit)} trained / {compact(round(winning))} of the "
            f"winning runs alone = {trained / winning:.2f}"
        )
    lines += evaluation(results.preflight.evaluation_share, records)
    lines += _clipped(records)
    lines += [*_noise(spec.goal, records), *measured_otherwise(results)]
    lines += _not_replayed(records)
    lines += [
        f"failed: batch size {record.trial.batch_size}: {failure(record)}"
        for record in records
        if record.trial.name in outcome.given_up
    ]
    lines.append(f"{duration(outcome.seconds)}; results in {results.folder}")
    return "\n".join(lines)


def not_reused(results: Results) -> list[str]:
    """Trials in the folder that are none of this sweep's, and why."""
    spec, lines = _spec(results), []
    changed = sum(
        spec.asks_for(record.trial, record.trial.fingerprint)
        for record in results.records
        if record.trial.fingerprint != results.preflight.fingerprint
    )
    if changed:
        lines.append(
            f"{counted(changed, 'trial')} of other data or code: not reused, what they trained has changed"
        )
    if others := len(results.records) - len(results.asked_for) - changed:
        lines.append(
            f"{counted(others, 'other trial')} in this folder, not reused: the spec does not ask for them, of other "
            "batch sizes, settings, optimizer or schedule; `bscrit fit` leaves them out"
        )
    return lines


def batch_sizes(results: Results) -> tuple[int, ...]:
    """Those that the spec lists, or those that the sweep chose."""
    spec = _spec(results)
    if spec.sweep.auto:
        return active(spec, results.preflight, results.asked_for)
    return spec.sweep.batch_sizes


def cost(spec: Spec, records: Sequence[Record]) -> tuple[float, float]:
    """Examples that all trials trained on, and those that an oracle would have trained on.

    The oracle knows the rates: it makes the measured runs alone, each to the hardest target that it serves.
    """
    groups: dict[tuple[int, tuple[float, ...]], list[Record]] = {}
    for record in records:
        if record.role == "measure" and record.finished:
            groups.setdefault((record.trial.batch_size, record.order.targets), []).append(record)
    winning = 0.0
    for (_, targets), runs in groups.items():
        point = point_of(runs, targets[-1])
        if point is not None and targets[-1] in spec.sweep.targets:
            winning += point.examples * sum(run.trial.lr == point.lr for run in runs)
    return sum(record.examples for record in records), winning


@dataclass(frozen=True)
class Missing:
    """A target that no measured run reached, the batch sizes where, and the best metric seen there.

    Attributes:
        ended: how runs ended that did not reach it, and how many, the most frequent ending first.
        remedy: against that.
    """

    target: float
    batch_sizes: tuple[int, ...]
    best: float
    goal: Goal = LOSS
    ended: Mapping[Status, int] = field(default_factory=dict)
    remedy: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.batch_sizes))
        goal = self.goal
        seen = f": the {goal.best} {goal.metric} seen is {self.best:.4g}" if isfinite(self.best) else ""
        ends = ", ".join(f"{counted(number, 'run')} {ENDS[status]}" for status, number in self.ended.items())
        return f"missing: no run reached {self.target:g} at batch size {sizes}{seen}{f'; {ends}' if ends else ''}"


def missing(results: Results) -> list[Missing]:
    """The points of the frontiers that the sweep did not get, per target."""
    points, tried = [], batch_sizes(results)
    spec = _spec(results)
    for target in spec.sweep.targets:
        sizes, lowest, ended = [], inf, Counter[Status]()
        for size in tried:
            records = [record for record in results.asked_for if record.trial.batch_size == size]
            measured = [record for record in records if record.role == "measure"]
            if point_of(measured, target) is None:
                sizes.append(size)
                losses = [record.curve.finite().loss for record in records]
                lowest = min([lowest, *(float(loss.min()) for loss in losses if len(loss))])
                ended += Counter(record.status for record in measured or records if record.status in ENDS)
        if sizes:
            ends = dict(ended.most_common())
            remedy = _remedy(spec, sizes, ends)
            points.append(Missing(target, tuple(sizes), spec.goal.falls(lowest), spec.goal, ends, remedy))
    return points


def _remedy(spec: Spec, sizes: Sequence[int], ended: Mapping[Status, int]) -> str:
    """Against the ending that a change of the spec mends."""
    if "exhausted" in ended:
        by_steps = spec.max_steps_at(sizes[-1]) < spec.sweep.max_examples // sizes[-1]
        return f"raise sweep.{'max_steps' if by_steps else 'max_examples'}, or choose easier targets"
    if spec.learning_rate.tune == "rule" and ended:
        return "the rule's rate does not suit these batch sizes: leave them out, or use --set learning_rate.tune=race"
    if spec.learning_rate.tune == "grid" and "diverged" in ended:
        return "add lower rates to learning_rate.rates"
    return "choose easier targets"


def _spec(results: Results) -> Spec:
    assert results.spec is not None, "a sweep has a spec"
    return results.spec


def _table(spec: Spec, sizes: Sequence[int], records: Sequence[Record]) -> list[str]:
    """One row a batch size, one column a target: the points that a fit takes."""
    targets, trials = spec.sweep.targets, Counter(record.trial.batch_size for record in records)
    columns = [{point.batch_size: point for point in measured_points(records, target)} for target in targets]
    rows = [["batch size", "trials", *(f"steps to {target:g}" for target in targets)]]
    for size in sizes:
        rows.append([str(size), str(trials[size]), *(_cell(column.get(size)) for column in columns)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _cell(point: Point | None) -> str:
    if point is None:
        return "-"
    return f"{'>' if point.censored else ''}{number(point.steps, 4)} at rate {point.lr:.3g}"


def _clipped(records: Sequence[Record]) -> list[str]:
    """Batch sizes whose measured runs were mostly made of clipped updates."""
    shares: dict[int, float] = {}
    for record in records:
        size, share = record.trial.batch_size, record.facts.get("clipped", 0.0)
        if record.role == "measure" and share > MOSTLY:
            shares[size] = max(share, shares.get(size, 0.0))
    if not shares:
        return []
    listed = ", ".join(f"{size} ({100 * share:.0f} %)" for size, share in sorted(shares.items()))
    return [
        f"clip: most gradients of a run were clipped at batch size {listed}: there the fit is of updates whose length "
        "is set by clip"
    ]


def _not_replayed(records: Sequence[Record]) -> list[str]:
    """Why calls of a replayable workload stayed ordinary, in one line."""
    reasons = dict.fromkeys(
        str(record.facts["not_replayed"]) for record in records if "not_replayed" in record.facts
    )
    return [f"not replayed, and so slower: {'; '.join(reasons)}"] if reasons else []


def _seconds(records: Sequence[Record], *names: str) -> list[float]:
    """Sums over all cohorts of what their records hold under these names."""
    cohorts: dict[tuple[int, Order], Mapping[str, float]] = {}
    for record in records:
        key, facts = (record.trial.batch_size, record.order), record.facts
        if facts.get("seconds", 0) >= cohorts.get(key, {}).get("seconds", 0):
            cohorts[key] = facts
    return [sum(facts.get(name, 0.0) for facts in cohorts.values()) for name in names]


def evaluation(most: float, records: Sequence[Record] = ()) -> list[str]:
    """The share of evaluation in the time of all cohorts, and the most that it can be in a run."""
    evaluating, training = _seconds(records, "evaluation_seconds", "seconds")
    measured = f"{100 * evaluating / training:.2g} % of the training time, " if training else ""
    remedy = CHEAPER if most > DEAR else ""
    bound = f"at most {100 * most:.0f} % of a run's time at any batch size, as timed before"
    return [f"evaluation: {measured}{bound}{remedy}"] if most else []


def _noise(goal: Goal, records: Sequence[Record]) -> list[str]:
    """The share that measuring the noise scale took of the time of all cohorts."""
    measuring, training = _seconds(records, "noise_seconds", "seconds")
    samples = sum(len(series) for record in records for series in record.noise.values())
    if not samples or not training:
        return []
    share = measuring / training
    relative = f"{100 * share:.2g} % of" if share < 1 else f"{compact(share)} times"
    lines = [f"noise scale: {samples} samples, {relative} the training time"]
    measured = {frozen.loss for record in records for frozen in record.frozen}
    wanted = {loss for record in records if record.order.noise for loss in record.order.noise.losses}
    for loss in sorted(wanted - measured, key=goal.falls, reverse=True):
        lines.append(f"noise scale: no run passed the {goal.metric} {loss:g}, where one was to be measured")
    return lines
