"""Which runs a figure shows: pure selections of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from bscrit.fit.result import Fit
from bscrit.record import Record

UNSOUND = ("failed", "diverged")


def by_batch_size(records: Iterable[Record]) -> Mapping[float, Sequence[Record]]:
    """Records of each batch size, ascending."""
    groups: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.trial.batch_size].append(record)
    return dict(sorted(groups.items()))


def targets(fits: Sequence[Fit], records: Sequence[Record]) -> list[float]:
    """Targets of the fits, or those that the runs were given; easiest first."""
    known = {fit.target for fit in fits if fit.target is not None}
    known = known or {target for record in records for target in record.order.targets}
    return sorted(known, reverse=True)


def winners(records: Sequence[Record]) -> list[Record]:
    """The runs at the tuned rate of each batch size: those that measure.

    Where a batch size has none, the search run that got lowest in its loss stands in.
    """
    chosen: list[Record] = []
    for group in by_batch_size(records).values():
        sound = [record for record in group if len(record.curve) and record.status not in UNSOUND]
        measured = [record for record in sound if record.role == "measure"]
        chosen += measured or sorted(sound, key=lambda record: float(record.curve.loss.min()))[:1]
    return chosen


def at_one_rate(records: Sequence[Record], fits: Sequence[Fit]) -> list[Record]:
    """At each batch size the runs at one learning rate: that of the hardest target, or the one that got lowest.

    Runs at two rates are two paths, and what is measured along them doesn't add up.
    """
    tuned = {point.batch_size: point.lr for fit in fits for point in fit.points if point.lr is not None}
    chosen: list[Record] = []
    for size, group in by_batch_size(records).items():
        best = min(group, key=lambda record: float(record.curve.loss.min()) if len(record.curve) else inf)
        rates = {record.trial.lr for record in group}
        lr = tuned[size] if tuned.get(size) in rates else best.trial.lr
        chosen += [record for record in group if record.trial.lr == lr]
    return chosen
