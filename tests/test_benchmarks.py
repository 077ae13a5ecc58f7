"""The pieces of the benchmarks on tiny cases; nothing is timed."""

import importlib
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from exact import power_law

from bscrit.crossing import MeanCrossing
from bscrit.engine.lanes import Lanes
from bscrit.estimate import Estimate
from bscrit.measure.examples import Examples
from bscrit.measure.sums import Sums
from bscrit.noise import two_sizes
from bscrit.preflight import Preflight
from bscrit.spec import parse_spec, read_spec
from bscrit.sweep.plan import plan
from bscrit.sweep.summary import cost
from bscrit.workloads.classifier import Classifier
from bscrit.workloads.quadratic import Quadratic

FOLDER = Path(__file__).parent.parent / "benchmarks"
MODULES = ("workloads", "reference", "loop", "sweep", "adam")
STORED = sorted((FOLDER / "references").glob("*.json"))
SGD = {"use": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
ADAM = {"use": "adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def bench():
    """The scripts as modules, which import each other by their plain names."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)


def small_spec(seeds=3, **sweep):
    table = {"batch_sizes": [16, 64, 1024], "targets": [0.3, 0.1], "seeds": seeds, "max_examples": 10**6}
    workload = {"use": "quadratic"}
    return parse_spec({"workload": workload, "sweep": {**table, **sweep}, "noise": {"source": "none"}})


@pytest.mark.parametrize(("settings", "lr"), [(SGD, 0.2), (ADAM, 0.05)])
def test_the_loop_by_hand_and_a_lane_train_alike(bench, settings, lr):
    workload = Quadratic(dimensions=5)
    by_hand = bench["loop"].by_hand(workload, bench["loop"].Run(8, lr, seed=3, steps=20), settings)
    lanes = Lanes(workload, seeds=[3], lrs=[lr], batch_size=8, optimizer=settings, engine="loop")
    expected = [lanes.evaluate()[0]]
    for step in range(20):
        lanes.step(8 * step, 1.0)
        expected.append(lanes.evaluate()[0])
    assert by_hand == pytest.approx(expected, rel=1e-5)


def test_the_loop_by_hand_goes_through_all_examples_once_an_epoch(bench):
    workload = Classifier()
    whole = workload.batch(0, 0, workload.examples)[0].flatten(1)
    torch.manual_seed(0)
    batches = bench["loop"].shuffled(workload, bench["loop"].Run(100, 0.1, seed=0, steps=14))
    seen = torch.cat([next(batches)[0].flatten(1) for _ in range(14)])
    assert len(seen.unique(dim=0)) == len(seen) == 1400
    assert len(torch.cat([whole, seen]).unique(dim=0)) == len(whole.unique(dim=0))


@pytest.mark.parametrize("size", [16, 2048])
def test_the_throughput_of_both_loops_is_counted_in_examples(bench, size):
    found = bench["loop"].throughput(size, steps=2, turns=1)
    assert found["engine"] in ("vmap", "loop")
    assert all(found[name] > 0 for name in ("by hand", "one lane", "ten lanes"))


def test_the_planner_is_measured_on_a_finished_sweep(bench):
    count, finished, unfinished = bench["loop"].planning([8, 64], seeds=6)
    assert count >= 2 * (3 + 6)
    assert min(finished, unfinished) > 0


def test_the_oracle_trains_what_the_cost_is_held_against(bench):
    spec, records = small_spec(), {}
    while cohorts := plan(spec, Preflight(), records.values()):
        for cohort in cohorts:
            records |= {one.trial.name: one for one in bench["loop"].pretended(cohort)}
    runs = bench["loop"].winning(spec, list(records.values()))
    _, examples = cost(spec, list(records.values()))
    assert {run.batch_size for run in runs} == {16, 64, 1024}
    assert sum(run.steps * run.batch_size for run in runs) == pytest.approx(examples, rel=0.02)


def test_a_reference_finds_exact_rates_and_steps(bench, tmp_path):
    """Twelve seeds of the quadratic against the tuned expected loss, in closed form."""
    spec, problem = small_spec(), power_law()
    found = bench["reference"].refer(spec, seeds=12, spacing=1.15, reach=2)
    assert [one["batch_size"] for one in found["sizes"]] == [16, 64, 1024]
    for size in found["sizes"]:
        for one in size["optima"]:
            lr, steps = problem.tuned(one["target"], size["batch_size"])
            assert one["steps"] == pytest.approx(steps, rel=0.12)
            assert one["lr"] == pytest.approx(lr, rel=0.25)
            assert len(one["runs"]) == 12
    bench["workloads"].store(tmp_path / "found.json", found)
    assert json.loads((tmp_path / "found.json").read_text()) == found


def test_the_optimum_is_that_of_a_smooth_curve_and_not_the_luckiest_rate(bench):
    """ln S = (ln lr + 0.1)^2, with noise at each rate that is common to all seeds but for a little."""
    reference, spacing = bench["reference"], 1.1
    grid = reference.Grid(small_spec(), None, 16, spacing, range(8))
    rng = np.random.default_rng(0)
    for k in range(-5, 5):
        x = k * math.log(spacing)
        runs = 100 * np.exp((x + 0.1) ** 2 + 0.01 * rng.standard_normal(8))
        steps = math.exp(np.log(runs).mean())
        grid.crossings[k] = {0.2: MeanCrossing(steps, 16 * steps, runs, 0.0)}
    found = grid.optimum(0.2)
    assert math.log(found.lr) == pytest.approx(-0.1, abs=0.03)
    assert found.steps == pytest.approx(100, rel=0.01)


def test_a_noisy_rate_between_good_ones_is_kept_and_one_that_fails_ends_the_row(bench):
    logs = {-3: 0.1, -2: math.inf, -1: 0.05, 0: 0.0, 1: 0.2, 2: 0.1, 3: 0.3}
    assert bench["reference"].near(0, logs) == [-1, 0, 1, 2]


def test_an_exact_answer_is_that_of_the_specs_batch_sizes(bench):
    spec = bench["workloads"].named("quadratic")
    assert bench["sweep"].exact(spec, 0.1).value == pytest.approx(59.295, rel=1e-3)


def test_a_tally_counts_intervals_and_says_the_bias(bench):
    found = [Estimate(10.0, 8.0, 12.0), Estimate(11.0, 10.5, 12.0), Estimate(None), Estimate(11.0, 9.0, 13.0)]
    said = bench["sweep"].tally(found, Estimate(10.0))
    assert said.startswith("2 of 4 intervals hold 10;")
    assert f"bias {100 * math.log(1.1):+.1f} %" in said


def test_a_truth_that_is_a_bound_is_met_by_bounds(bench):
    estimates = [Estimate(None, 60.0, None), Estimate(70.0, 60.0, 80.0)]
    assert bench["sweep"].tally(estimates, Estimate(None, 64.0, None)).startswith("1 of 2 give a bound")


def test_every_workload_of_the_benchmarks_has_a_valid_spec(bench):
    for name, (path, overrides) in bench["workloads"].NAMES.items():
        spec = read_spec(FOLDER.parent / path, overrides)
        assert bench["workloads"].named(name).sweep == spec.sweep


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_reference_is_of_todays_spec_and_says_how_it_was_made(bench, path):
    found = bench["workloads"].stored(path.stem)
    assert found is not None, f"{path.name} is of another spec: python benchmarks/reference.py {path.stem}"
    spec = bench["workloads"].named(path.stem)
    assert found["command"].startswith(f"python benchmarks/reference.py {path.stem}")
    assert {"date", "machine", "versions", "spacing", "seeds"} <= set(found)
    assert min(found["seeds"]) >= 900_000  # no sweep's
    assert [one["batch_size"] for one in found["sizes"]] == list(spec.sweep.batch_sizes)
    for one in found["fits"]:
        assert one["target"] in spec.sweep.targets
        if one["verdict"] == "identified":
            assert one["b_crit"]["low"] < one["b_crit"]["value"] < one["b_crit"]["high"]
        else:
            assert one["b_crit"]["value"] is None
    for size in found["sizes"]:
        for one in size["optima"]:
            assert one["steps"] == pytest.approx(math.exp(np.log(one["runs"]).mean()), rel=1e-3)


@pytest.mark.slow
def test_a_sweep_is_measured_and_compared_whole(bench, tmp_path, monkeypatch, capsys):
    spec = tmp_path / "tiny.toml"
    spec.write_text(
        '[workload]\nuse = "quadratic"\n[noise]\nsource = "none"\n'
        "[sweep]\nbatch_sizes = [4, 16, 64, 256, 1024]\ntargets = [0.1]\nseeds = 4\nmax_examples = 1_000_000\n"
    )
    for module in ("workloads", "sweep"):
        monkeypatch.setitem(bench[module].NAMES, "tiny", (str(spec), ()))
    bench["sweep"].measure("tiny", tmp_path)
    said = capsys.readouterr().out
    for row in ("cost", "wall", "processor", "plain grid", "memory", "exactly 57.8"):
        assert row in said

    def copied(_, out, *__):
        if out.name == "tiny-2":
            raise SystemExit("this one fails")
        shutil.copytree(tmp_path / "tiny", out)

    monkeypatch.setattr(bench["sweep"], "swept", copied)
    bench["sweep"].truth("tiny", 3, tmp_path)
    said = capsys.readouterr().out
    assert "3 sweeps, 1 of which failed" in said
    assert "of 2 intervals hold 57.8" in said


def test_moments_number_by_number_add_up_to_those_of_the_norms(bench, monkeypatch):
    """tr(Sigma) and |G|^2 of all numbers are what the two batch sizes 1 and n give."""
    monkeypatch.setattr(bench["adam"], "EXAMPLES", 8)
    monkeypatch.setattr(bench["adam"], "PART", 4)
    workload = Classifier(hidden=3)
    model = workload.model(0)
    sums = bench["adam"].moments(workload, model)
    sampled, stacks = Sums(1), {name: tensor.detach()[None] for name, tensor in model.named_parameters()}
    batch = tuple(part[None] for part in workload.batch(bench["adam"].FRESH, 0, 8))
    Examples(model, workload.losses).add(sampled, stacks, {}, batch)
    noise, signal = two_sizes(*sampled.samples()["identity"][0])
    assert sum(float(pair[0].sum()) for pair in sums.values()) == pytest.approx(noise, rel=1e-5)
    assert sum(float(pair[1].sum()) for pair in sums.values()) == pytest.approx(signal, rel=1e-4)
