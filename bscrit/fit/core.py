"""Crossings -> a report: the one function behind the command, the sweep's closing table and notebooks."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from bscrit.crossing import CrossingTable
from bscrit.estimate import CONFIDENCE, Estimate
from bscrit.fit.caveats.codes import caveats
from bscrit.fit.caveats.draft import Draft
from bscrit.fit.crossings import Family, families
from bscrit.fit.diagnostics import diagnose
from bscrit.fit.frontier import choose, rows_of, summarise
from bscrit.fit.hyperbola import Hyperbola, fit_hyperbola
from bscrit.fit.identify import Answer, answer, judge
from bscrit.fit.points import points_of
from bscrit.fit.report import Report
from bscrit.fit.result import Fit
from bscrit.fit.robust import belongs
from bscrit.fit.shape import freed, sharpness, steepness, turning_point

WIDEST = 4.0  # ratio of the ends of an interval


def fit_table(table: CrossingTable, widest: float = WIDEST) -> Report:
    """Fit every group and target of a source's crossings.

    Args:
        widest: ratio of the interval's ends beyond which a B_crit has a serious caveat.
    """
    fits = tuple(fit_family(family, table, widest) for family in families(table))
    return Report(table.source, table.unit or "example", fits, table.notes, table.crossings, goal=table.goal)


def fit_family(family: Family, table: CrossingTable, widest: float = WIDEST) -> Fit:
    """Fit one frontier of a table: the batch sizes up to the one of fewest steps, where steps rise beyond it."""
    frontier = choose(family)
    rows = rows_of(frontier)
    sound = belongs(rows)
    turn = turning_point(rows, sound)
    keep = sound if turn is None else sound & (rows.point <= turn)
    curve = fit_hyperbola(summarise(rows, keep))
    knee, fall = (freed(curve, form) if curve else None for form in (sharpness, steepness))
    verdict = judge(curve, knee, fall, rises=turn is not None)
    decided = turn is None or verdict == "lower bound"
    said = answer(curve, verdict, knee, fall) if decided else Answer()
    points = points_of(frontier, rows, sound)
    if turn is not None:
        points = (*points[: turn + 1], *(replace(point, robust_weight=0.0) for point in points[turn + 1 :]))
    diagnostics = diagnose(curve, knee, fall)
    draft = Draft(
        frontier,
        rows,
        sound,
        keep,
        curve,
        knee,
        fall,
        turn,
        verdict,
        said,
        points,
        diagnostics,
        table,
        widest,
    )
    return Fit(
        group=dict(family.group),
        target=family.target,
        verdict=verdict,
        s_min=said.s_min,
        e_min=said.e_min,
        b_crit=said.b_crit,
        cbs_20=said.cbs_20,
        sigma=_scatter(curve),
        points=points,
        caveats=caveats(draft),
        diagnostics=diagnostics,
        region=joint_region(curve) if curve and verdict == "identified" else (),
        curve=curve,
    )


def joint_region(curve: Hyperbola) -> tuple[tuple[float, float], ...]:
    """The 95 % joint region, by the F(2, freedom) quantile: (s_min, b_crit) pairs around it; empty where it is open."""
    freedom = curve.scatter.freedom
    drop = freedom / 2 * (float((1 - CONFIDENCE) ** (-2 / freedom)) - 1)
    region = curve.surface.walk(curve.best, drop)
    if not np.isfinite([region.low, region.high]).all():
        return ()
    a = np.concatenate([region.top, region.bottom[::-1]])
    beta = np.concatenate([region.beta, region.beta[::-1]])
    return tuple(zip(np.exp(a).tolist(), np.exp(beta).tolist(), strict=True))


def _scatter(curve: Hyperbola | None) -> Estimate:
    """Scatter of a batch size's ln(steps) about the curve, with the interval of its chi-squared."""
    if curve is None:
        return Estimate(None)
    from scipy.special import chdtri

    value, freedom, tail = curve.spread, curve.scatter.freedom, (1 - CONFIDENCE) / 2
    low, high = (value * sqrt(freedom / float(chdtri(freedom, q))) for q in (tail, 1 - tail))
    return Estimate(value, low, high if np.isfinite(high) else None)
