"""Schedules against hand-computed factors."""

import math
import subprocess
import sys

import pytest

from bscrit.engine.schedule import factor, horizon


def factors(schedule, batch_size, steps):
    return [factor(schedule, step, batch_size) for step in steps]


def test_constant_is_one_for_ever():
    assert factors({}, 8, [0, 1, 10**9]) == [1.0, 1.0, 1.0]


def test_warm_up_in_examples_is_shorter_at_a_larger_batch_and_in_steps_is_not():
    assert horizon({"warmup_examples": 100}, 10) == {"warmup_steps": 10}
    assert horizon({"warmup_examples": 100}, 64) == {"warmup_steps": 2}
    assert horizon({"warmup_steps": 10}, 64) == {"warmup_steps": 10}
    assert factors({"warmup_examples": 100}, 25, range(5)) == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(("use", "middle"), [("cosine", 0.55), ("linear", 0.55)])
def test_decay_runs_from_the_warm_up_to_the_horizon(use, middle):
    schedule = {"use": use, "warmup_steps": 10, "horizon_steps": 110, "final": 0.1}
    assert factor(schedule, 9, 1) == 1.0
    assert factor(schedule, 10, 1) == 1.0
    assert factor(schedule, 60, 1) == pytest.approx(middle)
    assert factor(schedule, 110, 1) == pytest.approx(0.1)
    assert factor(schedule, 10**6, 1) == pytest.approx(0.1)


def test_cosine_and_linear_at_a_quarter():
    assert factor({"use": "cosine", "horizon_examples": 400}, 25, 4) == pytest.approx(
        (1 + math.cos(math.pi / 4)) / 2
    )
    assert factor({"use": "linear", "horizon_examples": 400}, 25, 4) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"use": "cosin", "horizon_steps": 3}, "cosine"),
        ({"warm_up_steps": 3}, "warmup_steps"),
        ({"warmup_steps": 3, "warmup_examples": 30}, "not both"),
        ({"warmup_steps": -3}, "warmup_steps"),
        ({"warmup_steps": "3"}, "warmup_steps"),
        ({"use": "cosine"}, "horizon"),
        ({"use": "cosine", "horizon_steps": 3, "warmup_steps": 3}, "longer"),
        ({"use": "cosine", "horizon_steps": 3, "final": 2}, "final"),
        ({"use": "constant", "horizon_steps": 3}, "horizon_steps"),
    ],
)
def test_a_contradiction_is_named(schedule, words):
    with pytest.raises(ValueError, match=words):
        factor(schedule, 0, 8)


def test_needs_no_torch():
    check = "import sys, bscrit.engine.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
