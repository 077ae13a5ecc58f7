"""A checkpoint: the state with which lanes go on bit for bit, written beside and renamed, so that the former one stays
until the new one is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from bscrit.cohort.trial_writer import TrialWriter
from bscrit.files import replacing

KEYS = {"steps", "examples", "evaluated", "next_noise", "names", "lanes"}
KEYS |= {"seconds", "evaluation_seconds", "noise_seconds"}


def save(path: Path, state: Mapping[str, Any]) -> None:
    """
    Raises:
        UserError: the disk is full, or the like.
    """
    with replacing(path) as stream:
        try:
            torch.save(dict(state), stream)
        except RuntimeError as error:
            # On a full disk it complains about its own format, and keeps the reason to itself.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def furthest(writers: Sequence[TrialWriter], live: Sequence[TrialWriter]) -> dict[str, Any] | None:
    """The checkpoint that goes furthest of those in the folders of a cohort that hold every live lane.

    The cohort may have been split otherwise, so that any lane's folder may have it.
    """
    states = [load(writer.paths.checkpoint) for writer in writers]
    return max(
        (state for state in states if state is not None and _serves(state, live)),
        key=lambda state: int(state["steps"]),
        default=None,
    )


def _serves(state: Mapping[str, Any], live: Sequence[TrialWriter]) -> bool:
    """Whether a checkpoint holds these lanes and their curves lead up to it."""
    if not {writer.trial.name for writer in live} <= set(state["names"]):
        return False
    curves = [writer.evaluations.until(state["evaluated"]) for writer in live]
    return all(len(curve) and curve.steps[-1] == state["evaluated"] for curve in curves)


def load(path: Path) -> dict[str, Any] | None:
    """None where there is none that can be read: the cohort then starts anew."""
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, UnpicklingError):
        return None
    return state if isinstance(state, dict) and set(state) >= KEYS else None
