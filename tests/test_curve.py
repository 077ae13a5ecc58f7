"""The file of a curve, whole and torn."""

import math

import numpy as np
import pytest

from bscrit.curve import Curve, curve_header, curve_line, read_curve

ROWS = [(0, 0, 2.5), (1, 16, 1.0 / 3.0), (2, 32, 0.1), (3, 48, 1e-7)]


def lines(rows=ROWS):
    return [curve_line(step, examples, loss, 16, 0.05, 1.5 * step) for step, examples, loss in rows]


def test_a_curve_is_read_back_with_all_digits(tmp_path):
    (tmp_path / "curve.csv").write_text("".join([curve_header() + "\n", *lines()]))
    curve = read_curve(tmp_path / "curve.csv")
    assert curve.steps.tolist() == [0, 1, 2, 3]
    assert curve.examples.tolist() == [0, 16, 32, 48]
    assert curve.loss.tolist() == [row[2] for row in ROWS]
    assert curve.seconds.tolist() == [0, 1.5, 3, 4.5]


def test_torn_at_any_byte_only_the_last_line_is_lost(tmp_path):
    path = tmp_path / "curve.csv"
    whole = "".join([curve_header() + "\n", *lines()]).encode()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = max(whole[:length].count(b"\n") - 1, 0)
        curve = read_curve(path)
        assert curve.steps.tolist() == [row[0] for row in ROWS[:complete]]
        assert curve.loss.tolist() == [row[2] for row in ROWS[:complete]]


def test_going_on_after_a_torn_line_keeps_what_follows(tmp_path):
    """A line that was torn and then continued by another writer is no evaluation."""
    torn = lines()[2][:7]
    (tmp_path / "curve.csv").write_text(
        "".join([curve_header() + "\n", *lines()[:2], torn, lines()[2], lines()[3]])
    )
    assert read_curve(tmp_path / "curve.csv").steps.tolist() == [0, 1, 3]


def test_zeros_of_a_lost_block_are_no_evaluation(tmp_path):
    (tmp_path / "curve.csv").write_bytes(
        curve_header().encode() + b"\n" + lines()[0].encode() + b"\0" * 40 + b"\nnan,1,1,1,1,1\n"
    )
    assert read_curve(tmp_path / "curve.csv").steps.tolist() == [0]


def test_the_last_writing_of_a_step_holds(tmp_path):
    again = curve_line(2, 32, 0.7, 16, 0.05, 9)
    (tmp_path / "curve.csv").write_text("".join([curve_header() + "\n", *lines(), again]))
    curve = read_curve(tmp_path / "curve.csv")
    assert curve.steps.tolist() == [0, 1, 2, 3]
    assert curve.loss[2] == 0.7


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_nan(tmp_path, loss):
    (tmp_path / "curve.csv").write_text(curve_header() + "\n" + curve_line(1, 16, loss, 16, 0.05, 0))
    assert np.isnan(read_curve(tmp_path / "curve.csv").loss).tolist() == [True]


def test_no_file_is_an_empty_curve(tmp_path):
    assert len(read_curve(tmp_path / "curve.csv")) == 0


def test_until():
    steps = np.array([0.0, 1, 2, 4])
    curve = Curve(steps, 16 * steps, 1 / (1 + steps), steps)
    assert curve.until(2).steps.tolist() == [0, 1, 2]
    assert curve.until(3).examples.tolist() == [0, 16, 32]
    assert len(curve.until(-1)) == 0
