"""noise.csv alone, as a meter writes it in somebody's own training loop.

Such a run counts with the batch size of its updates, n_big, and without a fit goes to its last sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bscrit import words
from bscrit.errors import UserError
from bscrit.files import readable
from bscrit.fit.noise.compare import compare, in_order, noted
from bscrit.fit.noise.windows import Runs
from bscrit.fit.report import Report
from bscrit.fit.result import Fit, NoiseComparison
from bscrit.noise import HEADER, NoiseSamples, read_noise
from bscrit.words import number

SAME = 0.01  # of a batch size
Meters = Mapping[str, Mapping[float, Sequence[NoiseSamples]]]
"""Metric -> batch size -> one run per file."""


def is_noise(source: Any) -> bool:
    """Whether a source is a noise.csv: by its first line."""
    if not isinstance(source, str | Path):
        return False
    try:
        if not Path(source).is_file():  # a pipe can be read once only
            return False
        with Path(source).open("rb") as stream:
            return stream.readline(200).decode("utf-8-sig", "replace").strip() == HEADER
    except (OSError, ValueError):  # its reader explains what is wrong with it
        return False


def read_meters(paths: Iterable[Path | str]) -> Meters:
    """Raises UserError for a file that is no noise.csv, or that holds no sample."""
    meters: dict[str, dict[float, list[NoiseSamples]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with readable(Path(path)):
            if not Path(path).is_file():
                raise UserError(str(path), "there is no such file", "name the noise.csv that a meter wrote")
        if not is_noise(path):
            raise UserError(str(path), f"is no noise.csv: its first line is not {HEADER}", "name one that is")
        runs = read_noise(Path(path))
        for metric, samples in runs.items():
            if len(samples):
                meters[metric][float(f"{np.median(samples.n_big):.6g}")].append(samples)
        if not any(map(len, runs.values())):
            dropped = sum(samples.dropped for samples in runs.values())
            what = f"holds no noise sample{f', {dropped} are not finite' if dropped else ''}"
            raise UserError(str(path), what, "train on: the meter writes a line for each sample")
    return meters


def comparisons(meters: Meters, fit: Fit | None = None) -> list[NoiseComparison]:
    """One for each metric, without a fit over the whole runs."""
    return [
        compare(
            fit,
            metric,
            {size: Runs(size, _end(fit, size, runs), tuple(runs)) for size, runs in by_size.items()},
        )
        for metric, by_size in ((metric, meters[metric]) for metric in in_order(meters))
    ]


def report_of(paths: Sequence[Path | str], unit: str) -> Report:
    """A report of noise alone."""
    noise = tuple(comparisons(read_meters(paths)))
    return Report(" ".join(map(str, paths)), unit, (), noise=noise)


def with_meters(report: Report, meters: Meters) -> Report:
    """A report whose fits are compared with a meter's noise."""
    fits = tuple(noted(fit, comparisons(meters, fit)) for fit in report.fits)
    return replace(report, fits=fits, notes=(*report.notes, *_short(report.fits, meters)))


def _end(fit: Fit | None, batch_size: float, runs: Sequence[NoiseSamples]) -> float:
    """Steps to the target at a batch size, the last one that every run has where that is earlier or unknown."""
    last = min(float(run.steps[-1]) for run in runs)
    target = _target(fit, batch_size)
    return last if target is None else min(last, target)


def _target(fit: Fit | None, batch_size: float) -> float | None:
    if fit is None:
        return None
    for point in fit.points:
        if point.censored < point.runs and abs(point.batch_size / batch_size - 1) < SAME:
            return point.steps
    return fit.curve.steps(batch_size).value if fit.curve is not None else None


def _short(fits: Iterable[Fit], meters: Meters) -> list[str]:
    """A note on each batch size whose runs end well before a target is met."""
    notes = {}
    runs_of = {size: runs for by_size in meters.values() for size, runs in by_size.items()}
    for fit in fits:
        for size, runs in runs_of.items():
            target, last = _target(fit, size), _end(None, size, runs)
            if target is not None and last < 0.8 * target:
                notes[size] = (
                    f"noise at batch size {words.size(size)} was measured to step {number(last)}, and a target is met"
                    f" at {number(target)}: what is averaged is the part before"
                )
    return list(notes.values())
