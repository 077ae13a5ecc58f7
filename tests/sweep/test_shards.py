"""Cohorts on several workers: when they are split, and that nothing but time depends on it."""

import itertools
import math
import os
import signal

import pytest
from forked import Forked
from inprocess import Silent, offer, on, small_spec

from bscrit.order import Cohort, Order
from bscrit.request import Stretch, Train, Waits
from bscrit.sweep.drive import drive
from bscrit.sweep.executors import shards as module
from bscrit.sweep.executors.shards import Paces, names, share_out
from bscrit.trial import Trial


def cohort(lanes=5, batch_size=16, engine="loop", **order):
    rates = tuple((0.1, seed) for seed in range(lanes))
    order = {"targets": (0.5,), "max_steps": 1000, **order}
    trials = tuple(Trial("quadratic", batch_size, lr, seed) for lr, seed in rates)
    return Cohort(trials, Order("measure", 0, rates, engine=engine, **order))


def shared(tmp_path, cohorts, workers, paces, ended=(), former=()):
    """Which lanes of each cohort that begins are together."""
    live = [[trial.seed not in ended for trial in one.trials] for one in cohorts]
    return share_out(cohorts, live, workers, tmp_path, paces, dict(former))


def paced(*paces, **keys):
    found = Paces()
    found.add(cohort(**keys), [Stretch(lanes, steps, seconds) for lanes, steps, seconds in paces])
    return found


SLOW = paced([5, 100, 10.0])


def test_every_cohort_gets_a_worker_before_any_gets_two(tmp_path):
    one, other, third = cohort(4), cohort(4, 32), cohort(4, 64)
    assert shared(tmp_path, [one, other, third], 2, SLOW) == [[(0, 1, 2, 3)], [(0, 1, 2, 3)]]
    assert shared(tmp_path, [one, other, third], 0, SLOW) == []


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, [(0, 1, 2, 3, 4)]),
        (2, [(0, 1), (2, 3, 4)]),
        (3, [(0,), (1, 2), (3, 4)]),
        (4, [(0,), (1, 2), (3, 4)]),  # a fourth would not end it sooner
        (9, [(0,), (1,), (2,), (3,), (4,)]),
    ],
)
def test_workers_that_are_left_over_share_the_lanes(tmp_path, workers, expected):
    assert shared(tmp_path, [cohort()], workers, SLOW) == [expected]


def test_the_cohort_that_takes_longest_is_split(tmp_path):
    short, long = cohort(2, cap_steps=100), cohort(4, 32, cap_steps=400)
    assert shared(tmp_path, [short, long], 3, SLOW) == [[(0, 1)], [(0, 1), (2, 3)]]
    assert shared(tmp_path, [long, short], 3, SLOW) == [[(0, 1), (2, 3)], [(0, 1)]]


def test_lanes_that_have_ended_are_not_counted(tmp_path):
    assert shared(tmp_path, [cohort(6)], 2, SLOW, ended=(0, 1, 3)) == [[(0, 1, 2, 3), (4, 5)]]
    assert shared(tmp_path, [cohort(6)], 2, SLOW, ended=(0, 1, 2, 3, 4)) == [[(0, 1, 2, 3, 4, 5)]]


@pytest.mark.parametrize(
    ("paces", "splits"),
    [
        (Paces(), False),  # nothing is known
        (paced([5, 100, 10.0]), True),
        (paced([5, 100, 0.01]), False),  # waiting at evaluations would take longer
        (paced([5, 100, 10.0], batch_size=4), True),  # the nearest batch size tells
        (paced([5, 100, 10.0], engine="vmap"), False),  # another engine does not
    ],
)
def test_one_after_the_other_is_split_where_steps_take_long(tmp_path, paces, splits):
    assert (len(shared(tmp_path, [cohort()], 2, paces)[0]) == 2) == splits


@pytest.mark.parametrize(
    ("paces", "splits"),
    [
        ([(5, 100, 10.0)], False),  # how much less three lanes would take is not known
        ([(5, 100, 10.0), (2, 100, 5.0)], True),
        ([(5, 100, 10.0), (2, 100, 9.9)], False),  # a step of two lanes takes as long as one of five
        ([(5, 100, 10.0), (2, 100, 11.0)], False),
        ([(5, 100, 10.0), (2, 0, 0.5)], False),
    ],
)
def test_a_stack_is_split_where_fewer_lanes_take_less(tmp_path, paces, splits):
    shards = shared(tmp_path, [cohort(engine="vmap")], 2, paced(*paces, engine="vmap"))
    assert (len(shards[0]) == 2) == splits


def test_the_line_through_what_was_seen():
    found = paced((2, 10, 10 * 0.3), (4, 1000, 1000 * 0.5), (8, 10, 10 * 0.9), engine="vmap")
    assert found.seconds(cohort(engine="vmap"), 3) == pytest.approx(0.4)
    assert paced([5, 100, 10.0]).seconds(cohort(), 2) == pytest.approx(0.04)


def test_shards_that_took_turns_are_not_split_again_for_a_while(tmp_path):
    paces = paced([5, 100, 10.0])
    paces.waited([Waits(100, 0.2), Waits(100, 8.0)])  # one had more to do
    assert len(shared(tmp_path, [cohort()], 2, paces)[0]) == 2
    paces.waited([Waits(0, 0.0), Waits(100, 8.0)])  # one had ended, and was not waited for
    assert len(shared(tmp_path, [cohort()], 2, paces)[0]) == 2
    paces.waited([Waits(100, 20.0), Waits(100, 22.0)])
    tried = [len(shared(tmp_path, [cohort()], 2, paces)[0]) == 2 for _ in range(40)]
    assert tried[0] is False
    assert tried[-1] is True


def test_evaluations_are_counted_about_right():
    steps, count = 0, 0
    for end in (30, 200, 2000, 20_000):
        while steps < end:
            steps, count = max(steps + 1, math.ceil(steps * 1.02)), count + 1
        assert module._evaluations(end) == pytest.approx(count, rel=0.15)


def checkpoint(tmp_path, one, *places):
    for place in places:
        (tmp_path / one.trials[place].name).mkdir()
        (tmp_path / one.trials[place].name / "checkpoint.pt").touch()


def test_what_was_interrupted_goes_on_as_it_was_split(tmp_path):
    """Also where nothing is known about its pace, and another cohort waits."""
    one, other = cohort(6), cohort(4, 32)
    checkpoint(tmp_path, one, 0, 2)
    assert shared(tmp_path, [one, other], 3, Paces()) == [[(0, 1), (2, 3, 4, 5)], [(0, 1, 2, 3)]]
    assert shared(tmp_path, [one, other], 2, SLOW) == [[(0, 1), (2, 3, 4, 5)]]
    assert shared(tmp_path, [one, other], 1, SLOW) == [[(0, 1, 2, 3, 4, 5)]], "too few workers for that"


def test_how_it_was_split_is_remembered_where_no_checkpoint_tells(tmp_path):
    one = cohort(6)
    former = [(names(one), [(0, 1), (2, 3, 4, 5)])]
    assert shared(tmp_path, [one], 3, SLOW, former=former) == [[(0, 1), (2, 3, 4, 5)]]
    checkpoint(tmp_path, one, 0)
    assert shared(tmp_path, [one], 3, SLOW, former=former) == [[(0, 1), (2, 3, 4, 5)]]
    assert shared(tmp_path, [one], 1, SLOW, former=former) == [[(0, 1, 2, 3, 4, 5)]]


def test_what_was_interrupted_whole_goes_on_whole(tmp_path):
    one = cohort(6)
    checkpoint(tmp_path, one, 0)
    assert shared(tmp_path, [one], 3, SLOW) == [[(0, 1, 2, 3, 4, 5)]]


def test_shards_that_have_ended_need_no_worker(tmp_path):
    one = cohort(6)
    checkpoint(tmp_path, one, 2, 4)
    assert shared(tmp_path, [one], 3, SLOW, ended=(0, 1, 2, 3)) == [[(0, 1, 2, 3, 4, 5)]]
    assert shared(tmp_path, [one], 3, SLOW, ended=(0, 1, 4, 5)) == [[(0, 1, 2, 3, 4, 5)]]
    assert shared(tmp_path, [one], 3, SLOW, ended=(0, 1)) == [[(0, 1, 2, 3), (4, 5)]]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Drive a small sweep that splits its cohorts as far as there are workers; its outcome and its executor."""
    monkeypatch.setattr(module._Split, "pays", lambda self, shards, _: shards > len(self.shards))

    def run(out, slots, trouble=lambda *_: None):
        made = []
        offer(
            monkeypatch,
            tmp_path,
            mock=lambda compute: made.append(Forked(monkeypatch, compute, slots, trouble)) or made[0],
        )
        return drive(on(small_spec(), "mock"), tmp_path / out, Silent()), made[0]

    return run


@pytest.fixture
def undisturbed(run):
    return told(run("undisturbed", 1)[0])


def told(outcome):
    return {
        r.trial.name: (r.status, r.reason, r.order, r.curve.loss.tobytes()) for r in outcome.results.records
    }


def split(executor):
    return [
        request for request in executor.requests if isinstance(request, Train) and request.shard is not None
    ]


@pytest.mark.parametrize("slots", [2, 3])
def test_the_number_of_workers_changes_nothing(run, undisturbed, slots):
    outcome, executor = run("out", slots)
    assert told(outcome) == undisturbed
    assert len(split(executor)) > 2
    assert executor.left == []


def test_a_shard_that_is_killed_takes_nothing_with_it(run, undisturbed, tmp_path):
    """In every cohort that is split one is killed, at an evaluation of its own."""
    kills = tmp_path / "kills"
    kills.mkdir()

    def trouble(_, request):
        if not isinstance(request, Train) or request.own[0] == 0:
            return None
        mark = kills / "-".join(folder.name for folder in request.folders)[-200:]
        if mark.exists():
            return None
        count = itertools.count()

        def kill():
            if next(count) == 5 + len(list(kills.iterdir())):
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return kill

    outcome, executor = run("out", 2, trouble)
    assert told(outcome) == undisturbed
    assert outcome.given_up == {}
    assert len(executor.left) >= len(list(kills.iterdir())) >= 3


def test_a_shard_that_always_dies_costs_its_own_lanes_alone(run, undisturbed, tmp_path):
    """The others have left their checkpoints, and go on without it."""

    def trouble(_, request):
        own = [folder.name for folder in request.own_folders] if isinstance(request, Train) else []
        count = itertools.count()
        if any("b00004-lr0.00625-" in name for name in own):
            return lambda: next(count) < 3 or os.kill(os.getpid(), signal.SIGKILL)
        return None

    outcome, _ = run("out", 7, trouble)
    failed = [record for record in outcome.results.records if record.status == "failed"]
    assert [(record.trial.batch_size, record.trial.lr) for record in failed] == [(4, 0.00625)]
    assert set(outcome.given_up) == {failed[0].trial.name}
    assert "SIGKILL" in (failed[0].folder / "log.txt").read_text()
    assert not list((tmp_path / "out").glob("trials/*/checkpoint.pt"))
    lost = failed[0].trial.name
    first = {name for name, (_, _, order, _) in undisturbed.items() if order == failed[0].order}
    assert len(first) == 7
    assert {name: told(outcome)[name] for name in first - {lost}} == {
        name: undisturbed[name] for name in first - {lost}
    }


@pytest.mark.parametrize("then", [1, 2, 3])
@pytest.mark.parametrize("when", [2, 5])
def test_interrupted_it_goes_on_with_any_number_of_workers(run, undisturbed, then, when):
    sweep = os.getpid()

    def trouble(number, _):
        count = itertools.count()
        return lambda: number == when and next(count) == 9 and os.kill(sweep, signal.SIGTERM)

    first, _ = run("out", 2, trouble)
    assert first.interrupted == signal.SIGTERM
    assert told(run("out", then)[0]) == undisturbed
