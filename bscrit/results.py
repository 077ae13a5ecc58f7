"""Results: a folder of records.

results/NAME/
  spec.toml                       the spec as it was read
  preflight.json                  what a worker found out about the workload before training
  trials/b00256-lr0.05-s0-3f9a1c2e/
  fit.json frontier.csv crossings.csv figures/      derived: may be deleted and made again
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bscrit.errors import UserError
from bscrit.files import readable
from bscrit.paths import ResultsPaths
from bscrit.record import Record, read_record


def is_folder(source: Any) -> bool:
    """Whether a source is a path to a folder; False for anything that cannot be one."""
    try:
        return isinstance(source, str | Path) and Path(source).is_dir()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def is_results(path: Path) -> bool:
    with readable(path):
        return ResultsPaths(path).trials.is_dir()


def read_results(path: Path) -> list[Record]:
    """Every record in a results folder, in the order of their names (so: of batch size)."""
    if not is_results(path):
        raise UserError(
            str(path), "is not a results folder: it has no folder 'trials'", "run `bscrit sweep` first"
        )
    with readable(path):
        folders = sorted(folder for folder in ResultsPaths(path).trials.iterdir() if folder.is_dir())
        records = [record for folder in folders if (record := read_record(folder)) is not None]
    # A trial under another name is somebody's copy of it, and no second run.
    return [r for r in records if r.folder is not None and r.folder.name == r.trial.name]
