from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from plotted import legend_texts, make_fit, make_record, named, sweep

from bscrit.plot import style
from bscrit.plot.best_rate import best_rate, tuned


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def test_tuned_rates_are_drawn_against_batch_size(ax: Axes) -> None:
    report = sweep()
    best_rate(ax, report.fits, "image")
    (line,) = named(ax, "target 0.5")
    assert list(line.get_xdata()) == [4, 16, 64]
    assert list(line.get_ydata()) == pytest.approx([0.02, 0.04, 0.08])
    assert ax.get_xlabel() == "Batch size (images)"


def test_guides_pass_through_the_smallest_batch_size(ax: Axes) -> None:
    report = sweep()
    best_rate(ax, report.fits, "image")
    for label, power in (("proportional to B", 1), (r"proportional to $\sqrt{B}$", 0.5)):
        (guide,) = named(ax, label)
        np.testing.assert_allclose(guide.get_ydata(), 0.02 * (np.array(guide.get_xdata()) / 4) ** power)


def test_the_law_of_the_report_is_a_line(ax: Axes) -> None:
    report = sweep()
    assert report.runs
    assert report.runs.rate_law
    best_rate(ax, report.fits, "image", report.runs)
    (line,) = named(ax, "law of the best rate")
    np.testing.assert_allclose(line.get_ydata(), report.runs.rate_law.curve(line.get_xdata()))
    best_rate(ax, report.fits, "image", replace(report.runs, rate_law=None))
    assert len(named(ax, "law of the best rate")) == 1


def test_the_least_rate_that_diverged_bounds_the_picture(ax: Axes) -> None:
    report = sweep((4, 16, 64), make_record(4, 0.9, status="diverged"))
    best_rate(ax, report.fits, "image", report.runs)
    (crosses,) = named(ax, "_diverged")
    assert list(crosses.get_ydata()) == pytest.approx([0.04, 0.08, 0.16])
    assert "least rate that diverged" in legend_texts(ax)


def test_censored_points_and_unknown_rates_have_no_best(ax: Axes) -> None:
    fit = make_fit([8, 16, 32], [30, 20, 10], 8, 20, lrs=[0.1, 0.2, 0.4], censored=[0])
    assert [point.batch_size for point in tuned(fit)] == [16, 32]
    assert tuned(make_fit()) == []
    best_rate(ax, [fit, make_fit(target=1.0)], "image")
    assert "target 1" not in legend_texts(ax)
