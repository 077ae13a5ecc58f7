"""A metric that gets better upwards is one that falls, with its sign changed, and nothing else."""

import numpy as np

from bscrit.curve import curve_header, curve_line, read_curve
from bscrit.goal import Goal

ACCURACY = Goal("accuracy", "up")


def test_falling_twice_is_the_metric_itself():
    for goal in (Goal(), ACCURACY):
        assert goal.falls(goal.falls(0.25)) == 0.25
    assert ACCURACY.falls(np.array([0.25, 0.5])).tolist() == [-0.25, -0.5]


def test_a_target_is_reached_from_the_side_on_which_the_metric_is_worse():
    assert Goal().reached(0.1, 0.1)
    assert not Goal().reached(0.2, 0.1)
    assert ACCURACY.reached(0.9, 0.9)
    assert not ACCURACY.reached(0.8, 0.9)


def test_the_file_of_a_curve_holds_the_metric_and_the_curve_falls(tmp_path):
    file = tmp_path / "curve.csv"
    lines = [curve_line(step, 4 * step, value, 4, 0.1, 0.0) for step, value in enumerate((0.5, 0.75))]
    file.write_text(curve_header(ACCURACY) + "\n" + "".join(lines))
    assert file.read_text().splitlines()[:2] == [
        "step,examples,accuracy,batch_size,lr,seconds",
        "0,0,0.5,4,0.1,0.000",
    ]
    curve = read_curve(file, ACCURACY)
    assert curve.loss.tolist() == [-0.5, -0.75]
    assert curve.until(0).goal == curve.finite().goal == ACCURACY
