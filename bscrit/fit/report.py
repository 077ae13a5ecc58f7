"""A report: all fits of a source, as text for people and as data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bscrit.crossing import Crossing
from bscrit.errors import printable
from bscrit.estimate import Estimate
from bscrit.fit.noise import report as noise_report
from bscrit.fit.result import Fit, NoiseComparison, Point, SweepRuns
from bscrit.goal import Goal
from bscrit.words import NOTHING, number, plural, scale_name, shown, size

if TYPE_CHECKING:
    import pandas as pd

DEFINITIONS = (
    "B_crit takes twice the fewest steps and twice the fewest examples (McCandlish et al. 2018)",
    "CBS-20 takes 20 % more examples than the fewest (0.2 B_crit; Zhang et al. 2024, against the asymptote)",
)
JACKKNIFE = "blocked jackknife"
QUANTITIES = (
    ("B_crit", "b_crit", "{units}"),
    ("CBS-20", "cbs_20", "{units}"),
    ("S_min", "s_min", "steps"),
    ("E_min", "e_min", "{units}"),
)


@dataclass(frozen=True)
class Report:
    """All fits of one source, and everything that text, JSON, CSV and figures show of them.

    Attributes:
        source: the folder or file as the user named it.
        unit: what a batch size counts, "image", "token"; "example" where the source does not say.
        fits: one per group and target, groups in order, targets easiest first.
        notes: what to know about the source as a whole (rows left out, duplicates).
        crossings: what was fitted, one per run and target.
        noise: noise scales that no fit goes with, one comparison per metric.
        goal: the metric of the targets and its direction, None where the source does not say.
        deferred_runs: gives `runs`, which cost as much as the fits; None for a table.
    """

    source: str
    unit: str
    fits: tuple[Fit, ...]
    notes: tuple[str, ...] = ()
    crossings: tuple[Crossing, ...] = field(default=(), repr=False, compare=False)
    noise: tuple[NoiseComparison, ...] = ()
    goal: Goal | None = None
    deferred_runs: Callable[[], SweepRuns] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def runs(self) -> SweepRuns | None:
        """The runs of a sweep, as figures show them."""
        return None if self.deferred_runs is None else self.deferred_runs()

    def __str__(self) -> str:
        """A block for each fit, with units, target and definitions."""
        blocks = ["\n".join([*_block(fit, self), ""]) for fit in self.fits]
        notes = [f"note: {note}" for note in self.notes]
        return printable(
            "\n".join([*blocks, *noise_report.alone(self.noise, self.unit), *notes, *_tail(self)])
        )

    def _repr_html_(self) -> str:
        return str(self.table().to_html(index=False))

    def table(self) -> pd.DataFrame:
        """One row per fit: its group, target, verdict, and every estimate with its interval; noise scales too."""
        import pandas as pd

        rows = []
        for fit in self.fits:
            row: dict[str, Any] = {**fit.group, "target": fit.target, "verdict": fit.verdict}
            for name in ("s_min", "e_min", "b_crit", "cbs_20", "sigma"):
                estimate: Estimate = getattr(fit, name)
                row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            rows.append(row | noise_report.columns(fit))
        return pd.DataFrame(rows)

    def points(self) -> pd.DataFrame:
        """One row per fit and batch size: the tuned crossings."""
        import pandas as pd

        rows = [
            {**fit.group, "target": fit.target, **vars(point)} for fit in self.fits for point in fit.points
        ]
        return pd.DataFrame(rows)


def title(fit: Fit) -> str:
    """The title of a fit: its group and target."""
    return named(fit.group, fit.target)


def named(group: Mapping[str, str], target: float | None) -> str:
    """
    >>> named({"model": "85M"}, 3.42)
    'model 85M, target 3.42'
    """
    parts = [f"{name} {value}" for name, value in group.items()]
    return ", ".join([*parts, f"target {target:g}"] if target is not None else parts)


def _block(fit: Fit, report: Report) -> list[str]:
    lines = [f"{title(fit) or report.source or 'fit'}: {fit.verdict}"]
    for label, name, unit in QUANTITIES:
        said = shown(getattr(fit, name))
        units = "" if said == NOTHING else " " + unit.format(units=plural(report.unit))
        lines.append(f"  {label:<9} {said}{units}")
    lines += noise_report.block(fit, report.unit)
    if fit.sigma.value is not None:
        lines.append(
            f"  {'scatter':<9} {100 * fit.sigma.value:.2g} % of the steps, of batch sizes about the curve"
        )
    lines += _shape(fit)
    lines += _points(fit, report.unit)
    for caveat in fit.caveats:
        mark = "warning" if caveat.serious else "caution"
        lines += [f"  {mark}: {caveat.text} [{caveat.code}]", f"    hint: {caveat.hint}"]
    return lines


def _tail(report: Report) -> list[str]:
    """Meanings of the intervals and names, as far as they were used."""
    if not report.fits:
        return (
            [f"intervals are 95 %, {JACKKNIFE}", noise_report.NO_FIT] if report.noise else ["nothing to fit"]
        )
    noise = f", of noise scales {JACKKNIFE}" if any(fit.noise for fit in report.fits) else ""
    return [f"intervals are 95 % profile likelihood{noise}", *DEFINITIONS]


def _shape(fit: Fit) -> list[str]:
    """Diagnostics of the curve's form, where there is a B_crit to doubt."""
    parts = []
    q, without, law = (fit.diagnostics.get(name) for name in ("knee_sharpness", "leave_one_out", "power_law"))
    if fit.verdict == "identified" and q:
        value = shown(Estimate(q["value"], q["low"], q["high"]), 2)
        parts.append(f"knee sharpness q {value}, 1 for the hyperbola")
    if fit.verdict == "identified" and without:
        ends = f"{number(without['low'])} to {number(without['high'])}"
        parts.append(f"B_crit is {ends} when one batch size is left out")
    if fit.verdict == "identified" and law:
        kinds = ("hyperbola", "a power law") if law["aic_difference"] > 0 else ("power law", "the hyperbola")
        parts.append(f"AIC prefers the {kinds[0]} to {kinds[1]} by {number(abs(law['aic_difference']), 2)}")
    return [f"  {'shape':<9} {'; '.join(parts)}"] if parts else []


def _points(fit: Fit, unit: str) -> list[str]:
    scales = [scale_name(comparison.metric) for comparison in fit.noise]
    head = [
        "batch size",
        "steps",
        plural(unit) if len(unit) < 12 else "examples",
        "rate",
        "runs",
        *scales,
        "",
    ]
    rows = [head] + [
        [
            size(point.batch_size),
            (">" if point.censored else "") + number(point.steps, 4),
            (">" if point.censored else "") + number(point.examples, 4),
            "" if point.lr is None else f"{point.lr:.3g}",
            str(point.runs),
            *noise_report.cells(fit, point.batch_size),
            _remark(point),
        ]
        for point in fit.points
    ]
    width = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    return [
        ("  " + "  ".join([*(cell.rjust(w) for cell, w in zip(row, width, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def _remark(point: Point) -> str:
    parts = []
    if point.censored:
        parts.append(f"{point.censored} of {point.runs} did not reach the target")
    if point.robust_weight < 1:
        parts.append("left out" if point.robust_weight == 0 else "some runs set aside")
    return ", ".join(parts)
