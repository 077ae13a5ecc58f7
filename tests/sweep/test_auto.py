"""Batch sizes that the sweep chooses: which ones, when it ends, and that timing changes nothing."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from exact import hyperbola, power_law
from inprocess import InProcess, Silent, offer, small_spec
from planned import GRID, PROBLEM, RULE
from simulated import FACTS, Quadratic, disturbed, make_spec, sweep, train

from bscrit.fit.core import fit_table
from bscrit.fit.crossings import from_records
from bscrit.fit.result import Caveat
from bscrit.fit.source import fit
from bscrit.spec import parse_spec
from bscrit.spec.errors import Source
from bscrit.sweep import auto as module
from bscrit.sweep import command
from bscrit.sweep.auto import FEWEST, MOST, active, choose
from bscrit.sweep.drive import drive
from bscrit.sweep.largest_cost import largest_cost
from bscrit.sweep.plan import plan
from bscrit.sweep.summary import summary

TARGET = 0.1


def auto(**keys):
    return make_spec(
        **{"batch_sizes": "auto", "precision": 0.4, "targets": [0.05], "max_steps": 20_000, **keys}
    )


def sizes_of(records):
    return sorted({record.trial.batch_size for record in records})


def fitted(records, target=None):
    return fit_table(from_records(records, target and [target])).fits[-1]


def half_width(fit):
    return math.log(fit.b_crit.high / fit.b_crit.low) / 2


def told(records):
    return {n: (r.status, r.order, r.curve.loss.tobytes()) for n, r in records.items()}


@pytest.fixture(scope="module")
def finished():
    return sweep(PROBLEM, auto())


def test_it_begins_with_three_batch_sizes_that_do_not_wait_for_a_fit():
    assert active(auto(), FACTS, []) == (8, 32, 128)
    (first,) = plan(auto(), FACTS, [])
    assert (first.batch_size, first.order.role) == (8, "search")


@pytest.mark.parametrize(
    ("examples", "begins", "largest"),
    [
        (None, (8, 32, 128), 8_388_608),
        (1437, (8, 32, 128), 1024),
        (100, (4, 16, 64), 91),
        (8, (1, 2, 4), 8),
        (3, (1, 2), 3),
    ],
)
def test_the_data_set_limits_them(examples, begins, largest):
    assert auto().beginning(examples) == begins
    assert auto().candidates(examples)[-1] == largest


def test_it_ends_when_the_interval_is_as_narrow_as_was_asked(finished):
    choice = choose(auto(), FACTS, finished.values())
    fit = fitted(finished.values())
    assert choice.batch_size is None
    assert choice.reason.startswith(
        "the precision of 0.4 is reached: ln B_crit at target 0.05 is known to +-0."
    )
    assert fit.verdict == "identified"
    assert half_width(fit) <= 0.4
    assert len(sizes_of(finished.values())) >= FEWEST
    assert {(r.trial.batch_size, "measure") for r in finished.values()} == {
        (r.trial.batch_size, r.role) for r in finished.values() if r.role == "measure"
    }


def test_a_narrow_interval_from_a_few_batch_sizes_is_not_trusted(finished, monkeypatch):
    monkeypatch.setattr(module, "FEWEST", len(sizes_of(finished.values())) + 1)
    assert choose(auto(), FACTS, finished.values()).batch_size is not None


@pytest.mark.parametrize(("code", "ends"), [("hangs-on-one", False), ("rate-at-edge", True)])
def test_doubts_that_a_further_batch_size_can_lift_keep_it_going(finished, monkeypatch, code, ends):
    fit = fitted(finished.values())
    doubtful = replace(fit, caveats=(Caveat(code, "", "", serious=True),))
    monkeypatch.setattr(module, "_fit", lambda *_: doubtful)
    assert (choose(auto(), FACTS, finished.values()).batch_size is None) == ends


def test_a_finished_sweep_plans_nothing_and_more_precision_adds_batch_sizes(finished):
    assert plan(auto(), FACTS, finished.values()) == []
    finer = auto(precision=0.05)
    (added,) = plan(finer, FACTS, finished.values())
    assert added.batch_size not in sizes_of(finished.values())
    assert added.batch_size in finer.candidates()


def test_the_choice_does_not_depend_on_the_order_of_records(finished):
    finer = auto(precision=0.05)
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(np.array(list(finished.values()), dtype=object))
        assert plan(finer, FACTS, shuffled) == plan(finer, FACTS, finished.values())


def test_added_seeds_train_at_the_batch_sizes_that_were_chosen_before_any_other(finished):
    more = plan(auto(seeds=5), FACTS, finished.values())
    assert [cohort.batch_size for cohort in more] == sizes_of(finished.values())
    assert all(cohort.order.role == "measure" and len(cohort.trials) == 2 for cohort in more)


def test_batch_sizes_of_a_list_are_taken_over():
    """A spec that turns from a list to auto goes on from what was measured."""
    listed = sweep(PROBLEM, make_spec(batch_sizes=[2, 16, 64], targets=[0.05], max_steps=20_000))
    assert active(auto(), FACTS, listed.values()) == (2, 16, 64)
    after = sweep(PROBLEM, auto(), listed.values())
    assert all(after[name] is record for name, record in listed.items())
    assert choose(auto(), FACTS, after.values()).reason.startswith("the precision")


def test_a_smaller_batch_size_starts_from_the_rates_of_the_larger_ones(finished):
    """Not from the fan of a first guess, which is for a sweep that knows nothing."""
    (smallest, *_) = sizes_of(finished.values())
    assert smallest < 8
    first = min(
        (r.order for r in finished.values() if r.trial.batch_size == smallest and r.role == "search"),
        key=lambda order: order.round,
    )
    rates = sorted(lr for lr, _ in first.lanes)
    assert len(rates) in (2, 3)
    assert rates[-1] / rates[0] < 4.5


CASES = {
    "race": (PROBLEM, auto(precision=0.7)),
    "several targets": (PROBLEM, auto(targets=[0.5, 0.05], precision=0.9)),
    "grid": (PROBLEM, auto(learning_rate=GRID, precision=0.9)),
    "rule": (PROBLEM, auto(learning_rate=RULE, precision=0.9)),
    "out of reach": (PROBLEM, auto(max_steps=30, precision=0.9)),
    "a budget": (PROBLEM, auto(precision=0.01, max_examples=50_000, max_total_examples=60_000)),
}


QUICK = ("race", "out of reach")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
def test_timing_and_interruptions_change_nothing(case):
    problem, spec = CASES[case]
    undisturbed = sweep(problem, spec)
    for seed in range(2):
        assert told(disturbed(problem, spec, np.random.default_rng(seed), trouble=0.25)) == told(undisturbed)
    assert choose(spec, FACTS, undisturbed.values()).batch_size is None
    trials, examples = largest_cost(spec)
    assert len(undisturbed) <= trials
    assert sum(record.examples for record in undisturbed.values()) <= examples


def test_the_budget_ends_it():
    problem, spec = CASES["a budget"]
    records = sweep(problem, spec)
    trained = sum(record.examples for record in records.values())
    assert (
        "max_total_examples, 60k examples, holds no further" in choose(spec, FACTS, records.values()).reason
    )
    assert trained < 1.2 * 60_000
    larger = replace_sweep(spec, max_total_examples=100_000)
    more = sweep(problem, larger, records.values())
    assert set(records) < set(more)
    assert len(sizes_of(more.values())) > len(sizes_of(records.values()))


def replace_sweep(spec, **keys):
    return spec.model_copy(update={"sweep": spec.sweep.model_copy(update=keys)})


@pytest.mark.slow
def test_it_ends_at_the_most_batch_sizes():
    spec = auto(precision=0.01)
    records = sweep(PROBLEM, spec)
    assert len(sizes_of(records.values())) == MOST
    assert "are the most that are tried" in choose(spec, FACTS, records.values()).reason


def test_it_ends_where_no_candidate_is_left():
    few = replace(FACTS, examples=6)
    records = {}
    spec = auto(precision=0.01, targets=[0.2], seeds=2)
    while cohorts := plan(spec, few, records.values()):
        for cohort in cohorts:
            records |= {record.trial.name: record for record in train(PROBLEM, cohort)}
    assert set(sizes_of(records.values())) <= {1, 2, 3, 4, 6}
    assert (
        "there is no larger batch size to try: ln B_crit at target 0.2 is lower bound"
        in choose(spec, few, records.values()).reason
    )


def test_batch_sizes_beyond_the_reach_of_the_budget_are_not_tried_twice():
    """Below the batch size that needs too many steps there is nothing to be had."""
    spec = auto(max_steps=30, precision=0.3)
    records = list(sweep(PROBLEM, spec).values())
    met = {r.trial.batch_size for r in records if r.role == "measure"}
    missed = set(sizes_of(records)) - met
    assert missed
    assert met
    assert max(missed) < min(met)
    assert len(missed) <= 3


def test_no_target_within_reach_ends_in_a_few_batch_sizes():
    spec = auto(targets=[1e-9], max_examples=3000, max_steps=30)
    records = sweep(PROBLEM, spec)
    assert len(sizes_of(records.values())) <= FEWEST
    assert choose(spec, FACTS, records.values()).reason == "no target was reached"


def test_an_easier_target_is_what_is_left_where_the_hardest_is_out_of_reach():
    spec = auto(targets=[0.5, 1e-9], max_examples=30_000, max_steps=400, precision=0.9)
    records = sweep(PROBLEM, spec)
    assert "at target 0.5 is known to" in choose(spec, FACTS, records.values()).reason


def test_an_engine_is_that_of_a_neighbour_that_was_looked_at():
    looked = replace(FACTS, engines={2: "vmap", 8: "vmap", 32: "loop"})
    assert [looked.engine_at(size) for size in (3, 8, 23, 128, 256)] == [
        "vmap",
        "vmap",
        "loop",
        "loop",
        "loop",
    ]


def test_batch_sizes_whose_warm_up_does_not_fit_are_no_candidates():
    tables = {
        "workload": {"use": "quadratic"},
        "schedule": {"use": "constant", "warmup_steps": 100},
        "sweep": {"batch_sizes": "auto", "targets": [0.1], "max_examples": 10_000},
    }
    assert parse_spec(tables).candidates()[-1] == 91
    tables["schedule"] = {"use": "linear", "warmup_steps": 100, "horizon_examples": 5000}
    assert parse_spec(tables).candidates()[-1] == 45


@pytest.mark.parametrize("examples", [None, 40])
def test_the_command_sweeps_reports_and_has_nothing_left_to_do(tmp_path, monkeypatch, examples):
    """From the look at the workload to the fit, with the real trainer in this process."""
    offer(monkeypatch, tmp_path, mock=lambda _: InProcess())
    sweep = {"batch_sizes": "auto", "precision": 0.9, "targets": [0.1], "max_steps": 4000}
    if examples:
        sweep |= {"max_examples": 10 * examples}  # from which batches of 64 and more are beyond reach
    spec = small_spec(sweep=sweep, compute={"executor": "mock"})
    outcome = drive(spec, tmp_path / "out", Silent())
    sizes = sizes_of(outcome.results.records)
    assert set(outcome.results.preflight.engines) == {2, 8, 32, 128, 512} & set(spec.candidates())
    assert "no batch size is added: " in summary(outcome)
    report = fit(tmp_path / "out")
    assert [point.batch_size for point in report.fits[-1].points] == sizes
    if examples is None:
        assert not any("not complete" in note for note in report.notes)
    again = drive(spec, tmp_path / "out", Silent())
    assert again.new == set()
    assert sizes_of(again.results.records) == sizes


def test_a_dry_run_says_what_auto_means_and_the_most_it_can_cost(tmp_path, monkeypatch, capsys):
    offer(monkeypatch, tmp_path, mock=lambda _: InProcess())
    tables = {
        **small_spec().source.data,
        "sweep": {"batch_sizes": "auto", "targets": [0.1], "max_examples": 30_000},
    }
    (tmp_path / "x.toml").write_text(Source("x.toml", tables).to_toml())
    overrides = ["compute.executor=mock", "sweep.precision=0.2", "sweep.max_total_examples=2e6"]
    assert command.sweep(tmp_path / "x.toml", tmp_path / "out", overrides, dry_run=True) == 0
    said = capsys.readouterr().out
    assert (
        "batch sizes 8, 32, 128 to begin with [examples], then one at a time from 1 to 2896, 20 at most:"
        in said
    )
    assert (
        "unless that would take more than 2M examples in all, until ln B_crit at 0.1 is known to +-0.2"
        in said
    )
    assert "batch size 8: search, rates 0.00156" in said
    assert re.search(r"at most \d+ trials and [\d.]+M examples, if every one spent its budget", said)


def exact(sizes, scale=1.0):
    """B_crit of the exact tuned steps at these batch sizes: the model's misfit there is part of the truth."""
    problem = power_law(noise=scale)
    return hyperbola(sizes, [problem.tuned(TARGET, size)[1] for size in sizes])[2]


def trial_run(number, scale=1.0, **keys):
    guess = 0.1 * math.exp(1.2 * np.random.default_rng(number).standard_normal())
    spec = auto(
        **{"targets": [TARGET], "precision": 0.2, "first_seed": 1000 * number, "max_steps": 200_000, **keys},
        learning_rate={"tune": "race", "guess": guess},
    )
    return list(sweep(Quadratic(c=scale / np.arange(1, 101)), spec).values())


@pytest.mark.slow
def test_truth():
    """The exact B_crit of the fixture is 59.295; other designs than its own differ from that by one or two per cent."""
    runs = [trial_run(number) for number in range(8)]
    fits = [fitted(records) for records in runs]
    held = [fit.b_crit.low <= 59.295 <= fit.b_crit.high for fit in fits]
    assert sum(held) >= 7, [fit.b_crit for fit in fits]
    assert np.median([fit.b_crit.value for fit in fits]) == pytest.approx(59.295, rel=0.05)
    assert max(map(half_width, fits)) <= 0.2
    listed = sweep(Quadratic(), make_spec(targets=[TARGET], max_steps=200_000)).values()
    examples = [sum(record.examples for record in records) for records in (*runs, listed)]
    assert np.median(examples[:-1]) < examples[-1] / 1.5


@pytest.mark.slow
@pytest.mark.parametrize("scale", [32.0, 0.05], ids=["about 2000", "about 3"])
def test_a_knee_far_from_where_it_begins_is_found(scale):
    for number in range(3):
        records = trial_run(number, scale)
        truth = exact(sizes_of(records), scale)
        fit = fitted(records)
        assert fit.verdict == "identified"
        assert half_width(fit) <= 0.2
        assert fit.b_crit.value == pytest.approx(truth, rel=0.25)
        assert truth == pytest.approx(59.295 * scale, rel=0.15)
