"""What is planned depends on what was observed, never on timing; and odd sweeps end too."""

from dataclasses import replace

import numpy as np
import pytest
from planned import BRITTLE, GRID, PROBLEM, RULE, spec
from simulated import FACTS, Quadratic, disturbed, sweep

from bscrit.sweep.largest_cost import largest_cost
from bscrit.sweep.plan import plan
from bscrit.sweep.tune import MAX_LANES


def told(records):
    return {n: (r.status, r.order, r.curve.loss.tobytes()) for n, r in records.items()}


CASES = {
    "race": (PROBLEM, spec()),
    "grid": (PROBLEM, spec(learning_rate=GRID, targets=[0.2, 0.05])),
    "targets that want one rate": (PROBLEM, spec(learning_rate=GRID, targets=[0.5, 0.2, 0.05])),
    "targets that want nearly one rate": (PROBLEM, spec(targets=[0.5, 0.3, 0.05])),
    "targets whose seeds are lost": (BRITTLE, spec(targets=[0.5, 0.3, 0.05])),
    "rule": (PROBLEM, spec(learning_rate=RULE)),
    "seeds are lost": (BRITTLE, spec()),
    "momentum": (
        replace(PROBLEM, momentum=0.8),
        spec(optimizer={"use": "sgd", "momentum": 0.8}, targets=[0.2]),
    ),
    "a budget of few steps": (PROBLEM, spec(max_steps=12)),
}


@pytest.mark.parametrize("case", CASES)
def test_timing_and_interruptions_change_nothing(case):
    """Workers and records in any order, kills at random: the same trials, orders and curves."""
    problem, of_case = CASES[case]
    undisturbed = told(sweep(problem, of_case))
    for seed in range(4):
        assert told(disturbed(problem, of_case, np.random.default_rng(seed), trouble=0.25)) == undisturbed


@pytest.mark.parametrize(
    "keys",
    [
        {"batch_sizes": [1]},
        {"batch_sizes": [64], "seeds": 1},
        {"batch_sizes": [2**k for k in range(12)] + [3 * 2**k for k in range(12)]},
        {"targets": [0.2, 0.1999, 0.1998]},
        {"targets": [2.0]},
        {"targets": [0.01]},
        {"max_steps": 1},
        {"max_steps": 3},
        {"learning_rate": {"tune": "race", "guess": 1e6}},
        {"learning_rate": {"tune": "race", "guess": 1e-9}, "max_steps": 300},
        {"learning_rate": {"tune": "grid", "rates": [1e5]}},
        {"learning_rate": {"tune": "grid", "rates": [0.5]}},
        {"learning_rate": {"tune": "rule", "base": 1e5, "base_batch_size": 1, "scaling": "linear"}},
    ],
    ids=str,
)
def test_odd_sweeps_end_and_then_plan_nothing(keys):
    odd = spec(**{"batch_sizes": [4, 64], "targets": [0.2], "max_steps": 400, **keys})
    records = sweep(PROBLEM, odd)
    assert plan(odd, FACTS, records.values()) == []
    assert len(records) <= largest_cost(odd)[0]
    assert sum(record.examples for record in records.values()) <= largest_cost(odd)[1]


@pytest.mark.parametrize("loss", [np.nan, 2.5])
def test_a_loss_that_is_never_a_number_or_never_moves_ends_in_bounded_time(loss):
    """A zero gradient for ever, or a broken model: no measurement, and no more lanes than a race may have."""
    still = Quadratic(np.array([0.0]), np.array([0.0]))
    constant = spec(batch_sizes=[4, 16], targets=[-1.0], max_steps=20)
    if np.isnan(loss):
        still = Quadratic(np.array([np.nan]), np.array([0.0]))
    records = sweep(still, constant)
    assert len(records) <= 2 * MAX_LANES
    assert {record.role for record in records.values()} == {"search"}
    assert {r.status for r in records.values()} == ({"diverged"} if np.isnan(loss) else {"exhausted"})
