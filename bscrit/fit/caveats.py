"""Reasons for caution: a closed list, each with its numbers and the next step.

A serious caveat is one under which the answer may well be wrong although it looks right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bscrit.fit import design
from bscrit.fit.frontier import Frontier, Rows, Tuned
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.result import Caveat, Estimate, Verdict
from bscrit.fit.words import interval, number, plural, size, sizes

WIDE = 4.0  # ratio of the interval's ends
COARSE = 1.6  # ratio of neighbouring rates; tuned frontiers need sqrt 2


@dataclass(frozen=True)
class Findings:
    """What is known about a fit when its caveats are written."""

    frontier: Frontier
    rows: Rows
    keep: NDArray[np.bool_]
    curve: Hyperbola | None
    verdict: Verdict
    values: Mapping[str, Estimate]
    diagnostics: Mapping[str, Any]
    unit: str
    horizons: Sequence[str]

    @property
    def tried(self) -> list[float]:
        return [point.batch_size for point in self.frontier.points]

    @property
    def informative(self) -> int:
        """Batch sizes at which some run that takes part met the target."""
        return len(np.unique(self.rows.point[self.keep & (self.rows.side == 0)]))


def caveats(findings: Findings) -> tuple[Caveat, ...]:
    """All that apply, serious ones first."""
    found = [caveat for write in CODES.values() for caveat in write(findings)]
    return tuple(sorted(found, key=lambda caveat: not caveat.serious))


def _few_batch_sizes(f: Findings) -> Iterator[Caveat]:
    k = f.informative
    if k > 4:
        return
    freedom = max(k - 2, 0)
    text = f"{plural(k, 'batch size')} met the target, which leaves {plural(freedom, 'degree')} of freedom for the scatter"
    sizes_ = [size for size in _additions(f) if size not in f.tried]
    yield Caveat("few-batch-sizes", text, _add(f, sizes_), serious=k < 4)


def _larger(f: Findings) -> Iterator[Caveat]:
    if f.verdict != "lower bound" or f.curve is None:
        return
    text = (
        f"even the largest batch size, {size(f.tried[-1])}, is too close to perfect scaling to show a plateau:"
        f" B_crit is at least {number(f.values['b_crit'].low or 0)}"
    )
    yield Caveat("needs-larger", text, _add(f, _additions(f)), serious=True)


def _smaller(f: Findings) -> Iterator[Caveat]:
    if f.verdict != "upper bound" or f.curve is None:
        return
    text = (
        f"even the smallest batch size, {size(f.tried[0])}, is too close to the plateau to show perfect scaling:"
        f" B_crit is at most {number(f.values['b_crit'].high or 0)}"
    )
    yield Caveat("needs-smaller", text, _add(f, _additions(f)), serious=True)


def _undecided(f: Findings) -> Iterator[Caveat]:
    if f.verdict != "not identified" or f.curve is None:
        return
    text = (
        f"batch sizes {size(f.tried[0])} to {size(f.tried[-1])} with a scatter of"
        f" {_percent(_sigma(f.curve))} leave B_crit open {interval(f.curve.b_crit)}".rstrip()
    )
    yield Caveat("undecided", text, _add(f, _additions(f)), serious=True)


def _wide(f: Findings) -> Iterator[Caveat]:
    low, high = f.values["b_crit"].low, f.values["b_crit"].high
    if f.verdict != "identified" or not low or not high or high / low < WIDE:
        return
    chosen, factor = design.best_addition(f.tried, f.values["b_crit"].value or low)
    text = f"the interval of B_crit spans a factor {number(high / low, 2)}"
    gain = f"; batch size {size(chosen)} alone would narrow it to {factor:.0%}" if chosen not in f.tried else ""
    hint = f"more seeds, or more batch sizes{gain}: {_command(f, [chosen])}"
    yield Caveat("wide-interval", text, hint)


def _no_replicates(f: Findings) -> Iterator[Caveat]:
    if f.curve is None or f.curve.sample.replicated:
        return
    text = "one run per batch size: seeds and tuning can't be told apart, the interval rests on the scatter about the curve"
    yield Caveat("no-replicates", text, "repeat each batch size with 3 seeds: --set sweep.seeds=3")


def _outliers(f: Findings) -> Iterator[Caveat]:
    for index in np.flatnonzero(~f.keep):
        point = f.frontier.points[int(f.rows.point[index])]
        inside = np.flatnonzero(f.rows.point == f.rows.point[index])
        run = point.runs[int(index - inside[0])]
        name = run.where or f"batch size {size(run.batch_size)}" + (f", seed {run.seed}" if run.seed else "")
        expected = _expected(f, point, index)
        ratio = exp(float(f.rows.y[index]) - expected) if expected is not None else None
        off = f"{number(ratio, 2)} times what the others imply" if ratio else "far from the others"
        verb = "had not met the target after" if run.censored else "took"
        text = f"{name} {verb} {number(run.steps)} steps at batch size {size(run.batch_size)}, {off}; it is set aside"
        yield Caveat("outlier", text, "check this run, its batch size and its log; repeat it with another seed")


def _unstable(f: Findings) -> Iterator[Caveat]:
    loo, b_crit = f.diagnostics.get("leave_one_out"), f.values["b_crit"]
    if f.verdict != "identified" or not loo or b_crit.low is None or b_crit.high is None:
        return
    for end, out in (("low", loo["low"] < b_crit.low), ("high", loo["high"] > b_crit.high)):
        if out:
            text = f"without batch size {size(loo[f'without_{end}'])} B_crit would be {number(loo[end])}, outside its interval"
            yield Caveat("hangs-on-one", text, "repeat that batch size with fresh seeds", serious=True)


def _lack_of_fit(f: Findings) -> Iterator[Caveat]:
    test = f.diagnostics.get("lack_of_fit")
    if not test or test["p"] > 0.01 or f.curve is None:
        return
    text = (
        f"batch sizes scatter by {_percent(f.curve.scatter.tau)} about the curve beyond what seeds explain"
        f" ({_percent(f.curve.scatter.sigma)} per run; F = {number(test['f'])}, p = {test['p']:.1g}); the interval includes it"
    )
    yield Caveat("lack-of-fit", text, "tune the rate at each batch size more finely, with the same recipe everywhere")


def _shape(f: Findings) -> Iterator[Caveat]:
    q = f.diagnostics.get("knee_sharpness")
    if not q or f.verdict != "identified":
        return
    low, high = q["low"], q["high"]
    if (low is not None and low > 1) or (high is not None and high < 1):
        kind = "sharper" if low is not None and low > 1 else "softer"
        text = f"the knee is {kind} than the hyperbola's: q = {number(q['value'], 2)} {interval(Estimate(q['value'], low, high))}, not 1"
        yield Caveat("knee-shape", text, "read B_crit as the scale of the knee; predict steps from measured points")


def _power_law(f: Findings) -> Iterator[Caveat]:
    law = f.diagnostics.get("power_law")
    if not law or law["aic_difference"] > -4 or abs(law["exponent"]) > 0.98:
        return
    text = (
        f"a power law S ~ B^-{number(law['exponent'], 2)} describes the steps better than a hyperbola"
        f" (AIC lower by {number(-law['aic_difference'], 2)})"
    )
    yield Caveat("power-law", text, "check that the rate is tuned at every batch size; widen the range", serious=True)


def _edge(f: Findings) -> Iterator[Caveat]:
    for side, word in (("lowest", "lower"), ("highest", "higher")):
        at = [p for p in f.frontier.points if p.edge == side and not (side == "highest" and p.beside_diverged)]
        if at:
            text = f"the best rate is the {side} one tried at batch size {sizes([p.batch_size for p in at])} ({_rates(at)})"
            yield Caveat("rate-at-edge", text, f"try {word} rates there", serious=True)


def _beside(f: Findings) -> Iterator[Caveat]:
    at = [p for p in f.frontier.points if p.beside_diverged]
    if at:
        text = f"the best rate is next to one that diverged at batch size {sizes([p.batch_size for p in at])} ({_rates(at)})"
        yield Caveat("rate-beside-diverged", text, "try rates between the two; warm-up moves the edge of stability")


def _infeasible(f: Findings) -> Iterator[Caveat]:
    if f.frontier.infeasible:
        text = f"every run diverged at batch size {sizes(f.frontier.infeasible)}: nothing was measured there"
        yield Caveat("no-feasible-rate", text, "try lower rates there", serious=True)


def _never(f: Findings) -> Iterator[Caveat]:
    at = [p.batch_size for p in f.frontier.points if not p.reached]
    if at:
        text = f"no run met the target at batch size {sizes(at)}; the fit uses how far they got as a bound"
        yield Caveat("never-reached", text, "raise sweep.max_examples, or fit an easier target")


def _speed(f: Findings) -> Iterator[Caveat]:
    at = [p.batch_size for p in f.frontier.points if p.chosen_by_speed]
    if at:
        text = f"the same runs chose the rate and measure it at {plural(len(at), 'batch size')}: the fastest of noisy runs is biased fast"
        yield Caveat("chosen-by-speed", text, "repeat the chosen rates with fresh seeds (role = measure)")


def _one_rate(f: Findings) -> Iterator[Caveat]:
    rates = {p.rates for p in f.frontier.points}
    if len(f.frontier.points) > 2 and len(rates) == 1 and len(next(iter(rates))) == 1:
        text = f"one learning rate, {next(iter(rates))[0]:.4g}, at every batch size; B_crit comes out too low unless it is the best at each"
        yield Caveat("one-rate", text, "tune the rate at each batch size")


def _coarse(f: Findings) -> Iterator[Caveat]:
    at = [p for p in f.frontier.points if _rate_gap(p) > COARSE]
    if at:
        text = (
            f"rates are up to a factor {number(max(map(_rate_gap, at)), 2)} apart around the best one at"
            f" {plural(len(at), 'batch size')}; a factor 2 can move B_crit by 20 to 50 %"
        )
        yield Caveat("coarse-rates", text, "add rates between the best one and its neighbours (factor 1.4 or less)")


def _horizon(f: Findings) -> Iterator[Caveat]:
    if f.horizons:
        text = f"the {', '.join(f.horizons)} schedule depends on the planned length, so a target met early was met at too high a rate"
        yield Caveat("horizon", text, "use a constant schedule, or a horizon at each batch size that ends at the target", serious=True)


def _rise(f: Findings) -> Iterator[Caveat]:
    if f.curve is None:
        return
    sample = f.curve.sample.only(f.curve.sample.n > 0)
    ln_e = sample.mean + sample.x
    least = int(np.argmin(ln_e))
    excess = float((ln_e[:least] - ln_e[least]).max()) if least else 0.0
    if excess > max(log(1.1), 3 * sqrt(2) * _sigma(f.curve)):
        text = (
            f"examples to the target rise again below batch size {size(exp(float(sample.x[least])))}, by {_percent(excess)};"
            " the hyperbola has no such rise"
        )
        yield Caveat("examples-rise", text, "scale beta2 and weight decay per example at small batch, or leave those sizes out")


def _gaps(f: Findings) -> Iterator[Caveat]:
    if f.curve is None or not f.curve.sample.gap.any():
        return
    gap = sqrt(float(f.curve.sample.gap.max()))
    if gap > _sigma(f.curve) / 2:
        text = f"crossings are known only to {_percent(gap)} because the logged points are far apart; the interval includes it"
        yield Caveat("wide-gaps", text, "log the evaluation more often around the target")


CODES: Mapping[str, Callable[[Findings], Iterator[Caveat]]] = {
    "few-batch-sizes": _few_batch_sizes,
    "needs-larger": _larger,
    "needs-smaller": _smaller,
    "undecided": _undecided,
    "wide-interval": _wide,
    "no-replicates": _no_replicates,
    "outlier": _outliers,
    "hangs-on-one": _unstable,
    "lack-of-fit": _lack_of_fit,
    "knee-shape": _shape,
    "power-law": _power_law,
    "rate-at-edge": _edge,
    "rate-beside-diverged": _beside,
    "no-feasible-rate": _infeasible,
    "never-reached": _never,
    "chosen-by-speed": _speed,
    "one-rate": _one_rate,
    "coarse-rates": _coarse,
    "horizon": _horizon,
    "examples-rise": _rise,
    "wide-gaps": _gaps,
}
"""Every code that a caveat may have, and what writes it."""


def _additions(f: Findings) -> list[float]:
    """Batch sizes worth adding."""
    if f.curve is None:
        center = sqrt(f.tried[0] * f.tried[-1])
        return [*design.below(f.tried, center), *design.above(f.tried, center)][:4]
    b_crit = exp(f.curve.beta)
    if f.verdict == "lower bound":
        return design.above(f.tried, min(b_crit, 4 * f.tried[-1]))
    if f.verdict == "upper bound":
        return design.below(f.tried, max(b_crit, f.tried[0] / 4))
    return [design.best_addition(f.tried, min(max(b_crit, f.tried[0]), f.tried[-1]))[0]]


def _add(f: Findings, additions: Sequence[float]) -> str:
    new = [size for size in additions if size not in f.tried]
    if not new:
        return "repeat the batch sizes with more seeds"
    return f"add batch size {sizes(new)}: {_command(f, new)}"


def _command(f: Findings, additions: Sequence[float]) -> str:
    listed = ",".join(size(one) for one in sorted({*f.tried, *additions}))
    return f"`bscrit sweep SPEC --set sweep.batch_sizes=[{listed}]`"


def _sigma(curve: Hyperbola) -> float:
    return sqrt(curve.scatter.tau**2 + curve.scatter.sigma**2 * float((1 / curve.sample.runs).mean()))


def _percent(scatter: float) -> str:
    return f"{100 * (exp(scatter) - 1):.2g} %"


def _expected(f: Findings, point: Tuned, index: int) -> float | None:
    """ln(steps) of the other runs at the batch size, or of the curve where there are none."""
    beside = f.keep & (f.rows.point == f.rows.point[index]) & (f.rows.side == 0)
    if beside.any():
        return float(f.rows.y[beside].mean())
    return None if f.curve is None else log(f.curve.steps(point.batch_size).value or 1.0)


def _rates(points: Sequence[Tuned]) -> str:
    return ", ".join(f"{point.lr:.3g}" for point in points[:6] if point.lr is not None)


def _rate_gap(point: Tuned) -> float:
    """Largest ratio of the tuned rate and a neighbour that did not diverge, 1 where there is none."""
    if point.lr is None or point.lr not in point.rates:
        return 1.0
    here = point.rates.index(point.lr)
    around = [rate for rate in point.rates[max(here - 1, 0) : here + 2] if rate not in point.diverged]
    return max((max(rate / point.lr, point.lr / rate) for rate in around), default=1.0)
