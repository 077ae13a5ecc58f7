"""A table of logged points -> runs: one curve for each batch size, rate, seed and fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import Group
from bscrit.curve import Curve
from bscrit.errors import UserError
from bscrit.goal import Direction, Goal
from bscrit.position import examples_at_one_size
from bscrit.tables.columns import Columns, choose_metric, listed, option
from bscrit.tables.crossing_rows import check_rates, left_out, maybe, read_status, unknown_states
from bscrit.tables.names import direction_of
from bscrit.tables.row_fields import Codes, read_fields
from bscrit.tables.sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd

CROSSED = frozenset({"target", "censored", "reached", "low"})
RUN = ["group", "batch_size", "seed", "run"]
POINTS = 5  # of a run, which a search over so many rates would hardly sort by their steps
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
    if CROSSED & set(columns.of) or not (columns.metrics or "metric" in columns.of):
        return False
    return bool(sheet.frame.duplicated(columns.run_columns).any()) or _is_scheduled(sheet, columns)


def _is_scheduled(sheet: Sheet, columns: Columns) -> bool:
    """Whether a rate that is another in every row follows a schedule: steps rise along many rows of each run."""
    if not {"lr", "steps"} <= set(columns.of) or sheet.frame[columns.of["steps"]].dtype.kind not in "iuf":
        return False
    runs = sheet.frame.groupby(columns.without("lr").run_columns, sort=False, dropna=False)
    steps = runs[columns.of["steps"]]
    return bool(steps.size().max() >= POINTS and (steps.diff().dropna() > 0).all())


def refuse_unknown_metric(sheet: Sheet, columns: Columns) -> None:
    """Refuse points of curves whose metric has a name that says nothing; they look like a table of crossings."""
    import pandas as pd

    if columns.metrics or {*CROSSED, "metric"} & set(columns.of) or "steps" not in columns.of:
        return
    used = {*columns.of.values(), *columns.by}
    free = [c for c in sheet.frame.columns if c not in used and sheet.frame[c].dtype.kind in "iuf"]
    texts = sheet.frame[columns.of["steps"]].astype(str)  # which hold any whole number, however long
    step = pd.to_numeric(texts, errors="coerce").reset_index(drop=True)
    runs = step.groupby(sheet.frame.groupby(columns.run_columns, dropna=False).ngroup().to_numpy())
    several = runs.count() > 1
    go_on = (runs.diff().fillna(1) > 0).groupby(runs.ngroup()).all().to_numpy() & (
        runs.last() > LONG * runs.first()
    )
    if free and several.any() and go_on[several].all():
        what = f"holds curves, but no column is known as their metric; found: {listed(list(sheet.frame.columns))}"
        remedy = f"say which one: {option('loss', free[0])} (or {option('accuracy', free[0])})"
        raise UserError(sheet.name, what, remedy)


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
    status, values = read_status(sheet, columns), fields.numbers[metric]
    failed, unknown = status == "failed", status == "unknown"
    points = fields.rows.assign(loss=goal.falls(values.values), diverged=status == "diverged")
    logged = np.isfinite(points["steps"]) & np.isfinite(points["batch_size"])
    points = points[logged & ~failed & ~unknown & ~values.empty]
    points, rate_notes = _with_rates(points)
    check_rates(sheet, columns, points["lr"])
    _refuse_ramps(sheet, columns, points)
    number = points.groupby([*RUN, "lr"], sort=False, dropna=False).ngroup()
    points = _ascending(sheet, points.assign(number=number).sort_values("number", kind="stable"))
    repeated = points.duplicated(["number", "steps"], keep="last")
    notes = (*notes, *fields.notes, *rate_notes, *left_out(sheet, failed, "of runs that failed"))
    notes += tuple(unknown_states(sheet, columns, status))
    if repeated.any():
        where = sheet.where(int(repeated[repeated].index.min()))
        notes += (f"{int(repeated.sum())} steps are logged twice, the later value holds (first: {where})",)
    points = points[~repeated]
    bounds = np.flatnonzero(np.diff(points["number"])) + 1
    pieces = np.split(np.arange(len(points)), bounds) if len(points) else []
    cells = {str(name): column.to_numpy() for name, column in points.reset_index(names="row").items()}
    return Runs(tuple(_run(cells, fields.groups, goal, piece) for piece in pieces), goal, fields.unit, notes)


def _run(cells: Mapping[str, NDArray[Any]], groups: Sequence[Group], goal: Goal, piece: Codes) -> Run:
    """The finite part of a run, up to where it diverged."""
    loss, first = cells["loss"][piece], {name: column[piece[0]] for name, column in cells.items()}
    finite = np.isfinite(loss)
    end = int(np.flatnonzero(finite)[-1]) + 1 if finite.any() else 0
    overflow = np.cumsum(finite) == 0  # of the first evaluations, before anything was learned
    infinite = np.isinf(loss) & ~(overflow & finite.any())
    # A run whose NaN are scattered has steps without evaluation, and its last ones are no sign of divergence.
    ended_in_nan = end < len(loss) and (finite | (np.isinf(loss) & overflow))[:end].all()
    diverged = bool(ended_in_nan or infinite.any() or cells["diverged"][piece].any())
    if infinite.any():
        finite[int(infinite.argmax()) :] = False
    steps = cells["steps"][piece][finite]
    examples = examples_at_one_size(steps, first["batch_size"])
    return Run(
        Curve(steps, examples, loss[finite], np.zeros(len(steps)), goal),
        cells["row"][piece][finite],
        float(first["batch_size"]),
        maybe(float(first["lr"])),
        groups[first["group"]],
        first["seed"],
        first["role"],
        diverged,
    )


def _refuse_ramps(sheet: Sheet, columns: Columns, points: pd.DataFrame) -> None:
    """Refuse a run whose batch size rises as its steps go on: its points belong to no single batch size.

    Runs that share a name, such as the number of a seed, each begin at their first steps again. Examples go on
    from one batch size to the next where all are logged at the same steps, unless a name says it is one run.
    """
    noun = next(role for role in ("steps", "examples", "epochs") if role in columns.of)
    points = points.assign(count=points["steps"], row=points.index)
    if noun != "steps":
        points = points[points["run"] != ""]
        points["count"] = examples_at_one_size(points["steps"].to_numpy(), points["batch_size"].to_numpy())
    run = ["group", "seed", "run"]
    spans = points.groupby([*run, "batch_size"], as_index=False, dropna=False).agg(
        first=("count", "min"), last=("count", "max"), row=("row", "min")
    )
    later = spans.duplicated(run)
    goes_on = spans["first"] > spans["last"].shift()
    ramps = later & (goes_on | ~later).groupby([spans[name] for name in run]).transform("all")
    if ramps.any():
        at = int(ramps.to_numpy().argmax())
        ramp, before = spans.iloc[at], spans["batch_size"].iloc[at - 1]
        name = f" of the run {ramp['run']!r}" if ramp["run"] else ""
        what = f"the batch size rises from {before:g} to {ramp['batch_size']:g} at {ramp['first']:.10g} {noun}{name}"
        remedy = "a run must have one batch size: leave out those with a ramp"
        raise UserError(sheet.where(int(ramp["row"])), what, remedy)


def _with_rates(points: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The points, each with the highest rate of its run where a schedule was logged, and a note.

    A rate that changes while the steps go on belongs to one run; where they begin again, to another.
    """
    if points["lr"].isna().all():
        return points, ()
    runs = points.groupby(RUN, sort=False)
    ascending = (runs["steps"].diff().fillna(1) > 0).groupby(runs.ngroup()).transform("all")
    scheduled = ascending & (runs["lr"].transform("nunique") > 1)
    if not scheduled.any():
        return points, ()
    highest = points["lr"].where(~scheduled, runs["lr"].transform("max"))
    return points.assign(lr=highest), (
        "the learning rate follows a schedule: each run is named by its highest",
    )


def _ascending(sheet: Sheet, points: pd.DataFrame) -> pd.DataFrame:
    """The points, run by run, in the order of steps.

    A run may be written last step first; any other order may hide a second run, and is refused.
    """
    change = points.groupby("number")["steps"].diff()
    falls = change < 0
    wrong = points[falls & points["number"].isin(points["number"][change > 0])]
    if len(wrong):
        step, size = wrong["steps"].iloc[0], wrong["batch_size"].iloc[0]
        before = step - change[wrong.index[0]]
        what = f"steps go backwards, from {before:.10g} to {step:.10g}, at batch size {size:g}"
        remedy = "sort each run by step; where runs are mixed, tell them apart: --columns run=NAME"
        raise UserError(sheet.where(int(wrong.index[0])), what, remedy)
    return points.sort_values(["number", "steps"], kind="stable") if falls.any() else points
