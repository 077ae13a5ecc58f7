"""Write the figures that a report supports, each as a file that appears whole or not at all.

>>> sorted(FIGURES)
['best_rate', 'curves', 'frontier', 'noise', 'noise_loss', 'rates', 'steps']
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from bscrit.errors import UserError, nearest
from bscrit.files import explaining, replacing
from bscrit.fit.report import Report
from bscrit.plot import best_rate, curves, frontier, noise, noise_loss, rates, steps
from bscrit.plot.style import styled

FIGURES: Mapping[str, ModuleType] = {
    "frontier": frontier,
    "steps": steps,
    "rates": rates,
    "best_rate": best_rate,
    "curves": curves,
    "noise": noise,
    "noise_loss": noise_loss,
}
"""Each has `figure(report)`, the whole figure, and `lacks(report)`, why a report cannot give it: "" where it can."""
FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
log = logging.getLogger(__name__)


def draw(
    report: Report, out: Path, formats: Sequence[str] = ("png",), which: Sequence[str] | None = None
) -> list[Path]:
    """Write the figures of a report into the folder `out` and return their paths.

    Args:
        report: without runs, as from a table, it gives frontier and steps.
        out: made if it is not there.
        formats: of "png", "svg", "pdf"; the same input gives the same bytes.
        which: names out of FIGURES, all where None. Figures that the data do not support are left out, and
            logged with the reason that `unsupported` gives: as a warning where they were asked for by name.

    Raises:
        UserError: unknown format or figure, or a folder that cannot be written.
    """
    endings = [_listed(name.strip().lower().removeprefix("."), FORMATS, "format") for name in formats]
    names = [_listed(name, FIGURES, "figure") for name in (FIGURES if which is None else which)]
    missing = unsupported(report)
    with explaining(out):
        out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in dict.fromkeys(names):
        if name in missing:
            level = logging.INFO if which is None else logging.WARNING
            log.log(level, "no %s figure: %s", name, missing[name])
            continue
        with styled(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # of a user's name: drawn as a box
            figure = FIGURES[name].figure(report)
            for ending in dict.fromkeys(endings):
                paths.append(out / f"{name}.{ending}")
                with replacing(paths[-1]) as stream:
                    figure.savefig(stream, format=ending, metadata=dict(FORMATS[ending]))
    return paths


def unsupported(report: Report) -> dict[str, str]:
    """The figures that a report cannot give, by name, with the reason in words."""
    return {name: reason for name, module in FIGURES.items() if (reason := module.lacks(report))}


def _listed(name: str, names: Mapping[str, object], kind: str) -> str:
    if name not in names:
        raise UserError("", f"unknown {kind} '{name}'", nearest(name, names))
    return name
