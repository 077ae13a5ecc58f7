"""The closing summary: counts, cost, what is missing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from planned import GRID, RULE
from simulated import FACTS, Quadratic, make_spec, sweep

from bscrit.fit.source import fit
from bscrit.results import Results
from bscrit.sweep.drive import Outcome
from bscrit.sweep.progress import point_of
from bscrit.sweep.summary import DEAR, cost, evaluation, missing, summary
from bscrit.words import number

SPEC = make_spec(batch_sizes=[4, 64], targets=[0.5, 0.2], seeds=2, max_steps=2000)


@pytest.fixture(scope="module")
def records():
    return list(sweep(Quadratic(), SPEC).values())


def of(records, spec=SPEC):
    return Results(Path("results/x"), tuple(records), spec, FACTS)


def told(records, spec=SPEC, **outcome):
    return summary(Outcome(of(records, spec), **outcome))


def test_every_batch_size_has_its_row(records):
    lines = told(records).splitlines()
    assert lines[0].split() == ["batch", "size", "trials", "steps", "to", "0.5", "steps", "to", "0.2"]
    for line, size in zip(lines[1:3], (4, 64), strict=True):
        here = [record for record in records if record.trial.batch_size == size]
        assert line.split()[:2] == [str(size), str(len(here))]
        for target in (0.5, 0.2):
            point = point_of(here, target)
            assert f"{number(point.steps, 4)} at rate {point.lr:.3g}" in line
    assert "results/x" in lines[-1]


def test_its_points_are_those_of_the_fit(records):
    lines = told(records).splitlines()
    for target, fitted in zip((0.5, 0.2), fit(of(records)).fits, strict=True):
        assert fitted.target == target
        for line, point in zip(lines[1:3], fitted.points, strict=True):
            assert f"{number(point.steps, 4)} at rate {point.lr:.3g}" in line


def test_a_point_that_some_runs_missed_is_a_bound(records):
    """One of two measured runs ends before the target."""
    long = [r for r in records if r.role == "measure" and r.trial.batch_size == 4]
    lost = replace(long[0], status="exhausted", curve=long[0].curve.until(long[0].curve.steps[-1] / 2))
    line = told([r if r is not long[0] else lost for r in records]).splitlines()[1]
    assert re.search(r" >[\d.,]+ at rate", line), line


def test_trials_are_counted_by_status_reused_and_new(records):
    new = {record.trial.name for record in records[:3]}
    text = told(records, new=new)
    counts = [sum(r.status == status for r in records) for status in ("reached", "stopped", "diverged")]
    listed = ", ".join(
        f"{n} {s}" for n, s in zip(counts, ("reached", "stopped", "diverged"), strict=True) if n
    )
    assert f"{len(records)} trials: {listed}; {len(records) - 3} reused, 3 new" in text


def test_trials_of_another_spec_are_named_and_left_out(records):
    other = make_spec(batch_sizes=[4], targets=[0.5, 0.2], seeds=2, max_steps=2000)
    here = sum(record.trial.batch_size == 4 for record in records)
    text = told(records, spec=other)
    assert f"{here} trials:" in text
    assert f"{len(records) - here} other trials in this folder, not reused" in text


def test_trials_of_other_data_or_code_are_counted_and_not_reused(records):
    changed = replace(FACTS, fingerprint="other")
    own = [replace(r, trial=replace(r.trial, fingerprint="other")) for r in records[:2]]
    text = summary(Outcome(Results(Path("results/x"), (*records, *own), SPEC, changed)))
    assert "2 trials:" in text
    assert f"{len(records)} trials of other data or code: not reused" in text
    assert "other trial" not in text
    assert "of other data or code" not in told(records)


def test_what_was_not_replayed_is_said_once(records):
    refused = [replace(record, facts={**record.facts, "not_replayed": "step: no"}) for record in records]
    assert told(refused).count("not replayed, and so slower: step: no") == 1
    assert "not replayed" not in told(records)


def test_the_cost_is_set_against_the_winning_runs(records):
    trained, winning = cost(SPEC, records)
    assert trained == sum(record.examples for record in records)
    measured = [r for r in records if r.role == "measure" and r.order.targets[-1] == 0.2]
    groups = [[r for r in measured if r.trial.batch_size == size] for size in (4, 64)]
    assert winning >= sum(point_of(group, 0.2).examples * 2 for group in groups)
    assert 1 < trained / winning < 10
    assert f"= {trained / winning:.2f}" in told(records)


def test_without_a_measured_run_there_is_no_cost_ratio(records):
    searched = [record for record in records if record.role == "search"]
    assert "cost:" not in told(searched)
    assert [(point.target, point.batch_sizes) for point in missing(of(searched))] == [
        (0.5, (4, 64)),
        (0.2, (4, 64)),
    ]
    assert missing(of(records)) == []


def test_a_missing_point_tells_the_lowest_loss_seen(records):
    harder = make_spec(batch_sizes=[4, 64], targets=[0.5, 1e-9], seeds=2, max_steps=2000)
    (point,) = missing(of(records, harder))
    lowest = min(float(record.curve.loss.min()) for record in records if record.status != "diverged")
    assert point.target == 1e-9
    assert point.best <= lowest
    assert "batch size 4, 64" in str(point)


@pytest.mark.parametrize(
    ("status", "keys", "ends", "remedy"),
    [
        ("exhausted", {}, "spent the budget", "raise sweep.max_steps, or choose easier targets"),
        ("exhausted", {"max_examples": 6400}, "spent the budget", "raise sweep.max_examples"),
        ("stopped", {}, "met a cap", "choose easier targets"),
        ("stopped", {"learning_rate": RULE}, "met a cap", "--set learning_rate.tune=race"),
        ("diverged", {"learning_rate": GRID}, "diverged", "add lower rates"),
    ],
)
def test_a_missing_point_names_what_ended_its_runs_and_the_remedy_against_that(
    records, status, keys, ends, remedy
):
    spec = make_spec(**{"batch_sizes": [64], "targets": [1e-9], "seeds": 2, "max_steps": 2000, **keys})
    runs = [replace(r, status=status) for r in records if (r.role, r.trial.batch_size) == ("measure", 64)]
    (point,) = missing(of(runs, spec))
    assert str(point).endswith(f"; {len(runs)} runs {ends}")
    assert remedy in point.remedy


def test_no_records_at_all():
    assert "0 trials: none" in told([])


def test_what_was_given_up_is_a_line_with_rate_seed_reason_and_log(records, tmp_path):
    lost = next(record for record in records if record.role == "measure")
    failed = replace(lost, status="failed", reason="the worker was killed", folder=tmp_path)
    rest = [record for record in records if record is not lost]
    text = told([*rest, failed], given_up={lost.trial.name: "the worker was killed"})
    assert (
        f"failed: batch size {lost.trial.batch_size}: the worker was killed "
        f"(rate {lost.trial.lr:.3g}, seed {lost.trial.seed}, log {tmp_path}/log.txt)"
    ) in text
    assert "1 failed" in text


def test_batch_sizes_that_the_sweep_chose_are_listed_with_the_reason_for_its_end(records):
    auto = make_spec(batch_sizes="auto", targets=[0.5, 0.2], seeds=2, max_steps=2000, precision=0.7)
    chosen = list(sweep(Quadratic(), auto, records).values())
    lines = told(chosen, auto).splitlines()
    sizes = sorted({record.trial.batch_size for record in chosen})
    assert [int(line.split()[0]) for line in lines[1 : 1 + len(sizes)]] == sizes
    (end,) = [line for line in lines if line.startswith("no batch size is added: ")]
    assert "the precision of 0.7 is reached: ln B_crit at target 0.2 is known to +-0." in end
    assert missing(of(chosen, auto)) == []


def test_a_sweep_that_chose_a_batch_size_but_trained_nothing_says_so():
    auto = make_spec(batch_sizes="auto", targets=[0.5], seeds=2, max_steps=2000)
    assert "no batch size is added: nothing could be trained at batch size " in told([], auto)


def test_measured_runs_whose_updates_were_mostly_clipped_are_noted(records):
    def clipped(share, role="measure"):
        return told([replace(r, facts={**r.facts, "clipped": share * (r.role == role)}) for r in records])

    assert "most gradients of a run were clipped at batch size 4 (83 %), 64 (83 %)" in clipped(0.834)
    assert "clip" not in clipped(0.5)
    assert "clip" not in clipped(0.9, "search")


def test_the_share_of_evaluation_is_that_of_all_cohorts_and_has_a_remedy_where_it_may_be_large(records):
    timed = [
        replace(record, facts={**record.facts, "seconds": 8.0, "evaluation_seconds": 2.0})
        for record in records
    ]
    (line,) = evaluation(DEAR, timed)
    bound = "of a run's time at any batch size, as timed before"
    assert line == f"evaluation: 25 % of the training time, at most 50 % {bound}"
    (line,) = evaluation(DEAR + 0.1)
    assert line.startswith(f"evaluation: at most 60 % {bound}; [sweep] validation_examples")
    assert evaluation(0.0, timed) == []
