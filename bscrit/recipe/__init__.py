"""A recipe: how a run trains besides its batch size, rate and seed.

>>> from bscrit.position import Position
>>> recipe = Recipe.read({"use": "sgd", "momentum": "1 - 1 / batch_size"}, {"warmup_examples": 100})
>>> recipe.optimizer.at(4)["momentum"], recipe.optimizer.rate_power
(0.75, 1.0)
>>> [recipe.schedule.factor(Position(steps, 32 * steps), batch_size=32) for steps in (0, 1, 3, 99)]
[0.25, 0.5, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from bscrit.recipe.optimizers import AnyOptimizer, Sgd
from bscrit.recipe.schedules import AnySchedule, Constant
from bscrit.values import Table, choosing

OptimizerTable = Annotated[AnyOptimizer, Field(discriminator="use"), BeforeValidator(choosing("use", "sgd"))]
ScheduleTable = Annotated[
    AnySchedule, Field(discriminator="use"), BeforeValidator(choosing("use", "constant"))
]


class Recipe(Table):
    """An optimizer and a schedule."""

    optimizer: OptimizerTable = Sgd()
    schedule: ScheduleTable = Constant()

    @classmethod
    def read(cls, optimizer: Mapping[str, Any], schedule: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe of two tables; raises ValueError for what they can't hold."""
        return cls.model_validate({"optimizer": dict(optimizer), "schedule": dict(schedule or {})})
