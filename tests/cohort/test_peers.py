"""Shards of a cohort: every lane ends where it would have ended on one worker, whatever happens to the others."""

import contextlib
import os
import signal
import time
from dataclasses import replace

import pytest
from cohorts import NETWORK, ORDER, begun, told, workload
from shards import after, together
from small import Regression, mlp, regression

from bscrit.cohort import peers as module
from bscrit.cohort.peers import Peers
from bscrit.cohort.trial_writer import TrialWriter
from bscrit.files import stamp, write_text
from bscrit.record import begin, end, read_record
from bscrit.request import Shard
from bscrit.train import loop
from bscrit.train.loop import train

SPLITS = [[(0, 1), (2, 3)], [(3, 0), (2,), (1,)], [(0,), (1,), (2,), (3,)]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What one worker leaves of a search with each engine."""
    left = {}
    for engine in ("loop", "vmap"):
        folders = begun(tmp_path_factory.mktemp(engine), replace(ORDER, engine=engine))
        assert train(folders, workload(), {"unit": "example"})
        left[engine] = told(folders)
    return left


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("split", SPLITS)
def test_shards_of_a_search_leave_what_one_worker_leaves(tmp_path, undisturbed, engine, split):
    folders = begun(tmp_path, replace(ORDER, engine=engine))
    assert together(folders, split, workload()) == [True] * len(split)
    assert told(folders) == undisturbed[engine]
    assert not list(tmp_path.glob("*/checkpoint.pt"))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_shards_of_a_measurement_with_its_noise_leave_what_one_worker_leaves(tmp_path, engine):
    order = replace(NETWORK, engine=engine)
    alone, folders = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", order, 8)
    train(alone, regression("mlp"), {"unit": "example"})
    assert together(folders, [(0, 2), (1,)], regression("mlp")) == [True, True]
    assert told(folders) == told(alone)
    assert read_record(folders[1]).frozen


@pytest.mark.parametrize("steps", [(0, 500), (30, 9), (61, 62), (112, 113)])
@pytest.mark.parametrize("then", [SPLITS[0], SPLITS[1], [(0, 1, 2, 3)]], ids=["so", "otherwise", "whole"])
def test_told_to_leave_they_go_on_bit_for_bit_however_they_are_split(tmp_path, undisturbed, steps, then):
    folders = begun(tmp_path)
    found = together(folders, SPLITS[0], workload(), interrupted=lambda shard: after(steps[shard]))
    assert False in found
    assert None not in found
    _go_on(folders, then)
    assert told(folders) == undisturbed["loop"]


@pytest.mark.parametrize("seconds", [0.0, 20.0])
@pytest.mark.parametrize("steps", [1, 40, 77, 111])
def test_one_is_killed_and_the_others_leave_and_all_go_on(tmp_path, undisturbed, monkeypatch, steps, seconds):
    """With a checkpoint after each step, or without any of the one that was killed."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", seconds)

    def killed(shard):
        count = after(steps)
        return (lambda: count() and os.kill(os.getpid(), signal.SIGKILL)) if shard == 1 else (lambda: False)

    folders = begun(tmp_path)
    assert together(folders, SPLITS[0], workload(), interrupted=killed) == [False, None]
    _go_on(folders, SPLITS[0])
    assert told(folders) == undisturbed["loop"]


def test_the_whole_cohort_was_interrupted_and_goes_on_in_shards(tmp_path, undisturbed):
    folders = begun(tmp_path)
    assert not train(folders, workload(), {"unit": "example"}, after(70))
    loads = tmp_path / "loads"
    loads.touch()

    def prepare(_):
        load = loop.Lanes.load_state_dict

        def counted(self, *states):
            with loads.open("a") as stream:
                stream.write("x")
            load(self, *states)

        loop.Lanes.load_state_dict = counted

    assert together(folders, SPLITS[0], workload(), prepare) == [True, True]
    assert told(folders) == undisturbed["loop"]
    assert loads.read_text() == "xx", "its checkpoint serves both"


def _go_on(folders, shards):
    """As a sweep that is started again: what has not ended is begun again, with the same order."""
    for folder in folders:
        record = read_record(folder)
        if not record.finished:
            begin(folder, record.trial, record.order)
    assert together(folders, shards, workload()) == [True] * len(shards)
    assert not list(folders[0].parent.glob("*/checkpoint.pt"))


class Checked(Regression):
    """Code of a user that raises where weights grow."""

    def losses(self, model, batch):
        if model[1].weight.detach().abs().max() > 0.3:
            raise ValueError("not finite")
        return super().losses(model, batch)


@pytest.mark.parametrize("split", [[(0, 1), (2,)], [(0, 2), (1,)], [(1, 2), (0,)]])
def test_a_lane_that_raises_fails_alone_also_where_it_is_alone(tmp_path, split):
    order = replace(ORDER, lanes=((0.01, 0), (2.0, 0), (0.02, 0)), targets=(-1.0,), max_steps=12)
    whole, folders = begun(tmp_path / "a", order, 8), begun(tmp_path / "b", order, 8)
    assert train(whole, Checked(mlp), {"unit": "example"})
    assert together(folders, split, Checked(mlp)) == [True, True]
    assert [one[2] for one in told(folders)] == ["exhausted", "failed", "exhausted"]
    assert told(folders) == told(whole)
    assert "ValueError: not finite" in (folders[1] / "log.txt").read_text()


def test_rows_of_another_order_are_not_judged(tmp_path, undisturbed):
    """Those that its former order left to a lane, whose worker is slow to start, would make the others lose."""
    folders = begun(tmp_path)
    lines = "".join(f"{step},{4 * step},0.001,4,0.1,0.1\n" for step in range(60))
    for folder in folders[2:]:
        write_text(folder / "curve.csv", f"step,examples,loss,batch_size,lr,seconds\n{lines}")
    found = together(folders, SPLITS[0], workload(), prepare=lambda shard: time.sleep(0.4 * shard))
    assert found == [True, True]
    assert told(folders) == undisturbed["loop"]


def test_who_waits_for_peers_that_never_come_leaves_when_told(tmp_path, undisturbed):
    folders = begun(tmp_path)
    shard = Shard((0, 1), tuple(stamp(folder / "curve.csv") for folder in folders))
    assert not train(folders, workload(), {"unit": "example"}, after(5), shard)
    assert read_record(folders[0]).curve.steps.tolist() == [0]
    _go_on(folders, SPLITS[0])
    assert told(folders) == undisturbed["loop"]


def _peers(folders, files):
    lanes = [TrialWriter.read(folder) for folder in folders]
    stamps = tuple(stamp(folder / "curve.csv") for folder in folders)
    return lanes, Peers(lanes, Shard((0,), stamps), files)


def test_a_row_counts_once_it_is_whole(tmp_path):
    folders = begun(tmp_path)[:2]
    with contextlib.ExitStack() as files:
        lanes, peers = _peers(folders, files)
        text = "step,examples,loss,batch_size,lr,seconds\n0,0,0.5,4,0.1,0.0\n1,4,nan,4,0.1,0.0\n"
        write_text(folders[1] / "curve.csv", "")
        for end_of_part in range(1, len(text) + 1):
            with (folders[1] / "curve.csv").open("a") as stream:
                stream.write(text[end_of_part - 1])
            rows = text[:end_of_part].count("\n") - 1
            assert peers.wait(0, lambda: True) == (rows >= 1)
            assert peers.wait(1, lambda: True) == (rows >= 2)
        assert lanes[1].evaluations.until(0).loss.tolist() == [0.5]
        assert lanes[1].ending is None


@pytest.mark.parametrize("status", ["failed", "stopped"])
def test_who_ended_is_not_waited_for_but_was_alive_where_it_has_a_row(tmp_path, status):
    folders = begun(tmp_path)[:2]
    with contextlib.ExitStack() as files:
        lanes, peers = _peers(folders, files)
        write_text(folders[1] / "curve.csv", "step,examples,loss,batch_size,lr,seconds\n0,0,0.5,4,0.1,0.0\n")
        end(folders[1], status, "for a reason", {})
        assert peers.wait(0, lambda: True)
        assert lanes[1].ending is None
        assert peers.live
        assert peers.wait(1, lambda: True)
        assert (lanes[1].ending.status, lanes[1].ending.reason) == (status, "for a reason")
        assert not peers.live


def test_a_peer_that_is_ahead_is_judged_as_it_was(tmp_path, undisturbed):
    """One goes on from late, the other begins anew."""
    folders = begun(tmp_path)

    def evaluated_often(shard):
        """Not so many questions: one is asked at every glance at a peer."""
        curve = folders[SPLITS[0][shard][0]] / "curve.csv"
        return lambda: curve.exists() and curve.read_text().count("\n") > 30

    found = together(folders, SPLITS[0], workload(), interrupted=evaluated_often)
    assert found == [False, False]
    (folders[0] / "checkpoint.pt").unlink()
    assert TrialWriter.read(folders[2]).evaluations.last > 10
    _go_on(folders, SPLITS[0])
    assert told(folders) == undisturbed["loop"]


def test_what_is_written_while_its_end_is_looked_for_counts(tmp_path, monkeypatch):
    """A peer that is evaluated and fails right after it, between two glances."""
    folders = begun(tmp_path)[:2]
    with contextlib.ExitStack() as files:
        lanes, peers = _peers(folders, files)
        curve = folders[1] / "curve.csv"

        def late(_):
            write_text(curve, "step,examples,loss,batch_size,lr,seconds\n0,0,0.5,4,0.1,0.0\n")
            end(folders[1], "failed", "for a reason", {})
            return True

        monkeypatch.setattr(module.os.path, "exists", late)
        assert peers.wait(0, lambda: True)
        assert lanes[1].ending is None
        assert lanes[1].evaluations.last == 0
