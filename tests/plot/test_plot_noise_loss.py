from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from plotted import (
    B_CRIT,
    NOTHING,
    arrows,
    legend_texts,
    make_comparison,
    make_fit,
    make_noise,
    make_record,
    named,
    report_on,
)

from bscrit.estimate import Estimate
from bscrit.fit.result import FrozenScale, Growth, Verdict
from bscrit.fit.runs import noise_along
from bscrit.goal import Goal
from bscrit.plot import style
from bscrit.plot.draw import unsupported
from bscrit.plot.noise_loss import noise_loss
from bscrit.record import Record

GROWTH = Growth(Estimate(2.0, 1.5, 2.5), 3.0, low_loss=0.5, high_loss=1.0)


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def lawful(size: int = 64, seed: int = 0) -> Record:
    """tr(Sigma)/|G|^2 = 20 loss^-3 along the record's curve, loss = 0.5 (steps/100)^-0.2."""
    steps = np.arange(1.0, 151)
    loss = 0.5 * (steps / 100) ** -0.2
    return make_record(size, 0.1, seed=seed, noise=make_noise(20 * loss**-3, steps=steps))


def test_windows_lie_at_the_loss_of_the_mean_curve(ax: Axes) -> None:
    """A window is short enough that its average is within 5 % of the law at its loss."""
    noise_loss(ax, noise_along([lawful(seed=0), lawful(seed=1)], "identity"), [], "image")
    (line,) = named(ax, "_noise scale")
    loss, scale = line.get_data()
    assert len(loss) >= 4
    assert (np.diff(loss) < 0).all()
    np.testing.assert_allclose(scale, 20 * loss**-3.0, rtol=0.05)


def test_the_mean_of_the_curves_is_the_mean_of_the_losses(ax: Axes) -> None:
    apart = [lawful(seed=0), lawful(seed=1)]
    shifted = [
        replace(one, curve=replace(one.curve, loss=one.curve.loss + s))
        for one, s in zip(apart, (0.2, -0.2), strict=True)
    ]
    noise_loss(ax, noise_along(shifted, "identity"), [], "image")
    (first,) = named(ax, "_noise scale")
    noise_loss(ax, noise_along(apart, "identity"), [], "image")
    np.testing.assert_allclose(first.get_xdata(), named(ax, "_noise scale")[1].get_xdata())


def test_training_goes_from_left_to_right(ax: Axes) -> None:
    noise_loss(ax, noise_along([lawful()], "identity"), [make_fit(target=0.1)], "image")
    left, right = ax.get_xlim()
    assert left > 1 > 0.1 > right
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_ylabel() == "Noise scale $B_{simple}$ (images)"


def test_each_batch_size_has_its_colour(ax: Axes) -> None:
    noise_loss(ax, noise_along([lawful(4), lawful(16), lawful(64)], "identity"), [], "image")
    colours = style.batch_colours([4, 16, 64])
    assert [line.get_color() for line in named(ax, "_noise scale")] == [colours(4), colours(16), colours(64)]


def test_b_crit_lies_at_its_target_with_its_interval(ax: Axes) -> None:
    noise_loss(
        ax,
        noise_along([lawful()], "identity"),
        [make_fit(target=0.8), make_fit(target=0.4, b_crit=40)],
        "image",
    )
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in named(ax, "_b_crit")]
    assert points == [(0.8, B_CRIT), (0.4, 40)]
    ends = [tuple(line.get_ydata()) for line in named(ax, "_b_crit interval")]
    assert ends == [pytest.approx((0.9 * B_CRIT, 1.1 * B_CRIT)), pytest.approx((36, 44))]
    assert len({line.get_marker() for line in named(ax, "_b_crit")}) == 2
    assert "target 0.4: $B_{crit}$ = 40 (36–44) images" in legend_texts(ax)


@pytest.mark.parametrize(
    ("verdict", "bound", "up"),
    [("lower bound", Estimate(None, 70.0), True), ("upper bound", Estimate(None, None, 30.0), False)],
)
def test_a_bound_of_b_crit_is_an_arrow(ax: Axes, verdict: Verdict, bound: Estimate, up: bool) -> None:
    noise_loss(
        ax,
        noise_along([lawful()], "identity"),
        [replace(make_fit(target=0.5, verdict=verdict), b_crit=bound)],
        "image",
    )
    ((start, end),) = arrows(ax)
    assert start == (0.5, bound.low or bound.high)
    assert (end[1] > start[1]) == up
    assert ax.get_ylim()[0] < min(start[1], end[1]) < max(start[1], end[1]) < ax.get_ylim()[1]
    assert not named(ax, "_b_crit")


def test_without_b_crit_or_target_there_is_only_a_legend_line(ax: Axes) -> None:
    fits = [replace(make_fit(target=0.5, verdict="not identified"), b_crit=NOTHING), make_fit(target=None)]
    noise_loss(ax, noise_along([lawful()], "identity"), fits, "image")
    assert not named(ax, "_b_crit")
    assert not arrows(ax)
    assert "target 0.5: $B_{crit}$ not identified" in legend_texts(ax)


def test_the_growth_law_is_a_line_with_its_exponent(ax: Axes) -> None:
    easy, hard = make_fit(target=0.8), make_fit(target=0.5)
    other = replace(GROWTH, at_one=99.0)
    fits = [
        replace(easy, noise=(make_comparison(growth=other),)),
        replace(hard, noise=(make_comparison(growth=GROWTH),)),
    ]
    noise_loss(ax, noise_along([lawful()], "identity"), fits, "image")
    (label,) = [text for text in legend_texts(ax) if "in proportion" in text]
    assert label == "$B_{simple}$ in proportion to 1/loss$^a$, a = 2 (1.5 to 2.5)"
    x, y = named(ax, label)[0].get_data()
    assert (x[0], x[-1]) == (pytest.approx(1.0), pytest.approx(0.5))
    np.testing.assert_allclose(y, 3 * x**-2.0)


def test_the_law_of_another_metric_is_not_drawn(ax: Axes) -> None:
    fit = replace(make_fit(target=0.5), noise=(make_comparison("hessian", growth=GROWTH),))
    noise_loss(ax, noise_along([lawful()], "identity"), [fit], "image")
    assert not any("in proportion" in text for text in legend_texts(ax))


def test_frozen_measurements_are_points_or_bounds(ax: Axes) -> None:
    frozen = (
        FrozenScale(0.6, Estimate(90.0, 80.0, 101.0), 4096),
        FrozenScale(0.5, Estimate(None, 70.0), 4096),
    )
    noise_loss(
        ax,
        noise_along([lawful()], "identity"),
        [replace(make_fit(target=0.5), noise=(make_comparison(frozen=frozen),))],
        "image",
    )
    (point,), (bound,) = named(ax, "_frozen"), named(ax, "_frozen unresolved")
    assert (point.get_xdata(), point.get_ydata()) == ([0.6], [90.0])
    assert (bound.get_xdata(), bound.get_ydata()) == ([0.5], [70.0])
    assert [80.0, 101.0] in [list(line.get_ydata()) for line in named(ax, "_interval")]
    assert {"at frozen parameters, on fresh data", "not resolved: at least this"} <= set(legend_texts(ax))


def test_a_metric_that_rises_is_an_axis_of_its_own(ax: Axes) -> None:
    """Accuracy 1 - loss: windows in the order of training, B_crit at its target, from left to right."""
    accuracy = Goal("accuracy", "up")
    record = lawful()
    curve = replace(record.curve, loss=accuracy.falls(1 - record.curve.loss), goal=accuracy)
    rising = replace(record, curve=curve, trial=replace(record.trial, goal=accuracy))
    noise_loss(ax, noise_along([rising], "identity"), [make_fit(target=0.55)], "image")
    (line,), (critical,) = named(ax, "_noise scale"), named(ax, "_b_crit")
    assert (np.diff(line.get_xdata()) > 0).all()
    np.testing.assert_allclose(line.get_ydata(), 20 * (1 - line.get_xdata()) ** -3.0, rtol=0.05)
    assert critical.get_xdata() == [0.55]
    assert ax.get_xscale() == "linear"
    assert ax.get_xlabel() == "Accuracy (rises as training goes on)"
    assert unsupported(report_on([rising])).keys() & {"noise", "noise_loss"} == set()


def test_losses_that_are_not_positive_have_no_place(ax: Axes) -> None:
    below = lawful()
    below = replace(below, curve=replace(below.curve, loss=below.curve.loss - 0.6))
    noise_loss(ax, noise_along([below], "identity"), [make_fit(target=-0.1)], "image")
    (line,) = named(ax, "_noise scale")
    assert (line.get_xdata() > 0).all()
    assert not named(ax, "_b_crit")
