"""Seeds that differ by a factor of two and more: one lucky run costs some steps, and never a batch size or a target."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from planned import GRID, PROBLEM, RULE, SIZES, D, spec
from simulated import FACTS, Quadratic, disturbed, sweep, train

from bscrit.crossing import steps_to
from bscrit.fit.points import measured_points
from bscrit.sweep.batch_size import APART, SEEDS_AGAIN
from bscrit.sweep.plan import plan
from bscrit.sweep.summary import cost

HEAVY = Quadratic(D, 0.7 * D, luck=1.6, tails=3.0)
TARGET = 0.05


def told(records):
    return {n: (r.status, r.order, r.curve.loss.tobytes()) for n, r in records.items()}


def at(records, size, role):
    return [r for r in records.values() if (r.trial.batch_size, r.role) == (size, role)]


def is_searched_again(records, size):
    return any(r.trial.seed > APART for r in at(records, size, "search"))


@pytest.fixture(scope="module")
def swept():
    """Sweeps of a heavy-tailed problem, by their first seed."""
    specs = {first: spec(targets=[TARGET], first_seed=first) for first in range(0, 5000, 1000)}
    return {first: (own, sweep(HEAVY, own)) for first, own in specs.items()}


def test_no_batch_size_is_lost_to_a_lucky_search(swept):
    for own, records in swept.values():
        points = measured_points(list(records.values()), TARGET)
        assert [point.batch_size for point in points] == SIZES
        assert all(point.censored < point.runs for point in points)
        assert plan(own, FACTS, records.values()) == []


def test_luck_costs_no_multiple_of_the_winning_runs(swept):
    ratios = []
    for own, records in swept.values():
        trained, winning = cost(own, list(records.values()))
        ratios.append(trained / winning)
    assert np.median(ratios) < 6
    assert max(ratios) < 40


def test_where_most_repeats_meet_the_cap_the_search_is_repeated_on_several_seeds(swept):
    repeated = 0
    for _, records in swept.values():
        for size in SIZES:
            if not is_searched_again(records, size):
                continue
            repeated += 1
            seeds = defaultdict(set)
            for record in at(records, size, "search"):
                seeds[record.trial.lr, record.trial.seed > APART].add(record.trial.seed)
            assert all(len(found) == (SEEDS_AGAIN if again else 1) for (_, again), found in seeds.items())
            measured = sorted(at(records, size, "measure"), key=lambda r: r.order.round)
            capped = [r for r in measured if r.order.cap_seeds == 1]
            assert sum(r.status == "stopped" for r in capped) > len(capped) / 2
            assert measured[-1].order.cap_seeds != 1
    assert repeated > 2


def test_timing_and_interruptions_change_nothing(swept):
    first = next(f for f, (_, records) in swept.items() if is_searched_again(records, 16))
    own, records = swept[first]
    for seed in range(2):
        assert told(disturbed(HEAVY, own, np.random.default_rng(seed), trouble=0.2)) == told(records)


def test_repeats_at_the_rate_of_a_grid_go_on_to_the_budget():
    """The grid was tried on one seed, and no lower rate follows."""
    for first in range(0, 4000, 1000):
        own = spec(targets=[TARGET], learning_rate=GRID, first_seed=first)
        records = sweep(HEAVY, own)
        for size in SIZES:
            runs = at(records, size, "measure")
            assert {r.order.cap_steps for r in runs} == {0}
            assert "stopped" not in {r.status for r in runs}


def test_a_rule_beyond_its_range_costs_some_times_the_steps_of_smaller_batch_sizes():
    """Linear from batch size 4 on, rates are far beyond the edge at 64 and 256."""
    linear = {**RULE, "base": 0.25, "base_batch_size": 4, "scaling": "linear"}
    wandering = replace(PROBLEM, h=np.minimum(D, 0.1), c=0.7 * np.minimum(D, 0.1))
    own = spec(targets=[0.2], learning_rate=linear, max_steps=3000)
    records = sweep(wandering, own)
    reached = {}
    for size in SIZES:
        runs = at(records, size, "measure")
        if all(r.status == "reached" for r in runs):
            reached[size] = steps_to([r.curve for r in runs], 0.2, confirmed=False)
        capped = [r.order.cap_steps for r in runs]
        smaller = [steps for other, steps in reached.items() if other < size]
        assert capped == ([int(np.ceil(4 * min(smaller))) + 10] * 3 if smaller else [0] * 3)
    assert reached


def test_a_batch_size_whose_search_fails_holds_up_no_other_and_is_measured_once_it_is_mended():
    own = spec(targets=[TARGET])
    undisturbed = sweep(PROBLEM, own)
    until = {n: r for n, r in undisturbed.items() if r.trial.batch_size < 64}
    (lost,) = [cohort for cohort in plan(own, FACTS, until.values()) if cohort.batch_size == 64]
    killed = {r.trial.name: replace(r, status="failed") for r in train(PROBLEM, lost)}
    records = {**until, **killed}
    assert {c.batch_size for c in plan(own, FACTS, records.values(), set(killed))} == {256}
    healed = sweep(PROBLEM, own, list(records.values()))
    assert {r.trial.batch_size for r in healed.values() if r.role == "measure"} == set(SIZES)
