"""`bscrit fit`: read sources, fit, and say it as a table, JSON, files and an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bscrit.errors import UserError
from bscrit.files import explaining, write_json, write_text
from bscrit.fit.answers import Questions, answer
from bscrit.fit.baseline import moved, read_baseline
from bscrit.fit.export import crossings_csv, frontier_csv, markdown, to_dict
from bscrit.fit.report import Report, title
from bscrit.fit.source import fit
from bscrit.paths import ResultsPaths
from bscrit.results import is_results
from bscrit.tables.options import as_paths

PASSED, FAILED, UNWRITTEN = 0, 1, 2
REMEDY = "the answer above is whole; free some space or make this place writable, and fit again to write it"


def run(
    sources: Sequence[str],
    *,
    as_json: bool = False,
    strict: bool = False,
    baseline: Path | None = None,
    questions: Questions | None = None,
    noise: Sequence[str] = (),
    **reading: Any,
) -> int:
    """Fit, print the answer on stdout, write what others read, and return the exit code.

    Args:
        noise: files of a meter, several in one text separated by commas.
        reading: further options of `bscrit.fit`, as texts or as Python has them.
    """
    before = read_baseline(baseline) if baseline is not None else None
    report = fit(sources[0] if len(sources) == 1 else list(sources), noise=as_paths(noise), **reading)
    answers = answer(report, questions or Questions())
    problems = _strict(report) if strict else []
    problems += moved(report, before) if before is not None else []
    if as_json:
        print(json.dumps({**to_dict(report), **answers.data}, indent=1, allow_nan=False))
    else:
        print("\n".join([str(report), *answers.lines]))
    for problem in problems:
        print(f"check failed: {problem}", file=sys.stderr)
    code = FAILED if problems else PASSED
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _written(lambda: _append(Path(summary), report, problems))
    folder = Path(sources[0])
    plain = len(sources) == 1 and not any((noise, *reading.values()))
    if plain and is_results(folder) and not _written(lambda: _write_files(folder, report, baseline)):
        code = code or UNWRITTEN
    return code


def _written(write: Callable[[], None]) -> bool:
    """Whether something was written; if not, it is said: the answer was printed, and stands."""
    try:
        write()
    except UserError as error:
        print(f"error: {UserError(error.where, error.what, REMEDY)}", file=sys.stderr)
        return False
    return True


def _append(summary: Path, report: Report, problems: Sequence[str]) -> None:
    failed = "".join(f"- **check failed**: {problem}\n" for problem in problems)
    with explaining(summary), summary.open("a", encoding="utf-8") as stream:
        stream.write(f"{markdown(report)}\n{failed}")


def _write_files(folder: Path, report: Report, baseline: Path | None) -> None:
    """Write the files that others read: derived from the trials, so they may be deleted and made again."""
    paths = ResultsPaths(folder)
    if baseline is not None and baseline.resolve() == paths.fit.resolve():
        print(f"{baseline}: is the baseline, and stays as it is", file=sys.stderr)
    else:
        write_json(paths.fit, to_dict(report))
    write_text(paths.frontier, frontier_csv(report))
    write_text(paths.crossings, crossings_csv(report.crossings))


def _strict(report: Report) -> list[str]:
    problems = [] if report.fits else ["there is nothing to fit"]
    for fitted in report.fits:
        name = title(fitted) or "fit"
        if fitted.verdict != "identified":
            problems.append(f"{name}: {fitted.verdict}")
        problems += [f"{name}: {caveat.code}: {caveat.text}" for caveat in fitted.caveats if caveat.serious]
    return problems
