"""`bscrit plot`: draw every figure that a source supports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bscrit.errors import UserError
from bscrit.fit.report import Report
from bscrit.fit.source import fit
from bscrit.paths import ResultsPaths
from bscrit.plot.draw import FIGURES, draw, unsupported
from bscrit.results import HasResults, Results, carried, is_folder

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


def run(source: str, out: Path | None, formats: Sequence[str], figures: Sequence[str], **reading: Any) -> int:
    """Draw, print the paths on stdout, say on stderr what could not be drawn, and return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    paths = plot(source, out=out, formats=formats, figures=figures, **reading)
    print("\n".join(str(path) for path in paths))
    return 0


def plot(
    source: Path | str | Results | HasResults | Report | pd.DataFrame,
    *,
    out: Path | str | None = None,
    formats: Sequence[str] = ("png",),
    figures: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    by: Sequence[str] = (),
    direction: Literal["down", "up"] | None = None,
    unit: str | None = None,
) -> list[Path]:
    """Draw every figure that a source supports, and return their paths.

    bscrit.plot("results/digits")
    bscrit.plot("runs.csv", out="figures", formats=["svg", "pdf"], figures=["frontier"])

    Args:
        source: a results folder, what `bscrit.sweep` or `bscrit.fit` returned, a table, or a data frame.
        out: folder of the figures; by default SOURCE/figures, of runs.csv runs-figures beside it, else figures here.
        formats: of "png", "svg", "pdf".
        figures: names out of `bscrit.plot.draw.FIGURES`, such as "frontier"; by default those that the source
            supports. A reason why one is left out is logged.
        targets, columns, by, direction, unit: as of `bscrit.fit`; a report has them already.

    Raises:
        UserError: the source cannot be understood, or supports none of these figures.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of glyphs that a font lacks
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    reading = {"targets": targets, "columns": columns, "by": by, "direction": direction, "unit": unit}
    if isinstance(source, Report):
        _refuse(reading)
        report, source = source, source.source
    else:
        report = fit(source, **reading)  # type: ignore[arg-type]
    if report.runs is None and not figures:
        missing = unsupported(report)
        figures = [name for name in FIGURES if name not in missing]
        logger.info("a table gives the figures %s; others need a sweep's results", " and ".join(figures))
    paths = draw(report, Path(out) if out is not None else _default_out(source), formats, figures or None)
    if not paths:
        raise UserError(report.source, "supports none of these figures", "see the reasons above")
    return paths


def _refuse(reading: Mapping[str, Any]) -> None:
    for name, value in reading.items():
        if value is not None and value != ():
            raise UserError(
                f"bscrit.plot({name}=)", "goes with a source that is fitted here", "give it to bscrit.fit"
            )


def _default_out(source: Any) -> Path:
    """A results folder's own figures; those of a table lie beside it, those of a stream or a frame here."""
    source = carried(source)
    if isinstance(source, Results):
        return ResultsPaths(source.folder).figures
    path = Path(source) if isinstance(source, str | Path) else Path("-")
    if is_folder(path):
        return ResultsPaths(path).figures
    return path.with_name(f"{path.stem}-figures") if path.is_file() else Path("figures")
