"""Bad runs are set aside, clean ones are not: how often, and which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from frontiers import Design, simulate

from bscrit.fit.frontier import Rows
from bscrit.fit.robust import belongs, far_off, least_absolute


def spoil(rows: Rows, run: int, factor: float) -> Rows:
    y = rows.y.copy()
    y[run] += np.log(factor)
    return replace(rows, y=y)


@pytest.mark.parametrize("sigma", [0.02, 0.15])
@pytest.mark.parametrize(("batch_sizes", "seeds"), [(5, 1), (7, 1), (5, 3), (11, 3)])
def test_clean_frontiers_are_left_alone(batch_sizes, seeds, sigma):
    """The test's level is 0.5 % for all runs of a frontier together, at each of its two stages."""
    random = np.random.default_rng(1)
    design = Design(batch_sizes, seeds, sigma, tuning=1.0)
    spoiled = sum(not belongs(simulate(design, random)).all() for _ in range(400))
    assert spoiled <= 8


@pytest.mark.parametrize("factor", [11, 1 / 11, 2])
@pytest.mark.parametrize(("batch_sizes", "seeds"), [(7, 3), (5, 4), (9, 2)])
def test_one_bad_run_among_seeds(batch_sizes, seeds, factor):
    random = np.random.default_rng(2)
    for run in range(batch_sizes * seeds):
        rows = spoil(simulate(Design(batch_sizes, seeds, 0.05), random), run, factor)
        keep = belongs(rows)
        assert not keep[run]
        assert keep.sum() == len(keep) - 1


@pytest.mark.parametrize("factor", [11, 1 / 11])
def test_one_bad_run_among_single_runs(factor):
    random = np.random.default_rng(3)
    for run in range(9):
        assert np.flatnonzero(
            ~belongs(spoil(simulate(Design(9, 1, 0.05), random), run, factor))
        ).tolist() == [run]


def test_two_bad_runs_do_not_hide_each_other():
    rows = simulate(Design(11, 3, 0.05), np.random.default_rng(4))
    keep = belongs(spoil(spoil(rows, 3, 11), 7, 9))
    assert np.flatnonzero(~keep).tolist() == [3, 7]


@pytest.mark.parametrize("runs", [(0, 1, 2), (12, 13, 14), (12, 13)])
def test_runs_that_agree_are_never_set_aside(runs):
    """All or most of a batch size: it is then the curve that is in doubt."""
    rows = simulate(Design(9, 3, 0.05), np.random.default_rng(5))
    for run in runs:
        rows = spoil(rows, run, 8)
    assert belongs(rows)[list(runs)].all()


def test_where_many_are_far_off_none_is_set_aside():
    """Heavy tails: a run in nine takes three times as long."""
    rows = simulate(Design(9, 3, 0.02), np.random.default_rng(6))
    for run in range(0, 27, 9):
        rows = spoil(rows, run, 3)
    assert far_off(rows).sum() == 3
    assert belongs(rows).all()
    assert (
        np.flatnonzero(~belongs(spoil(simulate(Design(9, 3, 0.02), np.random.default_rng(6)), 9, 3))).size
        == 1
    )


def test_a_bend_at_the_end_is_no_bad_run():
    """A single run at the largest batch size that is twice off is a form of the curve, ten times off a mistake."""
    rows = simulate(Design(9, 1, 0.02), np.random.default_rng(6))
    assert belongs(spoil(rows, 8, 2)).all()
    assert np.flatnonzero(~belongs(spoil(rows, 8, 10))).tolist() == [8]
    assert np.flatnonzero(~belongs(spoil(rows, 4, 2))).tolist() == [4]


def test_a_bound_below_the_others_contradicts_nothing():
    rows = simulate(Design(7, 3, 0.05), np.random.default_rng(6))
    side = rows.side.copy()
    side[4] = 1
    assert belongs(replace(spoil(rows, 4, 0.05), side=side)).all()
    assert not belongs(replace(spoil(rows, 4, 20), side=side))[4]


@pytest.mark.parametrize("farthest", [1.0, 0.2])
def test_where_all_are_censored_the_farthest_run_is_the_bound(farthest):
    """Runs that gave up early contradict nothing."""
    rows = simulate(Design(9, 3, 0.02), np.random.default_rng(9))
    side = rows.side.copy()
    side[12:15] = 1
    early = spoil(spoil(replace(rows, side=side), 12, 0.05), 13, 0.05)
    assert belongs(spoil(early, 14, farthest)).all()


def test_a_wide_scatter_is_not_a_crowd_of_outliers():
    rows = simulate(Design(9, 1, 0.6), np.random.default_rng(7))
    assert belongs(rows).sum() >= 7


def test_four_single_runs_say_too_little_to_set_one_aside():
    rows = spoil(simulate(Design(4, 1, 0.02), np.random.default_rng(8)), 1, 11)
    assert belongs(rows).all()


def test_least_absolute_deviations_pass_a_bad_point_by():
    x = np.log(4.0) * np.arange(7)
    y = 1 + np.logaddexp(0, 4.0 - x)
    y[2] += 2
    assert least_absolute(x, y) == pytest.approx((1.0, 4.0), abs=0.1)
