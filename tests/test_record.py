"""A trial's folder: written, read back, and torn at every byte."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from bscrit.curve import curve_header, curve_line
from bscrit.errors import UserError
from bscrit.noise import HEADER as NOISE_HEADER
from bscrit.noise import noise_line, samples_of
from bscrit.noise_settings import NoiseSettings
from bscrit.order import Order
from bscrit.record import begin, end, read_record
from bscrit.trial import FINISHED, Trial

TRIAL = Trial("quadratic", batch_size=16, lr=0.05, seed=3, settings={"name": "é"})
ORDER = Order(
    "search", 2, lanes=((0.05, 3), (0.1, 3)), targets=(0.5, 0.2), max_steps=100, cap_steps=40,
    incumbents=(3.5, 9.25), noise=NoiseSettings(metrics=("identity", "hessian"), losses=(0.5,)),
    engine="vmap", micro_batch=8,
)  # fmt: skip
FACTS = {"steps": 2, "examples": 32, "versions": {"torch": "2"}}


@pytest.fixture
def folder(tmp_path):
    """A finished trial of two steps."""
    folder = tmp_path / TRIAL.name
    begin(folder, TRIAL, ORDER)
    rows = [curve_line(step, 16 * step, 1 / (1 + step), 16, 0.05, step) for step in range(3)]
    (folder / "curve.csv").write_text("".join([curve_header() + "\n", *rows]))
    noise = [noise_line(step, 16 * step, "identity", 4, 2.5, 16, 1.5) for step in (0, 1)]
    (folder / "noise.csv").write_text("".join([NOISE_HEADER + "\n", *noise]))
    end(folder, "reached", "loss 0.2 after 2 steps", FACTS)
    return folder


def test_a_record_is_read_back(folder):
    record = read_record(folder)
    assert record.trial == TRIAL
    assert record.order == ORDER
    assert (record.status, record.reason, record.facts) == ("reached", "loss 0.2 after 2 steps", FACTS)
    assert record.curve.steps.tolist() == [0, 1, 2]
    assert record.noise["identity"].steps.tolist() == [0, 1]
    assert (record.examples, record.role, record.folder, record.finished) == (32, "search", folder, True)


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_every_ending_is_finished(folder, status):
    end(folder, status, "", FACTS)
    assert read_record(folder).finished


def test_a_failed_trial_is_not_finished_and_needs_no_whole_curve(folder):
    (folder / "curve.csv").unlink()
    end(folder, "failed", "the worker was killed", {})
    record = read_record(folder)
    assert (record.status, record.finished, record.examples) == ("failed", False, 0)


def test_a_trial_without_status_is_running(folder):
    (folder / "status.json").unlink()
    record = read_record(folder)
    assert (record.status, record.finished, record.examples) == ("running", False, 32)


def test_no_trial_and_no_order_is_no_record(folder, tmp_path):
    assert read_record(tmp_path / "nowhere") is None
    for name in ("trial.json", "order.json"):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        assert read_record(copy) is None
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", ["trial.json", "order.json", "status.json", "curve.csv", "noise.csv"])
def test_a_file_torn_at_any_byte_never_stops_a_reader(folder, name):
    """Without identity or order there is no record, without a status or a whole curve it still runs."""
    whole = (folder / name).read_bytes()
    for length in range(len(whole) - 1):
        (folder / name).write_bytes(whole[:length])
        record = read_record(folder)
        if name in ("trial.json", "order.json"):
            assert record is None
            continue
        assert record.trial == TRIAL
        assert record.order == ORDER
        assert record.status == ("reached" if name == "noise.csv" else "running")
        complete = max(whole[:length].count(b"\n") - 1, 0)
        assert len(record.curve) == (complete if name == "curve.csv" else 3)
        assert len(samples_of(record.noise, "identity")) == (complete if name == "noise.csv" else 2)


def test_a_status_whose_curve_was_lost_is_running(folder):
    (folder / "curve.csv").unlink()
    assert read_record(folder).status == "running"
    end(folder, "diverged", "loss not finite at step 0", {"steps": 0})
    assert read_record(folder).status == "running"


def test_beginning_again_forgets_how_it_ended_and_keeps_the_streams(folder):
    begin(folder, TRIAL, replace(ORDER, targets=(0.5, 0.1)))
    record = read_record(folder)
    assert (record.status, record.order.targets, len(record.curve)) == ("running", (0.5, 0.1), 3)


@pytest.mark.parametrize("name", ["trial.json", "order.json", "status.json"])
@pytest.mark.parametrize("content", [{"schema": 2}, {"schema": 4}, {}, []])
def test_a_file_of_another_version_is_an_error_that_names_it(folder, name, content):
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{name}: is not of the format"):
        read_record(folder)


def test_orders_are_equal_after_their_way_through_the_disk(folder):
    """The plan tells new orders from old ones by comparing them."""
    odd = replace(ORDER, lanes=((0.1 + 0.2, 2**40), (1e-12, 0)), incumbents=(math.pi, 1 / 3), targets=(0.1,))
    begin(folder, TRIAL, odd)
    assert read_record(folder).order == odd
    assert hash(read_record(folder).order) == hash(odd)
