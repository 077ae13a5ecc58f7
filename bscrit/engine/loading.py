"""A workload by its name: built-in, offered by an installed package, or a class in the user's own file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from bscrit.engine.evaluation import measuring
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, in_short, nearest
from bscrit.goal import LOSS, TRAIN_LOSS
from bscrit.plugins import WORKLOADS, load
from bscrit.spec.tables import SweepTable


def load_workload(
    use: str,
    settings: Mapping[str, Any],
    metric: str = LOSS.metric,
    validation_examples: int | None = None,
) -> Workload:
    """An instance of the workload that evaluates this metric, on so many examples at most.

    Raises:
        UserError: mistakes of the user's, in its name, settings or file.
    """
    kind = load(WORKLOADS, use, "[workload] use")
    where = f"[workload] use = {use!r}"
    if isinstance(kind, type):
        _check_methods(kind, where, metric)  # before anything of it runs
    _check_settings(kind, use, settings)
    try:
        workload = kind(**settings)
    except (ValueError, TypeError, FileNotFoundError) as error:
        what = in_short(error).removeprefix("ValueError: ")
        raise UserError(where, what, "correct the keys of [workload]") from error
    _check_methods(workload, where, metric)
    if validation_examples is not None:
        if not any(
            "validation_examples" in vars(kind) for kind in type(workload).__mro__ if kind is not Workload
        ):
            raise UserError(
                "[sweep] validation_examples",
                f"has no effect on {use!r}, whose class does not name it",
                "remove it, or add `validation_examples = None` to the class and evaluate on so many at most",
            )
        workload.validation_examples = validation_examples
    return measuring(_completed(workload), metric)


def _check_methods(workload: Any, where: str, metric: str) -> None:
    needed = ("model", "batch", "losses", *(("evaluate",) if metric != TRAIN_LOSS else ()))
    missing = [name for name in needed if not _has(workload, name)]
    if missing:
        raise UserError(where, f"has no method {missing[0]!r}", "see `bscrit.engine.workload.Workload`")


def _check_settings(kind: Any, use: str, settings: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in settings:
        if key not in parameters:
            elsewhere = f"{key} belongs in [sweep]" if key in SweepTable.model_fields else ""
            remedy = elsewhere or nearest(key, parameters)
            raise UserError(f"[workload] {key}", f"is not a setting of {use!r}", remedy)
    for name, parameter in parameters.items():
        if (
            parameter.default is parameter.empty
            and name not in settings
            and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            raise UserError("[workload]", f"{use!r} needs a key {name!r}", f"add `{name} = ...`")


def _has(workload: Any, name: str) -> bool:
    """Whether there is a method beyond what `Workload` only declares."""
    kind = workload if isinstance(workload, type) else type(workload)
    return hasattr(workload, name) and getattr(kind, name, None) is not getattr(Workload, name)


def _completed(workload: Any) -> Workload:
    """A class that only has the four methods gets the rest of the contract from `Workload`."""
    for name in ("unit", "examples", "sums_over_examples", "fingerprint", "prepare"):
        if not hasattr(workload, name):
            default = getattr(Workload, name)
            setattr(workload, name, default.__get__(workload) if callable(default) else default)
    return workload  # type: ignore[no-any-return]
