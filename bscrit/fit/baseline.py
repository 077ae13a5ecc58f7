"""An earlier fit.json to compare with: which B_crit moved beyond both intervals, and which is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.report import Report, named, title
from bscrit.fit.result import SCHEMA

Key = tuple[frozenset[tuple[str, str]], float | None]


@dataclass(frozen=True)
class Baseline:
    """The part of an earlier report that is compared.

    Attributes:
        where: the option that named it, for messages.
        unit: what its batch sizes count.
        b_crit: (group, target) -> the fit's name and its B_crit.
    """

    where: str
    unit: str
    b_crit: Mapping[Key, tuple[str, Estimate]]


def read_baseline(path: Path) -> Baseline:
    """Read the part of a fit.json that is compared.

    Raises:
        UserError: no file that can be read, or none that `bscrit fit` wrote.
    """
    where, remedy = f"--baseline {path}", "name the fit.json of an earlier fit"
    try:
        return parse_baseline(where, json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise UserError(where, "there is no such file", remedy) from None
    except OSError as error:
        raise UserError(where, error.strerror or "cannot be read", remedy) from None
    except (ValueError, RecursionError):
        raise UserError(
            where,
            "is not a fit.json",
            "`bscrit fit` of a results folder leaves one there, and its --json prints one",
        ) from None


def parse_baseline(where: str, data: Any) -> Baseline:
    """Raises ValueError for anything but a report of this schema."""
    try:
        b_crits = {
            (frozenset(fit["group"].items()), fit["target"]): (
                named(fit["group"], fit["target"]),
                Estimate(*(_positive(fit["b_crit"][end]) for end in ("value", "low", "high"))),
            )
            for fit in data["fits"]
        }
        if data["schema"] != SCHEMA or not isinstance(data["unit"], str):
            raise ValueError("another schema")
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError("another form") from error
    return Baseline(where, data["unit"], b_crits)


def moved(report: Report, baseline: Baseline) -> list[str]:
    """Sentences on each B_crit that lies beyond both intervals, or that is not there any more.

    Raises:
        UserError: the two count in different units.
    """
    if report.unit != baseline.unit:
        what = f"counts in {baseline.unit!r}, and this fit in {report.unit!r}"
        raise UserError(baseline.where, what, "fit both with the same --unit")
    before = dict(baseline.b_crit)
    pairs = [
        (title(fit) or "fit", before.pop(key)[1], fit)
        for fit in report.fits
        if (key := (frozenset(fit.group.items()), fit.target)) in before
    ]
    problems = (
        [] if pairs else ["the baseline holds no fit of these groups and targets: nothing was compared"]
    )
    for name, old, fit in pairs:
        value, was = fit.b_crit.value, old.value
        if was is None:
            continue
        if value is None:
            problems.append(f"{name}: B_crit was {was:.4g} and is now {fit.verdict}")
            continue
        low, high = old.low or was, old.high or was
        now_low, now_high = fit.b_crit.low or value, fit.b_crit.high or value
        if now_low > high or now_high < low:
            problems.append(
                f"{name}: B_crit moved from {was:.4g} [{low:.4g}, {high:.4g}] to {value:.4g} "
                f"[{now_low:.4g}, {now_high:.4g}], {value / was:.2f} times"
            )
    return problems + [f"{name or 'fit'}: is not in this report any more" for name, _ in before.values()]


def _positive(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not (isfinite(value) and value > 0):
        raise ValueError(f"{value} is no batch size")
    return float(value)
