"""What makes a trial the same trial."""

import json
from dataclasses import fields, replace

import pytest
from pydantic import TypeAdapter

from bscrit.goal import Goal
from bscrit.trial import CENSORED, FINISHED, Trial

TRIAL = Trial(
    "quadratic",
    batch_size=256,
    lr=0.05,
    seed=3,
    fingerprint="abc",
    settings={"power": 1.0, "sizes": [1, 2]},
    optimizer={"use": "sgd", "momentum": 0.9},
    schedule={"use": "constant", "warmup_steps": 5},
)
OTHER = {
    "workload": "least_squares",
    "batch_size": 255,
    "lr": 0.050000001,
    "seed": 4,
    "fingerprint": "abd",
    "settings": {"power": 1.0, "sizes": [2, 1]},
    "optimizer": {"use": "sgd", "momentum": 0.91},
    "schedule": {"use": "constant", "warmup_steps": 6},
    "dtype": "float64",
    "goal": Goal("accuracy", "up"),
    "validation_examples": 1000,
}


def test_every_field_is_part_of_the_identity():
    assert {field.name for field in fields(Trial)} == set(OTHER)
    keys = {replace(TRIAL, **{name: value}).key for name, value in OTHER.items()}
    assert len(keys | {TRIAL.key}) == len(OTHER) + 1


def test_the_key_is_the_same_for_ever():
    """Changing this number makes every results folder in the world start anew."""
    assert TRIAL.name == "b00256-lr0.05-s3-73534dbc"


def test_the_order_of_settings_does_not_matter():
    assert replace(TRIAL, settings={"sizes": [1, 2], "power": 1.0}).key == TRIAL.key


def test_a_trial_survives_json():
    again = TypeAdapter(Trial).validate_python(json.loads(json.dumps(TRIAL.to_dict())))
    assert again == TRIAL
    assert again.key == TRIAL.key


def test_whole_numbers_and_decimals_are_two_trials():
    """A workload may well treat 1 and 1.0 differently."""
    assert replace(TRIAL, settings={"power": 1}).key != replace(TRIAL, settings={"power": 1.0}).key


def test_names_sort_by_batch_size():
    sizes = (4, 64, 512, 16384)
    assert [name[:6] for name in sorted(replace(TRIAL, batch_size=size).name for size in sizes)] == [
        "b00004", "b00064", "b00512", "b16384",
    ]  # fmt: skip


def test_a_rate_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError):
        _ = replace(TRIAL, lr=float("nan")).key


def test_statuses():
    assert CENSORED < FINISHED
    assert not {"failed", "running"} & FINISHED
