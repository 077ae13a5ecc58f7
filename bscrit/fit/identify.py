"""Whether the data hold b_crit, or bound it, or say nothing: another question than how well the curve fits.

A frontier far below the knee fits a hyperbola to a tenth of a per cent and puts b_crit wrong by a factor
of two. So a value is given only where the tried batch sizes enclose the knee: runs in perfect scaling and
runs on the plateau (p = 1/(1 + B/b_crit) from LINEAR down to FLAT), or b_crit within the tried range (to a
factor KNEE) and its interval at most a factor SLACK beyond.
"""

from __future__ import annotations

from math import exp, log

from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.result import Estimate, Verdict

LINEAR, FLAT = 0.8, 0.2
KNEE, SLACK = log(1.2), log(2.0)
WIDEST = log(30.0)  # beyond it an interval is no measurement


def judge(curve: Hyperbola | None) -> Verdict:
    """The verdict on b_crit."""
    if curve is None:
        return "not identified"
    low, high = curve.region.low, curve.region.high
    first, last = _seen(curve)
    if high - low <= WIDEST:
        p = curve.p[curve.sample.n > 0]
        both_arms = p[0] >= LINEAR and p[-1] <= FLAT
        knee_seen = first - KNEE <= curve.beta <= last + KNEE
        if both_arms or (knee_seen and first - SLACK <= low and high <= last + SLACK):
            return "identified"
    above, below = high > last, low < first
    if above and not below:
        return "lower bound"
    if below and not above:
        return "upper bound"
    return "not identified"


def estimates(curve: Hyperbola | None, verdict: Verdict) -> dict[str, Estimate]:
    """s_min, e_min, b_crit and cbs_20 as far as the verdict allows; None where there is no value.

    A bound on b_crit never goes beyond the tried batch sizes: out there only the form of the curve speaks.
    Data in perfect scaling still hold e_min, and data on the plateau s_min.
    """
    nothing = Estimate(None)
    if curve is None:
        return dict.fromkeys(("s_min", "e_min", "b_crit", "cbs_20"), nothing)
    s_min, e_min, b_crit = curve.s_min, curve.e_min, curve.b_crit
    first, last = (exp(x) for x in _seen(curve))
    if verdict == "lower bound":
        b_crit = Estimate(None, min(b_crit.low or first, last), None)
        s_min = Estimate(None, None, s_min.high)
    elif verdict == "upper bound":
        b_crit = Estimate(None, None, max(b_crit.high or last, first))
        e_min = Estimate(None, None, e_min.high)
    elif verdict == "not identified":
        b_crit = Estimate(None, b_crit.low, b_crit.high)
        s_min, e_min = Estimate(None, s_min.low, s_min.high), Estimate(None, e_min.low, e_min.high)
    return {"s_min": s_min, "e_min": e_min, "b_crit": b_crit, "cbs_20": scaled(b_crit, 0.2)}


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate times a constant."""
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if end is None else factor * end for end in ends)
    return Estimate(value, low, high)


def _seen(curve: Hyperbola) -> tuple[float, float]:
    """ln of the smallest and largest batch size with a known crossing."""
    x = curve.sample.x[curve.sample.n > 0]
    return float(x[0]), float(x[-1])
