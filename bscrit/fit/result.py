"""The nouns of a report: fits, noise comparisons and runs, frozen; text, JSON, CSV and figures draw them unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bscrit.estimate import Estimate
from bscrit.goal import LOSS, Goal

if TYPE_CHECKING:
    from bscrit.curve import Curve
    from bscrit.fit.hyperbola import Hyperbola
    from bscrit.rate_law import RateLaw

Verdict = Literal["identified", "lower bound", "upper bound", "not identified"]
SCHEMA = 1


@dataclass(frozen=True)
class Point:
    """The tuned crossing at one batch size.

    Attributes:
        batch_size: in the fit's unit.
        steps, examples: to the target; where every run is censored, the bound that was reached without it.
        low, high: interval of `steps` from the scatter of the runs, None for a single run.
        lr: the tuned learning rate, None where unknown.
        runs: number of runs behind the point; `censored` of them never met the target.
        robust_weight: 1 for a point that fits, towards 0 for one that the fit set aside.
    """

    batch_size: float
    steps: float
    examples: float
    lr: float | None = None
    runs: int = 1
    censored: int = 0
    low: float | None = None
    high: float | None = None
    robust_weight: float = 1.0


@dataclass(frozen=True)
class Caveat:
    """A reason for caution: a code from a closed list, the sentence with its numbers, the next step."""

    code: str
    text: str
    hint: str
    serious: bool = False


NoiseVerdict = Literal["agrees", "same order", "differs", "unresolved", "nothing to compare"]


@dataclass(frozen=True)
class NoiseWindows:
    """The noise scale along the runs of one batch size, or of several together, in the fit's unit.

    Attributes:
        start: before the first update and in the first 2 % of the steps.
        mean: over the run to the target, weighted by noiseless progress ds = dS/(1 + B_noise/B): the average
            that B_crit is, where the metric is the Hessian's.
        mean_steps: over the same run, every step alike.
        at_target: in the last fifth of the steps to the target.
        temperature: lr/(1 - momentum)/B, the noise that the updates themselves carry; None where unknown.
        samples: how many the numbers rest on; `dropped` more were not finite.
    """

    start: Estimate
    mean: Estimate
    mean_steps: Estimate
    at_target: Estimate
    temperature: float | None = None
    samples: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class FrozenScale:
    """The noise scale at one loss, measured at frozen parameters on fresh data.

    Attributes:
        loss: at which the parameters were frozen.
        scale: with its interval.
        examples: that the measurement took.
    """

    loss: float
    scale: Estimate
    examples: float


@dataclass(frozen=True)
class Forecast:
    """The frontier as the noise scale of the runs at a single batch size predicts it.

    S_min = int dS/(1 + B_noise/B), E_min = int B_noise dS/(1 + B_noise/B), B_crit = E_min/S_min
    (McCandlish et al. 2018, appendix D).

    Attributes:
        batch_size: at which the runs were made, large for a path with little noise.
        s_min [steps], e_min [examples], b_crit [examples]: predicted, with intervals.
        error: predicted over measured b_crit; without a value where either is missing.
    """

    batch_size: float
    s_min: Estimate
    e_min: Estimate
    b_crit: Estimate
    error: Estimate


@dataclass(frozen=True)
class Growth:
    """The noise scale against the loss: scale = at_one loss^-exponent, over the losses that were seen.

    Attributes:
        exponent: with its interval; the literature's 1/alpha_B (Kaplan et al. 2020) for B_crit.
        at_one: the scale that the law gives at loss 1.
        low_loss, high_loss: the range that it was fitted to.
    """

    exponent: Estimate
    at_one: float
    low_loss: float
    high_loss: float


@dataclass(frozen=True)
class NoiseComparison:
    """The measured noise scale in one metric beside B_crit, both in the fit's unit.

    Attributes:
        metric: "identity" (B_simple), "hessian" (B_noise) or "adam".
        pooled: over the batch sizes for which the theory holds, `pooled_over`: those of the large-batch path
            (at or above B_crit) whose scale is resolved.
        ratio: pooled mean / B_crit.
        verdict: "agrees" where the interval of the ratio holds 1 and lies within a factor of 3 of it; "same order"
            where the ratio does, and its interval does not hold 1; "differs" where the interval lies beyond;
            "unresolved" where the noise scale is, or where the interval is too wide for any of these; "nothing to
            compare" where there is no B_crit.
        by_batch_size: the same windows at each batch size, ascending.
        frozen: measurements at frozen parameters, descending in loss.
        forecast: None where no batch size supports one.
        growth: None where too few losses are resolved.
        text: the verdict in words.
    """

    metric: str
    pooled: NoiseWindows
    pooled_over: tuple[float, ...]
    ratio: Estimate
    verdict: NoiseVerdict
    text: str
    by_batch_size: Mapping[float, NoiseWindows] = field(default_factory=dict)
    frozen: tuple[FrozenScale, ...] = ()
    forecast: Forecast | None = None
    growth: Growth | None = None


@dataclass(frozen=True)
class Fit:
    """One frontier, fitted: S = s_min (1 + b_crit / B), E = e_min (1 + B / b_crit).

    Attributes:
        group: what separates this fit from the others of the same source, name to value.
        target: loss or metric that was to be reached; None where the source does not say.
        verdict: whether the data hold b_crit, and which bound they give where they do not.
        s_min [steps], e_min [unit], b_crit [unit], cbs_20 [unit]: with 95 % intervals.
        sigma: residual scatter of ln(steps) between batch sizes.
        points: ascending in batch size.
        caveats: serious ones first.
        noise: one comparison per metric in which the noise scale was measured.
        diagnostics: knee sharpness q, leave-one-out range, power-law form and so on, by name.
        region: 95 % joint region as (s_min, b_crit) pairs, closed, for the plot; empty where there is none.
        curve: the fitted curve itself, which says S with its interval at any batch size.
    """

    group: Mapping[str, str]
    target: float | None
    verdict: Verdict
    s_min: Estimate
    e_min: Estimate
    b_crit: Estimate
    cbs_20: Estimate
    sigma: Estimate
    points: tuple[Point, ...]
    caveats: tuple[Caveat, ...] = ()
    noise: tuple[NoiseComparison, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict, repr=False)
    region: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    curve: Hyperbola | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class TunedRun:
    """The curve of a run at the tuned rate of its batch size."""

    batch_size: float
    curve: Curve


@dataclass(frozen=True)
class Attempt:
    """One run against one target.

    Attributes:
        outcome: "unknown" for a run that failed, or that still trains and has not met the target.
        steps: to the target, or trained without meeting it; None for the rest.
    """

    batch_size: float
    lr: float
    outcome: Literal["reached", "censored", "diverged", "unknown"]
    steps: float | None = None


@dataclass(frozen=True)
class NoisePoint:
    """The noise scale somewhere along the runs at one batch size.

    Attributes:
        steps: in the middle of a window, or where the parameters were frozen.
        loss: of the mean curve there, or another metric as the user knows it; None where it is unknown, and where
            it falls and is not positive.
        scale: with its interval; where it is not resolved, without a value.
    """

    steps: float
    loss: float | None
    scale: Estimate


@dataclass(frozen=True)
class NoiseAlong:
    """The noise scale in one metric along the runs at the tuned rates.

    Attributes:
        windows: batch size -> windows of the runs, ascending in steps.
        frozen: batch size -> measurements at frozen parameters.
        goal: the metric of the curves.
    """

    metric: str
    windows: Mapping[float, tuple[NoisePoint, ...]]
    frozen: Mapping[float, tuple[NoisePoint, ...]]
    goal: Goal = LOSS


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep, as figures show them.

    Attributes:
        batch_sizes: of all runs, ascending.
        tuned: the runs that measure; where a batch size has none, the search run that got lowest in its loss.
        attempts: target -> every run; targets easiest first.
        least_diverged: batch size -> the least learning rate that diverged there.
        noise: one per metric.
        rate_law: of the hardest target's tuned rates; None where they are too few.
    """

    batch_sizes: tuple[float, ...]
    tuned: tuple[TunedRun, ...]
    attempts: Mapping[float, tuple[Attempt, ...]]
    least_diverged: Mapping[float, float]
    noise: tuple[NoiseAlong, ...] = ()
    rate_law: RateLaw | None = None
