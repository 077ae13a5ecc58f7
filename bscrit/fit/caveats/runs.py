"""Caveats about runs: single bad ones, learning rates, and batch sizes where the target was out of reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp

import numpy as np

from bscrit.fit.caveats.draft import Draft
from bscrit.fit.frontier import Tuned
from bscrit.fit.result import Caveat
from bscrit.fit.robust import are_many, far_off
from bscrit.words import counted, number, size, sizes

IN_WARMUP = 0.5  # share of a run
FEW_STEPS = 10
LISTED = 5  # runs that were set aside, each with a line of its own
COARSE = 1.6  # ratio of neighbouring rates; tuned frontiers need sqrt 2


def outlier(f: Draft) -> Iterator[Caveat]:
    every = np.flatnonzero(~f.sound).tolist()
    for index in every[:LISTED]:
        place = int(f.rows.point[index])
        point = f.frontier.points[place]
        run = point.runs[index - int(np.flatnonzero(f.rows.point == place)[0])]
        expected = f.expected(index)
        factor = None if expected is None else number(exp(float(f.rows.y[index]) - expected), 2)
        off = "far from the others" if factor is None else f"{factor} times what the others imply"
        name = ", ".join(part for part in (run.where, run.seed and f"seed {run.seed}") if part) or "a run"
        took = "had not arrived after" if run.censored else "took"
        text = (
            f"{name} at batch size {size(run.batch_size)} {took} {number(run.steps)} steps, {off}: set aside"
        )
        yield Caveat("outlier", text, "check its log and its batch size; repeat it with another seed")
    if len(every) > LISTED:
        text = f"and {counted(len(every) - LISTED, 'more run')} far from the others: set aside"
        yield Caveat("outlier", text, "so many are no accident: check what the runs have in common")


def heavy_tails(f: Draft) -> Iterator[Caveat]:
    bad = far_off(replace(f.rows, shared=None))
    if are_many(bad):
        text = (
            f"{int(bad.sum())} of {counted(len(bad), 'run')} lie far from the others at their batch size: so many are"
            " no accident, none is set aside, and the interval is that of ordinary scatter"
        )
        hint = "repeat with more seeds; check the rate, which near the edge of stability makes seeds differ"
        yield Caveat("heavy-tails", text, hint, serious=True)


def rate_at_edge(f: Draft) -> Iterator[Caveat]:
    for side, word in (("lowest", "lower"), ("highest", "higher")):
        at = [
            p for p in f.frontier.points if p.edge == side and not (side == "highest" and p.beside_diverged)
        ]
        if at:
            text = f"the best rate is the {side} one that was tried at batch size {_listed(at)}"
            yield Caveat("rate-at-edge", text, f"try {word} rates there", serious=True)


def rate_beside_diverged(f: Draft) -> Iterator[Caveat]:
    at = [point for point in f.frontier.points if point.beside_diverged]
    if at:
        text = f"the best rate is next to one that diverged at batch size {_listed(at)}"
        hint = "try rates between the two, or a warm-up, which moves the edge of stability"
        yield Caveat("rate-beside-diverged", text, hint)


def no_feasible_rate(f: Draft) -> Iterator[Caveat]:
    if f.frontier.infeasible:
        text = f"every run diverged at batch size {sizes(f.frontier.infeasible)}: nothing was measured there"
        yield Caveat("no-feasible-rate", text, "try lower rates there", serious=True)


def never_reached(f: Draft) -> Iterator[Caveat]:
    at = [point.batch_size for point in f.frontier.points if not point.reached]
    if at:
        text = f"no run met the target at batch size {sizes(at)}; how far they got counts as a bound"
        longer = "raise sweep.max_examples" if f.swept else "train longer"
        yield Caveat("never-reached", text, f"{longer}, or fit an easier target")


def chosen_by_speed(f: Draft) -> Iterator[Caveat]:
    count = sum(point.chosen_by_speed for point in f.frontier.points)
    if count:
        text = (
            f"runs that chose the rate measure it too at {counted(count, 'batch size')}, and the fastest of"
            " noisy runs is faster than it would be again"
        )
        yield Caveat(
            "chosen-by-speed", text, "repeat the chosen rates with fresh seeds, in rows of role measure"
        )


def one_rate(f: Draft) -> Iterator[Caveat]:
    rates = {point.rates for point in f.frontier.points}
    if len(f.frontier.points) > 2 and len(rates) == 1 and len(next(iter(rates))) == 1:
        text = (
            f"one learning rate, {next(iter(rates))[0]:.4g}, at every batch size: unless it is best at each,"
            " B_crit comes out too low"
        )
        yield Caveat("one-rate", text, "tune the rate at each batch size")


def coarse_rates(f: Draft) -> Iterator[Caveat]:
    gaps = [_gap(point) for point in f.frontier.points]
    count = sum(gap > COARSE for gap in gaps)
    if count:
        text = (
            f"rates beside the best one are up to {number(max(gaps), 2)} times away at"
            f" {counted(count, 'batch size')}; a factor 2 can move B_crit by 20 to 50 %"
        )
        yield Caveat(
            "coarse-rates", text, "add rates between the best one and its neighbours, 1.4 times apart"
        )


def horizon(f: Draft) -> Iterator[Caveat]:
    if f.table.horizons:
        text = (
            f"with a {' or '.join(f.table.horizons)} schedule the rate depends on the planned length: runs that met"
            " the target early met it at too high a rate"
        )
        hint = "use a constant schedule, or one that ends where the target is met at each batch size"
        yield Caveat("horizon", text, hint, serious=True)


def in_warmup(f: Draft) -> Iterator[Caveat]:
    """A warm-up of W steps adds about W/2 at every batch size: to S_min, when it is most of a run."""
    met = [point for point in f.points if point.censored < point.runs]
    at = [
        point.batch_size
        for point in met
        if f.table.warmups.get(point.batch_size, 0) > IN_WARMUP * point.steps
    ]
    if at:
        text = (
            f"the target is met during the warm-up, or soon after it, at batch size {sizes(at)} (warm-up of up to"
            f" {number(max(f.table.warmups[size] for size in at))} steps)"
        )
        yield Caveat("in-warmup", text, "choose a harder target, or a shorter warm-up", serious=True)


def few_steps(f: Draft) -> Iterator[Caveat]:
    """A table may count epochs instead of steps; those are left in peace."""
    at = [point for point in f.points if point.censored < point.runs and 1 <= point.steps < FEW_STEPS]
    if at:
        fewest, most = (number(limit(point.steps for point in at), 4) for limit in (min, max))
        text = (
            f"the target is met within {fewest if fewest == most else f'{fewest} to {most}'} steps at batch size"
            f" {sizes([point.batch_size for point in at])}: a start, not a run"
        )
        yield Caveat(
            "few-steps", text, "choose a harder target, one that takes dozens of steps", serious=True
        )


def _listed(points: Sequence[Tuned]) -> str:
    rates = ", ".join(f"{point.lr:.3g}" for point in points[:6] if point.lr is not None)
    return f"{sizes([point.batch_size for point in points])} (rate {rates})"


def _gap(point: Tuned) -> float:
    """Largest ratio of the tuned rate and a neighbour that did not diverge, 1 where there is none."""
    if point.lr is None or point.lr not in point.rates:
        return 1.0
    here = point.rates.index(point.lr)
    around = [rate for rate in point.rates[max(here - 1, 0) : here + 2] if rate not in point.diverged]
    return max((max(rate / point.lr, point.lr / rate) for rate in around), default=1.0)
