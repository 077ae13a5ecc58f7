from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from plotted import (
    B_CRIT,
    NOTHING,
    S_MIN,
    ZHANG_SIZES,
    ZHANG_STEPS,
    arrows,
    legend_texts,
    make_fit,
    named,
    tick_texts,
)

from bscrit.estimate import Estimate
from bscrit.plot import style
from bscrit.plot.steps import steps


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def test_points_curve_and_asymptotes(ax: Axes) -> None:
    steps(ax, [make_fit()], "sequence")
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in named(ax, "_point")]
    assert drawn == list(zip(ZHANG_SIZES, ZHANG_STEPS, strict=True))
    (curve,), (falling,), (plateau,) = (
        named(ax, f"_{name}") for name in ("curve", "perfect scaling", "plateau")
    )
    np.testing.assert_allclose(curve.get_ydata(), S_MIN * (1 + B_CRIT / curve.get_xdata()))
    np.testing.assert_allclose(np.multiply(*falling.get_data()), S_MIN * B_CRIT)
    np.testing.assert_allclose(plateau.get_ydata(), S_MIN)


def test_b_crit_stands_over_the_axis(ax: Axes) -> None:
    steps(ax, [make_fit()], "sequence")
    (star,) = named(ax, "_b_crit")
    assert (star.get_xdata()[0], star.get_ydata()[0]) == pytest.approx((B_CRIT, 2 * S_MIN))
    assert len(ax.collections) == 1


def test_axes_are_labelled_at_the_batch_sizes(ax: Axes) -> None:
    steps(ax, [make_fit()], "sequence")
    assert ax.get_xlabel() == "Batch size (sequences)"
    assert ax.get_ylabel() == "Optimizer steps to target"
    assert set(tick_texts(ax, "x")) <= {f"{size:,}" for size in ZHANG_SIZES}
    assert len(tick_texts(ax, "x")) >= 5


def test_an_arrow_points_up_from_a_censored_point(ax: Axes) -> None:
    steps(ax, [make_fit(censored=[0])], "sequence")
    ((start, end),) = arrows(ax)
    assert start == (64, 46000)
    assert end[0] == 64
    assert end[1] > 46000


def test_a_bound_leaves_the_asymptote_that_is_known(ax: Axes) -> None:
    fit = replace(
        make_fit(verdict="lower bound"),
        s_min=NOTHING,
        b_crit=Estimate(None, 900.0, None),
    )
    steps(ax, [fit], "image")
    assert named(ax, "_perfect scaling")
    assert not named(ax, "_plateau")
    assert not named(ax, "_curve")
    assert "target 3.42: $B_{crit}$ at least 900 images" in legend_texts(ax)
    assert not any("S_{min}" in text for text in legend_texts(ax))


def test_more_than_three_fits_go_without_asymptotes(ax: Axes) -> None:
    steps(ax, [make_fit(group={"model": str(i)}) for i in range(4)], "image")
    assert not named(ax, "_plateau")
    assert len(named(ax, "_curve")) == 4
