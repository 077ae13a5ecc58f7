"""What the figures say in words: names of fits, B_crit with its interval, units."""

from __future__ import annotations

from collections.abc import Sequence

from bscrit import words as units
from bscrit.estimate import Estimate
from bscrit.fit.result import Fit
from bscrit.plot.ticks import plain

B_CRIT = "$B_{crit}$"
SCALES = {"identity": "$B_{simple}$", "hessian": "$B_{noise}$", "adam": "$B_{adam}$"}


def plural(unit: str) -> str:
    """The unit for many, safe to typeset; a long one is cut."""
    return safe(units.plural(unit), 36)


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
    return f"target {plain(target)}"


def b_crit(fit: Fit, unit: str) -> str:
    """B_crit with its 95 % interval, or the bound that the data give, or that they give none."""
    estimate, units = fit.b_crit, plural(unit)
    if estimate.value is not None:
        return f"{B_CRIT} = {rounded(estimate.value)}{_interval(estimate)} {units}"
    if fit.verdict == "lower bound" and estimate.low is not None:
        return f"{B_CRIT} at least {rounded(estimate.low)} {units}"
    if fit.verdict == "upper bound" and estimate.high is not None:
        return f"{B_CRIT} at most {rounded(estimate.high)} {units}"
    return f"{B_CRIT} not identified"


def scale(metric: str) -> str:
    """What the noise scale of a metric is called."""
    return SCALES.get(metric, safe(f"B_{metric}"))


def rounded(value: float) -> str:
    """Three significant digits."""
    return plain(float(f"{value:.3g}"))


def _interval(estimate: Estimate) -> str:
    if estimate.low is not None and estimate.high is not None:
        return f" ({rounded(estimate.low)}–{rounded(estimate.high)})"
    if estimate.low is not None:
        return f" (at least {rounded(estimate.low)})"
    return f" (at most {rounded(estimate.high)})" if estimate.high is not None else ""
