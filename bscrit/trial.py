"""A trial: one configuration to train, frozen, with a key that hashes what can change its curve.

Budget, executor, number of devices, lanes and micro-batch are left out of the key: they change what a
run costs, not where its curve goes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from bscrit.goal import LOSS, Goal
from bscrit.recipe import Recipe
from bscrit.values import Scalar

Status = Literal["reached", "exhausted", "stopped", "diverged", "failed", "running"]
FINISHED: frozenset[str] = frozenset({"reached", "exhausted", "stopped", "diverged"})
CENSORED: frozenset[str] = frozenset({"exhausted", "stopped"})


@dataclass(frozen=True)
class Trial:
    """The identity of a run.

    Attributes:
        workload: name of the workload as the spec gives it, "quadratic" or "my_module:MyWorkload".
        settings: the workload's own keys.
        fingerprint: hash of the data (and of the user's source and model) that preflight computed.
        batch_size: in the workload's unit.
        lr: learning rate at full strength (before the schedule).
        seed: seeds initial parameters and the example stream.
        optimizer, schedule: resolved values, numbers only, no expressions left.
        dtype: of the computation: "float32", "float64", "tf32" or "bfloat16".
        goal: what its curve holds: one metric of those that the workload evaluates, and how it is read. A run that was
            stopped by one goal says nothing about another.
        validation_examples: most examples of an evaluation, None for the whole validation set.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a file with more was written by another version

    workload: str
    batch_size: PositiveInt
    lr: float
    seed: int
    fingerprint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Scalar] = field(default_factory=lambda: {"use": "sgd"})
    schedule: Mapping[str, Scalar] = field(default_factory=lambda: {"use": "constant"})
    dtype: str = "float32"
    goal: Goal = LOSS
    validation_examples: int | None = None

    @cached_property
    def key(self) -> str:
        """Eight hexadecimal digits of the hash of everything above."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @cached_property
    def recipe(self) -> Recipe:
        """The optimizer and the schedule with all that is known about them."""
        return Recipe.read(self.optimizer, self.schedule)

    @property
    def name(self) -> str:
        """The trial's folder: readable first, unique last.

        >>> Trial("quadratic", batch_size=256, lr=0.05, seed=0).name[:17]
        'b00256-lr0.05-s0-'
        """
        return f"b{self.batch_size:05d}-lr{self.lr:.4g}-s{self.seed}-{self.key}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what was left out stays out, so that a key that is new changes no other trial's hash."""
        return {name: value for name, value in asdict(self).items() if value is not None}
