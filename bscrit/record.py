"""A record: what one trial left in its folder, and the files that make it up.

    trial.json    who I am: identity only
    order.json    what the sweep asked of me: role, targets, budget, the lanes I train with
    curve.csv     my evaluations
    noise.csv     my noise samples
    frozen.csv    noise measured at frozen parameters, where that was asked for
    status.json   how I ended, and the facts; absent while I have not ended

One process writes a folder at a time: the sweep before a trial starts and after its worker died, the
worker in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from bscrit.crossing import steps_to
from bscrit.curve import EMPTY, Curve, read_curve
from bscrit.errors import UserError
from bscrit.files import whole_json, write_json
from bscrit.noise import FrozenNoise, NoiseSamples, read_frozen, read_noise
from bscrit.trial import FINISHED, Status, Trial

SCHEMA = 2
Role = Literal["search", "measure"]
STATUSES = get_args(Status)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Measurement:
    """How the noise scale is measured while a cohort trains; it changes what a run costs, never its curve.

    Attributes:
        source: "micro_batches" or "examples": between what of a batch the noise is seen.
        metrics: "identity", "hessian", "adam".
        parts: micro-batches into which a batch is cut.
        every: fewest steps from one sample to the next.
        spacing: steps from one sample to the next as a share of the steps so far.
        losses: losses at which parameters are frozen for a measurement on fresh data, the highest first.
        precision: half-width in ln(noise scale) at which such a measurement ends.
        max_examples: where it ends in any case.
    """

    source: str = "micro_batches"
    metrics: tuple[str, ...] = ("identity",)
    parts: int = 4
    every: int = 10
    spacing: float = 0.05
    losses: tuple[float, ...] = ()
    precision: float = 0.1
    max_examples: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        return cls(**{**data, **{name: tuple(data[name]) for name in ("metrics", "losses")}})

    def after(self, step: int) -> int:
        """The step of the sample that follows the one at `step`."""
        return step + max(self.every, int(self.spacing * step))


@dataclass(frozen=True)
class Order:
    """What the sweep asks of the lanes of one cohort; it changes what a run costs, never its curve.

    Attributes:
        role: "search" lanes try rates on one seed, "measure" lanes repeat one rate on fresh seeds.
        round: number of the search at this batch size, or of the measurement.
        lanes: (learning rate, seed) of every lane of the cohort, so that any one folder can restore it.
        targets: losses to reach, the hardest last.
        max_steps: budget of a lane.
        cap_steps: where a lane is given up although budget is left, 0 for never: at the edge of stability a
            run can wander for the whole budget.
        incumbents: steps that the best lane so far needed to each target; a search lane that passes them all
            cannot win any more.
        noise: how the noise scale is measured, None for not at all.
        backend: "vmap" or "loop".
        execution: "replay", "eager" or "compile".
        micro_batch: examples whose activations fit into memory, 0 for the whole batch.
        device: as torch names it.
        splits: whether parts of a batch may be accumulated, should memory run out.
    """

    role: Role
    round: int
    lanes: tuple[tuple[float, int], ...]
    targets: tuple[float, ...]
    max_steps: int
    cap_steps: int = 0
    incumbents: tuple[float, ...] = ()
    noise: Measurement | None = None
    backend: str = "loop"
    execution: str = "replay"
    micro_batch: int = 0
    device: str = "cpu"
    splits: bool = True

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Order:
        lanes = tuple((float(lr), int(seed)) for lr, seed in data["lanes"])
        lists = {name: tuple(data[name]) for name in ("targets", "incumbents")}
        noise = Measurement.from_dict(data["noise"]) if data["noise"] is not None else None
        return cls(**{**data, "lanes": lanes, "noise": noise, **lists})


@dataclass(frozen=True)
class Record:
    """One trial and what became of it.

    Attributes:
        status: "running" also means: begun and not ended, whoever began it.
        reason: one sentence on the status.
        noise: noise samples per metric.
        frozen: measurements at frozen parameters.
        facts: parameters, data size, unit, device, dtype, versions, and what else the worker noted.
        folder: where it lies; None for a record that was never on disk.
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
        """Steps at which its curve meets a target, None where it does not; a plan asks again and again."""
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
    (folder / "status.json").unlink(missing_ok=True)
    write_json(folder / "trial.json", {"schema": SCHEMA, **trial.to_dict()})
    write_json(folder / "order.json", {"schema": SCHEMA, **asdict(order)})


def end(folder: Path, status: Status, reason: str, facts: Mapping[str, Any]) -> None:
    """Close a trial's folder."""
    write_json(folder / "status.json", {"schema": SCHEMA, "status": status, "reason": reason, "facts": facts})


def read_record(folder: Path) -> Record | None:
    """Read a trial's folder; None where it was not even begun.

    A record is complete when its status is written and its curve goes as far as the status says; anything
    else is "running", and a sweep goes on with it. A file that a crash left half-written was not written.
    """
    trial, order = _versioned(folder / "trial.json"), _versioned(folder / "order.json")
    if not trial or not order:
        return None
    begun = Record(
        _parsed(folder / "trial.json", Trial.from_dict, trial),
        _parsed(folder / "order.json", Order.from_dict, order),
        reason="not ended yet",
        curve=read_curve(folder / "curve.csv"),
        noise=read_noise(folder / "noise.csv"),
        frozen=read_frozen(folder / "frozen.csv"),
        folder=folder,
    )
    ended = _versioned(folder / "status.json")
    facts = ended.get("facts")
    if ended.get("status") not in STATUSES or not isinstance(facts, dict):
        return begun
    last = begun.curve.steps[-1] if len(begun.curve) else -1
    if ended["status"] != "failed" and last < facts.get("steps", 0):
        return begun
    return replace(begun, status=ended["status"], reason=str(ended.get("reason", "")), facts=facts)


def _parsed(path: Path, make: Callable[[Mapping[str, Any]], Made], data: Mapping[str, Any]) -> Made:
    try:
        return make(data)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        what = f"is not what this version wrote ({type(error).__name__}: {error})"
        raise UserError(
            str(path), what, "restore the file, or remove the folder: its trial runs again"
        ) from error


def _versioned(path: Path) -> dict[str, Any]:
    """What a file holds, nothing where it is not there or torn; UserError when another version wrote it."""
    data = whole_json(path)
    if data is None:
        return {}
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise UserError(
            str(path),
            f"is not of the format that this version reads (schema {SCHEMA})",
            "use the version of bscrit that wrote it, or another --out folder",
        )
    return data
