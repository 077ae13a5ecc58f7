"""`bscrit fit`: read sources, fit, and say it as a table, JSON, files and an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bscrit.errors import UserError, nearest
from bscrit.files import explaining, read_json, write_json, write_text
from bscrit.fit.answers import Questions, answer
from bscrit.fit.crossings import from_records
from bscrit.fit.report import crossings_csv, frontier_csv, markdown, table, title, to_dict
from bscrit.fit.result import SCHEMA, Report
from bscrit.fit.source import asked_for, fit
from bscrit.results import is_results, read_results

PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Options:
    """What the command line asks of a fit."""

    targets: tuple[float, ...] | None = None
    columns: Mapping[str, str] | None = None
    by: tuple[str, ...] = ()
    direction: Literal["down", "up"] | None = None
    unit: str | None = None
    as_json: bool = False
    strict: bool = False
    baseline: Path | None = None
    questions: Questions = field(default_factory=Questions)


def run(sources: Sequence[str], options: Options) -> int:
    """Fit, print the answer on stdout, and return the exit code."""
    baseline = _read_baseline(options.baseline) if options.baseline is not None else None
    report = read(sources, options)
    problems = (_strict(report) if options.strict else []) + (moved(report, baseline) if baseline else [])
    if len(sources) == 1 and is_results(Path(sources[0])) and options.targets is None:
        _write_files(Path(sources[0]), report)
    answers = answer(report, options.questions)
    if options.as_json:
        print(json.dumps({**to_dict(report), **answers.data}, indent=1, allow_nan=False))
    else:
        print("\n".join([table(report), *answers.lines]))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with explaining(Path(summary)), Path(summary).open("a", encoding="utf-8") as stream:
            stream.write(
                markdown(report) + "\n" + "".join(f"- **check failed**: {problem}\n" for problem in problems)
            )
    if problems:
        print("\n".join(f"check failed: {problem}" for problem in problems), file=sys.stderr)
    return FAILED if problems else PASSED


def read(sources: Sequence[str], options: Options) -> Report:
    """One report of all sources: results folders side by side, or the files of one table."""
    folders = [source for source in sources if Path(source).is_dir()]
    if len(sources) == 1 or not folders:
        return _fit(sources[0] if len(sources) == 1 else list(sources), options)
    reports = [_fit(source, options) for source in sources]
    units = {report.unit for report in reports}
    if len(units) > 1:
        raise UserError(
            " ".join(sources),
            f"count in different units: {', '.join(sorted(units))}",
            "fit them one at a time",
        )
    fits = [
        replace(found, group={"source": source, **found.group})
        for source, report in zip(sources, reports, strict=True)
        for found in report.fits
    ]
    notes = tuple(note for report in reports for note in report.notes)
    return Report(" ".join(sources), units.pop(), tuple(fits), notes)


def moved(report: Report, baseline: Mapping[str, Any]) -> list[str]:
    """Sentences on each B_crit that lies beyond both intervals, or that is not there any more."""
    before = {(json.dumps(fit["group"], sort_keys=True), fit["target"]): fit for fit in baseline["fits"]}
    problems = []
    for found in report.fits:
        old = before.pop((json.dumps(dict(found.group), sort_keys=True), found.target), None)
        name = title(found) or "fit"
        if old is None or old["b_crit"]["value"] is None:
            continue
        value, was = found.b_crit.value, old["b_crit"]["value"]
        if value is None:
            problems.append(f"{name}: B_crit was {was:.4g} and is now {found.verdict}")
            continue
        low, high = old["b_crit"]["low"] or was, old["b_crit"]["high"] or was
        if (found.b_crit.low or value) > high or (found.b_crit.high or value) < low:
            problems.append(
                f"{name}: B_crit moved from {was:.4g} [{low:.4g}, {high:.4g}] to {value:.4g} "
                f"[{found.b_crit.low or value:.4g}, {found.b_crit.high or value:.4g}], {value / was:.2f} times"
            )
    return problems + [f"{group} target {target}: is not in this report any more" for group, target in before]


def parse_targets(text: str | None) -> tuple[float, ...] | None:
    """Numbers from "0.5,0.3"."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UserError(
            f"--targets {text}", "is not a list of numbers", "separate them by commas: --targets 0.5,0.3"
        ) from None


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Role -> column from "steps=iter"; several in one argument are separated by commas."""
    found = {}
    for pair in (part for text in pairs for part in text.split(",")):
        role, equals, column = pair.partition("=")
        if not equals or not role.strip() or not column.strip():
            raise UserError(
                f"--columns {pair}", "is not of the form role=column", "for example --columns steps=iter"
            )
        found[role.strip()] = column.strip()
    return found


def parse_direction(text: str | None) -> Literal["down", "up"] | None:
    if text is None or text == "down" or text == "up":
        return text  # type: ignore[return-value]
    raise UserError(f"--direction {text}", "is not a direction", nearest(text, ("down", "up")))


def _fit(source: str | list[str], options: Options) -> Report:
    return fit(
        source,
        targets=options.targets,
        columns=options.columns,
        by=options.by,
        direction=options.direction,
        unit=options.unit,
    )


def _write_files(folder: Path, report: Report) -> None:
    """What others read: derived from the trials, so it may be deleted and made again."""
    write_json(folder / "fit.json", to_dict(report))
    write_text(folder / "frontier.csv", frontier_csv(report))
    crossings = from_records(asked_for(folder, read_results(folder))[0]).crossings
    write_text(folder / "crossings.csv", crossings_csv(crossings))


def _strict(report: Report) -> list[str]:
    problems = [] if report.fits else ["there is nothing to fit"]
    for found in report.fits:
        name = title(found) or "fit"
        if found.verdict != "identified":
            problems.append(f"{name}: {found.verdict}")
        problems += [f"{name}: {caveat.code}: {caveat.text}" for caveat in found.caveats if caveat.serious]
    return problems


def _read_baseline(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"--baseline {path}", "there is no such file", "name the fit.json of an earlier fit")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("fits"), list):
        raise UserError(f"--baseline {path}", "is not a fit.json", "make one with `bscrit fit ... --json`")
    return data
