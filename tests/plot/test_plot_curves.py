from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from plotted import legend_texts, make_fit, make_record, named, sweep

from bscrit.curve import Curve
from bscrit.fit.result import TunedRun
from bscrit.plot import style
from bscrit.plot.curves import MOST_POINTS, curves


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def run(batch_size: int, seed: int = 0) -> TunedRun:
    return TunedRun(batch_size, make_record(batch_size, 0.1, seed=seed).curve)


def test_one_line_per_run_in_the_colour_of_its_batch_size(ax: Axes) -> None:
    runs = [run(4), run(64), run(64, seed=1)]
    curves(ax, runs, [], "image")
    drawn = named(ax, "_curve")
    colours = style.batch_colours([4, 64])
    assert [to_hex(line.get_color()) for line in drawn] == [colours(4), colours(64), colours(64)]
    np.testing.assert_array_equal(drawn[0].get_ydata(), runs[0].curve.loss)


@pytest.mark.parametrize(
    ("against", "label", "factor"),
    [("steps", "Optimizer steps", 1), ("examples", "Examples processed (images)", 64)],
)
def test_against_steps_or_examples(ax: Axes, against: str, label: str, factor: int) -> None:
    fit = make_fit([64], [100], None, None, target=0.5, verdict="not identified")
    curves(ax, [run(64)], [fit], "image", against)  # type: ignore[arg-type]
    assert ax.get_xlabel() == label
    assert named(ax, "_curve")[0].get_xdata()[-1] == 150 * factor
    assert named(ax, "_crossing")[0].get_xdata()[0] == 100 * factor


def test_targets_are_lines_and_crossings_dots_on_them(ax: Axes) -> None:
    report = sweep()
    assert report.runs
    curves(ax, report.runs.tuned, report.fits, "image")
    assert [line.get_ydata()[0] for line in named(ax, "_target")] == [0.5]
    assert [dot.get_ydata()[0] for dot in named(ax, "_crossing")] == [0.5] * 3
    assert legend_texts(ax) == ["target 0.5", "crossing"]


def test_censored_points_have_no_crossing(ax: Axes) -> None:
    fit = make_fit([4, 64], [100, 90], None, None, target=0.5, verdict="not identified", censored=[0])
    curves(ax, [run(4), run(64)], [fit], "image")
    assert len(named(ax, "_crossing")) == 1


def test_a_long_curve_is_thinned_and_keeps_its_ends(ax: Axes) -> None:
    steps = np.arange(1.0, 50_001)
    long = Curve(steps, steps * 4, 2 * steps**-0.1, steps)
    curves(ax, [TunedRun(4, long)], [], "image")
    x = named(ax, "_curve")[0].get_xdata()
    assert MOST_POINTS / 2 < len(x) <= MOST_POINTS
    assert (x[0], x[-1]) == (1, 50_000)


def test_losses_that_are_not_finite_or_not_positive(ax: Axes) -> None:
    steps = np.array([0.0, 1.0, 2.0, 3.0])
    odd = Curve(steps, steps * 4, np.array([1.0, -0.5, np.nan, -1.0]), steps)
    curves(ax, [TunedRun(4, odd)], [], "image")
    assert ax.get_yscale() == "linear"
    assert list(named(ax, "_curve")[0].get_ydata()) == [1.0, -0.5, -1.0]
    assert ax.get_ylim()[0] < -1 < 1 < ax.get_ylim()[1]
