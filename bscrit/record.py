"""A record: a trial, its order, its curve, its noise samples and how it ended, from the files of one folder.

One process writes a folder at a time: the sweep before a trial starts and after its worker died, the
worker in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from bscrit.crossing import steps_to
from bscrit.curve import EMPTY, Curve, read_curve
from bscrit.errors import UserError
from bscrit.files import whole_json, write_json
from bscrit.frozen_noise import FrozenNoise, read_frozen
from bscrit.noise import NoiseSamples, read_noise
from bscrit.order import Order, Role
from bscrit.paths import TrialPaths
from bscrit.trial import FINISHED, Status, Trial

SCHEMA = 3  # rises when the meaning of a file changes
STATUSES = get_args(Status)
Kind = TypeVar("Kind")
TRIAL, ORDER, ENDING = TypeAdapter(Trial), TypeAdapter(Order), TypeAdapter(dict[str, Any])


@dataclass(frozen=True)
class Record:
    """One trial, as far as it came.

    Attributes:
        status: "running" also means: begun and not ended, whoever began it.
        reason: one sentence on the status.
        noise: noise samples per metric.
        frozen: measurements at frozen parameters.
        facts: parameters, data size, unit, device, dtype, versions, and more that the worker noted.
        folder: None for a record that was never on disk.
    """

    trial: Trial
    order: Order
    status: Status = "running"
    reason: str = ""
    curve: Curve = EMPTY
    noise: Mapping[str, NoiseSamples] = field(default_factory=dict)
    frozen: tuple[FrozenNoise, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    @property
    def role(self) -> Role:
        return self.order.role

    def steps_to(self, target: float) -> float | None:
        """Steps at which its curve meets a target, None where it does not; kept, since every plan needs them."""
        if target not in self._steps_to:
            self._steps_to[target] = steps_to([self.curve], target, confirmed=False)
        return self._steps_to[target]

    @cached_property
    def _steps_to(self) -> dict[float, float | None]:
        return {}

    @property
    def examples(self) -> float:
        """Examples trained so far."""
        return float(self.curve.examples[-1]) if len(self.curve) else 0.0


def begin(folder: Path, trial: Trial, order: Order) -> None:
    """Make a trial's folder, or give a new order to an existing one whose run continues."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = TrialPaths(folder)
    paths.status.unlink(missing_ok=True)
    write_json(paths.trial, {"schema": SCHEMA, **trial.to_dict()})
    write_json(paths.order, {"schema": SCHEMA, **asdict(order)})


def mend(folder: Path, trial: Trial, order: Order) -> Record | None:
    """Write again which trial a folder is of and what was asked of it, where a crash tore that; read the folder."""
    paths = TrialPaths(folder)
    if _read(paths.trial, TRIAL) is None:
        write_json(paths.trial, {"schema": SCHEMA, **trial.to_dict()})
    if _read(paths.order, ORDER) is None:
        write_json(paths.order, {"schema": SCHEMA, **asdict(order)})
    return read_record(folder)


def end(folder: Path, status: Status, reason: str, facts: Mapping[str, Any]) -> None:
    """Close a trial's folder."""
    write_json(
        TrialPaths(folder).status, {"schema": SCHEMA, "status": status, "reason": reason, "facts": facts}
    )


def read_record(folder: Path) -> Record | None:
    """Read a trial's folder; None where it was not even begun.

    A record is complete when its status is written and its curve goes as far as the status has it; anything
    else is "running", and a sweep goes on with it. A file that a crash left half-written was not written.

    Raises:
        UserError: another version wrote the folder, or a file was changed.
    """
    paths = TrialPaths(folder)
    trial, order = _read(paths.trial, TRIAL), _read(paths.order, ORDER)
    if trial is None or order is None:
        return None
    ending = _read(paths.status, ENDING) or {}  # first: the streams are whole once it is written
    record = Record(
        trial,
        order,
        reason="not ended yet",
        curve=read_curve(paths.curve, trial.goal),
        noise=read_noise(paths.noise),
        frozen=read_frozen(paths.frozen),
        folder=folder,
    )
    status: Any = ending.get("status")
    facts = ending.get("facts")
    if status not in STATUSES or not isinstance(facts, dict):
        return record
    last = record.curve.steps[-1] if len(record.curve) else -1
    if status != "failed" and last < facts.get("steps", 0):
        return record
    return replace(record, status=status, reason=str(ending.get("reason", "")), facts=facts)


def _read(path: Path, kind: TypeAdapter[Kind]) -> Kind | None:
    """The contents of a file; None where it is not there or torn."""
    data = whole_json(path)
    if data is None:
        return None
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        what = f"is not of the format that this version reads (schema {SCHEMA})"
        raise UserError(str(path), what, "use the version of bscrit that wrote it, or another --out folder")
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        mistake = error.errors()[0]
        what = f"is not as this version wrote it ({'.'.join(map(str, mistake['loc']))}: {mistake['msg']})"
        remedy = "restore the file, or remove the folder: its trial runs again"
        raise UserError(str(path), what, remedy) from error
