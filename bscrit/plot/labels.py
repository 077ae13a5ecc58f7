"""Texts of figures: names of fits, B_crit with its interval, units."""

from __future__ import annotations

from collections.abc import Sequence

from bscrit import words
from bscrit.estimate import Estimate
from bscrit.fit.result import Fit
from bscrit.goal import Goal
from bscrit.words import compact, scale_name

B_CRIT = "$B_{crit}$"
DIGITS = 3


def plural(unit: str) -> str:
    """The unit for many, safe to typeset; a long one is cut."""
    return safe(words.plural(unit), 36)


def batch_size(unit: str) -> str:
    return f"Batch size ({plural(unit)})"


def examples(unit: str) -> str:
    named = plural(unit)
    if unit == "example":
        return "Examples processed"
    return f"Examples processed{' ' if len(named) < 16 else chr(10)}({named})"


def safe(text: str, longest: int = 60) -> str:
    """A user's text on one line of at most `longest` letters, its dollar signs not taken for formulas."""
    line = " ".join(text.split())
    line = line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
    return line.replace("$", r"\$")


def name(fit: Fit, fits: Sequence[Fit]) -> str:
    """A fit's name among others: the group values in which they differ, and its target."""
    differing = [key for key in fit.group if len({other.group.get(key) for other in fits}) > 1]
    parts = [safe(f"{key} {fit.group[key]}", 40) for key in differing]
    if fit.target is not None:
        parts.append(goal(fit.target))
    return ", ".join(parts) or "fit"


def goal(target: float) -> str:
    return f"target {compact(target)}"


def metric(goal: Goal) -> str:
    """The name of a goal's metric, as an axis begins with it."""
    return safe(goal.metric[:1].upper() + goal.metric[1:], 36)


def b_crit(fit: Fit, unit: str) -> str:
    """B_crit with its 95 % interval, or the bound that the data give, or that they give none."""
    estimate, units = fit.b_crit, plural(unit)
    if estimate.value is not None:
        return f"{B_CRIT} = {compact(estimate.value, DIGITS)}{_interval(estimate)} {units}"
    if fit.verdict == "lower bound" and estimate.low is not None:
        return f"{B_CRIT} at least {compact(estimate.low, DIGITS)} {units}"
    if fit.verdict == "upper bound" and estimate.high is not None:
        return f"{B_CRIT} at most {compact(estimate.high, DIGITS)} {units}"
    return f"{B_CRIT} not identified"


def scale(metric: str) -> str:
    """The name of a metric's noise scale, typeset."""
    letter, _, index = scale_name(metric).partition("_")
    return f"${letter}_{{{index}}}$" if index.isalpha() else safe(f"{letter}_{index}")


def _interval(estimate: Estimate) -> str:
    if estimate.low is not None and estimate.high is not None:
        return f" ({compact(estimate.low, DIGITS)}–{compact(estimate.high, DIGITS)})"
    if estimate.low is not None:
        return f" (at least {compact(estimate.low, DIGITS)})"
    return f" (at most {compact(estimate.high, DIGITS)})" if estimate.high is not None else ""
