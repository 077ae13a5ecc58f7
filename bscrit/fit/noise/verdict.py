"""The meaning of a ratio to B_crit, in words."""

from __future__ import annotations

from collections.abc import Collection
from math import log

from bscrit.estimate import Estimate
from bscrit.fit.result import NoiseVerdict
from bscrit.words import number, scale_name

SAME_ORDER = 3.0
PUBLISHED = "in published tasks it is 0.05 to 8 times B_crit (McCandlish et al. 2018, table 1)"


def judged(mean: Estimate, ratio: Estimate) -> NoiseVerdict:
    """
    >>> judged(Estimate(40.0, 30.0, 50.0), Estimate(0.8, 0.6, 1.1))
    'agrees'
    """
    if mean.value is None:
        return "unresolved"
    if ratio.value is None:
        return "nothing to compare"
    low, high = log(ratio.low or ratio.value), log(ratio.high or ratio.value)
    near = log(SAME_ORDER)
    if low > near or high < -near:
        return "differs"
    if low <= 0 <= high:
        return "agrees" if max(-low, high) <= near else "unresolved"
    return "same order" if abs(log(ratio.value)) <= near else "unresolved"


def said(
    metric: str,
    verdict: NoiseVerdict,
    mean: Estimate,
    ratio: Estimate,
    b_crit: Estimate,
    batch_sizes: Collection[float] = (),
) -> str:
    """The verdict as a sentence.

    Args:
        batch_sizes: at which the noise was measured.
    """
    name = scale_name(metric)
    if verdict == "unresolved":
        if mean.value is not None:
            return f"the interval of {name}/B_crit is too wide to tell: more seeds or samples would narrow it"
        return _unresolved(name, mean, b_crit, batch_sizes)
    if verdict == "nothing to compare":
        return f"there is no B_crit to compare {name} with{_bound(mean, b_crit)}"
    value = ratio.value or 1.0
    if verdict == "agrees":
        return f"{name} agrees with B_crit within the interval of their ratio"
    away = f"{name} is {number(max(value, 1 / value), 2)} times {'above' if value > 1 else 'below'} B_crit"
    if verdict == "same order":
        return f"{away}: the same order{_published(metric, value)}"
    return f"{away}: it cannot stand in for it here{_published(metric, value)}"


def _unresolved(name: str, mean: Estimate, b_crit: Estimate, batch_sizes: Collection[float]) -> str:
    """Larger batches are advised where none was tried yet: where several were, the largest did not tell."""
    larger = len(batch_sizes) < 2 and not any(
        mean.low is not None and mean.low < size for size in batch_sizes
    )
    more = "more samples or larger batches" if larger else "more samples or seeds"
    if mean.low is None:
        return f"{name} is not resolved: {more} would tell the gradient from its noise"
    bound = f"{name} is not resolved, at least {number(mean.low)}"
    if b_crit.high is not None and mean.low > b_crit.high:
        return f"{bound}, which is above B_crit: {more} would tell by how much"
    return f"{bound}: {more} would tell"


def _bound(mean: Estimate, b_crit: Estimate) -> str:
    """The order of the two that a bound of B_crit implies all the same."""
    if b_crit.low is not None and mean.high is not None and mean.high < b_crit.low:
        return f", which is larger: at least {number(b_crit.low)}"
    if b_crit.high is not None and mean.low is not None and mean.low > b_crit.high:
        return f", which is smaller: at most {number(b_crit.high)}"
    return ""


def _published(metric: str, value: float) -> str:
    """Why B_simple is no B_crit."""
    if metric != "identity":
        return ""
    if 0.05 <= value <= 8:
        return f"; {PUBLISHED}, equal to it where the Hessian is near the identity"
    return f"; even {PUBLISHED}"
