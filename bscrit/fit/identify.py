"""Whether the data hold b_crit, or bound it, or say nothing: another question than how well the curve fits.

A frontier far below the knee fits a hyperbola to a tenth of a per cent and puts b_crit wrong by a factor
of two. So a value is given only where the tried batch sizes enclose the knee: b_crit within the tried range (to a
factor KNEE) and its interval at most a factor SLACK beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from bscrit.estimate import Estimate
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.result import Verdict

KNEE, SLACK = log(1.2), log(2.0)
WIDEST = log(30.0)  # beyond it an interval is no measurement
NOTHING = Estimate(None)


def judge(curve: Hyperbola | None) -> Verdict:
    """The verdict on b_crit."""
    if curve is None:
        return "not identified"
    low, high = curve.region.low, curve.region.high
    first, last = _seen(curve)
    knee_seen = first - KNEE <= curve.beta <= last + KNEE
    if high - low <= WIDEST and knee_seen and first - SLACK <= low and high <= last + SLACK:
        return "identified"
    above, below = high > last, low < first
    if above and not below:
        return "lower bound"
    if below and not above:
        return "upper bound"
    return "not identified"


@dataclass(frozen=True)
class Answer:
    """An estimate of each quantity; without value and bounds where the data hold none."""

    s_min: Estimate = NOTHING
    e_min: Estimate = NOTHING
    b_crit: Estimate = NOTHING

    @property
    def cbs_20(self) -> Estimate:
        """The batch size of 20 % more examples than the fewest: E/e_min - 1 = B/b_crit."""
        return self.b_crit.scaled(0.2)


def answer(curve: Hyperbola | None, verdict: Verdict) -> Answer:
    """The estimates as far as the verdict allows.

    A bound on b_crit never goes beyond the tried batch sizes: out there only the form of the curve speaks.
    Data in perfect scaling still hold e_min, and data on the plateau s_min.
    """
    if curve is None:
        return Answer()
    s_min, e_min, b_crit = curve.s_min, curve.e_min, curve.b_crit
    first, last = (exp(x) for x in _seen(curve))
    if verdict == "lower bound":
        return Answer(
            Estimate(None, None, s_min.high), e_min, Estimate(None, min(b_crit.low or first, last), None)
        )
    if verdict == "upper bound":
        return Answer(
            s_min, Estimate(None, None, e_min.high), Estimate(None, None, max(b_crit.high or last, first))
        )
    if verdict == "not identified":
        return Answer(*(Estimate(None, one.low, one.high) for one in (s_min, e_min, b_crit)))
    return Answer(s_min, e_min, b_crit)


def _seen(curve: Hyperbola) -> tuple[float, float]:
    """ln of the smallest and largest batch size with a known crossing."""
    x = curve.sample.x[curve.sample.n > 0]
    return float(x[0]), float(x[-1])
