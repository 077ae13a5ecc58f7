"""Simulated frontiers with a known answer, for the tests of the fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bscrit.fit.frontier import Rows

S_MIN = 1000.0
SMALLEST, RANGE = 16.0, 256.0


@dataclass(frozen=True)
class Design:
    """A way to measure a frontier.

    Attributes:
        batch_sizes: evenly spaced in ln over a factor of 256.
        seeds: runs at each.
        sigma: scatter of seeds in ln(steps).
        tuning: scatter between batch sizes, in units of sigma.
        censored: share of the batch sizes, from the smallest, whose runs need more than the cap on steps.
        place: of ln(b_crit) in the range of ln(batch size): 0 at its lower end, 1 at its upper.
    """

    batch_sizes: int = 7
    seeds: int = 1
    sigma: float = 0.05
    tuning: float = 0.0
    censored: float = 0.0
    place: float = 0.5

    @property
    def x(self) -> np.ndarray:
        return np.log(SMALLEST) + np.linspace(0, np.log(RANGE), self.batch_sizes)

    @property
    def beta(self) -> float:
        """ln(b_crit)."""
        return float(np.log(SMALLEST) + self.place * np.log(RANGE))

    @property
    def b_crit(self) -> float:
        return float(np.exp(self.beta))


def simulate(design: Design, random: np.random.Generator) -> Rows:
    """The runs of one frontier."""
    k, n = design.batch_sizes, design.seeds
    mean = np.log(S_MIN) + np.logaddexp(0.0, design.beta - design.x)
    y = mean[:, None] + design.sigma * (
        design.tuning * random.standard_normal((k, 1)) + random.standard_normal((k, n))
    )
    cap = np.inf
    if design.censored:
        cap = float(np.interp(design.censored * k - 0.5, np.arange(k), mean))
    y, beyond = np.minimum(y, cap).ravel(), (y > cap).ravel()
    return Rows(design.x, np.repeat(np.arange(k), n), y, beyond.astype(float), np.zeros(k * n))
