"""How well the hyperbola describes the frontier, and how much its answer hangs on single batch sizes.

Everything here looks at the batch sizes with a known crossing, weighted as the fit weights them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log
from typing import Any

import numpy as np

from bscrit.estimate import CONFIDENCE
from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.likelihood import Floats
from bscrit.fit.surface import climb

SHARPEST = log(16.0)
ROOT = 1e-4  # of ln q
MOST_LEFT_OUT = 40  # more batch sizes than this are not left out one by one


def diagnose(curve: Hyperbola | None) -> Mapping[str, Any]:
    """Diagnostics by name, plain numbers that JSON can hold.

    seed_scatter, tuning_scatter: standard deviations of ln(steps); degrees_of_freedom behind the intervals.
    lack_of_fit: F statistic and p value of the scatter between batch sizes against that of their runs.
    knee_sharpness: q of S = s_min (1 + (b_crit/B)^q)^(1/q); 1 is the hyperbola, published data have 1.2-1.4.
    leave_one_out: smallest and largest b_crit when one batch size is left out, and which.
    power_law: ln S = a - exponent ln B, and by how much its AIC is above the hyperbola's (positive where the
    hyperbola is preferred).
    """
    if curve is None:
        return {}
    points = _known(curve)
    measures: dict[str, Any] = {
        "seed_scatter": curve.scatter.sigma if curve.sample.replicated else None,
        "tuning_scatter": curve.scatter.tau if curve.sample.replicated else None,
        "degrees_of_freedom": curve.scatter.freedom,
        "linear_share": [float(curve.p.max()), float(curve.p.min())],
        "lack_of_fit": _lack_of_fit(curve),
        "leave_one_out": _leave_one_out(curve),
    }
    if len(points[0]) >= 4:
        measures["power_law"] = _power_law(*points)
        measures["knee_sharpness"] = _sharpness(*points)
    return measures


def _known(curve: Hyperbola) -> tuple[Floats, Floats, Floats]:
    """x, mean ln(steps) and weight of each batch size with a known crossing."""
    sample = curve.sample
    known = sample.n > 0
    part = sample.only(known)
    variance = curve.scatter.tau**2 + curve.scatter.sigma**2 / part.n + part.gap
    return part.x, part.mean, 1 / variance


def _lack_of_fit(curve: Hyperbola) -> dict[str, float] | None:
    from scipy.special import fdtrc

    sample = curve.sample.only(curve.sample.n > 0)
    within, between = float((sample.n - 1).sum()), len(sample) - 2
    if within < 1 or between < 1 or sample.ss.sum() <= 0:
        return None
    f = _least(sample.x, sample.mean, sample.n) / between / (float(sample.ss.sum()) / within)
    return {"f": f, "p": float(fdtrc(between, within, f))}


def _leave_one_out(curve: Hyperbola) -> dict[str, float] | None:
    sample = curve.sample
    known = np.flatnonzero(sample.n > 0)
    if not 4 <= len(known) <= MOST_LEFT_OUT:
        return None
    sigma, tau = np.array([curve.scatter.sigma]), np.array([curve.scatter.tau])
    start = float(curve.best.a[0]), curve.beta
    b_crits = {}
    for point in known:
        best = climb(sample.only(np.arange(len(sample)) != point), sigma, tau, start, tolerance=1e-6)
        b_crits[float(f"{np.exp(sample.x[point]):.10g}")] = exp(float(best.beta[0]))
    low, high = min(b_crits, key=b_crits.__getitem__), max(b_crits, key=b_crits.__getitem__)
    return {"low": b_crits[low], "without_low": low, "high": b_crits[high], "without_high": high}


def _power_law(x: Floats, y: Floats, weight: Floats) -> dict[str, float]:
    center = np.average(x, weights=weight)
    level = np.average(y, weights=weight)
    slope = float((weight * (x - center) * (y - level)).sum() / (weight * (x - center) ** 2).sum())
    straight = float((weight * (y - level - slope * (x - center)) ** 2).sum())
    curved = _least(x, y, weight)
    tiny = 1e-12 * float((weight * (y - level) ** 2).sum()) + 1e-300
    return {"exponent": -slope, "aic_difference": len(x) * log((straight + tiny) / (curved + tiny))}


def _sharpness(x: Floats, y: Floats, weight: Floats) -> dict[str, float | None]:
    """q with its 95 % interval from the F quantile with k - 3 degrees of freedom; open ends are None."""
    from scipy.special import fdtri

    grid = np.linspace(-SHARPEST / 2, SHARPEST, 25)

    def squares(ln_q: float) -> float:
        return _least(x, y, weight, exp(ln_q))

    values = [squares(float(ln_q)) for ln_q in grid]
    best, spacing = float(grid[int(np.argmin(values))]), float(grid[1] - grid[0])
    for _ in range(3):
        finer = np.clip(best + spacing * np.linspace(-1, 1, 9), grid[0], grid[-1])
        best, spacing = float(min(finer, key=squares)), spacing / 4
    freedom = len(x) - 3
    limit = squares(best) * (1 + float(fdtri(1, freedom, CONFIDENCE)) / freedom)

    def end(away: Floats) -> float | None:
        """Where the squares meet the limit: between the last place within it, from the best on, and the next."""
        inside = best
        for outside in away:
            if squares(float(outside)) > limit:
                return exp(_root(lambda ln_q: squares(ln_q) - limit, inside, float(outside)))
            inside = float(outside)
        return None

    return {"value": exp(best), "low": end(grid[grid < best][::-1]), "high": end(grid[grid > best])}


def _root(function: Callable[[float], float], below: float, above: float) -> float:
    """Where a function that is negative at one end and positive at the other is 0, by halving, to 1e-4."""
    while abs(above - below) > ROOT:
        middle = (below + above) / 2
        below, above = (middle, above) if function(middle) <= 0 else (below, middle)
    return below


def _least(x: Floats, y: Floats, weight: Floats, q: float = 1.0) -> float:
    """Least weighted sum of squares about a curve of sharpness q, on grids over ln b_crit that shrink."""
    beta = np.linspace(x[0] - 6, x[-1] + 6, 61)
    for _ in range(3):
        rest = y - np.logaddexp(0.0, q * (beta[:, None] - x)) / q
        residual = rest - (rest @ weight / weight.sum())[:, None]
        squares = residual * residual @ weight
        best, spacing = int(np.argmin(squares)), beta[1] - beta[0]
        beta = np.linspace(beta[best] - spacing, beta[best] + spacing, 17)
    return float(squares[best])
