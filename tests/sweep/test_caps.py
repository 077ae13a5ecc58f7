"""Caps: what a run may take before it is given up, and what a lower rate is allowed."""

import pytest

from bscrit.sweep.caps import RETREAT, lowered, repeat_cap, rule_cap, search_cap


def test_a_repeat_may_be_slower_by_its_seed_but_not_wander():
    """Seeds scatter by up to a third at small batch; at twice the steps it is the edge of stability."""
    assert 1.5 < repeat_cap(1000, 0, 10**6) / 1000 < 1.9


def test_a_search_may_be_slower_than_a_smaller_batch_size_by_the_luck_of_that_one():
    assert 1.4 < search_cap([3000, 1000, 700], 0, 10**6) / 1000 < 1.8


def test_a_cap_rises_after_every_round_in_which_no_run_arrived():
    """A smaller batch size that was lucky by a factor of 50 costs three rounds, not the batch size."""
    caps = [search_cap([1000, 20], in_vain, 10**6) for in_vain in range(4)]
    assert caps[1] > 3 * caps[0]
    assert caps[3] > 50 * 1000


def test_a_rule_has_several_times_the_steps_of_smaller_batch_sizes():
    assert 3 < rule_cap([3000, 1000], 10**6) / 1000 < 6
    assert rule_cap([], 10**6) == 0


def test_each_retreat_has_the_steps_that_a_lower_rate_takes():
    """Steps grow by the factor between the rates at most."""
    for retreats in (1, 2, 3):
        ratio = (repeat_cap(1e6, retreats, 10**9) - 10) / (repeat_cap(1e6, retreats - 1, 10**9) - 10)
        assert ratio == pytest.approx(RETREAT, rel=1e-4)
    assert 1.25 < 1 / lowered(1.0) < 1.5


def test_where_the_budget_ends_first_there_is_no_cap():
    assert repeat_cap(1000, 0, 1700) == 0
    assert search_cap([1000], 0, 10**6) == 0, "of one run, which may be lucky"


def test_a_target_of_a_few_steps_has_room():
    assert repeat_cap(2, 0, 1000) >= 12
