"""What a sweep shows while it runs, on a terminal and elsewhere."""

import contextlib
import fcntl
import io
import os
import pty
import struct
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from inprocess import small_spec
from simulated import FACTS, Quadratic, make_spec, sweep

from bscrit.paths import ResultsPaths
from bscrit.position import Position
from bscrit.record import Record
from bscrit.results import Results
from bscrit.sweep import view as module
from bscrit.sweep.plan import plan
from bscrit.sweep.progress import Progress, last_position, point_of, seconds_left
from bscrit.sweep.view import Live, Plain, choose_view
from bscrit.words import number

SPEC = make_spec(batch_sizes=[4, 64], targets=[0.5, 0.2], seeds=2, max_steps=2000)


@pytest.fixture(scope="module")
def records():
    return list(sweep(Quadratic(), SPEC).values())


def rows(cohorts=(), records=(), folder=Path("none")):
    return Progress(SPEC).rows(cohorts, of(records, folder))


def of(records=(), folder=Path("none")):
    return Results(folder, tuple(records), SPEC, FACTS)


def lines(stream):
    return stream.getvalue().splitlines()


def test_without_a_terminal_it_is_lines():
    stream = io.StringIO()
    assert isinstance(choose_view(small_spec(), stream), Plain)


def test_lines_say_what_begins_and_what_came_of_it(records):
    stream = io.StringIO()
    view = Plain(SPEC, stream)
    cohort = plan(SPEC, FACTS, [])[0]
    view.note("a word")
    view.begun(cohort)
    ended = [record for record in records if record.order == cohort.order]
    view.ended(cohort, ended)
    assert [line.split("] ")[1] for line in lines(stream)][:2] == [
        "a word",
        "batch size 4 search: 7 rates from 0.00156 to 6.4",
    ]
    point = point_of(ended, 0.2)
    assert f"; rate {point.lr:.3g} needs {number(point.steps, 4)} steps to 0.2" in lines(stream)[2]


def test_a_failed_lane_is_told_with_its_rate_seed_and_log(tmp_path):
    stream = io.StringIO()
    cohort = plan(SPEC, FACTS, [])[0]
    trial = cohort.trials[0]
    failed = Record(trial, cohort.order, "failed", "the worker was killed", folder=tmp_path)
    Plain(SPEC, stream).ended(cohort, [failed])
    assert "1 failed: the worker was killed" in lines(stream)[0]
    assert f"rate 0.00156, seed {trial.seed}, log {tmp_path}/log.txt" in lines(stream)[0]


def test_a_line_in_between_every_half_minute(records, monkeypatch):
    stream = io.StringIO()
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    view = Plain(SPEC, stream)
    for second in range(0, 100, 5):
        if second == 20:
            view.begun(plan(SPEC, FACTS, [])[0])
        now[0] = float(second)
        view.update([], of(records))
    assert len(lines(stream)) == 3
    assert "examples trained in 30 s" in lines(stream)[1], "the look at the workload is none of it"


def test_rows_tell_phases(records, tmp_path):
    cohort = plan(SPEC, FACTS, [])[0]
    empty = rows()
    assert [row.phase for row in empty] == ["waiting", "waiting"]
    begun = rows([cohort], folder=tmp_path)
    assert [(row.phase, row.lanes) for row in begun] == [("search", 7), ("waiting", 0)]
    done = rows(records=records)
    assert [row.phase for row in done] == ["done", "done"]
    assert sum(row.examples for row in done) == sum(record.examples for record in records)
    assert done[0].point == point_of([r for r in records if r.trial.batch_size == 4], 0.2)


def test_the_position_of_a_running_lane_is_read_from_the_end_of_its_curve(tmp_path):
    cohort = plan(SPEC, FACTS, [])[0]
    for trial, step in zip(cohort.trials[:2], (7, 9), strict=True):
        paths = ResultsPaths(tmp_path).trial(trial.name)
        paths.folder.mkdir(parents=True)
        text = "step,examples,loss\n" + "".join(f"{k},{4 * k},1\n" for k in range(step + 1)) + "1"
        paths.curve.write_text(text)
    assert last_position(ResultsPaths(tmp_path).trial(cohort.trials[0].name).curve) == Position(7, 28)
    assert last_position(tmp_path / "missing.csv") == Position()
    (tmp_path / "short.csv").write_text("step\n")
    assert last_position(tmp_path / "short.csv") == Position()
    (row, _) = rows([cohort], folder=tmp_path)
    assert (row.step, row.examples) == (9, 64)
    ResultsPaths(tmp_path).trial(cohort.trials[1].name).status.write_text("{}")
    (row, _) = rows([cohort], folder=tmp_path)
    assert (row.step, row.lanes) == (7, 6)


def test_of_measured_rates_the_one_with_most_runs_counts(records):
    """Where a seed was lost, those that are left are fast by luck, and a lower rate was measured instead."""
    measured = [r for r in records if r.order.role == "measure" and r.order.targets == (0.5, 0.2)]
    two = [record for record in measured if record.trial.batch_size == 4]
    fast = replace(two[0].curve, steps=two[0].curve.steps / 3)
    lucky = replace(two[0], trial=replace(two[0].trial, lr=1.23), curve=fast)
    assert len(two) == 2
    assert point_of([lucky], 0.2).steps < point_of(two, 0.2).steps
    assert point_of([*two, lucky], 0.2).steps == point_of(two, 0.2).steps


def test_time_left():
    assert seconds_left(rows(), 10) is None


def drained(terminal):
    """All that was written so far."""
    os.set_blocking(terminal, False)
    text = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            text += os.read(terminal, 1 << 16)
    return text.decode()


def test_live_on_a_terminal_of_any_width(records, monkeypatch):
    """Also while it is made narrower, and without one."""
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(module, "LIVE_SECONDS", 0.0)
        monkeypatch.setenv("TERM", "xterm")
        for name in ("COLUMNS", "LINES"):
            monkeypatch.delenv(name, raising=False)
        view = choose_view(SPEC)
        assert isinstance(view, Live)
        cohort = plan(SPEC, FACTS, [])[0]
        view.note("a word [not markup]")
        view.begun(cohort)
        shown = []
        for width, height in ((120, 40), (20, 3), (1, 1), (0, 0), (80, 24)):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
            view.update([cohort], of(records))
            shown.append(drained(parent))
        view.ended(cohort, [Record(cohort.trials[0], cohort.order, "failed", "killed", folder=Path("f"))])
        view.close()
    os.close(parent)
    assert all(shown)
    assert all(word in shown[0] for word in ("a word [not markup]", "batch size", "search"))
