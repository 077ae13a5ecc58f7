"""From records and rows to the tuned point of each batch size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bscrit.crossing import Crossing, CrossingTable, crossing_of
from bscrit.curve import Curve
from bscrit.fit.crossings import Family, families, from_records
from bscrit.fit.frontier import choose, rows_of
from bscrit.goal import Goal
from bscrit.order import Order
from bscrit.record import Record
from bscrit.trial import Trial


def record(
    batch_size=64,
    lr=0.1,
    seed=0,
    last=1000,
    level=1.0,
    status="reached",
    role="measure",
    targets=(0.1,),
    **trial,
) -> Record:
    """A run with loss = level (1 + step)^-1/2, evaluated at every step up to `last`."""
    steps = np.arange(0.0, last + 1)
    curve = Curve(steps, steps * batch_size, level / np.sqrt(1 + steps), steps)
    order = Order(role, 0, ((lr, seed),), targets, 10_000)
    return Record(Trial("quadratic", batch_size, lr, seed, **trial), order, status, "", curve)


def family(rows, diverged=()) -> Family:
    return Family((), None, tuple(rows), tuple(diverged))


class TestRecords:
    def test_runs_share_the_crossing_of_their_mean(self):
        runs = [record(seed=seed, level=level) for seed, level in enumerate((0.9, 1.0, 1.1))]
        found = from_records(runs).crossings
        crossing = crossing_of([run.curve for run in runs], 0.1)
        assert [crossing.steps for crossing in found] == pytest.approx(crossing.runs.tolist())
        assert np.exp(np.mean(np.log([c.steps for c in found]))) == pytest.approx(crossing.steps)
        assert {(c.lr, c.role, c.target, c.censored) for c in found} == {(0.1, "measure", 0.1, False)}
        assert [c.seed for c in found] == ["0", "1", "2"]

    def test_losses_of_batches_fluctuate_and_those_of_an_evaluation_set_do_not(self):
        noise = np.random.default_rng(0).normal(0, 0.01, 1001)
        for metric, uncertain in (("loss", False), ("train_loss", True)):
            run = record(goal=Goal(metric))
            curve = replace(run.curve, loss=run.curve.loss + noise, goal=Goal(metric))
            (crossing,) = from_records([replace(run, curve=curve)]).crossings
            assert (crossing.error > 0.01) == uncertain

    def test_a_run_that_does_not_arrive_is_censored_at_its_last_step(self):
        found = from_records([record(seed=0), record(seed=1, last=40, status="exhausted")]).crossings
        assert [(c.seed, c.censored) for c in found] == [("0", False), ("1", True)]
        assert found[0].steps == pytest.approx(99, rel=0.05)
        assert (found[1].steps, found[1].high) == (40, float("inf"))

    def test_every_run_is_censored_at_a_last_step_of_its_own(self):
        """Also where runs of one cohort ended at different steps, and where the last evaluation is no number."""
        lost = record(seed=2, last=60, status="stopped")
        lost.curve.loss[-1] = np.nan
        runs = [record(seed=0, last=40, status="exhausted"), record(seed=1, last=50, status="stopped"), lost]
        found = from_records([replace(run, order=runs[0].order) for run in runs]).crossings
        assert [(c.seed, c.steps, c.low, c.high) for c in found] == [
            ("0", 40, 40, float("inf")),
            ("1", 50, 50, float("inf")),
            ("2", 60, 60, float("inf")),
        ]
        assert all(crossing.censored for crossing in found)

    def test_a_run_that_made_no_step_bounds_nothing(self):
        assert from_records([record(last=0, status="stopped")]).crossings == ()

    def test_a_crossing_that_is_known_has_no_width(self):
        (crossing,) = from_records([record()]).crossings
        assert crossing.low == crossing.steps == crossing.high

    def test_diverged_failed_and_unfinished_runs(self):
        found = from_records(
            [
                record(lr=0.4, status="diverged", last=3),
                record(seed=1, status="failed", last=10),
                record(seed=2, status="running", last=10),
            ]
        )
        assert found.crossings == ()
        assert found.diverged == ((64.0, 0.4, ()),)
        assert "1 runs failed" in found.notes[0]

    def test_a_search_is_no_measurement_where_others_are_measured(self):
        """An interrupted sweep: the search that goes on, and the one that ended, at batch sizes that wait."""
        runs = [record(), record(128, role="search"), record(256, role="search", status="running")]
        assert [crossing.batch_size for crossing in from_records(runs).crossings] == [64]
        assert [crossing.batch_size for crossing in from_records(runs[1:]).crossings] == [128]
        lost = record(128, seed=1, status="diverged", last=3)
        assert [crossing.batch_size for crossing in from_records([*runs, lost]).crossings] == [64, 128]

    def test_every_target_of_the_sweep_unless_named(self):
        runs = [record(targets=(0.3, 0.1))]
        assert [c.target for c in from_records(runs).crossings] == [0.3, 0.1]
        assert [c.target for c in from_records(runs, [0.2]).crossings] == [0.2]

    def test_rates_and_roles_are_not_averaged_together(self):
        runs = [record(level=1.0), record(level=2.0, lr=0.05), record(level=3.0, role="search")]
        found = from_records(runs, [0.2]).crossings
        expected = {("measure", 0.1): 24, ("measure", 0.05): 99, ("search", 0.1): 224}
        for crossing in found:
            assert crossing.steps == pytest.approx(expected[crossing.role, crossing.lr], rel=0.06)

    def test_schedules_with_a_horizon_are_remembered(self):
        assert from_records([record()]).horizons == ()
        assert from_records([record(schedule={"use": "cosine", "horizon_steps": 99})]).horizons == ("cosine",)


class TestFamilies:
    def test_easiest_target_first_whichever_way_the_metric_goes(self):
        for targets in ((0.5, 0.1), (80.0, 90.0)):
            rows = [
                Crossing(float(b), s * f, target=target)
                for target, f in zip(targets, (1, 4), strict=True)
                for b, s in ((64, 100.0), (128, 70.0))
            ]
            assert [found.target for found in families(CrossingTable(tuple(rows[::-1])))] == list(targets)

    def test_diverged_settings_go_with_their_group(self):
        group = (("model", "a"),)
        rows = (Crossing(64.0, 10.0, group=group), Crossing(64.0, 10.0))
        lost = ((64.0, 0.1, group),)
        first, second = families(CrossingTable(rows, lost))
        assert (first.diverged, second.diverged) == (lost, ())


class TestChoice:
    def test_measured_runs_go_before_faster_searches(self):
        rows = [
            Crossing(64.0, 100.0, lr=0.1, role="search"),
            Crossing(64.0, 130.0, lr=0.1, role="measure", seed="1"),
            Crossing(64.0, 140.0, lr=0.1, role="measure", seed="2"),
            Crossing(64.0, 90.0, lr=0.2, role="search"),
        ]
        (point,) = choose(family(rows)).points
        assert (point.lr, [run.steps for run in point.runs]) == (0.1, [130.0, 140.0])
        assert not point.chosen_by_speed
        assert point.rates == (0.1, 0.2)

    def test_most_runs_then_the_fastest(self):
        rows = [
            *(Crossing(64.0, s, lr=0.1) for s in (100.0, 120.0)),
            *(Crossing(64.0, s, lr=0.2) for s in (90.0, 110.0)),
            Crossing(64.0, 50.0, lr=0.4),
        ]
        (point,) = choose(family(rows)).points
        assert point.lr == 0.2
        assert point.chosen_by_speed

    def test_a_rate_that_never_arrives_is_not_chosen(self):
        rows = [*[Crossing(64.0, 5000.0, lr=0.4, censored=True)] * 3, Crossing(64.0, 300.0, lr=0.1)]
        assert choose(family(rows)).points[0].lr == 0.1

    @pytest.mark.parametrize(
        ("best", "diverged", "edge", "beside"),
        [(0, (), "lowest", False), (1, (), "", False), (2, (), "highest", False), (2, (0.8,), "", True)],
    )
    def test_edges(self, best, diverged, edge, beside):
        rates = (0.1, 0.2, 0.4)
        rows = [Crossing(64.0, 100.0 + 50 * abs(i - best), lr=rate) for i, rate in enumerate(rates)]
        lost = [(64.0, rate, ()) for rate in diverged]
        (point,) = choose(family(rows, lost)).points
        assert (point.edge, point.beside_diverged) == (edge, beside)

    def test_a_rate_that_diverged_with_another_seed(self):
        rows = [Crossing(64.0, 100.0, lr=rate) for rate in (0.1, 0.2)]
        assert choose(family(rows, [(64.0, 0.1, ())])).points[0].beside_diverged

    def test_batch_sizes_without_a_feasible_rate(self):
        frontier = choose(family([Crossing(64.0, 100.0, lr=0.1)], [(128.0, 0.1, ()), (64.0, 0.2, ())]))
        assert frontier.infeasible == (128.0,)

    def test_a_rate_that_a_race_settled_has_no_edge(self):
        for raced, edge in ((False, "lowest"), (True, "")):
            rows = [
                Crossing(64.0, 100.0, lr=0.1, role="measure", raced=raced),
                Crossing(64.0, 120.0, lr=0.2, role="search"),
            ]
            assert choose(family(rows)).points[0].edge == edge

    def test_one_rate_at_a_batch_size_has_no_edge(self):
        assert choose(family([Crossing(64.0, 100.0, lr=0.1)])).points[0].edge == ""

    def test_arrays(self):
        rows = rows_of(
            choose(
                family(
                    [
                        Crossing(64.0, 100.0, low=90.0, high=110.0),
                        Crossing(64.0, 500.0, censored=True, low=500.0, high=float("inf")),
                        Crossing(128.0, 60.0, low=0.0, high=80.0),
                        Crossing(256.0, 50.0),
                    ]
                )
            )
        )
        assert rows.point.tolist() == [0, 0, 1, 2]
        assert np.exp(rows.y).tolist() == pytest.approx([100, 500, 80, 50])
        assert rows.side.tolist() == [0, 1, -1, 0]
        assert rows.gap.tolist() == pytest.approx([np.log(110 / 90), 0, 0, 0])
