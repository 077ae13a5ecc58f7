"""What to do with a fit: overheads, the fastest and the cheapest way to the target."""

from __future__ import annotations

import numpy as np
import pytest

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.advice import StepCost, StepTime, advise, fastest_batch_size, overheads, step_cost
from bscrit.fit.result import Fit

B_CRIT, S_MIN = 100.0, 1000.0


KNOWN = Estimate(B_CRIT, 80.0, 125.0)


def fit(b_crit: Estimate = KNOWN) -> Fit:
    s_min = Estimate(S_MIN if b_crit.value else None)
    return Fit({}, None, "identified", s_min, s_min, b_crit, b_crit, Estimate(0.05), ())


def test_overheads_at_b_crit_are_twofold():
    small, here, large = overheads(fit(), [10, 100, 1000])
    assert (here.steps.value, here.examples.value) == (1.0, 1.0)
    assert (small.steps.value, small.examples.value) == (10.0, 0.1)
    assert (large.steps.value, large.examples.value) == (0.1, 10.0)
    assert (here.examples.low, here.examples.high) == (0.8, 1.25)
    assert (here.steps.low, here.steps.high) == (0.8, 1.25)


def test_a_bound_on_b_crit_is_a_bound_on_overheads():
    (found,) = overheads(fit(Estimate(None, 50.0, None)), [100])
    assert found.steps == Estimate(None, 0.5, None)
    assert found.examples == Estimate(None, None, 2.0)


def test_step_cost_is_recovered():
    times = [StepTime(b, 0.02 + 0.001 * b / n, n) for b, n in ((8, 1), (64, 1), (256, 4), (1024, 4))]
    found = step_cost(times)
    assert (found.fixed, found.per_example) == pytest.approx((0.02, 0.001))
    assert found.seconds(100, 2) == pytest.approx(0.07)


def test_step_cost_is_never_negative():
    assert step_cost([StepTime(10, 1.0), StepTime(20, 2.2)]).fixed == 0
    falling = step_cost([StepTime(10, 1.0), StepTime(20, 0.9)])
    assert falling.per_example == 0
    assert 0.9 < falling.fixed < 1.0


def test_step_cost_needs_two_loads():
    with pytest.raises(UserError, match="two or more batch sizes per device"):
        step_cost([StepTime(10, 1.0), StepTime(20, 1.0, 2)])


@pytest.mark.parametrize("devices", [1, 4])
def test_fastest_batch_size_is_the_minimum(devices):
    """sqrt(b_crit n t0 / t1), against a search."""
    cost = StepCost(0.02, 0.001)
    sizes = np.geomspace(1, 1e5, 20001)
    seconds = S_MIN * (1 + B_CRIT / sizes) * (cost.fixed + cost.per_example * sizes / devices)
    found = fastest_batch_size(fit().b_crit, cost, devices)
    assert found.value == pytest.approx(sizes[np.argmin(seconds)], rel=1e-3)
    assert found.low < found.value < found.high


def test_no_fastest_where_steps_cost_the_same():
    assert fastest_batch_size(fit().b_crit, StepCost(0.1, 0.0)) == Estimate(None)


def test_advice():
    cost = StepCost(0.02, 0.001)
    sizes, devices = [2**i for i in range(12)], [1, 2, 4, 8, 16]
    found = advise(fit(), cost, sizes, devices)
    options = [
        (S_MIN * (1 + B_CRIT / b) * cost.seconds(b, n), n * S_MIN * (1 + B_CRIT / b) * cost.seconds(b, n))
        for b in sizes
        for n in devices
        if n <= b
    ]
    assert found.fastest.seconds == pytest.approx(min(time for time, _ in options))
    assert found.cheapest.device_seconds == pytest.approx(min(price for _, price in options))
    front = [(option.seconds, option.device_seconds) for option in found.trade_off]
    assert front == sorted(front)
    assert [price for _, price in front] == sorted((price for _, price in front), reverse=True)
    for time, price in front:
        assert not any(t < time - 1e-9 and p < price - 1e-9 for t, p in options)


def test_no_advice_without_a_value():
    with pytest.raises(UserError, match="B_crit is not known"):
        advise(fit(Estimate(None, 50.0)), StepCost(0.1, 0.1), [10])
