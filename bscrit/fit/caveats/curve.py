"""Caveats about the curve: what the batch sizes and their scatter can't say."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, exp, inf, log, sqrt

import numpy as np

from bscrit.estimate import Estimate
from bscrit.fit import design
from bscrit.fit.caveats.draft import Draft
from bscrit.fit.identify import SIGNIFICANT as FORM
from bscrit.fit.result import Caveat
from bscrit.fit.shape import Shape, scatter_of_means
from bscrit.words import counted, interval, number, percent, shown, size

SIGNIFICANT = 0.01
SHARP = 2.0  # up to which a knee leaves B_crit where it is
NOISY, VERY_NOISY = 0.04, 0.08  # standard error of a crossing, in ln(steps)
LAG = 0.02  # of the fewest steps
IN_SIGN = 0.05  # probability of so few changes of sign among residuals
PREFERRED = 4.0  # difference of AIC
LINEAR = 0.98  # a power law with this exponent is perfect scaling, which the hyperbola holds too
RISE = log(1.1)
NEGLIGIBLE = 0.01  # of ln(steps) or ln(B_crit): no one would act upon it


def few_batch_sizes(f: Draft) -> Iterator[Caveat]:
    k = len(f.reached)
    if k <= 4:
        freedom = counted(max(k - 2, 0), "degree")
        text = f"{counted(k, 'batch size')} met the target: {freedom} of freedom for the scatter"
        yield Caveat("few-batch-sizes", text, f.add(), serious=k < 4)


def needs_larger(f: Draft) -> Iterator[Caveat]:
    if f.verdict == "lower bound" and f.turn is None:
        text = (
            f"even the largest batch size, {size(f.tried[-1])}, is too close to perfect scaling to show the"
            f" plateau: B_crit is at least {number(f.answer.b_crit.low or 0)}"
        )
        yield Caveat("needs-larger", text, f.add(), serious=True)


def needs_smaller(f: Draft) -> Iterator[Caveat]:
    if f.verdict == "upper bound":
        text = (
            f"even the smallest batch size, {size(f.tried[0])}, is too close to the plateau to show perfect"
            f" scaling: B_crit is at most {number(f.answer.b_crit.high or 0)}"
        )
        yield Caveat("needs-smaller", text, f.add(), serious=True)


def undecided(f: Draft) -> Iterator[Caveat]:
    if f.verdict == "not identified" and f.curve is not None and f.turn is None and not f.of_another_curve:
        ends = interval(f.curve.b_crit)
        text = (
            f"with a scatter of {percent(f.scatter)}, batch sizes {size(f.tried[0])} to {size(f.tried[-1])}"
            f" leave B_crit open{f': {ends}' if ends else ''}"
        )
        yield Caveat("undecided", text, f.add(), serious=True)


def wide(f: Draft) -> Iterator[Caveat]:
    value, low, high = f.answer.b_crit.value, f.answer.b_crit.low, f.answer.b_crit.high
    if not value or not low or not high or high / low <= f.widest:
        return
    text = f"the interval of B_crit spans a factor {number(high / low, 2)}, more than {f.widest:g}"
    hint = "repeat the batch sizes with more seeds"
    if f.additions:
        (chosen,) = f.additions
        narrower = design.narrowed(f.tried, value, chosen)
        hint = (
            f"a run at batch size {size(chosen)} would help most (interval {narrower:.0%} as wide in ln B_crit)"
            f"{f.command([chosen])}; or more seeds"
        )
    yield Caveat("wide", text, hint, serious=True)


def steps_rise(f: Draft) -> Iterator[Caveat]:
    if f.turn is None:
        return
    least, *beyond = f.points[f.turn :]
    factor = max(point.steps for point in beyond) / least.steps
    text = (
        f"steps to the target rise beyond batch size {size(least.batch_size)}, to {number(factor, 3)} times as many:"
        f" {'the fit ends there, and ' if f.curve else ''}the plateau was not seen"
    )
    hint = "tune the rate more finely at large batch, with a warm-up; the budget of tuning may be too small there"
    yield Caveat("steps-rise", text, hint, serious=True)


def no_replicates(f: Draft) -> Iterator[Caveat]:
    if f.curve is not None and not f.curve.sample.replicated:
        text = "one run per batch size: seeds and tuning can't be told apart, what scatters is both"
        command = ", by the same `bscrit sweep` with --set sweep.seeds=3" if f.swept else ""
        yield Caveat("no-replicates", text, f"repeat each batch size with fresh seeds{command}")


def hangs_on_one(f: Draft) -> Iterator[Caveat]:
    without, b_crit = f.diagnostics.get("leave_one_out"), f.answer.b_crit
    if f.verdict != "identified" or not without or b_crit.low is None or b_crit.high is None:
        return
    for end, outside in (("low", without["low"] < b_crit.low), ("high", without["high"] > b_crit.high)):
        if outside and abs(log(without[end] / (b_crit.value or inf))) > NEGLIGIBLE:
            text = (
                f"without batch size {size(without[f'without_{end}'])} B_crit would be"
                f" {number(without[end])}, outside its interval"
            )
            yield Caveat("hangs-on-one", text, "repeat that batch size with fresh seeds", serious=True)


def lack_of_fit(f: Draft) -> Iterator[Caveat]:
    test = f.diagnostics.get("lack_of_fit")
    if test and test["p"] < SIGNIFICANT and f.curve is not None and f.curve.scatter.tau > NEGLIGIBLE:
        text = (
            f"batch sizes lie {percent(f.curve.scatter.tau)} off the curve beyond what seeds explain"
            f" ({percent(f.curve.scatter.sigma)} per run; F = {number(test['f'])}, p = {test['p']:.1g}); the interval"
            f" {'takes it for scatter, and it is the form of the curve' if _is_systematic(f) else 'includes it'}"
        )
        hint = "tune the rate more finely, with the same recipe at every batch size"
        yield Caveat("lack-of-fit", text, hint)


def knee_shape(f: Draft) -> Iterator[Caveat]:
    if f.fall and f.of_another_curve:
        p = shown(Estimate(f.fall.value, f.fall.low, f.fall.high), 2)
        text = f"at small batch sizes steps fall as B^-p with p = {p}, and not with p = 1: perfect scaling was not seen"
        hint = "tune the rate more finely at small batch, or add smaller batch sizes"
        if f.fall.value > 1:
            hint = (
                "scale beta2 and weight decay per example at small batch, or leave those sizes out of the fit"
            )
        yield Caveat("knee-shape", text, hint, serious=True)
        return
    knee = f.knee
    sharper, softer = knee and (knee.low or 0) > 1, knee and knee.high is not None and knee.high < 1
    if knee and f.verdict == "identified" and (sharper or softer):
        q = shown(Estimate(knee.value, knee.low, knee.high), 2)
        text = f"the knee is {'sharper' if sharper else 'softer'} than a hyperbola: q = {q}, not 1"
        hint = (
            "read B_crit as where the knee is; take steps between batch sizes from the points, not the curve"
        )
        serious = knee.p < FORM and not 1 < knee.value < SHARP
        if serious and sharper:
            hint = "see what keeps steps from falling at large batch: a warm-up, sparse evaluation, an unstable rate"
        yield Caveat("knee-shape", text, hint, serious)


def power_law(f: Draft) -> Iterator[Caveat]:
    law = f.diagnostics.get("power_law")
    if law and law["aic_difference"] < -PREFERRED and abs(law["exponent"]) < LINEAR:
        text = (
            f"a power law S ~ B^{number(-law['exponent'], 2)} describes the steps better than a hyperbola"
            f" (AIC lower by {number(-law['aic_difference'], 2)})"
        )
        hint = f"check that the rate is tuned at every batch size; {f.add()}"
        yield Caveat("power-law", text, hint, serious=True)


def examples_rise(f: Draft) -> Iterator[Caveat]:
    if f.curve is None:
        return
    sample = f.curve.sample.only(f.curve.sample.n > 0)
    ln_examples = sample.mean + sample.x
    least = int(np.argmin(ln_examples))
    excess = float((ln_examples[:least] - ln_examples[least]).max()) if least else 0.0
    if excess > max(
        RISE, 3 * sqrt(2) * min(f.scatter, scatter_of_means(sample.only(np.arange(len(sample)) >= least)))
    ):
        below = size(float(f"{exp(float(sample.x[least])):.10g}"))
        text = f"examples to the target rise again below batch size {below}, by {percent(excess)}"
        hint = "scale beta2 and weight decay per example at small batch, or leave those sizes out of the fit"
        yield Caveat("examples-rise", text, hint)


def wide_gaps(f: Draft) -> Iterator[Caveat]:
    gap = max((log(r.high / r.low) for r in f.fitted if 0 < r.low < r.high < inf), default=0.0) / sqrt(12)
    if f.curve is not None and gap > f.scatter / 2:
        text = f"sparse logging leaves a crossing uncertain by {percent(gap)}; the interval includes it"
        yield Caveat("wide-gaps", text, "log the evaluation more often around the target")


def noisy_metric(f: Draft) -> Iterator[Caveat]:
    noisiest = max(f.fitted, key=lambda run: run.error, default=None)
    if noisiest is not None and noisiest.error > NOISY:
        text = (
            f"the metric fluctuates so much that its smoothed curve leaves a crossing uncertain by"
            f" {percent(noisiest.error)} at batch size {size(noisiest.batch_size)}: the first that is seen comes early"
        )
        hint = "use a metric of a fixed evaluation set, log more points, or give more seeds"
        yield Caveat("noisy-metric", text, hint, serious=noisiest.error > VERY_NOISY)


def averaged_metric(f: Draft) -> Iterator[Caveat]:
    if not f.table.averaged:
        return
    fewest = min((point.steps for point in f.points), default=inf)
    lag, text = f.table.lag, f.table.averaged
    if lag == inf:
        text += ": crossings come late by its lag, most of all where steps are few"
    elif lag:
        text += (
            f": crossings come {counted(lag, 'step')} late, {percent(log(1 + lag / fewest))} of the fewest"
        )
    hint = "fit the metric itself, or that of an evaluation set"
    yield Caveat("averaged-metric", text, hint, serious=lag > LAG * fewest or lag == inf)


def _is_systematic(f: Draft) -> bool:
    """Whether the misfit is one of form: of the knee, of the fall, or of residuals that keep their sign."""
    if f.curve is None:
        return False
    if any(shape is not None and _excludes_one(shape) for shape in (f.knee, f.fall)):
        return True
    sample = f.curve.sample.only(f.curve.sample.n > 0)
    residuals = sample.mean - float(f.curve.best.a[0]) - np.logaddexp(0.0, f.curve.beta - sample.x)
    changes, pairs = int((np.diff(np.sign(residuals)) != 0).sum()), len(sample) - 1
    return sum(comb(pairs, k) for k in range(changes + 1)) < IN_SIGN * float(2**pairs)


def _excludes_one(shape: Shape) -> bool:
    return (shape.low or 0.0) > 1 or (shape.high or inf) < 1
