"""The measured point of a batch size: which rate, how many steps, and when they are only a bound."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import Quadratic, make_spec, sweep

from bscrit.crossing import Crossing, CrossingTable, steps_to
from bscrit.curve import Curve
from bscrit.fit.core import fit_table
from bscrit.fit.crossings import from_records
from bscrit.fit.points import measured_points
from bscrit.order import Order
from bscrit.record import Record


def points(*cells: list[tuple[float, bool]]):
    """Points of runs (steps, censored), one cell a batch size: 16, 32, ..."""
    rows = [
        Crossing(16.0 * 2**i, steps, censored=censored, seed=str(seed))
        for i, cell in enumerate(cells)
        for seed, (steps, censored) in enumerate(cell)
    ]
    (fit,) = fit_table(CrossingTable(tuple(rows))).fits
    return fit.points


def test_a_sweep_and_its_fit_have_the_same_points():
    spec = make_spec(batch_sizes=[4, 16, 64, 256], targets=[0.5, 0.2], seeds=2, max_steps=3000)
    records = list(sweep(Quadratic(), spec).values())
    for target, fit in zip((0.5, 0.2), fit_table(from_records(records)).fits, strict=True):
        assert measured_points(records, target) == fit.points
    assert measured_points(records, 1e-9)[0].censored == 2
    assert measured_points([], 0.2) == ()


def test_exact_runs_have_their_geometric_mean_and_an_interval():
    (point,) = points([(100.0, False), (400.0, False)])
    assert point.steps == pytest.approx(200)
    assert point.low < 200 < point.high


def test_where_some_are_censored_the_point_is_a_bound():
    """Five of six runs had not arrived: the lucky one is not the point."""
    (point,) = points([(100.0, False), *[(1600.0, True)] * 5])
    assert point.steps == pytest.approx(np.exp(np.mean(np.log([100, *[1600] * 5]))))
    assert (point.censored, point.low, point.high) == (5, None, None)


def test_a_run_that_gave_up_early_counts_as_the_others():
    (point,) = points([(100.0, False), (100.0, False), (2.0, True)])
    assert point.steps == pytest.approx(100)


def test_beyond_a_rise_points_are_those_of_the_runs_that_belong():
    """A bad run is set aside at the largest batch size too, where the fit does not reach."""
    fall = [[(1000 * (1 + 256 / (16 * 2**i)) * k, False) for k in (0.99, 1.0, 1.01)] for i in range(8)]
    rise = [(3000.0, False), (3030.0, False), (90_000.0, False)]
    last = points(*fall, rise)[-1]
    assert last.robust_weight == 0
    assert last.steps == pytest.approx(3015, rel=1e-3)


def test_a_bound_is_printed_as_one():
    rows = [
        Crossing(64.0, s, censored=c, seed=str(i)) for i, (s, c) in enumerate([(100.0, False), (900.0, True)])
    ]
    assert ">300.0" in str(fit_table(CrossingTable(tuple(rows))))


def test_no_share_of_a_mean_is_set_aside():
    """One of six seeds is far behind the others when their mean arrives: without it the mean would be another one."""
    steps = np.arange(401.0)
    records = []
    for size, scale in ((4, 200.0), (16, 100.0), (64, 60.0), (256, 50.0)):
        slow = [1.0] * 5 + [2.5 if size == 16 else 1.0]
        spec = make_spec(batch_sizes=[4, 16, 64, 256], targets=[0.5], seeds=6)
        order = Order("measure", 0, tuple((0.1, seed) for seed in range(6)), (0.5,), 10**6)
        curves = [Curve(steps, steps * size, 0.5 ** (steps / scale / s), 0 * steps) for s in slow]
        end = steps_to(curves, 0.5) * 1.12
        records += [
            Record(spec.trial(size, 0.1, seed, ""), order, "reached", curve=curve.until(end))
            for seed, curve in enumerate(curves)
        ]
    (fit,) = fit_table(from_records(records)).fits
    point = fit.points[1]
    assert (point.robust_weight, point.runs) == (1.0, 6)
    curves = [r.curve for r in records if r.trial.batch_size == 16]
    assert point.steps == pytest.approx(steps_to(curves, 0.5, confirmed=False))
