"""Facts of optimizers, and schedules against hand-computed factors."""

import math
import subprocess
import sys

import pytest

from bscrit.position import Position
from bscrit.recipe import Recipe
from bscrit.recipe.optimizers import OPTIMIZERS
from bscrit.recipe.schedules import SCHEDULES

SGD, ADAM = {"use": "sgd"}, {"use": "adam"}


def optimizer(**table):
    return Recipe.read(table).optimizer


def factors(table, batch_size, steps):
    schedule = Recipe.read(SGD, table).schedule
    return [schedule.factor(Position(step, step * batch_size), batch_size) for step in steps]


class TestOptimizer:
    def test_settings_default_to_those_of_torch(self):
        assert optimizer(use="adamw", beta2=0.99).at(1) == {
            "use": "adamw", "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.01,
        }  # fmt: skip
        assert optimizer(use="rmsprop").at(1) == {
            "use": "rmsprop", "alpha": 0.99, "eps": 1e-5, "momentum": 0.0, "weight_decay": 0.0,
        }  # fmt: skip
        assert optimizer(use="rmsprop", momentum=0.5).first_guess(4) == 5e-4
        assert optimizer().at(1) == {"use": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}

    def test_clip_is_a_key_of_each_and_may_follow_the_batch_size(self):
        for kind in OPTIMIZERS:
            use = kind.model_fields["use"].annotation.__args__[0]
            assert "clip" not in optimizer(use=use).at(4)
            assert optimizer(use=use, clip="1 / sqrt(batch_size)").at(4)["clip"] == 0.5

    def test_the_rate_of_adaptive_ones_grows_with_the_root_and_their_updates_have_no_temperature(self):
        sgd, adam = optimizer(use="sgd", momentum="1 - 1 / batch_size"), optimizer(use="adam")
        assert (sgd.adaptive, sgd.rate_power, adam.adaptive, adam.rate_power) == (False, 1.0, True, 0.5)
        assert optimizer(use="adamw").adaptive
        assert (sgd.first_guess(4), adam.first_guess(4)) == (pytest.approx(0.025), 1e-3)
        assert sgd.temperature(0.1, 4) == pytest.approx(0.1 / 0.25 / 4)
        assert adam.temperature(0.1, 4) is None

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({"use": "sdg"}, "sgd"),
            ({"use": "sgd", "beta1": 0.9}, "beta1"),
            ({"use": "sgd", "momentum": 1.0}, "momentum"),
            ({"use": "sgd", "momentum": "nine"}, "momentum"),
            ({"use": "sgd", "momentum": 0.9, "nesterov": 1}, "nesterov"),
            ({"use": "adam", "weight_decay": -1}, "weight_decay"),
            ({"use": "adam", "eps": float("nan")}, "eps"),
            ({"use": "adam", "clip": 0}, "clip"),
        ],
    )
    def test_a_wrong_setting_is_named(self, table, words):
        with pytest.raises(ValueError, match=words):
            Recipe.read(table)

    @pytest.mark.parametrize(
        ("table", "keys"),
        [
            ({"momentum": "1 - 8 / batch_size"}, ["momentum"]),
            ({"momentum": "1 / (batch_size - 4)", "nesterov": True}, ["momentum"]),
            ({"nesterov": True}, ["nesterov"]),
            ({"nesterov": True, "momentum": 0.5}, []),
            ({"clip": "4 - batch_size", "weight_decay": "2 - batch_size"}, ["clip", "weight_decay"]),
        ],
    )
    def test_problems_at_one_batch_size(self, table, keys):
        assert sorted(key for key, _, _ in optimizer(**table).problems(4)) == keys


class TestSchedule:
    def test_constant_is_one_for_ever(self):
        assert factors({}, 8, [0, 1, 10**9]) == [1.0, 1.0, 1.0]

    def test_warm_up_in_examples_is_shorter_at_a_larger_batch_and_in_steps_is_not(self):
        examples = Recipe.read(SGD, {"warmup_examples": 100}).schedule
        steps = Recipe.read(SGD, {"warmup_steps": 10}).schedule
        assert [examples.warmup_at(size) for size in (10, 64)] == [10, 2]
        assert [steps.warmup_at(size) for size in (10, 64)] == [10, 10]
        assert factors({"warmup_examples": 100}, 25, range(5)) == [0.25, 0.5, 0.75, 1.0, 1.0]

    @pytest.mark.parametrize(
        ("use", "quarter"), [("cosine", (1 + math.cos(math.pi / 4)) / 2), ("linear", 0.75)]
    )
    def test_decay_runs_from_the_warm_up_to_the_horizon(self, use, quarter):
        table = {"use": use, "warmup_steps": 10, "horizon_steps": 110, "final": 0.1}
        assert factors(table, 1, [9, 10]) == [1.0, 1.0]
        late = [0.1 + 0.9 * quarter, 0.55, 0.1, 0.1]
        assert factors(table, 1, [35, 60, 110, 10**6]) == pytest.approx(late)
        assert factors({"use": use, "horizon_examples": 400}, 4, [25]) == pytest.approx([quarter])

    def test_lengths_in_examples_go_on_where_the_batch_size_changes_and_lengths_in_steps_count_updates(self):
        examples = Recipe.read(
            SGD, {"use": "linear", "warmup_examples": 100, "horizon_examples": 500}
        ).schedule
        # 5 updates of 10 examples, then of 25: half of the warm-up is done, 75 examples are after the next update.
        assert examples.factor(Position(5, 50), 25) == pytest.approx(0.75)
        assert examples.factor(Position(9, 300), 50) == pytest.approx(0.5)
        steps = Recipe.read(SGD, {"use": "linear", "warmup_steps": 10, "horizon_steps": 20}).schedule
        assert steps.factor(Position(5, 50), 25) == pytest.approx(0.6)
        assert steps.factor(Position(15, 9999), 3) == pytest.approx(0.5)

    def test_a_warm_up_in_the_other_unit_than_the_horizon_never_leaves_the_range_of_factors(self):
        mixed = Recipe.read(SGD, {"use": "linear", "warmup_steps": 10, "horizon_examples": 100}).schedule
        assert [mixed.factor(Position(10, 10), size) for size in (1, 5, 9, 10, 100)] == [
            1.0,
            1.0,
            1.0,
            0.0,
            0.0,
        ]

    def test_whether_the_rate_depends_on_the_length_of_a_run(self):
        assert [kind.ends for kind in SCHEDULES] == [False, True, True]

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({"use": "cosin", "horizon_steps": 3}, "cosine"),
            ({"warm_up_steps": 3}, "warm_up_steps"),
            ({"warmup_steps": 3, "warmup_examples": 30}, "both"),
            ({"warmup_steps": -3}, "warmup_steps"),
            ({"warmup_steps": "some"}, "warmup_steps"),
            ({"use": "cosine"}, "horizon"),
            ({"use": "cosine", "horizon_steps": 3, "horizon_examples": 3}, "both"),
            ({"use": "cosine", "horizon_steps": 3, "final": 2}, "final"),
            ({"use": "constant", "horizon_steps": 3}, "horizon_steps"),
        ],
    )
    def test_a_contradiction_is_named(self, table, words):
        with pytest.raises(ValueError, match=words):
            Recipe.read(SGD, table)


def test_needs_no_torch():
    check = "import sys, bscrit.recipe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
