from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from plotted import legend_texts, make_record, named, sweep

from bscrit.fit.runs import attempts
from bscrit.plot import style
from bscrit.plot.rates import STRIP, rates


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def test_each_run_that_met_the_target_is_a_dot(ax: Axes) -> None:
    records = [make_record(8, 0.1), make_record(8, 0.2, meets=80), make_record(8, 0.2, meets=90, seed=1)]
    rates(ax, attempts(records, 0.5))
    (dots,) = named(ax, "_reached")
    assert list(dots.get_xdata()) == [0.1, 0.2, 0.2]
    assert dots.get_ydata() == pytest.approx([100, 80, 90], rel=0.01)
    (line,) = named(ax, "_fastest")
    assert list(line.get_xdata()) == [0.1, 0.2]
    assert line.get_ydata() == pytest.approx([100, 80], rel=0.01)


def test_stopped_and_exhausted_runs_are_arrows_at_their_last_step(ax: Axes) -> None:
    records = [
        make_record(8, 0.1),
        make_record(8, 0.2, meets=1000, last=120, status="stopped"),
        make_record(8, 0.4, meets=1000, last=150, status="exhausted"),
    ]
    rates(ax, attempts(records, 0.5))
    (censored,) = named(ax, "_censored")
    assert list(zip(*censored.get_data(), strict=True)) == [(0.2, 120), (0.4, 150)]
    assert "not reached: at least this" in legend_texts(ax)


def test_a_run_stopped_after_an_easy_target_is_a_dot_there(ax: Axes) -> None:
    rates(ax, attempts([make_record(8, 0.1, meets=100, last=200, status="stopped")], 0.5))
    assert list(named(ax, "_reached")[0].get_xdata()) == [0.1]
    assert list(named(ax, "_censored")[0].get_xdata()) == []


def test_diverged_rates_are_crosses_in_the_strip_at_the_top(ax: Axes) -> None:
    records = [
        make_record(8, 0.1),
        make_record(8, 0.8, status="diverged", last=5),
        make_record(32, 0.4, status="diverged"),
    ]
    rates(ax, attempts(records, 0.5))
    crosses = [(list(line.get_xdata()), line.get_ydata()) for line in named(ax, "_diverged")]
    assert [x for x, _ in crosses] == [[0.8], [0.4]]
    assert STRIP < crosses[0][1][0] < crosses[1][1][0] < 1
    assert "diverged" in legend_texts(ax)
    highest = ax.transData.transform((0.1, max(named(ax, "_reached")[0].get_ydata())))
    assert ax.transAxes.inverted().transform(highest)[1] < STRIP


def test_failed_and_unended_runs_are_no_data(ax: Axes) -> None:
    records = [
        make_record(8, 0.1),
        make_record(8, 0.2, status="failed"),
        make_record(8, 0.4, meets=900, status="running"),
    ]
    rates(ax, attempts(records, 0.5))
    assert list(named(ax, "_reached")[0].get_xdata()) == [0.1]
    assert list(named(ax, "_censored")[0].get_xdata()) == []


def test_the_optimum_of_each_batch_size_is_starred_in_its_colour(ax: Axes) -> None:
    report = sweep()
    assert report.runs
    rates(ax, report.runs.attempts[0.5], report.fits[0].points)
    stars = named(ax, "_best")
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in stars] == [
        (point.lr, point.steps) for point in report.fits[0].points
    ]
    colours = style.batch_colours([4, 16, 64])
    assert [to_hex(line.get_markeredgecolor()) for line in stars] == [colours(size) for size in (4, 16, 64)]


def test_lightness_grows_with_the_batch_size() -> None:
    colours = style.batch_colours([1, 1000])
    grey = [sum(int(colours(size)[i : i + 2], 16) for i in (1, 3, 5)) for size in (1, 10, 100, 1000)]
    assert grey == sorted(grey)
    assert style.batch_colours([8])(8).startswith("#")
