"""Crossings -> a report: the one function behind the command, the sweep's closing table and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from types import MappingProxyType

import numpy as np

from bscrit.crossing import CrossingTable
from bscrit.estimate import CONFIDENCE, Estimate
from bscrit.fit.caveats.codes import caveats
from bscrit.fit.caveats.draft import Draft
from bscrit.fit.crossings import Family, families
from bscrit.fit.diagnostics import diagnose
from bscrit.fit.frontier import choose, rows_of, summarise
from bscrit.fit.hyperbola import Hyperbola, fit_hyperbola
from bscrit.fit.identify import answer, judge
from bscrit.fit.points import points_of
from bscrit.fit.report import Report
from bscrit.fit.result import Fit
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
        points=points_of(frontier, rows, keep),
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
