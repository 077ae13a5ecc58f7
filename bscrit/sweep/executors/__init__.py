"""Where cohorts run: an executor takes requests and gives answers; the truth lies in the trial folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Attributes:
        request: the number that `submit` gave it.
        done: the worker's answer; None where there was an error.
        error: where, what, remedy.
        by: "user" for a mistake that every trial would meet, "trial" for an exception in training, "worker"
            for a process that died.
    """

    request: int
    done: Mapping[str, Any] | None = None
    error: tuple[str, str, str] = ("", "", "")
    by: str = ""


class Executor(Protocol):
    """Runs requests somewhere, each in a process that is not this one."""

    slots: int
    at_once: bool
    """Whether up to `slots` requests run at the same time, so that one may wait for another."""

    def submit(self, request: Mapping[str, Any]) -> int:
        """Begin a request (at most `slots` at a time) and return its number."""

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Have every worker that is idle load a workload (use, settings, device) before it trains on it."""

    def leave(self, number: int) -> None:
        """Tell the worker of this request to leave; it keeps what it has, and its answer comes as ever."""

    def poll(self, seconds: float) -> list[Answer]:
        """Answers that came within this time; empty when there were none."""

    def close(self) -> None:
        """Tell every worker to leave; each keeps what it has, for another day."""
