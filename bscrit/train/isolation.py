"""Failures of lanes: one that raises fails alone, and the others go on.

Code of a user may raise where a high rate makes numbers that are not finite: no reason to lose the low rates, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from bscrit.cohort.trial_writer import TrialWriter
from bscrit.engine.lanes import Lanes
from bscrit.errors import UserError

T = TypeVar("T")


class AllFailed(Exception):
    """Every lane that trained here failed, each by itself: its peers go on elsewhere."""


class IsolatedLanes:
    """The lanes that train here, and the writer of each.

    Args:
        build: makes lanes for some writers, at their start.
        others: whether lanes of the cohort train elsewhere.

    Attributes:
        writers: in the order of the lanes; empty once all have ended.
    """

    def __init__(
        self,
        writers: Sequence[TrialWriter],
        build: Callable[[Sequence[TrialWriter]], Lanes],
        others: Callable[[], bool],
    ) -> None:
        self.writers = list(writers)
        self.lanes = build(writers)
        self._build = build
        self._others = others

    @property
    def names(self) -> list[str]:
        return [writer.trial.name for writer in self.writers]

    def restore(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Go on from saved lanes of these names, some of which may have ended."""
        self.lanes.load_state_dict(state)
        self.lanes.keep([names.index(name) for name in self.names])

    def all(self, act: Callable[[Lanes], T]) -> T:
        """`act` on the lanes; one that makes it raise by itself fails, and it is done again with the others.

        Raises:
            UserError: a mistake that every lane would meet; so is any exception that none or all of them raise alone.
            AllFailed: where lanes train elsewhere.
        """
        try:
            return act(self.lanes)
        except UserError:
            raise
        except Exception:
            errors = [self._alone(place, act) for place in range(len(self.writers))]
            kept = [place for place, error in enumerate(errors) if error is None]
            if len(kept) == len(self.writers) or not (kept or self._others()):
                raise
        for writer, error in zip(self.writers, errors, strict=True):
            if error is not None:
                writer.fail(error)
        self.keep(kept)
        if not kept:
            raise AllFailed
        return act(self.lanes)

    def copy(self, place: int) -> Lanes:
        """One lane as it is, by itself."""
        copy = self._build(self.writers[place : place + 1])
        copy.load_state_dict(self.lanes.state_dict([place]))
        return copy

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these lanes alone."""
        if len(places) < len(self.writers):
            self.writers = [self.writers[place] for place in places]
            if places:
                self.lanes.keep(places)

    def _alone(self, place: int, act: Callable[[Lanes], Any]) -> Exception | None:
        """The exception that a copy of one lane raises by itself."""
        try:
            act(self.copy(place))
        except Exception as error:
            return error
        return None
