"""Estimates with errors, combined: weighted by the inverse of their variances, with what they scatter beyond them.

y_i = x_i beta + e_i, Var e_i = v_i + tau^2; tau^2 is such that the residuals are as large as their variances say
(Paule and Mandel 1982), 0 where they already are. In ln, where noise scales have symmetric errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log, sqrt

import numpy as np

from bscrit.curve import Floats
from bscrit.estimate import Estimate

NORMAL = 1.96  # quantile of the intervals
SMALLEST = 1e-12  # a variance: exact numbers still weigh against one another


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """One estimate of several with intervals.

    >>> pooled([Estimate(10.0, 9.0, 11.1), Estimate(10.0, 9.0, 11.1)]).value
    10.0
    """
    resolved = [e for e in estimates if e.value is not None]
    if len(resolved) < 2:
        return resolved[0] if resolved else Estimate(None)
    y = np.array([log(e.value) for e in resolved if e.value])
    beta, covariance = fit_line(np.ones((len(y), 1)), y, np.array([variance(e) for e in resolved]))
    middle, reach = float(beta[0]), NORMAL * sqrt(float(covariance[0, 0]))
    return Estimate(float(f"{exp(middle):.12g}"), exp(middle - reach), exp(middle + reach))


def variance(estimate: Estimate) -> float:
    """The variance of ln(estimate), from its interval."""
    width = estimate.ln_half_width
    return max((width / NORMAL) ** 2, SMALLEST) if isfinite(width) else SMALLEST


def fit_line(design: Floats, y: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """beta with its covariance, by the regression above.

    Args:
        design: (n, k), more rows than columns.
        y, variances: (n,).
    """
    freedom = len(y) - design.shape[1]

    def solved(between: float) -> tuple[Floats, Floats, float]:
        weights = 1 / (variances + between)
        covariance = np.asarray(np.linalg.inv(design.T @ (weights[:, None] * design)), np.float64)
        beta = covariance @ design.T @ (weights * y)
        return beta, covariance, float((weights * (y - design @ beta) ** 2).sum())

    beta, covariance, squares = solved(0.0)
    if squares > freedom:
        low, high = 0.0, float(np.var(y)) * len(y) + float(variances.max())
        for _ in range(60):
            middle = (low + high) / 2
            beta, covariance, squares = solved(middle)
            low, high = (middle, high) if squares > freedom else (low, middle)
    return beta, covariance
