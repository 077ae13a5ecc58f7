"""A table of logged points -> runs: one curve for each batch size, rate, seed and fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Group
from bscrit.curve import Curve, Floats
from bscrit.errors import UserError
from bscrit.goal import Direction, Goal
from bscrit.position import examples_at_one_size
from bscrit.tables.columns import Columns, choose_metric, direction_of, option
from bscrit.tables.crossing_rows import check_rates, left_out, read_status, unknown_states
from bscrit.tables.numerals import Flags
from bscrit.tables.row_fields import Codes, RowFields, read_fields
from bscrit.tables.sheet import Sheet

CROSSED = frozenset({"target", "censored", "reached", "low"})
LONG = 4.0  # ratio of the last step of a curve and its first; the seeds of one crossing never differ so much


@dataclass(frozen=True)
class Run:
    """The curve of one run.

    Attributes:
        curve: ascending in steps and finite.
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
        met = (self.curve.loss <= self.curve.goal.falls(target)) & (self.curve.steps > 0)
        return int(met.argmax()) if met.any() else None


@dataclass(frozen=True)
class Runs:
    """All runs of a sheet.

    Attributes:
        goal: the metric, by the name of its column, and its direction.
        unit: what a batch size counts, "" where the source does not say.
    """

    runs: tuple[Run, ...]
    goal: Goal
    unit: str
    notes: tuple[str, ...]


def are_curves(sheet: Sheet, columns: Columns) -> bool:
    """Whether rows are points of curves, so that a run has several, and not crossings, one for each run."""
    if "batch_size" not in columns.of or not (columns.metrics or "metric" in columns.of):
        return False
    if CROSSED & set(columns.of):
        return False
    return bool(sheet.frame.duplicated(_run_columns(columns)).any())


def refuse_unknown_metric(sheet: Sheet, columns: Columns) -> None:
    """Refuse points of curves whose metric has a name that says nothing; they look like a table of crossings."""
    import pandas as pd

    if columns.metrics or {*CROSSED, "metric"} & set(columns.of) or "steps" not in columns.of:
        return
    used = {*columns.of.values(), *columns.by}
    free = [c for c in sheet.frame.columns if c not in used and sheet.frame[c].dtype.kind in "iuf"]
    texts = sheet.frame[columns.of["steps"]].astype(str)  # which hold any whole number, however long
    step = pd.to_numeric(texts, errors="coerce").reset_index(drop=True)
    runs = step.groupby(sheet.frame.groupby(_run_columns(columns), dropna=False).ngroup().to_numpy())
    several = runs.count() > 1
    go_on = (runs.diff().fillna(1) > 0).groupby(runs.ngroup()).all().to_numpy() & (
        runs.last() > LONG * runs.first()
    )
    if free and several.any() and go_on[several].all():
        what = (
            f"holds curves, but no column is known as their metric; found: {', '.join(sheet.frame.columns)}"
        )
        raise UserError(
            sheet.name, what, f"say which one: {option('loss', free[0])} (or {option('accuracy', free[0])})"
        )


def read_runs(sheet: Sheet, columns: Columns, direction: Direction | None) -> Runs:
    """Cut a sheet into runs.

    Raises:
        UserError: steps that go backwards or batch sizes that rise within a run, a metric that can't be told or
            whose direction can't, and what row_fields.py refuses.
    """
    metric, name, notes = choose_metric(sheet, columns)
    better = direction or direction_of(name)
    if better is None:
        remedy = f"say so: --direction down (or up), or {option('loss', metric)}"
        raise UserError(
            sheet.name, f"doesn't say whether {metric!r} gets better downwards or upwards", remedy
        )
    goal = Goal(metric, better)
    fields = read_fields(sheet, columns, [metric], first_step=0)
    status = read_status(sheet, columns)
    values = fields.numbers[metric]
    failed, unknown = status == "failed", status == "unknown"
    logged = ~failed & ~unknown & ~values.empty & np.isfinite(fields.steps) & np.isfinite(fields.batch_size)
    lr, rate_notes = _rates(fields, np.flatnonzero(logged))
    check_rates(sheet, columns, np.where(logged, lr, np.nan))

    rows = np.flatnonzero(logged)
    _refuse_ramps(sheet, columns, fields, rows)
    number = _numbered(part[rows] for part in (fields.group, fields.batch_size, lr, fields.seed, fields.run))
    rows = rows[np.argsort(number, kind="stable")]
    number = np.sort(number)
    rows, repeated = _ascending(sheet, fields, rows, number)
    bounds = np.flatnonzero(np.diff(number)) + 1
    pieces = np.split(rows, bounds) if len(rows) else []
    pieces = [piece[~repeated[piece]] for piece in pieces]
    runs = tuple(_run(fields, lr, goal, values.values, status, piece) for piece in pieces)
    notes = (*notes, *fields.notes, *rate_notes, *left_out(sheet, failed, "of runs that failed"))
    notes += tuple(unknown_states(sheet, columns, status))
    if repeated.any():
        where = sheet.where(int(np.flatnonzero(repeated)[0]))
        notes += (f"{int(repeated.sum())} steps are logged twice, the later value holds (first: {where})",)
    return Runs(runs, goal, fields.unit, notes)


def _run(
    fields: RowFields, lr: Floats, goal: Goal, metric: Floats, status: NDArray[np.object_], rows: Codes
) -> Run:
    """The finite part of a run, up to where it diverged."""
    loss = goal.falls(metric[rows])
    finite = np.isfinite(loss)
    end = int(np.flatnonzero(finite)[-1]) + 1 if finite.any() else 0
    overflow = np.cumsum(finite) == 0  # of the first evaluations, before anything was learned
    infinite = np.isinf(loss) & ~(overflow & finite.any())
    # A run whose NaN are scattered has steps without evaluation, and its last ones are no sign of divergence.
    ended_in_nan = end < len(loss) and (finite | (np.isinf(loss) & overflow))[:end].all()
    diverged = bool(ended_in_nan or infinite.any() or (status[rows] == "diverged").any())
    if infinite.any():
        finite[int(infinite.argmax()) :] = False
    first = rows[0]
    kept = rows[finite]
    steps = fields.steps[kept]
    curve = Curve(
        steps, examples_at_one_size(steps, fields.batch_size[first]), loss[finite], np.zeros(len(kept)), goal
    )
    rate = float(lr[first])
    return Run(
        curve,
        kept,
        float(fields.batch_size[first]),
        None if rate != rate else rate,
        fields.groups[fields.group[first]],
        str(fields.seed[first]),
        str(fields.role[first]),
        diverged,
    )


def _run_columns(columns: Columns) -> list[str]:
    """The columns that tell runs apart."""
    roles = [columns.of[role] for role in ("batch_size", "lr", "seed", "run") if role in columns.of]
    return list(dict.fromkeys([*roles, *columns.by]))


def _refuse_ramps(sheet: Sheet, columns: Columns, fields: RowFields, rows: Codes) -> None:
    """Refuse a run whose batch size rises as its steps go on: its points belong to no single batch size.

    Runs that share a name, such as the number of a seed, each begin at their first steps again. Examples go on
    from one batch size to the next where all are logged at the same steps, unless a name says it is one run.
    """
    import pandas as pd

    noun, count = next(role for role in ("steps", "examples", "epochs") if role in columns.of), fields.steps
    if noun != "steps":
        count = examples_at_one_size(fields.steps, fields.batch_size)
        rows = rows[fields.run[rows] != ""]
    if not len(rows):
        return
    run = _numbered(part[rows] for part in (fields.group, fields.seed, fields.run))
    frame = pd.DataFrame({"run": run, "size": fields.batch_size[rows], "count": count[rows], "row": rows})
    spans = frame.groupby(["run", "size"], as_index=False).agg(
        first=("count", "min"), last=("count", "max"), row=("row", "min")
    )
    later = spans["run"].duplicated()
    goes_on = spans["first"] > spans["last"].shift()
    ramps = later & (goes_on | ~later).groupby(spans["run"]).transform("all")
    if ramps.any():
        at = int(ramps.to_numpy().argmax())
        row, (before, size) = int(spans["row"][at]), spans["size"].iloc[at - 1 : at + 1]
        name = f" of the run {fields.run[row]!r}" if fields.run[row] else ""
        what = f"the batch size rises from {before:g} to {size:g} at {spans['first'][at]:.10g} {noun}{name}"
        remedy = "a run must have one batch size: leave out those with a ramp"
        raise UserError(sheet.where(row), what, remedy)


def _rates(fields: RowFields, rows: Codes) -> tuple[Floats, tuple[str, ...]]:
    """Each row's learning rate; where a schedule was logged, the highest of the run.

    A rate that changes while the steps go on belongs to one run; where they begin again, to another.
    """
    import pandas as pd

    lr = fields.lr
    if np.isnan(lr[rows]).all():
        return lr, ()
    run = _numbered(part[rows] for part in (fields.group, fields.batch_size, fields.seed, fields.run))
    frame = pd.DataFrame({"run": run, "step": fields.steps[rows], "lr": lr[rows]})
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


def _ascending(sheet: Sheet, fields: RowFields, rows: Codes, number: Codes) -> tuple[Codes, Flags]:
    """Rows of each run in the order of steps, and flags for steps that are logged again later.

    A run may be written last step first; any other order may hide a second run, and is refused.
    """
    repeated = np.zeros(len(fields.steps), bool)
    if len(rows) < 2:
        return rows, repeated
    inside = np.diff(number) == 0
    change = np.diff(fields.steps[rows])
    falls, rises = inside & (change < 0), inside & (change > 0)
    if falls.any():
        rising = np.bincount(number[1:][rises], minlength=number[-1] + 1) > 0
        wrong = np.flatnonzero(falls & rising[number[1:]])
        if len(wrong):
            before, row = int(rows[wrong[0]]), int(rows[wrong[0] + 1])
            what = (
                f"steps go backwards, from {fields.steps[before]:.10g} to {fields.steps[row]:.10g},"
                f" at batch size {fields.batch_size[row]:g}"
            )
            remedy = "sort each run by step; where runs are mixed, tell them apart: --columns run=NAME"
            raise UserError(sheet.where(row), what, remedy)
        order = np.lexsort((fields.steps[rows], number))
        rows = rows[order]
        change = np.diff(fields.steps[rows])
    repeated[rows[:-1][inside & (change == 0)]] = True
    return rows, repeated
