"""How numbers, units and lists are spelled in the sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, floor, isclose, isfinite, log10

from bscrit.estimate import Estimate

NOTHING = "not identified"
SUFFIXES = ((1e12, "tn"), (1e9, "bn"), (1e6, "M"), (1e3, "k"))


def number(value: float, digits: int = 3) -> str:
    """A number with a few significant digits and thousands separated.

    >>> number(47040.3), number(0.03217), number(12.5), number(0.9996)
    ('47,000', '0.0322', '12.5', '1.00')
    """
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - floor(log10(abs(rounded)))
    if abs(rounded) >= 1e15 or abs(rounded) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{rounded:,.{max(places, 0)}f}"


def compact(value: float, digits: int = 0) -> str:
    """A number in a few characters: exact with commas below 100,000, then three digits and k, M, bn, tn.

    Args:
        digits: significant ones to which it is rounded first; 0 for none.

    >>> compact(0.05), compact(1024), compact(10_000), compact(131_072), compact(2.5e6), compact(1e-5)
    ('0.05', '1,024', '10k', '131k', '2.5M', '1e-5')
    >>> compact(47_612, 3)
    '47,600'
    """
    if not isfinite(value):
        return "-"
    value = float(f"{value:.{digits}g}") if digits else value
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 1e15 or magnitude < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    thousands = magnitude >= 1e4 and isclose(magnitude / 1e3, round(magnitude / 1e3), rel_tol=1e-9)
    if magnitude < 99_999.5 and not thousands:
        return f"{value:,.0f}" if magnitude >= 1e4 else f"{value:,.6g}"
    rounded = float(f"{value:.3g}")
    scale, suffix = next(pair for pair in SUFFIXES if abs(rounded) >= pair[0])
    return f"{rounded / scale:.4g}{suffix}"


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(125), duration(7320)
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
    listed = ", ".join(size(batch_size) for batch_size in batch_sizes[:most])
    return listed if len(batch_sizes) <= most else f"{listed} and {len(batch_sizes) - most} more"


def interval(estimate: Estimate, digits: int = 3) -> str:
    """The 95 % interval in brackets, its open ends as such; "" where there is none.

    >>> interval(Estimate(3.0, 2.0, 4.5)), interval(Estimate(None, 2.0))
    ('[2.00, 4.50]', '[2.00, ...)')
    """
    low, high = estimate.low, estimate.high
    if low is None and high is None:
        return ""
    left = "(..." if low is None else f"[{number(low, digits)}"
    right = "...)" if high is None else f"{number(high, digits)}]"
    return f"{left}, {right}"


def shown(estimate: Estimate, digits: int = 3) -> str:
    """A value with its interval, or the bound, or "not identified".

    All have as many digits, so that a value is never printed beyond its own interval.

    >>> shown(Estimate(2190.6, 1902.0, 2529.0)), shown(Estimate(None, 84.0)), shown(Estimate(None))
    ('2,190 [1,900, 2,530]', 'at least 84.0', 'not identified')
    """
    if estimate.value is not None:
        return f"{number(estimate.value, digits)} {interval(estimate, digits)}".rstrip()
    if estimate.low is not None and estimate.high is not None:
        return f"not identified {interval(estimate, digits)}"
    if estimate.low is not None:
        return f"at least {number(estimate.low, digits)}"
    return f"at most {number(estimate.high, digits)}" if estimate.high is not None else NOTHING


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


def counted(count: float, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(3, "batch size"), counted(1200, "step")
    ('1 run', '3 batch sizes', '1,200 steps')
    """
    return f"{count:,.0f} {noun if count == 1 else plural(noun)}"


def scale_name(metric: str) -> str:
    """The name of a metric's noise scale.

    >>> scale_name("identity"), scale_name("hessian"), scale_name("adam")
    ('B_simple', 'B_noise', 'B_adam')
    """
    return {"identity": "B_simple", "hessian": "B_noise"}.get(metric, f"B_{metric}")
