"""The law of the best rate: exact data come back, noise averages out."""

from __future__ import annotations

import numpy as np
import pytest

from bscrit.fit.rates import RateLaw, fit_rates


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_exact_rates_come_back(power):
    law = RateLaw(lr_max=0.4, b=96.0, power=power)
    sizes = [4, 16, 64, 256, 1024]
    found = fit_rates(sizes, law(np.array(sizes)).tolist(), power)
    assert found.lr_max == pytest.approx(0.4, rel=0.01)
    assert found.b == pytest.approx(96, rel=0.01)


def test_the_formula():
    """eps = 0.27 B/(96 + B), the rates of the paper's SVHN runs (McCandlish et al. 2018)."""
    law = RateLaw(lr_max=0.27, b=96.0, power=1.0)
    assert law(np.array([96.0, 32.0])) == pytest.approx([0.135, 0.27 * 32 / 128])


def test_two_batch_sizes_are_no_law():
    assert fit_rates([4, 64], [0.1, 0.2], 1.0) is None
