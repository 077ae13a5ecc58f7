"""How numbers, units and lists are spelled in the sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, floor, isfinite, log10

from bscrit.estimate import Estimate

NOTHING = "not identified"


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


def compact(count: float) -> str:
    """A count in a few characters.

    >>> compact(950), compact(12345), compact(2.5e6)
    ('950', '12.3k', '2.5M')
    """
    if not isfinite(count):
        return "-"
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count:.4g}"


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(125), duration(7300)
    ('5 s', '2 min 5 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


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


def shown(estimate: Estimate) -> str:
    """A value with its interval, or the bound, or "not identified".

    >>> shown(Estimate(2190.6, 1902.0, 2529.0)), shown(Estimate(None, 84.0)), shown(Estimate(None))
    ('2,190 [1,900, 2,530]', 'at least 84.0', 'not identified')
    """
    if estimate.value is not None:
        return f"{number(estimate.value)} {interval(estimate)}".rstrip()
    if estimate.low is not None and estimate.high is not None:
        return f"not identified {interval(estimate)}"
    if estimate.low is not None:
        return f"at least {number(estimate.low)}"
    return f"at most {number(estimate.high)}" if estimate.high is not None else NOTHING


def percent(scatter: float) -> str:
    """A difference of logarithms as per cent.

    >>> percent(0.05)
    '5.1 %'
    """
    return f"{100 * (exp(scatter) - 1):.2g} %"


def plural(noun: str) -> str:
    """
    >>> plural("image"), plural("sequence of 512 tokens")
    ('images', 'sequences of 512 tokens')
    """
    head, of, rest = noun.partition(" of ")
    return (head if head.endswith("s") else f"{head}s") + of + rest


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(3, "batch size")
    ('1 run', '3 batch sizes')
    """
    return f"{count} {noun if count == 1 else plural(noun)}"


def scale_name(metric: str) -> str:
    """What the noise scale of a metric is called.

    >>> scale_name("identity"), scale_name("hessian"), scale_name("adam")
    ('B_simple', 'B_noise', 'B_adam')
    """
    return {"identity": "B_simple", "hessian": "B_noise"}.get(metric, f"B_{metric}")
