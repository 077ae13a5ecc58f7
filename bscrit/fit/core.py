"""Crossings -> a report: the one function behind the command, the sweep's closing table and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bscrit.crossing import CrossingTable
from bscrit.estimate import Estimate
from bscrit.fit.caveats.codes import caveats
from bscrit.fit.caveats.draft import Draft
from bscrit.fit.crossings import Family, families
from bscrit.fit.diagnostics import diagnose
from bscrit.fit.frontier import Frontier, Rows, Tuned, choose, rows_of, summarise
from bscrit.fit.hyperbola import CONFIDENCE, Hyperbola, fit_hyperbola
from bscrit.fit.identify import answer, judge
from bscrit.fit.likelihood import Floats
from bscrit.fit.report import Report
from bscrit.fit.result import Fit, Point
from bscrit.fit.robust import belongs

NOTHING: Mapping[float, float] = MappingProxyType({})


def fit_table(table: CrossingTable) -> Report:
    """Fit every group and target of a source's crossings."""
    fits = tuple(fit_family(family, table.horizons, table.warmups) for family in families(table))
    return Report(table.source, table.unit or "example", fits, table.notes, table.crossings)


def fit_family(family: Family, horizons: Sequence[str] = (), warmups: Mapping[float, float] = NOTHING) -> Fit:
    """Fit one frontier."""
    frontier = choose(family)
    rows = rows_of(frontier)
    keep = belongs(rows)
    curve = fit_hyperbola(summarise(rows, keep))
    verdict = judge(curve)
    said = answer(curve, verdict)
    diagnostics = diagnose(curve)
    draft = Draft(frontier, rows, keep, curve, verdict, said, diagnostics, horizons, warmups)
    return Fit(
        group=dict(family.group),
        target=family.target,
        verdict=verdict,
        s_min=said.s_min,
        e_min=said.e_min,
        b_crit=said.b_crit,
        cbs_20=said.cbs_20,
        sigma=_scatter(curve),
        points=_points(frontier, rows, keep),
        caveats=caveats(draft),
        diagnostics=diagnostics,
        region=curve.joint if curve and verdict == "identified" else (),
        curve=curve,
    )


def _scatter(curve: Hyperbola | None) -> Estimate:
    """Scatter of a batch size's ln(steps) about the curve, with the interval of its chi-squared."""
    if curve is None:
        return Estimate(None)
    from scipy.special import chdtri

    value, freedom, tail = curve.spread, curve.scatter.freedom, (1 - CONFIDENCE) / 2
    low, high = (value * sqrt(freedom / float(chdtri(freedom, q))) for q in (tail, 1 - tail))
    return Estimate(value, low, high if np.isfinite(high) else None)


def _points(frontier: Frontier, rows: Rows, keep: NDArray[np.bool_]) -> tuple[Point, ...]:
    """One point per batch size: the geometric mean of the runs that take part and met the target."""
    return tuple(
        _point(tuned, rows.y[here], rows.side[here], keep[here])
        for index, tuned in enumerate(frontier.points)
        for here in [rows.point == index]
    )


def _point(tuned: Tuned, y: Floats, side: Floats, keep: NDArray[np.bool_]) -> Point:
    from scipy.special import stdtrit

    taking_part = keep if keep.any() else np.ones(len(y), bool)
    known = taking_part & (side <= 0)
    steps = exp(float(y[known].mean())) if known.any() else exp(float(y[taking_part].max()))
    low = high = None
    n = int(known.sum())
    if n > 1:
        error = float(y[known].std(ddof=1)) / sqrt(n) * float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
        low, high = exp(log(steps) - error), exp(log(steps) + error)
    return Point(
        batch_size=tuned.batch_size,
        steps=float(f"{steps:.12g}"),  # the exponential of a logarithm, without its last digits
        examples=float(f"{steps * sum(run.examples / run.steps for run in tuned.runs) / len(y):.12g}"),
        lr=tuned.lr,
        runs=len(y),
        censored=int((side > 0).sum()),
        low=low,
        high=high,
        robust_weight=float(keep.mean()),
    )
