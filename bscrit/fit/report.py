"""A report as a table for people, as JSON, as CSV, and as Markdown for a continuous-integration summary.

The JSON is described by fit.schema.json beside this file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bscrit.crossing import Crossing
from bscrit.estimate import Estimate
from bscrit.fit.noise import report as noise_report
from bscrit.fit.result import SCHEMA, Fit, Point, Report
from bscrit.words import NOTHING, interval, number, plural, scale_name, size
from bscrit.words import shown as shown

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


def schema() -> dict[str, Any]:
    """The JSON schema of `to_dict`."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("fit.schema.json").read_text("utf-8"))
    return loaded


def to_dict(report: Report) -> dict[str, Any]:
    """The report as strict JSON holds it: null where there is no value, never NaN or infinity."""
    return {
        "schema": SCHEMA,
        "source": report.source,
        "unit": report.unit,
        "fits": [_fit(fit) for fit in report.fits],
        "notes": list(report.notes),
        **({"noise": [noise_report.to_data(one) for one in report.noise]} if report.noise else {}),
    }


def table(report: Report) -> str:
    """The report for people: a block for each fit, with units, target and definitions."""
    blocks = [_block(fit, report) for fit in report.fits]
    notes = [f"note: {note}" for note in report.notes]
    lines = ["\n".join([*block, ""]) for block in blocks]
    return "\n".join([*lines, *noise_report.alone(report.noise, report.unit), *notes, *_tail(report)])


def frontier_csv(report: Report) -> str:
    """frontier.csv: one row per fit and batch size."""
    names = _group_names(fit.group for fit in report.fits)
    columns = ["batch_size", "steps", "examples", "low", "high", "lr", "runs", "censored", "robust_weight"]
    rows = (
        [*(fit.group.get(name, "") for name in names), fit.target, *(getattr(point, c) for c in columns)]
        for fit in report.fits
        for point in fit.points
    )
    return _csv([*names, "target", *columns], rows)


def crossings_csv(crossings: Sequence[Crossing]) -> str:
    """crossings.csv: one row per run and target; what `bscrit fit` reads back."""
    names = _group_names(dict(crossing.group) for crossing in crossings)
    columns = ["batch_size", "steps", "censored", "low", "high", "lr", "seed", "role", "where"]
    rows = (
        [*(dict(one.group).get(name, "") for name in names), one.target, *(_cell(one, c) for c in columns)]
        for one in crossings
    )
    return _csv([*names, "target", *columns], rows)


def markdown(report: Report) -> str:
    """A table for the summary page of a continuous-integration run."""
    units = plural(report.unit)
    lines = [
        f"### Critical batch size: {report.source or 'fit'}",
        "",
        f"| fit | verdict | B_crit [{units}] | S_min [steps] | E_min [{units}] | noise scale / B_crit | caveats |",
        "|---|---|---|---|---|---|---|",
    ]
    for fit in report.fits:
        cells = [shown(getattr(fit, name)) for name in ("b_crit", "s_min", "e_min")]
        codes = ", ".join(f"**{c.code}**" if c.serious else c.code for c in fit.caveats) or "none"
        row = [title(fit) or "all runs", fit.verdict, *cells, noise_report.ratios(fit), codes]
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |")
    return "\n".join([*lines, "", *(f"{line}.  " for line in DEFINITIONS)]) + "\n"


def title(fit: Fit) -> str:
    """What tells a fit from others: its group and target."""
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
    """What the intervals and names mean, as far as they were used."""
    if not report.fits:
        return (
            [f"intervals are 95 %, {JACKKNIFE}", noise_report.NO_FIT] if report.noise else ["nothing to fit"]
        )
    noise = f", of noise scales {JACKKNIFE}" if any(fit.noise for fit in report.fits) else ""
    return [f"intervals are 95 % profile likelihood{noise}", *DEFINITIONS]


def _shape(fit: Fit) -> list[str]:
    """What the diagnostics say of the curve's form, where there is a B_crit to doubt."""
    parts = []
    q, without, law = (fit.diagnostics.get(name) for name in ("knee_sharpness", "leave_one_out", "power_law"))
    if fit.verdict == "identified" and q:
        knee = f"{number(q['value'], 2)} {interval(Estimate(q['value'], q['low'], q['high']))}".rstrip()
        parts.append(f"knee sharpness q {knee}, 1 for the hyperbola")
    if fit.verdict == "identified" and without:
        ends = f"{number(without['low'])} to {number(without['high'])}"
        parts.append(f"B_crit is {ends} when one batch size is left out")
    if fit.verdict == "identified" and law:
        kinds = ("hyperbola", "a power law") if law["aic_difference"] > 0 else ("power law", "the hyperbola")
        parts.append(f"AIC prefers the {kinds[0]} to {kinds[1]} by {number(abs(law['aic_difference']), 2)}")
    return [f"  {'shape':<9} {'; '.join(parts)}"] if parts else []


def _points(fit: Fit, unit: str) -> list[str]:
    scales = [scale_name(one.metric) for one in fit.noise]
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
            (">" if point.censored == point.runs else "") + number(point.steps, 4),
            (">" if point.censored == point.runs else "") + number(point.examples, 4),
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
        parts.append("set aside" if point.robust_weight == 0 else "some runs set aside")
    return ", ".join(parts)


def _fit(fit: Fit) -> dict[str, Any]:
    names = ("s_min", "e_min", "b_crit", "cbs_20", "sigma")
    return {
        "group": dict(fit.group),
        "target": fit.target,
        "verdict": fit.verdict,
        **{name: asdict(getattr(fit, name)) for name in names},
        "points": [asdict(point) for point in fit.points],
        "caveats": [asdict(caveat) for caveat in fit.caveats],
        "noise": [noise_report.to_data(one) for one in fit.noise],
        "diagnostics": dict(fit.diagnostics),
        "region": [list(pair) for pair in fit.region],
    }


def _group_names(groups: Iterable[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group))


def _cell(crossing: Crossing, column: str) -> Any:
    """A cell of crossings.csv: bounds only where they say more than the steps."""
    value = getattr(crossing, column)
    if column in ("low", "high"):
        return value if crossing.low < crossing.high < float("inf") else None
    return str(value).lower() if column == "censored" else value


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return stream.getvalue()
