"""When lanes end: a pure function of curves and the order."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bscrit.cohort.evaluations import evaluation_after
from bscrit.cohort.judge import EXPLODED, Ending, judge
from bscrit.curve import Curve
from bscrit.goal import Goal
from bscrit.order import Order

STEPS = np.arange(0, 41, dtype=float)


def curve(loss, upto=None):
    loss = np.asarray(loss, float)[: None if upto is None else upto + 1]
    steps = STEPS[: len(loss)]
    return Curve(steps, 4 * steps, loss, np.zeros(len(loss)))


def falling(steps, upto=None):
    """Meets 1 after so many steps, from 2."""
    return curve(2 * 0.5 ** (STEPS / steps), upto)


def order(role="search", targets=(1.0,), max_steps=100, **keys):
    return Order(role, 0, lanes=((0.1, 0),), targets=targets, max_steps=max_steps, **keys)


def statuses(found):
    return [ending and ending.status for ending in found]


def test_evaluations_are_relative_and_at_least_one_step_apart():
    step, steps = 0, []
    while step < 10_000:
        later = evaluation_after(step)
        assert later == step + 1 or later / step <= 1.04
        steps.append(later)
        step = later
    assert len(steps) < 350
    assert steps[:50] == list(range(1, 51))


def test_a_lane_that_meets_the_hardest_target_has_reached_it():
    curves = [falling(10, 15), falling(30, 15)]
    found = judge(order(), curves, [None, None])
    assert statuses(found) == ["reached", "stopped"]
    assert found[0].reason == "loss 1 after 9.989 steps"


def test_a_crossing_needs_its_overrun():
    assert statuses(judge(order(), [falling(20, 20)], [None])) == [None]
    assert statuses(judge(order(), [falling(20, 22)], [None])) == ["reached"]


def test_who_is_slower_than_the_winner_is_stopped_ten_per_cent_later():
    fast = falling(20, 22)
    assert statuses(judge(order(), [fast, falling(21, 22)], [None, None])) == ["reached", None]
    ended = Ending("reached", "")
    assert statuses(judge(order(), [fast, falling(21, 23)], [ended, None])) == ["reached", "reached"]
    assert statuses(judge(order(), [fast, falling(25, 23)], [ended, None])) == ["reached", "stopped"]


def test_a_lane_that_can_still_win_at_an_easier_target_goes_on():
    """It lost at 0.5, yet leads at 1."""
    early = curve(np.maximum(2 * 0.5 ** (STEPS / 9), 0.6), 16)
    late = curve(np.where(STEPS < 12, 2, 0.4), 16)
    two = order(targets=(1.0, 0.5))
    assert statuses(judge(two, [early.until(8), late], [None, Ending("reached", "")])) == [None, "reached"]
    assert statuses(judge(two, [early, late], [None, Ending("reached", "")])) == ["stopped", "reached"]


def test_incumbents_of_earlier_rounds_count():
    slow = falling(30, 12)
    assert statuses(judge(order(incumbents=(10.0,)), [slow], [None])) == ["stopped"]
    assert statuses(judge(order(incumbents=(12.0,)), [slow], [None])) == [None]
    assert statuses(judge(order(), [slow], [None])) == [None]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_has_diverged_and_never_reached(loss):
    found = judge(order(), [curve([2, 0.5, loss])], [None])
    assert statuses(found) == ["diverged"]
    assert found[0].reason == "loss not finite at step 2"
    assert statuses(judge(order(), [curve([loss])], [None])) == ["diverged"], "from the start"


def test_an_exploding_loss_has_diverged():
    ceiling = 2 + EXPLODED * (2 - 1)
    assert statuses(judge(order(), [curve([2, ceiling * 1.01])], [None])) == ["diverged"]
    assert statuses(judge(order(), [curve([2, ceiling * 0.99])], [None])) == [None]


@pytest.mark.parametrize("start", [2.0, -2.0])
def test_beside_a_target_near_the_start_a_spike_of_twice_its_size_is_none(start):
    """As in fine-tuning: the ceiling is at least ten fifths of the start's size above it."""
    near = order(targets=(start - 0.01,))
    ceiling = start + EXPLODED * abs(start) / 5
    assert statuses(judge(near, [curve([start, ceiling + 0.01])], [None])) == ["diverged"]
    assert statuses(judge(near, [curve([start, ceiling - 0.01])], [None])) == [None]


def test_a_metric_that_rises_diverges_far_below_its_start():
    goal = Goal("return", "up")
    to_minus_one = order(targets=(-1.0,))
    fell = [
        replace(curve([2.0, loss]), goal=goal) for loss in (12.1, 11.9)
    ]  # returns from -2 to -12.1 and -11.9
    endings = judge(to_minus_one, fell, [None, None])
    assert statuses(endings) == ["diverged", None]
    assert endings[0].reason == "return -12.1, below -12 at step 1"
    accuracy = replace(curve([-0.5, 0.0]), goal=Goal("accuracy", "up"))  # from 0.5 to 0
    assert statuses(judge(order(targets=(0.9,)), [accuracy], [None])) == [None]


def test_a_metric_that_rises_is_named_where_it_arrives():
    rising = replace(curve(-2 + np.minimum(1.5 * STEPS / 20, 1.5)), goal=Goal("accuracy", "up"))
    falls = replace(rising, loss=-(2 + rising.loss))  # an accuracy that rises from 0 to 1.5
    (ending,) = judge(order(targets=(0.75,)), [falls], [None])
    assert ending.status == "reached"
    assert ending.reason.startswith("accuracy 0.75 after ")


def test_a_winner_that_diverged_stops_nobody():
    """Its curve met the target before it broke; on another seed it may never arrive."""
    lost = curve([*falling(5, 20).loss, math.nan])
    assert statuses(judge(order(), [lost, falling(30, 21)], [None, None])) == ["diverged", None]


def test_a_spent_budget_is_exhausted_or_reached_on_its_last_step():
    assert statuses(judge(order(max_steps=20), [falling(30, 20)], [None])) == ["exhausted"]
    assert statuses(judge(order(max_steps=20), [falling(19, 20)], [None])) == ["reached"]
    assert statuses(judge(order(max_steps=20), [falling(30, 19)], [None])) == [None]


def test_the_cap_of_a_search_ends_it():
    assert statuses(judge(order(cap_steps=15), [falling(30, 15)], [None])) == ["stopped"]
    assert statuses(judge(order(cap_steps=15), [falling(30, 14)], [None])) == [None]


def test_measured_lanes_end_together_when_their_mean_arrives():
    """One of them alone would have ended at step 11."""
    curves = [falling(10, 13), falling(18, 13)]
    assert statuses(judge(order("measure"), curves, [None, None])) == [None, None]
    found = judge(order("measure"), [falling(10, 15), falling(18, 15)], [None, None])
    assert statuses(found) == ["reached", "reached"]
    assert "mean loss of 2 seeds" in found[0].reason


def test_the_mean_is_over_seeds_that_train_or_have_arrived():
    """One that was given up never arrives, and would hold up the others; one that arrived counts as it did before."""
    slow, given_up = falling(25, 20), falling(400, 20)
    stopped, reached, failed = Ending("stopped", ""), Ending("reached", ""), Ending("failed", "")
    one = judge(order("measure"), [falling(15, 20), given_up], [None, stopped])
    assert statuses(one) == ["reached", "stopped"]
    assert "mean loss of 1 seeds" in one[0].reason
    assert statuses(judge(order("measure"), [falling(15, 20), given_up], [None, failed])) == [
        "reached",
        "failed",
    ]
    both = judge(order("measure"), [slow, falling(10, 20)], [None, reached])
    assert statuses(both) == ["reached", "reached"]
    assert "mean loss of 2 seeds" in both[0].reason
    assert statuses(judge(order("measure"), [slow], [None])) == [None]


def test_a_measured_lane_that_diverged_does_not_hold_up_the_others():
    lost = curve([*falling(10, 5).loss, math.nan])
    found = judge(order("measure"), [lost, falling(10, 20)], [Ending("diverged", ""), None])
    assert statuses(found) == ["diverged", "reached"]


def test_at_the_cap_each_repeat_stands_for_itself():
    capped = order("measure", cap_steps=30)
    found = judge(capped, [falling(10, 30), falling(200, 30)], [None, None])
    assert statuses(found) == ["reached", "stopped"]
    assert "alone of its seeds" in found[0].reason


def test_endings_stand():
    ended = Ending("stopped", "long ago")
    found = judge(order(), [falling(30, 5), falling(10, 15)], [ended, None])
    assert found[0] is ended


def test_nothing_to_judge():
    assert judge(order(), [], []) == []
    assert judge(order("measure"), [falling(10)], [Ending("reached", "")]) == [Ending("reached", "")]


def test_replaying_the_curves_gives_the_same_endings():
    """What an interrupted cohort sees again, it decides again."""
    curves = [falling(steps) for steps in (10, 11, 14, 30)]
    race = order(targets=(1.5, 1.0))

    def play(known):
        endings = list(known)
        for step in range(41):
            stands = [end if end and known[row] is None else None for row, end in enumerate(endings)]
            for row, end in enumerate(known):
                if end is not None and ended_at[row] <= step:
                    stands[row] = end
            seen = [c.until(min(step, ended_at.get(row, step))) for row, c in enumerate(curves)]
            for row, end in enumerate(judge(race, seen, stands)):
                if endings[row] is None and end is not None:
                    endings[row] = end
                    ended_at[row] = step
        return endings

    ended_at: dict[int, int] = {}
    whole = play([None] * 4)
    assert statuses(whole) == ["reached", "reached", "stopped", "stopped"]
    first = dict(ended_at)
    for lost in range(4):
        ended_at = {row: step for row, step in first.items() if row != lost}
        assert play([None if row == lost else end for row, end in enumerate(whole)]) == whole


def test_rates_with_several_seeds_race_by_their_mean():
    """The first rate has a lucky seed and one that stays where it is; the second is faster on average."""
    curves = [falling(4, 22), curve(np.full(23, 2.0)), falling(19, 22), falling(20, 22)]
    rates = [0.1, 0.1, 0.2, 0.2]
    endings = judge(order(), curves, [None] * 4, rates)
    assert statuses(endings) == ["stopped", "stopped", "reached", "reached"]
    alone = judge(order(), curves, [None] * 4)
    assert alone[0].status == "reached", "each a rate of its own"


def test_a_rate_that_lost_a_seed_is_out_of_the_race():
    curves = [curve([2, math.nan]), falling(10, 1), falling(20, 1)]
    assert statuses(judge(order(), curves, [None] * 3, [0.4, 0.4, 0.1])) == ["diverged", "stopped", None]


def test_a_seed_that_is_added_trains_as_far_as_the_others():
    late = order("measure", least_steps=20)
    assert statuses(judge(late, [falling(10, 19)], [None])) == [None]
    assert statuses(judge(late, [falling(10, 20)], [None])) == ["reached"]
