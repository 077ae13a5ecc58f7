"""A sweep from a spec to its summary, for the command and for `bscrit.sweep`."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bscrit.errors import UserError, printable
from bscrit.record import Record
from bscrit.results import Results
from bscrit.spec import Spec, parse_spec, read_spec
from bscrit.sweep.drive import Outcome, drive
from bscrit.sweep.summary import Missing, missing, summary
from bscrit.sweep.view import choose_view


@dataclass(frozen=True)
class Swept:
    """A sweep that ran to its end, or was interrupted; printed, it is the summary of the command."""

    outcome: Outcome

    @property
    def results(self) -> Results:
        """Spec, preflight and records, for `bscrit.fit` and `bscrit.plot`."""
        return self.outcome.results

    @property
    def folder(self) -> Path:
        return self.results.folder

    @property
    def records(self) -> tuple[Record, ...]:
        """Every trial in the folder."""
        return self.results.records

    @property
    def given_up(self) -> Mapping[str, str]:
        """Names of trials that failed more than once, with the reason."""
        return self.outcome.given_up

    @property
    def interrupted(self) -> int:
        """Number of the signal that ended the sweep early, 0 for none."""
        return self.outcome.interrupted

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """Targets that no run reached, with the batch sizes where."""
        return tuple(missing(self.results))

    def __str__(self) -> str:
        return printable(summary(self.outcome))


def sweep(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Swept:
    """Train at every batch size to the targets, the learning rate tuned at each; progress goes to stderr.

    swept = bscrit.sweep("sweeps/digits.toml", settings={"sweep.seeds": 5})
    report = bscrit.fit(swept)

    Interrupted and called again, it goes on where it was and repeats no finished trial.

    Args:
        spec: path of a TOML file, or its tables as a mapping; modules of workloads are then looked for here.
        out: results folder; by default results/NAME of the file.
        settings: "table.key" -> value, over what the spec holds.

    Raises:
        UserErrors: everything that is wrong with the spec.
        UserError: torch is not installed; no `out` for a mapping; the folder is in use.
        KeyboardInterrupt: Ctrl-C; SystemExit for another signal.
    """
    overrides = [
        f"{key}={json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in (settings or {}).items()
    ]
    if not isinstance(spec, Mapping):
        read = read_spec(spec, overrides, "settings")
        folder = Path(out or default_folder(read))
    elif out is None:
        raise UserError("bscrit.sweep", "a mapping has no name for its results", 'pass out="results/NAME"')
    else:
        folder = Path(out)
        read = parse_spec(spec, folder.name, overrides=overrides, option="settings")
    swept = run(read, folder, "bscrit.sweep")
    if swept.interrupted == signal.SIGINT:
        raise KeyboardInterrupt
    if swept.interrupted:
        raise SystemExit(128 + swept.interrupted)
    return swept


def default_folder(spec: Spec) -> Path:
    return Path("results") / spec.name


def run(spec: Spec, folder: Path, caller: str) -> Swept:
    """Drive a sweep that was read, with a view of its progress on stderr."""
    check_torch(caller)
    view = choose_view(spec)
    try:
        for sentence in spec.source.dropped:
            view.note(sentence)
        return Swept(drive(spec, folder, view))
    finally:
        view.close()


def check_torch(caller: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise UserError(caller, "needs torch, which is not installed", "pip install 'bscrit[train]'")
