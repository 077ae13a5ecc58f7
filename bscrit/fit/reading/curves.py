"""A table of logged points -> runs: one curve for each batch size, rate, seed and fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bscrit.curve import Curve, Floats
from bscrit.errors import UserError
from bscrit.fit.reading.columns import Columns, Direction, choose_metric, direction_of
from bscrit.fit.reading.keys import Codes, Group, Keys, read_keys
from bscrit.fit.reading.numerals import Flags
from bscrit.fit.reading.rows import check_rates, left_out, read_status
from bscrit.fit.reading.sheet import Sheet


@dataclass(frozen=True)
class Run:
    """The curve of one run.

    Attributes:
        curve: ascending in steps and finite; a metric that gets better upwards is negated.
        rows: (n,) position in the sheet of each point.
        batch_size, lr, group: runs that share these differ in their seed only.
        diverged: whether the metric ended as NaN or infinity.
    """

    curve: Curve
    rows: Codes
    batch_size: float
    lr: float | None
    group: Group
    seed: str
    role: str
    diverged: bool

    @property
    def started(self) -> bool:
        """Whether a point after step 0 was logged before the run diverged."""
        return bool(len(self.curve) and self.curve.steps[-1] > 0)

    def first(self, target: float) -> int | None:
        """Index of the first point after step 0 that meets the target."""
        met = (self.curve.loss <= target) & (self.curve.steps > 0)
        return int(met.argmax()) if met.any() else None


@dataclass(frozen=True)
class Runs:
    """All runs of a sheet.

    Attributes:
        metric: name of the column.
        sign: -1 for a metric that gets better upwards, which the curves hold negated.
    """

    runs: tuple[Run, ...]
    metric: str
    sign: float
    notes: tuple[str, ...] = field(default=())


def are_curves(sheet: Sheet, columns: Columns) -> bool:
    """Whether rows are points of curves, so that a run has several, and not crossings, one for each run."""
    if "batch_size" not in columns.of or not (columns.metrics or "metric" in columns.of):
        return False
    if {"target", "censored", "reached", "low"} & set(columns.of):
        return False
    roles = [columns.of[role] for role in ("batch_size", "lr", "seed", "run") if role in columns.of]
    return bool(sheet.frame.duplicated(list(dict.fromkeys([*roles, *columns.by]))).any())


def read_runs(sheet: Sheet, columns: Columns, direction: Direction | None) -> Runs:
    """Cut a sheet into runs.

    Raises:
        UserError: steps that go backwards within a run, a metric that can't be told or whose direction can't,
            and what keys.py refuses.
    """
    metric, name, notes = choose_metric(sheet, columns)
    better = direction or direction_of(name)
    if better is None:
        remedy = f"say so: --direction down (or up), or --columns loss={metric} (or accuracy={metric})"
        raise UserError(
            sheet.name, f"doesn't say whether {metric!r} gets better downwards or upwards", remedy
        )
    sign = -1.0 if better == "up" else 1.0
    keys = read_keys(sheet, columns, [metric], first_step=0)
    status = read_status(sheet, columns)
    values = keys.numbers[metric]
    failed = status == "failed"
    logged = ~failed & ~values.empty & np.isfinite(keys.steps) & np.isfinite(keys.batch_size)
    lr, rate_notes = _rates(keys, np.flatnonzero(logged))
    check_rates(sheet, columns, np.where(logged, lr, np.nan))

    rows = np.flatnonzero(logged)
    number = _numbered(part[rows] for part in (keys.group, keys.batch_size, lr, keys.seed, keys.run))
    rows = rows[np.argsort(number, kind="stable")]
    number = np.sort(number)
    rows, repeated = _ascending(sheet, keys, rows, number)
    bounds = np.flatnonzero(np.diff(number)) + 1
    pieces = np.split(rows, bounds) if len(rows) else []
    pieces = [piece[~repeated[piece]] for piece in pieces]
    runs = tuple(_run(keys, lr, sign * values.values, status, piece) for piece in pieces)
    notes = (*notes, *keys.notes, *rate_notes, *left_out(sheet, failed, "of runs that failed"))
    if repeated.any():
        where = sheet.where(int(np.flatnonzero(repeated)[0]))
        notes += (f"{int(repeated.sum())} steps are logged twice, the later value holds (first: {where})",)
    return Runs(runs, metric, sign, notes)


def _run(keys: Keys, lr: Floats, losses: Floats, status: NDArray[np.object_], rows: Codes) -> Run:
    """The finite part of a run, up to where it diverged."""
    loss = losses[rows]
    finite = np.isfinite(loss)
    end = int(np.flatnonzero(finite)[-1]) + 1 if finite.any() else 0
    infinite = np.isinf(loss)
    # A run whose NaN are scattered has steps without evaluation, and its last ones are no sign of divergence.
    ended_in_nan = end < len(loss) and finite[:end].all()
    diverged = bool(ended_in_nan or infinite.any() or (status[rows] == "diverged").any())
    if infinite.any():
        finite[int(infinite.argmax()) :] = False
    first = rows[0]
    kept = rows[finite]
    steps = keys.steps[kept]
    curve = Curve(steps, steps * keys.batch_size[first], losses[kept], np.zeros(len(kept)))
    rate = float(lr[first])
    return Run(
        curve,
        kept,
        float(keys.batch_size[first]),
        None if rate != rate else rate,
        keys.groups[keys.group[first]],
        str(keys.seed[first]),
        str(keys.role[first]),
        diverged,
    )


def _rates(keys: Keys, rows: Codes) -> tuple[Floats, tuple[str, ...]]:
    """Each row's learning rate; where a schedule was logged, the highest of the run.

    A rate that changes while the steps go on belongs to one run; where they begin again, to another.
    """
    import pandas as pd

    lr = keys.lr
    if np.isnan(lr[rows]).all():
        return lr, ()
    run = _numbered(part[rows] for part in (keys.group, keys.batch_size, keys.seed, keys.run))
    frame = pd.DataFrame({"run": run, "step": keys.steps[rows], "lr": lr[rows]})
    each = frame.groupby("run")
    ascending = (each["step"].diff().fillna(1) > 0).groupby(run).transform("all").to_numpy(bool)
    scheduled = ascending & (each["lr"].transform("nunique") > 1).to_numpy(bool)
    if not scheduled.any():
        return lr, ()
    lr = lr.copy()
    lr[rows[scheduled]] = each["lr"].transform("max").to_numpy()[scheduled]
    return lr, ("the learning rate follows a schedule: each run is named by its highest",)


def _numbered(parts: Iterable[NDArray[np.generic]]) -> Codes:
    """The number of each distinct combination, in order of appearance; NaN equals NaN."""
    import pandas as pd

    number: Codes | None = None
    for part in parts:
        codes, distinct = pd.factorize(part, use_na_sentinel=False)
        number = codes if number is None else pd.factorize(number * len(distinct) + codes)[0]
    assert number is not None
    return pd.factorize(number)[0]


def _ascending(sheet: Sheet, keys: Keys, rows: Codes, number: Codes) -> tuple[Codes, Flags]:
    """Rows of each run in the order of steps, and flags for steps that are logged again later.

    A run may be written last step first; any other order may hide a second run, and is refused.
    """
    repeated = np.zeros(len(keys.steps), bool)
    if len(rows) < 2:
        return rows, repeated
    inside = np.diff(number) == 0
    change = np.diff(keys.steps[rows])
    falls, rises = inside & (change < 0), inside & (change > 0)
    if falls.any():
        rising = np.bincount(number[1:][rises], minlength=number[-1] + 1) > 0
        wrong = np.flatnonzero(falls & rising[number[1:]])
        if len(wrong):
            before, row = int(rows[wrong[0]]), int(rows[wrong[0] + 1])
            what = (
                f"steps go backwards, from {keys.steps[before]:.10g} to {keys.steps[row]:.10g},"
                f" at batch size {keys.batch_size[row]:g}"
            )
            remedy = "sort each run by step; where runs are mixed, tell them apart: --columns run=NAME"
            raise UserError(sheet.where(row), what, remedy)
        order = np.lexsort((keys.steps[rows], number))
        rows = rows[order]
        change = np.diff(keys.steps[rows])
    repeated[rows[:-1][inside & (change == 0)]] = True
    return rows, repeated
