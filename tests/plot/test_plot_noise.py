from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from plotted import (
    NOTHING,
    gaussian_noise,
    legend_texts,
    make_fit,
    make_frozen,
    make_noise,
    make_record,
    named,
)

from bscrit.fit.runs import noise_along
from bscrit.plot import style
from bscrit.plot.noise import noise


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def test_the_scale_is_drawn_over_steps_with_its_unit(ax: Axes) -> None:
    noise(ax, noise_along([make_record(64, 0.1, noise=make_noise(50))], "identity"), [], "image")
    (line,) = named(ax, "_noise scale")
    np.testing.assert_allclose(line.get_ydata(), 50)
    assert len(line.get_xdata()) >= 4
    assert (np.diff(line.get_xdata()) > 0).all()
    assert 0 < line.get_xdata()[0] < line.get_xdata()[-1] < 64
    assert ax.get_ylabel() == "Noise scale $B_{simple}$ (images)"


def test_sums_are_pooled_before_the_ratio_is_formed(ax: Axes) -> None:
    """Each run weighs by its progress, 1 over the mean squared norm of its updates; a mean of ratios is 30."""
    records = [make_record(64, 0.1, seed=i, noise=make_noise(50, signal=5 if i % 2 else 1)) for i in range(8)]
    noise(ax, noise_along(records, "identity"), [], "image")
    (line,) = named(ax, "_noise scale")
    squares = np.array([5, 1]) + 50 / 64
    expected = (50 / squares).sum() / ([5, 1] / squares).sum()
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=0.03)


def test_gaussian_gradients_give_their_scale_at_each_batch_size(ax: Axes) -> None:
    """Steps as a sweep samples them: ever farther apart. Three standard errors of 5 runs are allowed."""
    steps = [0, *np.unique(np.geomspace(10, 2000, 120).round())]
    sizes = (16, 64, 256)
    records = [
        make_record(size, 0.1, seed=s, noise=gaussian_noise(40, size, steps, seed=10 * size + s))
        for size in sizes
        for s in range(5)
    ]
    noise(ax, noise_along(records, "identity"), [], "image")
    lines = named(ax, "_noise scale")
    assert len(lines) == 3
    colours = style.batch_colours(sizes)
    for line, size in zip(lines, sizes, strict=True):
        assert line.get_color() == colours(size)
        np.testing.assert_allclose(line.get_ydata(), 40, rtol=0.45)
        assert np.exp(np.log(line.get_ydata()).mean()) == pytest.approx(40, rel=0.15)
    ends = [line.get_ydata() for line in named(ax, "_interval")]
    assert len(ends) == sum(len(line.get_xdata()) for line in lines)
    assert np.mean([low < 40 < high for low, high in ends]) > 0.8


def test_a_finite_training_set_adds_to_the_signal(ax: Axes) -> None:
    """Batches without replacement from 100 examples: |G|^2 of the whole set is tr(Sigma)/100 more."""
    noise(ax, noise_along([make_record(64, 0.1, noise=make_noise(50))], "identity", 100), [], "image")
    np.testing.assert_allclose(named(ax, "_noise scale")[0].get_ydata(), 50 / (1 + 50 / 100), rtol=1e-6)


def test_an_unresolved_signal_is_a_gap_and_a_mark_at_its_bound(ax: Axes) -> None:
    records = [make_record(4, 0.1, noise=gaussian_noise(1e5, 4, range(1, 200)))]
    noise(ax, noise_along(records, "identity"), [], "image")
    (line,), (bounds,), (nothing,) = (
        named(ax, f"_{name}") for name in ("noise scale", "unresolved", "no bound")
    )
    gaps = np.isnan(line.get_ydata())
    assert gaps.sum() == len(bounds.get_xdata()) + len(nothing.get_xdata()) > 0
    assert set(bounds.get_xdata()) < set(line.get_xdata()[gaps]) | {0.0}
    assert (np.array(bounds.get_ydata()) < 1e5).all()
    assert "not resolved: at least this" in legend_texts(ax)


def test_geometries_are_not_mixed(ax: Axes) -> None:
    both = [make_noise(50), make_noise(9000, metric="adam")]
    noise(ax, noise_along([make_record(64, 0.1, noise=both)], "adam"), [], "image")
    np.testing.assert_allclose(named(ax, "_noise scale")[0].get_ydata(), 9000)
    assert ax.get_ylabel() == "Noise scale $B_{adam}$ (images)"


def test_frozen_measurements_are_points_with_intervals_where_they_were_made(ax: Axes) -> None:
    """Two seeds frozen at one loss are one point; a signal that cannot be told from 0 is none."""
    frozen = [make_frozen(50, 20, 0.6), make_frozen(50, 80, 0.6)]
    records = [
        make_record(64, 0.1, seed=seed, noise=make_noise(50), frozen=[one]) for seed, one in enumerate(frozen)
    ]
    noise(ax, noise_along(records, "identity"), [], "image")
    (point,) = named(ax, "_frozen")
    assert point.get_xdata() == [pytest.approx(40)]
    assert point.get_ydata() == [pytest.approx(50, rel=0.05)]
    assert point.get_marker() == "D"
    assert any(
        min(i.get_ydata()) < 50 < max(i.get_ydata())
        for i in named(ax, "_interval")
        if 40 in i.get_xdata().round(6)
    )
    assert "at frozen parameters, on fresh data" in legend_texts(ax)


def test_frozen_measurements_alone_are_enough(ax: Axes) -> None:
    noise(ax, noise_along([make_record(64, 0.1, frozen=[make_frozen(50, 20, 0.6)])], "identity"), [], "image")
    assert named(ax, "_frozen")[0].get_ydata() == [pytest.approx(50, rel=0.05)]
    assert legend_texts(ax) == ["at frozen parameters, on fresh data"]


def test_intervals_of_many_batch_sizes_are_left_out(ax: Axes) -> None:
    noise(
        ax,
        noise_along([make_record(size, 0.1, noise=make_noise(50)) for size in range(1, 41)], "identity"),
        [],
        "image",
    )
    assert len(named(ax, "_noise scale")) == 40
    assert not named(ax, "_interval")
    assert legend_texts(ax) == ["noise scale in windows of the runs"]


def test_b_crit_is_a_line_with_its_interval_where_there_is_one(ax: Axes) -> None:
    records = [make_record(64, 0.1, noise=make_noise(50))]
    without = replace(make_fit(target=1.0, verdict="not identified"), b_crit=NOTHING)
    noise(ax, noise_along(records, "identity"), [make_fit(target=2.0), without], "image")
    (line,) = named(ax, "_b_crit")
    assert line.get_ydata()[0] == pytest.approx(2190.6)
    assert len(named(ax, "_b_crit")) == len(ax.patches) == 1
    assert "target 1: $B_{crit}$ not identified" in legend_texts(ax)
    assert ax.get_ylim()[0] < 50 < 2190.6 < ax.get_ylim()[1]
