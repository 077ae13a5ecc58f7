"""The search for a rate: what is tried next, and which rate it is."""

import itertools
import math

import numpy as np
import pytest

from bscrit.rate_law import RateEstimate
from bscrit.sweep.rates import Infeasible, Lane, Try, Tuned, first_rates, rates_around
from bscrit.sweep.tune import CAUTION, MAX_LANES, MOST_IN_VAIN, SPACING, tune


def bowl(lr, best=0.5, steps=100.0, curvature=0.5, cliff=math.inf):
    """ln steps is a parabola in ln lr, and beyond the cliff nothing arrives."""
    if lr > cliff:
        return Lane(lr, "diverged", math.inf)
    return Lane(lr, "met", steps * math.exp(0.5 * curvature * math.log(lr / best) ** 2), 0.1)


def tent(lr, edge=1.0, steps=30.0):
    """steps ~ 1/lr up to an edge."""
    return Lane(lr, "met", steps * edge / lr, 0.1) if lr <= edge else Lane(lr, "diverged", math.inf)


def search(lane, first, rounds=30):
    """Play a race against a known answer; what was settled, and the lanes that it took."""
    lanes, step = [], first
    for _ in range(rounds):
        tried = {lane.lr for lane in lanes}
        assert not tried & set(step.rates), "a rate is tried once"
        lanes += [lane(lr) for lr in step.rates]
        step = tune(lanes)
        if not isinstance(step, Try):
            return step, lanes
    raise AssertionError("the search never ends")


@pytest.mark.parametrize("best", [1e-3, 0.02, 0.5, 0.9, 40])
def test_the_optimum_of_a_bowl_is_found_from_far_away(best):
    found, lanes = search(lambda lr: bowl(lr, best), first_rates(0.1))
    assert found.lr == pytest.approx(best * math.exp(-CAUTION / 0.5), rel=0.1)
    assert found.steps == pytest.approx(100, rel=0.04)
    assert len(lanes) <= MAX_LANES


@pytest.mark.parametrize("curvature", [0.5, 1.0, 3.0])
def test_a_parabola_is_read_exactly(curvature):
    """Its lowest point with caution, and its own steps there; caution bends it a little."""
    found, _ = search(lambda lr: bowl(lr, 0.47, curvature=curvature), rates_around(0.5, 1.3))
    below = CAUTION / curvature
    assert found.lr == pytest.approx(0.47 * math.exp(-below), rel=0.03)
    assert found.steps == pytest.approx(100 * math.exp(0.5 * curvature * below**2), rel=0.01)
    assert found.curvature == pytest.approx(curvature, rel=0.15)
    assert found.loss_at(found.lr * 2) == pytest.approx(0.5 * curvature * math.log(2) ** 2, rel=0.15)


@pytest.mark.parametrize("curvature", [0.01, 0.1, 0.3, 1.0, 3.0])
def test_caution_costs_little_however_flat_the_bowl(curvature):
    found, lanes = search(lambda lr: bowl(lr, 0.47, curvature=curvature), first_rates(0.1))
    assert 0.5 * curvature * math.log(found.lr / 0.47) ** 2 < 0.06
    assert len(lanes) <= MAX_LANES


def test_the_cliff_of_a_tent_is_approached_to_a_few_per_cent():
    for edge in (0.83, 1.0, 1.31):
        found, lanes = search(lambda lr, edge=edge: tent(lr, edge), first_rates(0.1))
        assert 0.85 * edge < found.lr <= edge
        assert found.steps == pytest.approx(30, rel=0.1)
        assert len(lanes) <= MAX_LANES


def test_a_best_rate_at_an_edge_extends_the_rates_on_that_side():
    low, high = (tune([bowl(lr, best) for lr in (0.1, 0.4, 1.6)]) for best in (0.01, 30))
    assert isinstance(low, Try)
    assert isinstance(high, Try)
    assert max(low.rates) < 0.1
    assert min(high.rates) > 1.6


def test_neighbours_stand_at_most_sqrt_2_apart_in_the_end():
    for best in (0.3, 0.45, 0.7):
        found, lanes = search(lambda lr, best=best: bowl(lr, best), first_rates(0.1))
        near = sorted(lane.lr for lane in lanes if 0.5 < lane.lr / found.lr < 2)
        assert max(b / a for a, b in itertools.pairwise(near)) <= SPACING * 1.021


def test_without_fine_a_bracket_is_enough():
    lanes = [bowl(lr) for lr in (0.1, 0.4, 1.6)]
    assert isinstance(tune(lanes), Try)
    assert isinstance(tune(lanes, fine=False), Tuned)


def test_when_all_diverge_lower_rates_are_tried_and_never_too_many():
    lanes, step = [], first_rates(1e9)
    while isinstance(step, Try):
        lanes += [Lane(lr, "diverged", math.inf) for lr in step.rates]
        step = tune(lanes)
    assert isinstance(step, Infeasible)
    assert len(lanes) == MAX_LANES
    assert min(lane.lr for lane in lanes) < 1e-3
    assert f"no rate of {MAX_LANES}" in step.reason


def test_a_loss_that_never_moves_does_not_spend_every_budget():
    found, lanes = search(lambda lr: Lane(lr, "exhausted", math.inf, 2.3), first_rates(0.1))
    assert isinstance(found, Infeasible)
    assert len(lanes) <= MOST_IN_VAIN + 2


def test_when_none_arrives_the_search_closes_in_on_the_lowest_loss_and_says_so():
    def lane(lr):
        return Lane(lr, "exhausted", math.inf, 1 + math.log(lr / 0.3) ** 2)

    found, lanes = search(lane, first_rates(0.1))
    assert isinstance(found, Infeasible)
    assert "does not arrive within the budget" in found.reason
    assert any(abs(math.log(one.lr / 0.3)) < math.log(SPACING) for one in lanes)


def test_what_a_diverged_lane_had_reached_before_does_not_count():
    lanes = [
        Lane(0.2, "diverged", math.inf),
        bowl(0.1),
        Lane(0.05, "slow", 300.0, 0.3),
        Lane(0.07, "slow", 200.0, 0.2),
    ]
    found = tune(lanes, fine=False)
    assert isinstance(found, Tuned)
    assert found.lr <= 0.1


def test_losses_that_are_all_equal_end_the_search():
    found, lanes = search(lambda lr: Lane(lr, "exhausted", math.inf, 2.5), first_rates(0.1))
    assert isinstance(found, Infeasible)
    assert len(lanes) <= MAX_LANES


def test_a_rate_is_pulled_to_the_law_for_about_a_per_cent_of_its_steps():
    """At curvature 2 a move of 0.1 in ln(rate) costs 1 % by the parabola's own account."""
    lanes = [bowl(lr, 0.5, curvature=2.0) for lr in (0.37, 0.5, 0.68)]
    alone = tune(lanes)
    for rate in (0.1, 2.0):
        pulled = tune(lanes, predicted=RateEstimate(math.log(rate), 0.1))
        shift = math.log(pulled.lr / alone.lr)
        assert shift * math.log(rate / alone.lr) > 0
        assert 0.005 < 0.5 * alone.curvature * shift**2 < 0.02
    near = tune(lanes, predicted=RateEstimate(math.log(alone.lr) + 0.04, 0.15))
    assert math.log(near.lr / alone.lr) == pytest.approx(0.02, abs=0.003), "halfway, where both are as sure"


def test_no_law_pulls_a_rate_over_a_cliff():
    lanes = [tent(lr) for lr in (0.9, 0.96, 1.02)]
    alone, pulled = (tune(lanes, predicted=law) for law in (None, RateEstimate(math.log(2.0), 0.1)))
    assert pulled.lr == alone.lr <= 1


def test_of_rates_that_are_as_good_the_lower_one_is_chosen():
    flat = [Lane(0.1, "met", 150.0, 0.1), Lane(0.14, "met", 100.0, 0.1), Lane(0.2, "met", 99.0, 0.1)]
    found = tune([*flat, Lane(0.28, "met", 101.0, 0.1), Lane(0.39, "slow", 140.0, 0.1)])
    assert isinstance(found, Tuned)
    assert 0.12 < found.lr < 0.18


def test_rates_have_three_digits():
    for rate in (*first_rates(1 / 3).rates, *rates_around(2 / 3, 1.1).rates):
        assert rate == float(f"{rate:.3g}")


def test_noise_does_not_keep_a_search_from_ending():
    rng = np.random.default_rng(0)
    for _ in range(200):
        level = rng.uniform(0, 0.5)
        best = math.exp(rng.uniform(-6, 3))

        def lane(lr, level=level, best=best):
            met = bowl(lr, best, cliff=best * 3)
            return Lane(lr, met.kind, met.steps * math.exp(level * rng.standard_normal()), met.loss)

        found, lanes = search(lane, first_rates(0.1))
        assert isinstance(found, Tuned)
        assert len(lanes) <= MAX_LANES
        met = [lane.lr for lane in lanes if lane.kind == "met"]
        assert min(met) <= found.lr <= max(met)


def test_a_best_rate_that_is_hardly_better_than_the_highest_one_is_a_matter_of_the_seed():
    """Steps fall smoothly toward 2.0, by less than caution makes of it."""
    rates = [0.25, 0.35, 0.5]
    flat = [Lane(lr, "met", steps, 0.1) for lr, steps in zip(rates, (43.0, 39.0, 38.0), strict=True)]
    step = tune(flat)
    assert isinstance(step, Try)
    assert min(step.rates) > 0.5
    clearly = [*flat[:2], Lane(0.5, "met", 44.0, 0.1)]
    assert isinstance(tune(clearly), Tuned)


@pytest.mark.parametrize(
    ("predicted", "most", "settled"),
    [
        (RateEstimate(math.log(1.05), 0.1), 32.0, True),
        (RateEstimate(math.log(1.05), 0.1), 28.0, False),  # slower than a smaller batch size
        (RateEstimate(math.log(0.8), 0.1), 32.0, False),
        (RateEstimate(math.log(1.05), 0.3), 32.0, False),
        (None, 32.0, False),
    ],
)
def test_no_lower_rate_is_tried_where_the_law_and_smaller_batch_sizes_know_better(predicted, most, settled):
    lanes = [Lane(1.0, "met", 30.0, 0.1), Lane(1.05, "slow", 34.0, 0.2)]
    step = tune(lanes, predicted=predicted, most=most)
    assert isinstance(step, Tuned) == settled
    if not settled:
        assert max(step.rates) < 1.0


def test_where_no_rate_arrives_before_a_cap_the_best_one_is_tried_again_and_no_lower_one():
    """The cap rises from round to round."""
    lanes = [Lane(lr, "slow", math.inf, loss) for lr, loss in ((0.1, 0.5), (0.14, 0.4), (0.2, 0.6))]
    assert tune(lanes) == Try((0.14,))


def test_a_best_rate_that_spent_its_budget_lacked_the_budget():
    spent = [Lane(lr, "exhausted", math.inf, loss) for lr, loss in ((0.1, 0.5), (0.14, 0.4), (0.2, 0.6))]
    assert tune(spent) == Infeasible("the best rate, 0.14, does not arrive within the budget", exhausted=True)
