"""The growth law on a toy whose loss is a known function of progress."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_runs import TOY, runs

from bscrit.fit.noise.growth import growth
from bscrit.fit.noise.windows import Runs


def power(s: np.ndarray) -> np.ndarray:
    """N = 3 loss^-2, as N = 3 s^0.5."""
    return np.maximum(s, 1e-6) ** -0.25


@pytest.mark.parametrize("batch_size", [128.0, 1024.0])
def test_the_exponent_is_that_of_the_toy(batch_size):
    found = growth([runs(batch_size, 5, np.random.default_rng(0), loss=power)])
    assert found.exponent.low < 2 < found.exponent.high
    assert found.exponent.value == pytest.approx(2, abs=0.3)
    assert found.at_one == pytest.approx(3, rel=0.5)
    assert found.low_loss == pytest.approx(power(np.array(TOY.progress)), rel=0.05)


def test_the_first_eighth_of_a_run_is_on_no_law():
    """An untrained network's noise scale, 20 times that of the law, changes nothing."""
    plain = runs(256.0, 5, np.random.default_rng(4), loss=power)
    early = [np.where(one.steps < plain.steps / 8, 20.0, 1.0) for one in plain.samples]
    disturbed = [
        replace(one, sq_small=one.sq_big + factor * (one.sq_small - one.sq_big))
        for one, factor in zip(plain.samples, early, strict=True)
    ]
    exponents = [growth([one]).exponent.value for one in (plain, replace(plain, samples=tuple(disturbed)))]
    assert exponents[0] == pytest.approx(exponents[1], abs=0.05)


def test_batch_sizes_are_put_together():
    random = np.random.default_rng(1)
    several = [runs(b, 5, random, loss=power) for b in (128.0, 512.0, 1024.0)]
    one, all_of_them = growth(several[:1]), growth(several)
    width = [found.exponent.high - found.exponent.low for found in (one, all_of_them)]
    assert width[1] < width[0]
    assert all_of_them.exponent.low < 2.03


def test_coverage():
    random, inside = np.random.default_rng(2), []
    for _ in range(60):
        found = growth([runs(256.0, 5, random, every=60, loss=power)])
        inside.append(found.exponent.low <= 2 <= found.exponent.high)
    assert np.mean(inside) >= 0.88


def test_none_where_losses_are_alike_or_unknown():
    random = np.random.default_rng(3)
    assert growth([runs(256.0, 5, random, loss=lambda s: 2 - s / 1e4)]) is None
    assert growth([runs(256.0, 5, random)]) is None
    assert growth([Runs(256.0, 100.0, ())]) is None
