"""A spec: what one TOML file says, read and validated whole before anything trains.

    spec = read_spec("sweeps/digits.toml", ["sweep.seeds=5"])
    spec.candidates(), spec.optimizer.at(256), spec.max_steps_at(256)

Every error is found at once and names file, table, key, value and the remedy.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.json_schema import SkipJsonSchema

from bscrit.errors import UserError, UserErrors
from bscrit.goal import Goal
from bscrit.recipe import Constant, OptimizerTable, ScheduleTable, Sgd
from bscrit.spec.checks import check, table_errors
from bscrit.spec.errors import Place, Source, explain, unknown_table
from bscrit.spec.file import read_source, with_overrides
from bscrit.spec.noise import NoiseTable
from bscrit.spec.tables import (
    TABLES,
    ComputeTable,
    LearningRateTable,
    Race,
    SweepTable,
    WorkloadTable,
)
from bscrit.trial import Trial
from bscrit.values import MOST

__all__ = ["Spec", "check", "json_schema", "parse_spec", "read_spec"]

FEWEST_STEPS = 10  # in the budget of a run at a batch size that the sweep may choose
BEGINNING = (8, 4)  # smallest of the first three batch sizes, and the factor from one to the next


class Spec(BaseModel):
    """A sweep as declared; made by `read_spec` or `parse_spec`, which also check what no table can alone.

    Attributes:
        name: of the sweep: the file's, without its ending.
        source: where the values came from, for errors that are found later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: WorkloadTable
    optimizer: OptimizerTable = Sgd()
    schedule: ScheduleTable = Constant()
    sweep: SweepTable
    learning_rate: LearningRateTable = Race()
    noise: NoiseTable = NoiseTable()
    compute: ComputeTable = ComputeTable()
    name: SkipJsonSchema[str]
    source: SkipJsonSchema[Source]

    @property
    def goal(self) -> Goal:
        """The metric that targets refer to, and its direction."""
        return Goal(self.sweep.metric, self.sweep.direction)

    def candidates(self, examples: int | None = None) -> tuple[int, ...]:
        """Batch sizes that the sweep may train at, ascending: those listed, or those from which it chooses.

        These are powers of the square root of two up to the data set's size, where the budget of a run leaves
        room for a few steps and for the schedule.

        Args:
            examples: the data set's size; None where data are drawn without end, or not known.
        """
        if not self.sweep.auto:
            return self.sweep.batch_sizes
        largest = min(self.sweep.max_examples // FEWEST_STEPS, examples or MOST)
        powers = range(2 * largest.bit_length())
        sizes = sorted({round(2 ** (power / 2)) for power in powers})
        return tuple(size for size in sizes if size <= largest and self._has_room(size))

    def _has_room(self, batch_size: int) -> bool:
        warmup = self.schedule.warmup_at(batch_size)
        return warmup <= self.max_steps_at(batch_size) and warmup < self.schedule.horizon_at(batch_size)

    def beginning(self, examples: int | None = None) -> tuple[int, ...]:
        """Batch sizes that are trained whatever comes of them: those listed, or three that are cheap."""
        if not self.sweep.auto:
            return self.sweep.batch_sizes
        powers = [size for size in self.candidates(examples) if size & (size - 1) == 0]
        first, ratio = BEGINNING
        while powers and first > powers[0] and first * ratio**2 > powers[-1]:
            first //= 2
        if powers and first * ratio**2 > powers[-1]:
            ratio = 2
        first = max(first, powers[0]) if powers else first
        return tuple(size for size in (first, first * ratio, first * ratio**2) if size in powers)

    def first_guess(self) -> float:
        """The learning rate from which a race starts at the smallest batch size."""
        guess = getattr(self.learning_rate, "guess", None)
        return self.optimizer.first_guess(self.beginning()[0]) if guess is None else float(guess)

    def max_steps_at(self, batch_size: int) -> int:
        """Budget of one trial in steps."""
        steps = self.sweep.max_examples // batch_size
        return steps if self.sweep.max_steps is None else min(steps, self.sweep.max_steps)

    def asks_for(self, trial: Trial, fingerprint: str) -> bool:
        """Whether a trial is of this spec and of these data, at a batch size that is listed or left open."""
        listed = self.sweep.auto or trial.batch_size in self.sweep.batch_sizes
        return listed and self.describes(trial, fingerprint)

    def describes(self, trial: Trial, fingerprint: str) -> bool:
        """Whether a trial is of this spec and of these data, at whatever batch size, rate and seed."""
        # By key: 1 and 1.0 are equal in Python, but make two trials.
        return trial.key == self.trial(trial.batch_size, trial.lr, trial.seed, fingerprint).key

    def trial(self, batch_size: int, lr: float, seed: int, fingerprint: str = "") -> Trial:
        """The trial of this spec at one batch size, learning rate and seed."""
        return Trial(
            workload=self.workload.use,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            goal=self.goal,
            fingerprint=fingerprint,
            settings=copy.deepcopy(self.workload.settings),
            optimizer=self.optimizer.at(batch_size),
            schedule=self.schedule.declared(),
            dtype=self.compute.dtype,
        )


def read_spec(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Spec:
    """Read a TOML file, set each "table.key=value" over it, and check it whole.

    Raises:
        UserErrors: everything that is wrong with the file and the overrides.
    """
    path = Path(path)
    try:
        source = read_source(path)
    except UserError as error:
        raise UserErrors([error]) from None
    source, errors = with_overrides(source, overrides)
    return _checked(source, path.stem, path.absolute().parent, errors)


def restore_spec(path: Path) -> Spec:
    """The spec that a sweep wrote into its results folder; whether its workload is still there does not matter.

    Raises:
        UserErrors: the file was damaged.
    """
    return _checked(read_source(path), path.parent.name, path.absolute().parent, [], restored=True)


def parse_spec(
    data: Mapping[str, Any], name: str = "spec", folder: Path = Path(), overrides: Sequence[str] = ()
) -> Spec:
    """The same for tables that were read elsewhere; errors call their file NAME.toml."""
    source, errors = with_overrides(Source(f"{name}.toml", data), overrides)
    return _checked(source, name, folder, errors)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec (draft 2020-12), from the same classes that read it."""
    schema = _without_clutter(Spec.model_json_schema())
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bscrit sweep",
        "description": "What `bscrit sweep` trains, at which batch sizes and to which losses.",
    }
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def _checked(
    source: Source, name: str, folder: Path, errors: list[UserError], restored: bool = False
) -> Spec:
    context = {"folder": folder, "restored": restored}
    fields = {"name": name, "source": source}
    tables = {key: value for key, value in source.data.items() if key in TABLES}
    errors += [unknown_table(k, v, source) for k, v in source.data.items() if k not in TABLES]
    spec: Spec | None = None
    try:
        spec = Spec.model_validate({**tables, **fields}, context=context)
    except ValidationError as error:
        found = list(explain(error, source))
        errors += [explained for _, explained in found]
        repaired = _repaired(tables, {place for place, _ in found})
        try:
            spec = Spec.model_validate({**repaired, **fields}, context=context)
        except ValidationError:
            raise UserErrors(errors) from None
    errors += table_errors(spec)
    if errors:
        raise UserErrors(errors)
    return spec


def _repaired(tables: Mapping[str, Any], wrong: Iterable[Place]) -> dict[str, Any]:
    """The tables without what was wrong, so that errors between tables are found in the same go."""
    repaired = copy.deepcopy({"optimizer": {}, **tables})
    for table, key in wrong:
        if key is None or key == "use" or table == "learning_rate":
            repaired.pop(table, None)
        elif table in repaired:
            repaired[table].pop(key, None)
            repaired[table] |= {key: _STAND_INS[table, key]} if (table, key) in _STAND_INS else {}
    return {**_STAND_IN_TABLES, **repaired}


def _without_clutter(schema: Any, is_keys: bool = False) -> Any:
    """Without titles that only repeat names, and without defaults that are null or repeat a table's own."""
    if isinstance(schema, list):
        return [_without_clutter(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    no_default = isinstance(schema.get("default"), dict | None)
    clutter = {"title", "discriminator"} | ({"default"} if no_default else set())
    kept = {key: value for key, value in schema.items() if is_keys or key not in clutter}
    return {key: _without_clutter(value, key in ("properties", "$defs")) for key, value in kept.items()}


_STAND_IN_TABLES: dict[str, Any] = {"workload": {"use": "quadratic"}, "optimizer": {"use": "adam"}}
_STAND_INS: dict[Place, Any] = {
    ("sweep", "targets"): [0.0],
    ("sweep", "max_examples"): MOST,
    ("optimizer", "momentum"): 0.5,
    ("schedule", "horizon_steps"): MOST,
    ("schedule", "horizon_examples"): MOST,
}
"""Values without which a repaired table would show errors that the user did not make."""
