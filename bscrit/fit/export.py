"""A report as JSON, as CSV, and as Markdown for a continuous-integration summary.

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
from bscrit.fit.noise import report as noise_report
from bscrit.fit.report import DEFINITIONS, Report, title
from bscrit.fit.result import SCHEMA, Fit
from bscrit.words import plural, shown


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
        "metric": report.goal.metric if report.goal else None,
        "direction": report.goal.direction if report.goal else None,
        "fits": [_fit(fit) for fit in report.fits],
        "notes": list(report.notes),
        **(
            {"noise": [noise_report.to_data(comparison) for comparison in report.noise]}
            if report.noise
            else {}
        ),
    }


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
        [
            *(dict(crossing.group).get(name, "") for name in names),
            crossing.target,
            *(_cell(crossing, c) for c in columns),
        ]
        for crossing in crossings
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


def _fit(fit: Fit) -> dict[str, Any]:
    names = ("s_min", "e_min", "b_crit", "cbs_20", "sigma")
    return {
        "group": dict(fit.group),
        "target": fit.target,
        "verdict": fit.verdict,
        **{name: asdict(getattr(fit, name)) for name in names},
        "points": [asdict(point) for point in fit.points],
        "caveats": [asdict(caveat) for caveat in fit.caveats],
        "noise": [noise_report.to_data(comparison) for comparison in fit.noise],
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
