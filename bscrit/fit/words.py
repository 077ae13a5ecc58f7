"""Numbers and lists in the sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, floor, isfinite, log10

from bscrit.fit.result import Estimate


def number(value: float, digits: int = 3) -> str:
    """A number with a few significant digits and thousands separated.

    >>> number(47040.3), number(0.03217), number(12.5)
    ('47,000', '0.0322', '12.5')
    """
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    places = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, places)
    if abs(rounded) >= 1e15 or abs(rounded) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{rounded:,.{max(places, 0)}f}"


def size(batch_size: float) -> str:
    """A batch size as it is typed: whole where it is whole.

    >>> size(16384.0), size(87.5)
    ('16384', '87.5')
    """
    return f"{batch_size:.10g}" if batch_size < 1e15 else f"{batch_size:g}"


def sizes(batch_sizes: Sequence[float], most: int = 6) -> str:
    """Batch sizes as a list, a long one cut.

    >>> sizes([64, 128, 256])
    '64, 128, 256'
    """
    listed = ", ".join(size(one) for one in batch_sizes[:most])
    return listed if len(batch_sizes) <= most else f"{listed} and {len(batch_sizes) - most} more"


def interval(estimate: Estimate) -> str:
    """The 95 % interval in brackets, its open ends as such; "" where there is none.

    >>> interval(Estimate(3.0, 2.0, 4.5)), interval(Estimate(None, 2.0))
    ('[2.00, 4.50]', '[2.00, ...)')
    """
    low, high = estimate.low, estimate.high
    if low is None and high is None:
        return ""
    left = "(..." if low is None else f"[{number(low)}"
    right = "...)" if high is None else f"{number(high)}]"
    return f"{left}, {right}"


def percent(scatter: float) -> str:
    """A difference of logarithms as per cent.

    >>> percent(0.05)
    '5.1 %'
    """
    return f"{100 * (exp(scatter) - 1):.2g} %"


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "run"), plural(3, "batch size")
    ('1 run', '3 batch sizes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
