"""What a fit says: frozen, and drawn unchanged by the table, JSON, CSV and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from bscrit.crossing import Crossing
    from bscrit.fit.hyperbola import Hyperbola

Verdict = Literal["identified", "lower bound", "upper bound", "not identified"]
SCHEMA = 1


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None where the data give none (never NaN, never infinity)."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a positive multiple."""
        ends = (self.value, self.low, self.high)
        return Estimate(*(None if end is None else factor * end for end in ends))


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


@dataclass(frozen=True)
class NoiseComparison:
    """The measured noise scale beside B_crit, both in the fit's unit.

    Attributes:
        metric: "identity" (B_simple), "hessian" (B_noise) or "adam".
        start, mean, at_target: noise scale at the start, over the run up to the target, and at the target.
        ratio: mean / B_crit.
        text: the verdict in words.
    """

    metric: str
    start: Estimate
    mean: Estimate
    at_target: Estimate
    ratio: Estimate
    text: str


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
        noise: None where no noise scale was measured.
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
    noise: NoiseComparison | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict, repr=False)
    region: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    curve: Hyperbola | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Report:
    """All fits of one source.

    Attributes:
        source: the folder or file as the user named it.
        unit: what a batch size counts, "image", "token"; "example" where the source does not say.
        fits: one per group and target, groups in order, targets easiest first.
        notes: what to know about the source as a whole (rows left out, duplicates).
        crossings: what was fitted, one per run and target.
    """

    source: str
    unit: str
    fits: tuple[Fit, ...]
    notes: tuple[str, ...] = ()
    crossings: tuple[Crossing, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        from bscrit.fit.report import table

        return table(self)

    def _repr_html_(self) -> str:
        return str(self.table().to_html(index=False))

    def table(self) -> pd.DataFrame:
        """One row per fit: its group, target, verdict, and every estimate with its interval."""
        import pandas as pd

        rows = []
        for fit in self.fits:
            row: dict[str, Any] = {**fit.group, "target": fit.target, "verdict": fit.verdict}
            for name in ("s_min", "e_min", "b_crit", "cbs_20", "sigma"):
                estimate: Estimate = getattr(fit, name)
                row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def points(self) -> pd.DataFrame:
        """One row per fit and batch size: the tuned crossings."""
        import pandas as pd

        rows = [
            {**fit.group, "target": fit.target, **vars(point)} for fit in self.fits for point in fit.points
        ]
        return pd.DataFrame(rows)
