"""Laws across fits against the law that made the data."""

from __future__ import annotations

import numpy as np
import pytest

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.law import fit_law
from bscrit.fit.result import Fit


def fit(b_crit: float | None, target: float | None = None, width: float = 1.2) -> Fit:
    value = Estimate(b_crit, b_crit and b_crit / width, b_crit and b_crit * width)
    return Fit({}, target, "identified", value, value, value, value, Estimate(0.05), ())


def kaplan(loss: float) -> float:
    """Kaplan et al. 2020, equation 5.3: B_crit(4) = 2.7e5, B_crit(3) = 1.07e6, B_crit(2) = 7.4e6 tokens."""
    return 2e8 / loss ** (1 / 0.21)


def test_kaplan():
    assert [kaplan(loss) for loss in (4.0, 3.0, 2.0)] == pytest.approx([2.7e5, 1.07e6, 7.4e6], rel=0.02)
    law = fit_law([fit(kaplan(loss), loss) for loss in (4.0, 3.5, 3.0, 2.5)], "loss")
    assert law.scale.value == pytest.approx(2e8, rel=1e-6)
    assert law.alpha.value == pytest.approx(0.21, rel=1e-6)
    assert law.alpha.low < 0.21 < law.alpha.high
    assert law.scale.value * 2.0**law.exponent.value == pytest.approx(7.4e6, rel=0.02)
    assert law.scatter == 0


def test_data_law_of_zhang():
    """CBS ~ 22.91 D^0.47."""
    data = {0: 1.0, 1: 4.0, 2: 16.0, 3: 64.0}
    law = fit_law([fit(22.91 * d**0.47) for d in data.values()], "data", data)
    assert (law.exponent.value, law.scale.value) == pytest.approx((0.47, 22.91))


def test_intervals_cover():
    """Each fit is off by its own error and by a scatter that the intervals don't know of."""
    random = np.random.default_rng(0)
    held = 0
    x = np.geomspace(1, 100, 6)
    for _ in range(200):
        errors = np.array([0.05, 0.3, 0.1, 0.05, 0.2, 0.1])
        off = errors * random.standard_normal(6) + 0.15 * random.standard_normal(6)
        fits = [
            fit(float(10 * v**0.5 * np.exp(o)), width=float(np.exp(1.96 * e)))
            for v, o, e in zip(x, off, errors, strict=True)
        ]
        law = fit_law(fits, "data", dict(enumerate(x)))
        held += law.exponent.low <= 0.5 <= law.exponent.high
    assert 0.92 <= held / 200 <= 0.98


def test_a_precise_fit_counts_more():
    data = {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0}
    fits = [fit(b, width=w) for b, w in ((1.0, 1.01), (2.0, 1.01), (4.0, 1.01), (30.0, 20.0))]
    assert fit_law(fits, "data", data).exponent.value == pytest.approx(1.0, abs=0.02)


def test_fits_without_a_value_are_left_out_and_counted():
    fits = [fit(kaplan(loss), loss) for loss in (4.0, 3.0, 2.0)] + [fit(None, 1.0), fit(5.0, None)]
    assert fit_law(fits, "loss").left_out == 2


@pytest.mark.parametrize("losses", [(4.0, 3.0), (4.0, 4.0, 4.0)])
def test_too_few(losses):
    with pytest.raises(UserError, match="a law needs 3 fits at different values"):
        fit_law([fit(kaplan(loss), loss) for loss in losses], "loss")


def test_alpha_is_open_where_the_exponent_may_be_zero():
    random = np.random.default_rng(1)
    losses = (4.0, 3.5, 3.0)
    law = fit_law([fit(float(np.exp(random.standard_normal())), loss, 3.0) for loss in losses], "loss")
    assert (law.alpha.value, law.alpha.high) == (None, None)
    assert law.alpha.low > 0
    flat = fit_law([fit(100.0, loss) for loss in losses], "loss")
    assert flat.alpha.value is None


def test_equal_values_are_said():
    with pytest.raises(UserError, match=r"all 3 fits .* have the same loss"):
        fit_law([fit(kaplan(4.0), 4.0)] * 3, "loss")
