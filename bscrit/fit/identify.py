"""Whether the data hold b_crit, or bound it, or say nothing: another question than how well the curve fits.

A frontier far below the knee fits a hyperbola to a tenth of a per cent and puts b_crit wrong by a factor
of two. So a value is given only where the tried batch sizes enclose the knee: b_crit within the tried range (to a
factor KNEE) and its interval at most a factor SLACK beyond; and only where the curve is a hyperbola: with its
plateau not above what was observed, and with perfect scaling at small batch sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

from bscrit.estimate import Estimate
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.result import Verdict
from bscrit.fit.shape import Shape

KNEE, SLACK = log(1.2), log(2.0)
WIDEST = log(30.0)  # beyond it an interval is no measurement
FEWEST_SINGLE = 4  # batch sizes of one run each: of three, one degree of freedom is luck
SIGNIFICANT = 0.02
ABOVE = 3.0  # scatters, by which no observed mean lies below s_min
NEGLIGIBLE = log(1.1)  # shift of s_min or b_crit, upon which no one would act
NOTHING = Estimate(None)


def judge(
    curve: Hyperbola | None, knee: Shape | None = None, fall: Shape | None = None, *, rises: bool = False
) -> Verdict:
    """The verdict on b_crit.

    Args:
        knee, fall: sharpness of the knee, exponent of the fall at small batch sizes.
        rises: whether steps rise again beyond the batch sizes of the curve. What makes them rise keeps them from the
            plateau before that, so that s_min is less than it seems and b_crit more.
    """
    if curve is None or is_another_curve(curve, knee, fall):
        return "not identified"
    low, high = curve.region.low, curve.region.high
    first, last = _seen(curve)
    if rises:
        return "lower bound" if low >= first - SLACK else "not identified"
    knee_seen = first - KNEE <= curve.beta <= last + KNEE
    knee_seen = knee_seen and (curve.sample.replicated or len(curve.sample) >= FEWEST_SINGLE)
    if high - low <= WIDEST and knee_seen and first - SLACK <= low and high <= last + SLACK:
        return "identified"
    above, below = high > last, low < first
    if above and not below:
        return "lower bound"
    if below and not above:
        return "upper bound"
    return "not identified"


def is_another_curve(curve: Hyperbola, knee: Shape | None, fall: Shape | None) -> bool:
    """Whether the plateau lies above an observed mean, or steps do not fall as in perfect scaling.

    They do not where another exponent describes them, with a b_crit outside the hyperbola's interval; one above 1 only
    where it does so better than a sharper knee, which leaves b_crit where it is.
    """
    sample = curve.sample
    above = float(curve.best.a[0]) - float(sample.mean[sample.n > 0].min())
    if above > max(ABOVE * curve.spread, NEGLIGIBLE):
        return True
    low, high = curve.region.low - NEGLIGIBLE, curve.region.high + NEGLIGIBLE
    if knee is None or fall is None or low <= log(fall.b_crit) <= high:
        return False
    return fall.p < (SIGNIFICANT if fall.value < 1 else min(SIGNIFICANT, knee.p))


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


def answer(
    curve: Hyperbola | None, verdict: Verdict, knee: Shape | None = None, fall: Shape | None = None
) -> Answer:
    """The estimates as far as the verdict allows; none of another curve than the hyperbola.

    A bound on b_crit stays a factor KNEE within the tried batch sizes: farther out only the form of the curve speaks;
    one on e_min = s_min b_crit, or on s_min, goes as far as that one. Data in perfect scaling still hold e_min, and
    data on the plateau s_min.
    """
    if curve is None or is_another_curve(curve, knee, fall):
        return Answer()
    s_min, e_min, b_crit = curve.s_min, curve.e_min, curve.b_crit
    first, last = _seen(curve)
    if verdict == "lower bound":
        least = min(b_crit.low or inf, exp(max(last - KNEE, first)))
        fewest = max(s_min.high or 0.0, (e_min.high or 0.0) / least)
        return Answer(Estimate(None, None, fewest or None), e_min, Estimate(None, least, None))
    if verdict == "upper bound":
        most = max(b_crit.high or 0.0, exp(min(first + KNEE, last)))
        fewest = max(e_min.high or 0.0, (s_min.high or 0.0) * most)
        return Answer(s_min, Estimate(None, None, fewest or None), Estimate(None, None, most))
    if verdict == "not identified":
        return Answer(*(Estimate(None, each.low, each.high) for each in (s_min, e_min, b_crit)))
    return Answer(s_min, e_min, b_crit)


def _seen(curve: Hyperbola) -> tuple[float, float]:
    """ln of the smallest and largest batch size with a known crossing."""
    x = curve.sample.x[curve.sample.n > 0]
    return float(x[0]), float(x[-1])
