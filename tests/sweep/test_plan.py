"""The plan: finished means nothing is planned, additions plan what is missing, and timing changes nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from planned import BRITTLE, GRID, PROBLEM, RULE, SIZES, spec
from simulated import FACTS, sweep, train

from bscrit.crossing import crossing_of
from bscrit.curve import Curve
from bscrit.fit.points import measured_points
from bscrit.order import Order
from bscrit.record import Record
from bscrit.sweep.batch_size import SEARCH_SEED, BatchSize
from bscrit.sweep.caps import CAP, MAX_RETREATS, RETREAT
from bscrit.sweep.measurement import is_served, measure, retreated
from bscrit.sweep.plan import plan
from bscrit.sweep.rates import Tuned


@pytest.fixture(scope="module")
def finished():
    return sweep(PROBLEM, spec())


def added(before, after):
    """What a further sweep trained, that the first had not."""
    return [after[name] for name in after if name not in before or after[name] is not before[name]]


def of(records):
    return {(record.trial.batch_size, record.role) for record in records}


def test_a_finished_sweep_plans_nothing_whatever_the_order_of_its_records(finished):
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(np.array(list(finished.values()), dtype=object))
        assert plan(spec(), FACTS, shuffled) == []


def test_a_plan_does_not_depend_on_the_order_of_records(finished):
    """At every moment of a sweep, and with a harder target, which begins around what was measured."""
    records = list(finished.values())
    for harder in (spec(), spec(targets=[0.5, 0.2, 0.02])):
        for count in range(0, len(records), 7):
            some = records[:count]
            planned = plan(harder, FACTS, some)
            assert plan(harder, FACTS, some[::-1]) == planned


def test_search_and_measurement_share_no_seed(finished):
    seeds = {
        role: {r.trial.seed for r in finished.values() if r.role == role} for role in ("search", "measure")
    }
    assert seeds["measure"] == {0, 1, 2}
    assert seeds["search"] == {SEARCH_SEED + size for size in SIZES}, "each size has its own"


def test_every_batch_size_is_measured_at_each_target(finished):
    for size in SIZES:
        for target in (0.5, 0.2, 0.05):
            groups: dict[float, list] = {}
            for record in finished.values():
                if record.role == "measure" and record.trial.batch_size == size:
                    groups.setdefault(record.trial.lr, []).append(record.curve)
            assert {len(curves) for curves in groups.values()} == {3}
            assert any(crossing_of(curves, target) for curves in groups.values())


@pytest.mark.parametrize("new", [1, 32, 1024])
def test_an_added_batch_size_trains_at_that_size_only(finished, new):
    after = sweep(PROBLEM, spec(batch_sizes=[*SIZES, new]), finished.values())
    assert of(added(finished, after)) == {(new, "search"), (new, "measure")}


def test_an_added_batch_size_begins_near_the_rates_of_its_neighbours_on_both_sides(finished):
    measured = {r.trial.batch_size: r.trial.lr for r in finished.values() if r.role == "measure"}
    for new, near in ((1, measured[4] / 4), (128, measured[64])):
        (first,) = plan(spec(batch_sizes=[*SIZES, new]), FACTS, finished.values())
        rates = sorted(trial.lr for trial in first.trials)
        assert len(rates) in (2, 3)
        assert 1 / 3 < np.sqrt(rates[0] * rates[-1]) / near < 3


def measured_at(records, size, lr, target):
    return [
        r
        for r in records.values()
        if (r.role, r.trial.batch_size, r.trial.lr, r.order.targets[-1]) == ("measure", size, lr, target)
    ]


def test_added_seeds_end_as_a_fresh_sweep_with_them_does(finished):
    """They alone train, as far as the earlier ones; all do where the mean of all meets the target later than that."""
    five = spec(seeds=5)
    after, fresh = sweep(PROBLEM, five, finished.values()), sweep(PROBLEM, five)
    assert plan(five, FACTS, after.values()) == []
    assert set(after) == set(fresh)
    new = added(finished, after)
    assert of(new) == {(size, "measure") for size in SIZES}
    retrained = []
    for record in fresh.values():
        if record.role != "measure" or record.trial.seed:
            continue
        place = record.trial.batch_size, record.trial.lr, record.order.targets[-1]
        runs, wanted = (measured_at(records, *place) for records in (after, fresh))
        assert [r.status for r in runs] == [r.status for r in wanted] == ["reached"] * 5
        same, fitted = (crossing_of([r.curve for r in records], place[2]).steps for records in (runs, wanted))
        assert same == pytest.approx(fitted, rel=0.03), "a window of few steps ends with the shortest curve"
        seeds = {r.trial.seed for r in new if r.trial.lr == place[1] and r.trial.batch_size == place[0]}
        retrained.append(seeds == set(range(5)))
        assert seeds in ({3, 4}, set(range(5)))
    assert True in retrained
    assert False in retrained


@pytest.mark.parametrize(
    "keys",
    [
        {"targets": [1.0, 0.5, 0.2, 0.05]},
        {"targets": [0.5, 0.2, 0.02]},
        {"batch_sizes": [*SIZES, 32, 1024]},
        {"seeds": 4, "batch_sizes": [1, *SIZES]},
    ],
    ids=str,
)
def test_what_is_added_ends_with_the_points_of_a_fresh_sweep(finished, keys):
    more = spec(**keys)
    after, fresh = sweep(PROBLEM, more, finished.values()), sweep(PROBLEM, more)
    assert plan(more, FACTS, after.values()) == []
    for target in more.sweep.targets:
        points, wanted = (measured_points(list(records.values()), target) for records in (after, fresh))
        assert [(p.batch_size, p.censored) for p in points] == [(p.batch_size, 0) for p in wanted]
        ratios = [p.steps / w.steps for p, w in zip(points, wanted, strict=True) if w.steps > 10]
        assert ratios == pytest.approx([1.0] * len(ratios), rel=0.35), "rates are searched from other sides"


def test_a_measured_trial_whose_folder_is_lost_trains_again_to_the_same_crossing(finished):
    lost = next(n for n, r in finished.items() if r.role == "measure" and r.trial.batch_size == 16)
    rest = {name: record for name, record in finished.items() if name != lost}
    after = sweep(PROBLEM, spec(), rest.values())
    assert [record.trial.name for record in added(rest, after)] == [lost]
    assert len(after[lost].curve) >= len(finished[lost].curve)


def test_fewer_seeds_targets_or_batch_sizes_train_nothing(finished):
    assert plan(spec(seeds=2), FACTS, finished.values()) == []
    assert plan(spec(batch_sizes=[4, 64]), FACTS, finished.values()) == []
    assert plan(spec(targets=[0.5, 0.05]), FACTS, finished.values()) == []


def test_an_easier_target_repeats_no_trial(finished):
    after = sweep(PROBLEM, spec(targets=[1.0, 0.5, 0.2, 0.05]), finished.values())
    assert all(record.trial.name not in finished for record in added(finished, after))
    assert len(added(finished, after)) < len(finished) / 3


def test_a_harder_target_begins_around_the_measured_rates_and_then_plans_nothing(finished):
    harder = spec(targets=[0.5, 0.2, 0.02])
    after = sweep(PROBLEM, harder, finished.values())
    assert plan(harder, FACTS, after.values()) == []
    rates = {r.trial.lr for r in finished.values() if r.role == "measure" and r.trial.batch_size == 4}
    first = plan(harder, FACTS, finished.values())
    assert [cohort.batch_size for cohort in first] == [4]
    assert any(trial.lr in rates for trial in first[0].trials)
    for size in SIZES:
        assert any(r.trial.batch_size == size and r.order.targets[-1] == 0.02 for r in after.values())


def test_more_budget_repeats_what_it_had_cut_short_with_the_other_seeds_of_its_mean_and_nothing_else():
    short = spec(max_steps=30)
    before = sweep(PROBLEM, short)
    assert any(record.status == "exhausted" for record in before.values())
    assert plan(short, FACTS, before.values()) == []
    after = sweep(PROBLEM, spec(), before.values())
    short_of = {(r.trial.batch_size, r.trial.lr) for r in before.values() if r.status == "exhausted"}
    for record in added(before, after):
        in_its_place = record.trial.batch_size, record.trial.lr
        assert record.trial.name not in before or in_its_place in short_of
    assert all(
        any(r.trial.batch_size == size and r.status == "reached" for r in after.values()) for size in SIZES
    )


def test_less_budget_plans_nothing(finished):
    assert plan(spec(max_steps=2000), FACTS, finished.values()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": {"use": "sgd", "momentum": 0.5}},
        {"optimizer": {"use": "sgd", "weight_decay": 0.1}},
    ],
)
def test_another_trial_is_never_taken_for_this_one(finished, change):
    other = spec(**change)
    assert plan(other, FACTS, finished.values()) == plan(other, FACTS, [])
    assert not any(other.asks_for(record.trial, FACTS.fingerprint) for record in finished.values())
    assert all(spec().asks_for(record.trial, FACTS.fingerprint) for record in finished.values())


def test_other_data_are_other_trials(finished):
    other = replace(FACTS, fingerprint="other")
    assert plan(spec(), other, finished.values()) == plan(spec(), other, [])


def test_settings_that_are_equal_in_python_but_not_in_their_key_are_other_trials(finished):
    """1 == 1.0, yet their folders differ: taking one for the other planned the same cohort for ever."""
    odd = [
        Record(replace(r.trial, settings={"power": 1}), r.order, "running")
        for r in list(finished.values())[:3]
    ]
    assert not any(spec().asks_for(record.trial, FACTS.fingerprint) for record in odd)


def test_where_seeds_are_lost_a_lower_rate_is_measured():
    records = sweep(BRITTLE, spec(targets=[0.05]))
    for size in SIZES:
        measured = [r for r in records.values() if r.role == "measure" and r.trial.batch_size == size]
        rates = sorted({record.trial.lr for record in measured}, reverse=True)
        assert len(rates) <= 1 + MAX_RETREATS
        assert all(a / b == pytest.approx(RETREAT, rel=0.01) for a, b in pairwise(rates))
        if len(rates) <= MAX_RETREATS:
            last = [record for record in measured if record.trial.lr == rates[-1]]
            assert {record.status for record in last} == {"reached"}
    assert any(record.status == "diverged" for record in records.values() if record.role == "measure")


def records_at(size, lr, targets, statuses, steps, cap=0):
    """Measured runs whose loss falls from 1 to 0 by `steps`, or stays where they were stopped or lost."""
    found = []
    for seed, status in enumerate(statuses):
        trial = spec().trial(size, lr, seed, FACTS.fingerprint)
        order = Order("measure", 0, ((lr, seed),), targets, 3000, cap, cap_seeds=int(cap > 0))
        x = np.arange(2 * steps + 1.0)
        loss = np.exp(-x / steps * np.log(20)) if status == "reached" else np.ones(len(x))
        found.append(Record(trial, order, status, curve=Curve(x, x * size, loss, 0 * x)))
    return found


def at(records, size=64, targets=(0.5, 0.2, 0.05)):
    return BatchSize(spec(), FACTS, size, targets, records)


def test_a_diverged_run_to_an_easier_target_serves_no_harder_one():
    """A diverged run counts for every target, so that its rate is a wall; yet it was never asked for a harder one."""
    rate = Tuned(1.0, 10.0)
    lost = records_at(64, 1.0, (0.5,), ["diverged"] * 3, 10)
    assert not is_served(at(lost), 0.2, rate, [])
    harder = records_at(64, 1.0, (0.5, 0.2, 0.05), ["reached"] * 3, 10)
    assert is_served(at(harder), 0.2, rate, [])
    assert is_served(at(lost + harder), 0.2, rate, [])


def test_runs_far_from_its_own_rate_do_not_serve_an_easier_target():
    harder = records_at(64, 0.5, (0.5, 0.2, 0.05), ["reached"] * 3, 10)
    assert not is_served(at(harder), 0.2, Tuned(1.0, 10.0), [])


def test_where_the_hardest_target_had_to_retreat_the_easier_rates_go_down_by_as_much():
    """All searches share their seed: one that was lucky at a high rate misled them all."""
    lucky = records_at(64, 1.0, (0.5, 0.2, 0.05), ["reached", "reached", "stopped"], 10, cap=27)
    lower = [
        replace(r, order=replace(r.order, round=1))
        for r in records_at(64, 0.5, (0.5, 0.2, 0.05), ["reached"] * 3, 10)
    ]
    here = at(lucky + lower)
    for lr, expected, served in ((4.0, 2.0, False), (1.02, 0.51, True)):
        rate = retreated(here, Tuned(lr, 10.0))
        assert rate.lr == expected
        assert is_served(here, 0.2, rate, []) == served, "its runs serve those that want nearly their rate"
    stopped = [replace(r, status="stopped") for r in lower]
    assert retreated(at(lucky + stopped), Tuned(4.0, 10.0)).lr == 4.0, "the lower rate is not right either"


def test_a_retreat_has_the_steps_that_a_lower_rate_takes():
    """At a rate lower by a factor, steps grow by that factor at most; so does the cap."""
    lucky = records_at(64, 1.0, (0.5, 0.2, 0.05), ["reached", "reached", "stopped"], 10, cap=27)
    cohort = measure(at(lucky), Tuned(1.0, 100.0), 0.05)
    assert {trial.lr for trial in cohort.trials} == {float(f"{1 / RETREAT:.3g}")}
    assert cohort.order.cap_steps == np.ceil(100 * CAP * RETREAT) + 10


def test_a_fixed_grid_trains_every_rate_and_measures_the_best_as_it_stands():
    records = sweep(PROBLEM, spec(learning_rate=GRID, targets=[0.05]))
    for size in SIZES:
        here = [record for record in records.values() if record.trial.batch_size == size]
        assert sorted(r.trial.lr for r in here if r.role == "search") == GRID["rates"]
        assert {r.trial.lr for r in here if r.role == "measure"} < set(GRID["rates"])


def test_a_rule_searches_nothing():
    records = sweep(PROBLEM, spec(learning_rate=RULE, targets=[0.05]))
    rates = {record.trial.batch_size: record.trial.lr for record in records.values()}
    assert rates == pytest.approx({4: 0.225, 16: 0.45, 64: 0.9, 256: 1.8})
    assert {record.role for record in records.values()} == {"measure"}


def test_a_lane_that_failed_too_often_is_passed_over():
    given_up = {trial.name for trial in plan(spec(), FACTS, [])[0].trials[:2]}
    records = sweep(PROBLEM, spec(), given_up=given_up)
    assert not given_up & set(records)
    assert {(size, "measure") for size in SIZES} <= of(records.values())


def test_a_seed_that_failed_too_often_is_left_out_of_the_measurement(finished):
    name = next(name for name, r in finished.items() if r.role == "measure" and r.trial.seed == 1)
    without = {n: r for n, r in finished.items() if n != name}
    assert plan(spec(), FACTS, without.values(), {name}) == []
    missing = plan(spec(), FACTS, without.values())
    assert [[trial.name for trial in cohort.trials] for cohort in missing] == [[name]]


def test_what_failed_is_tried_again_as_it_was_ordered(finished):
    name, record = next((n, r) for n, r in finished.items() if r.order.round == 0 and len(r.order.lanes) > 1)
    broken = {**finished, name: replace(record, status="failed")}
    cohorts = plan(spec(), FACTS, broken.values())
    assert [cohort.order for cohort in cohorts] == [record.order]
    assert name in {trial.name for trial in cohorts[0].trials}


@pytest.mark.parametrize("change", [{"device": "cuda:0"}, {"micro_batch": 2}, {"max_steps": 77}])
def test_what_was_begun_under_other_conditions_is_ordered_anew(change):
    """A device that is gone or a batch that did not fit would only fail again."""
    cohort = plan(spec(), FACTS, [])[0]
    stale = [Record(trial, replace(cohort.order, **change)) for trial in cohort.trials]
    assert plan(spec(), FACTS, stale)[0].order == replace(cohort.order, round=1)


def test_a_batch_size_that_no_rate_carries_to_the_target_does_not_stop_the_others():
    """At batch size 1 the noise floor of 12 steps lies above the target."""
    records = sweep(PROBLEM, spec(batch_sizes=[1, 64, 256], targets=[0.2], max_steps=14))
    assert {(size, role) for size, role in of(records.values()) if role == "measure"} == {
        (64, "measure"), (256, "measure"),
    }  # fmt: skip


def orders_at(records, size):
    return [record.order for record in records if record.trial.batch_size == size]


def test_a_target_that_examples_do_not_suffice_for_is_not_asked_at_larger_batch_sizes():
    """Examples to a target only grow with the batch size: where they ran out, they run out above."""
    short = spec(targets=[0.5, 0.05], batch_sizes=[4, 64, 256], max_examples=780)
    records = sweep(PROBLEM, short).values()
    assert any(0.05 in order.targets for order in orders_at(records, 64))
    assert all(
        r.status != "reached" for r in records if r.trial.batch_size == 64 and r.order.targets[-1] == 0.05
    )
    assert {order.targets for order in orders_at(records, 256)} == {(0.5,)}
    # It stays a target where a larger batch size has reached it nevertheless.
    lucky = records_at(256, 1.0, (0.5, 0.05), ["reached"] * 3, 5)
    more = plan(
        short.model_copy(update={"sweep": short.sweep.model_copy(update={"seeds": 5})}),
        FACTS,
        [*records, *lucky],
    )
    assert [cohort.order.targets for cohort in more if cohort.batch_size == 256] == [(0.5, 0.05)]


def test_a_target_that_steps_do_not_suffice_for_is_asked_at_larger_batch_sizes():
    """Steps to a target fall with the batch size."""
    records = sweep(PROBLEM, spec(targets=[0.5, 0.05], batch_sizes=[4, 256], max_steps=60)).values()
    assert not any(
        r.status == "reached" and r.order.targets[-1] == 0.05 for r in records if r.trial.batch_size == 4
    )
    assert any(
        r.status == "reached" and r.order.targets[-1] == 0.05 for r in records if r.trial.batch_size == 256
    )


def test_repeats_are_capped_and_searches_know_their_incumbents(finished):
    for record in finished.values():
        order = record.order
        assert order.raced == (order.role == "measure")
        if order.role == "measure":
            assert 0 < order.cap_steps < 3000
            assert order.incumbents == ()
        elif record.trial.batch_size < 64 or order.incumbents:
            assert order.cap_steps == 0, "the fewest steps of one search may be luck"
        else:
            assert 0 < order.cap_steps < 3000
    later = [r.order for r in finished.values() if r.role == "search" and r.order.round > 0]
    assert any(order.incumbents for order in later)


def test_noise_is_measured_where_a_batch_can_be_cut():
    data = {
        "workload": {"use": "least_squares"},
        "sweep": {"batch_sizes": [1, 7, 64], "targets": [0.1], "max_examples": 10**6},
    }
    from bscrit.spec import parse_spec

    noisy = parse_spec({**data, "noise": {"parts": 4}})
    records: dict[str, Record] = {}
    how = {}
    while cohorts := plan(noisy, FACTS, records.values()):
        for cohort in cohorts:
            if cohort.order.role == "measure":
                how[cohort.batch_size] = cohort.order.noise
            records |= {record.trial.name: record for record in train(PROBLEM, cohort)}
    assert how[1] is None, "one example has no parts"
    assert (how[7].parts, how[7].metrics) == (4, ("identity",))
    assert 1 <= how[64].every <= how[7].every <= 15, "a short run takes its samples closer together"
    silent = parse_spec({**data, "noise": {"source": "none"}})
    assert all(cohort.order.noise is None for cohort in plan(silent, FACTS, records.values()))
