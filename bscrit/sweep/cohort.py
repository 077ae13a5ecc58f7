"""A cohort: trials of one batch size that train in lockstep on one device, each of them a lane."""

from __future__ import annotations

from dataclasses import dataclass

from bscrit.record import Order
from bscrit.trial import Trial


@dataclass(frozen=True)
class Cohort:
    """Trials of one batch size that train in lockstep, and what is asked of them."""

    trials: tuple[Trial, ...]
    order: Order

    @property
    def batch_size(self) -> int:
        return self.trials[0].batch_size
