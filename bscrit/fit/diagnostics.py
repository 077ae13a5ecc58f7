"""How well the hyperbola describes the frontier, and how much its answer hangs on single batch sizes.

Everything here looks at the batch sizes with a met crossing, weighted as the fit weights them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import exp, log
from typing import Any

import numpy as np

from bscrit.fit.hyperbola import Hyperbola
from bscrit.fit.shape import Shape, hyperbola, least_squares
from bscrit.fit.surface import climb

MOST_LEFT_OUT = 40  # more batch sizes than this are not left out one by one


def diagnose(curve: Hyperbola | None, knee: Shape | None, fall: Shape | None) -> Mapping[str, Any]:
    """Diagnostics by name, plain numbers that JSON can hold.

    seed_scatter, tuning_scatter: standard deviations of ln(steps); degrees_of_freedom behind the intervals.
    lack_of_fit: F statistic and p value of the scatter between batch sizes against that of their runs.
    knee_sharpness: q of S = s_min (1 + (b_crit/B)^q)^(1/q); 1 is the hyperbola, published data have 1.2-1.4.
    scaling_exponent: p of S = s_min (1 + (b_crit/B)^p); 1 is perfect scaling at small batch sizes.
    leave_one_out: smallest and largest b_crit when one batch size is left out, and which.
    power_law: ln S = a - exponent ln B, and by how much its AIC is above the hyperbola's (positive where the
    hyperbola is preferred).
    """
    if curve is None:
        return {}
    measures: dict[str, Any] = {
        "seed_scatter": curve.scatter.sigma if curve.sample.replicated else None,
        "tuning_scatter": curve.scatter.tau if curve.sample.replicated else None,
        "degrees_of_freedom": curve.scatter.freedom,
        "lack_of_fit": _lack_of_fit(curve),
        "leave_one_out": _leave_one_out(curve),
    }
    if knee and fall:
        measures["power_law"] = _power_law(curve)
        measures["knee_sharpness"] = asdict(knee)
        measures["scaling_exponent"] = asdict(fall)
    return measures


def _lack_of_fit(curve: Hyperbola) -> dict[str, float] | None:
    from scipy.special import fdtrc

    sample = curve.sample.only(curve.sample.n > 0)
    within, between = float((sample.n - 1).sum()), len(sample) - 2
    if within < 1 or between < 1 or sample.ss.sum() <= 0:
        return None
    f = (
        least_squares(sample.x, sample.mean, sample.n, hyperbola)[0]
        / between
        / (float(sample.ss.sum()) / within)
    )
    return {"f": f, "p": float(fdtrc(between, within, f))}


def _leave_one_out(curve: Hyperbola) -> dict[str, float] | None:
    sample = curve.sample
    met = np.flatnonzero(sample.n > 0)
    if not 4 <= len(met) <= MOST_LEFT_OUT:
        return None
    sigma, tau = np.array([curve.scatter.sigma]), np.array([curve.scatter.tau])
    start = float(curve.best.a[0]), curve.beta
    b_crits = {}
    for point in met:
        best = climb(sample.only(np.arange(len(sample)) != point), sigma, tau, start, tolerance=1e-6)
        b_crits[float(f"{np.exp(sample.x[point]):.10g}")] = exp(float(best.beta[0]))
    low, high = min(b_crits, key=b_crits.__getitem__), max(b_crits, key=b_crits.__getitem__)
    return {"low": b_crits[low], "without_low": low, "high": b_crits[high], "without_high": high}


def _power_law(curve: Hyperbola) -> dict[str, float]:
    sample = curve.sample.only(curve.sample.n > 0)
    x, y = sample.x, sample.mean
    weight = 1 / (curve.scatter.tau**2 + curve.scatter.sigma**2 / sample.n + sample.gap)
    center = np.average(x, weights=weight)
    level = np.average(y, weights=weight)
    slope = float((weight * (x - center) * (y - level)).sum() / (weight * (x - center) ** 2).sum())
    straight = float((weight * (y - level - slope * (x - center)) ** 2).sum())
    curved = least_squares(x, y, weight, hyperbola)[0]
    tiny = 1e-12 * float((weight * (y - level) ** 2).sum()) + 1e-300
    return {"exponent": -slope, "aic_difference": len(x) * log((straight + tiny) / (curved + tiny))}
