"""Facts of a workload that a worker finds before anything trains; one file of a results folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from bscrit.files import whole_json

NEAR = 4  # at most so many times a batch size that was looked at, its engine serves


@dataclass(frozen=True)
class Preflight:
    """Facts that the plan needs and only a worker can know.

    Attributes:
        unit: what a batch size counts.
        examples: size of the training set in that unit, None where data are drawn without end.
        fingerprint: hash of the data, and of a user's own source, first batch and untrained model.
        untrained_value: metric of the model at the first seed before any update.
        parameters: number of trainable parameters.
        evaluation_share: of a run's time, as one evaluation and one step were timed at the smallest batch size:
            at most, since every step is evaluated early in a run and few later on, and steps of larger batches
            take longer.
        splits: whether a batch may be split into micro-batches, and so whether noise can be measured.
        engines: per batch size "vmap" or "loop": measured once, so that a later plan depends on this file and
            never on timing.
        device: where trials train, "cpu" or "cuda:0".
        problems: sentences, for which no trial may train: accumulation that does not agree, and the like.
        notes: sentences worth telling.
        versions: of Python and the libraries.
        request: the one that it answers.
        stamps: size and time of the files that the workload is known to rest on, by path.
    """

    unit: str = "example"
    examples: int | None = None
    fingerprint: str = ""
    untrained_value: Annotated[float, Field(strict=False)] = float("inf")  # as text where it is not finite
    parameters: int = 0
    evaluation_share: float = 0.0
    splits: bool = True
    engines: Mapping[int, str] = field(default_factory=dict)
    device: str = "cpu"
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    stamps: Mapping[str, list[int]] = field(default_factory=dict)

    def engine_at(self, batch_size: int) -> str:
        """The engine that was chosen at this batch size, or at the nearest one within a factor of NEAR; else "loop"."""
        near = [size for size in self.engines if 1 / NEAR <= size / batch_size <= NEAR]
        nearest = min(near, key=lambda size: (abs(math.log(size / batch_size)), size), default=None)
        return "loop" if nearest is None else self.engines[nearest]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for strict JSON; a loss that is not finite is written as text."""
        value = self.untrained_value
        return {**asdict(self), "untrained_value": value if math.isfinite(value) else str(value)}


def read_preflight(path: Path) -> Preflight | None:
    """The facts that a file holds; None where there is none, or where it was torn or is of another version."""
    try:
        return TypeAdapter(Preflight).validate_python(whole_json(path))
    except ValidationError:
        return None
