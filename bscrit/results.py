"""Results: the records of one folder, with the spec and the preflight that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from bscrit.errors import UserError
from bscrit.files import check_ordinary, readable
from bscrit.paths import ResultsPaths
from bscrit.preflight import Preflight, read_preflight
from bscrit.record import Record, read_record
from bscrit.spec import Spec, restore_spec
from bscrit.trial import Trial


@dataclass(frozen=True)
class Results:
    """A folder of records, or the state of a sweep that fills it.

    Attributes:
        records: every record of the folder, in the order of their names (so: of batch size).
        spec: None for a bare folder of trials, and where no preflight identifies the data.
        preflight: facts of the workload; defaults where they are not known.
    """

    folder: Path
    records: tuple[Record, ...]
    spec: Spec | None = None
    preflight: Preflight = field(default_factory=Preflight)

    @cached_property
    def belonging(self) -> tuple[Record, ...]:
        """Records of the spec's own curves and data, at any batch size; all records where there is no spec."""
        return self._of(self.spec.describes) if self.spec else self.records

    @cached_property
    def asked_for(self) -> tuple[Record, ...]:
        """Those of them at batch sizes that the spec lists or leaves open."""
        return self._of(self.spec.asks_for) if self.spec else self.records

    def _of(self, spec_has: Callable[[Trial, str], bool]) -> tuple[Record, ...]:
        fingerprint = self.preflight.fingerprint
        return tuple(record for record in self.records if spec_has(record.trial, fingerprint))


class HasResults(Protocol):
    """Whatever carries results, as `bscrit.sweep` returns them."""

    @property
    def results(self) -> Results: ...


def carried(source: Any) -> Any:
    """The results that a source carries; any other source as it is."""
    results = getattr(source, "results", None)
    return results if isinstance(results, Results) else source


def is_folder(source: Any) -> bool:
    """Whether a source is a path to a folder; False for anything that cannot be one."""
    try:
        return isinstance(source, str | Path) and Path(source).is_dir()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def is_results(path: Path) -> bool:
    with readable(path):
        return ResultsPaths(path).trials.is_dir()


def read_results(path: Path) -> Results:
    """Results as a sweep left them, or a bare folder of trials.

    Raises:
        UserError: no results folder; a record of another version.
        UserErrors: spec.toml was damaged.
    """
    paths, records = ResultsPaths(path), tuple(read_records(path))
    with readable(path):
        preflight = read_preflight(paths.preflight)
        has_spec = preflight is not None and paths.spec.exists()
    return Results(path, records, restore_spec(paths.spec) if has_spec else None, preflight or Preflight())


def read_records(path: Path) -> list[Record]:
    """Every record in a results folder, in the order of their names."""
    if not is_results(path):
        raise UserError(
            str(path), "is not a results folder: it has no folder 'trials'", "run `bscrit sweep` first"
        )
    check_ordinary(path)
    with readable(path):
        folders = sorted(folder for folder in ResultsPaths(path).trials.iterdir() if folder.is_dir())
        records = [record for folder in folders if (record := read_record(folder)) is not None]
    # A trial under another name is somebody's copy of it, and no second run.
    return [r for r in records if r.folder is not None and r.folder.name == r.trial.name]
