"""The cadence of noise samples, and what a changed [noise] means for a finished sweep."""

from dataclasses import replace
from pathlib import Path

import pytest
from planned import PROBLEM
from simulated import FACTS, make_spec, sweep

from bscrit.noise_settings import NoiseSettings
from bscrit.results import Results
from bscrit.spec.noise import NoiseTable
from bscrit.sweep.cadence import CLOSEST, FARTHEST, cadence, measured_otherwise
from bscrit.sweep.drive import Outcome
from bscrit.sweep.plan import plan
from bscrit.sweep.summary import summary

KEYS = {"batch_sizes": [4, 64], "targets": [0.5, 0.2], "max_steps": 3000}


def with_noise(**noise):
    return make_spec(**KEYS).model_copy(update={"noise": NoiseTable(**noise)})


def samples(steps):
    """How many a run of this many steps has."""
    settings, at, count = NoiseSettings(every=cadence(steps)), 0, 0
    while at < steps:
        at, count = settings.after(at), count + 1
    return count


@pytest.mark.parametrize(("steps", "least", "most"), [(14, 7, 7), (50, 16, 18), (100, 19, 21), (200, 19, 21)])
def test_a_short_run_has_enough_samples(steps, least, most):
    """A run of 50 steps had seven, one of 200 fourteen: too few to tell the gradient from its noise."""
    assert least <= samples(steps) <= most


def test_samples_of_a_run_are_no_closer_than_they_may_cost():
    assert [cadence(steps) for steps in (22, 60, 61)] == [CLOSEST, CLOSEST, CLOSEST + 1]
    assert cadence(300) == cadence(10_000) == cadence(float("inf")) == FARTHEST


def test_a_number_in_the_spec_is_kept():
    """Also where it leaves a short run few samples."""
    cohorts = sweep(PROBLEM, with_noise(every=40)).values()
    assert {r.order.noise.every for r in cohorts if r.role == "measure"} == {40}


@pytest.fixture(scope="module")
def finished():
    return tuple(sweep(PROBLEM, with_noise()).values())


@pytest.mark.parametrize(
    "noise",
    [
        {"metric": ["identity", "hessian"]},
        {"source": "examples"},
        {"parts": 8},
        {"every": 1},
        {"spacing": 0.01},
        {"at_losses": [0.3]},
    ],
    ids=lambda noise: next(iter(noise)),
)
def test_a_changed_table_on_a_finished_sweep_says_what_to_do(finished, noise):
    spec = with_noise(**noise)
    assert plan(spec, FACTS, finished) == []
    results = Results(Path("results/x"), finished, spec, FACTS)
    (sentence,) = measured_otherwise(results)
    assert sentence.endswith("--out results/x-noise")
    assert sentence in summary(Outcome(results))


@pytest.mark.parametrize("noise", [{}, {"source": "none"}, {"precision": 0.05}])
def test_what_changes_nothing_is_not_said(finished, noise):
    """Precision is of measurements at frozen parameters, of which there are none."""
    assert measured_otherwise(Results(Path("x"), finished, with_noise(**noise), FACTS)) == []


def test_runs_without_any_are_named(finished):
    without = tuple(replace(r, order=replace(r.order, noise=None)) for r in finished)
    measured = sum(r.role == "measure" for r in finished)
    (sentence,) = measured_otherwise(Results(Path("x"), (*without,), with_noise(), FACTS))
    assert f"since {measured} measured runs of {measured} trained" in sentence
