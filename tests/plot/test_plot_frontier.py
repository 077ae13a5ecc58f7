from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from plotted import (
    B_CRIT,
    NOTHING,
    S_MIN,
    ZHANG_SIZES,
    ZHANG_STEPS,
    around,
    arrows,
    legend_texts,
    make_comparison,
    make_fit,
    named,
    tick_texts,
)

from bscrit.fit.result import Fit, Forecast
from bscrit.plot import style
from bscrit.plot.frontier import frontier


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels(height=3.0)
        yield axes


def test_points_lie_at_steps_and_examples(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in named(ax, "_point")]
    assert drawn == [(s, s * b) for b, s in zip(ZHANG_SIZES, ZHANG_STEPS, strict=True)]
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_the_curve_is_the_fitted_hyperbola(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    (curve,) = named(ax, "_curve")
    steps, examples = curve.get_data()
    np.testing.assert_allclose((steps / S_MIN - 1) * (examples / (S_MIN * B_CRIT) - 1), 1, rtol=1e-6)
    assert steps.max() == pytest.approx(S_MIN * (1 + B_CRIT / 64))


def test_b_crit_is_marked_at_twice_both(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    (star,) = named(ax, "_b_crit")
    assert star.get_xdata()[0] == pytest.approx(2 * S_MIN)
    assert star.get_ydata()[0] == pytest.approx(2 * S_MIN * B_CRIT)
    assert "target 3.42: $B_{crit}$ = 2,190 (1,970–2,410) sequences" in legend_texts(ax)


def test_the_interval_of_b_crit_lies_on_the_curve(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    (thick,) = named(ax, "_b_crit interval")
    sizes = thick.get_ydata() / thick.get_xdata()
    assert sizes.min() == pytest.approx(0.9 * B_CRIT)
    assert sizes.max() == pytest.approx(1.1 * B_CRIT)


def test_intervals_run_along_the_diagonal_of_their_batch_size(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    for line, size in zip(named(ax, "_interval"), ZHANG_SIZES, strict=True):
        np.testing.assert_allclose(line.get_ydata() / line.get_xdata(), size)


def test_axes_carry_units_and_diagonals_their_batch_size(ax: Axes) -> None:
    frontier(ax, [make_fit()], "sequence")
    assert ax.get_xlabel() == "Optimizer steps"
    assert ax.get_ylabel() == "Examples processed (sequences)"
    above, beside = ax.child_axes
    labels = tick_texts(above, "x") + tick_texts(beside, "y")
    assert above.get_xlabel() == "Batch size (sequences)"
    assert sorted(labels, key=lambda text: int(text.replace(",", ""))) == [
        f"{size:,}" for size in ZHANG_SIZES
    ]
    slopes = [line.get_ydata()[0] / line.get_xdata()[0] for line in named(ax, "_diagonal")]
    np.testing.assert_allclose(slopes, ZHANG_SIZES)


def test_at_most_ten_diagonals(ax: Axes) -> None:
    sizes = list(range(1, 41))
    frontier(ax, [make_fit(sizes, [100 + 1000 / size for size in sizes], 100, 10)], "token")
    assert 5 <= len(named(ax, "_diagonal")) <= 10


def test_a_censored_point_is_an_arrow_along_its_diagonal(ax: Axes) -> None:
    frontier(ax, [make_fit(censored=[0, 8])], "sequence")
    pairs = arrows(ax)
    assert len(pairs) == 2
    for (start, end), size in zip(pairs, (64, 16384), strict=True):
        assert end[0] > start[0]
        assert end[1] / end[0] == pytest.approx(start[1] / start[0]) == pytest.approx(size)
    assert len(named(ax, "_point")) == 7
    assert "target not reached: at least this" in legend_texts(ax)


def test_no_curve_and_no_star_without_a_value(ax: Axes) -> None:
    fit = make_fit(s_min=None, b_crit=None, verdict="not identified")
    frontier(ax, [fit], "image")
    assert not named(ax, "_curve")
    assert not named(ax, "_b_crit")
    assert legend_texts(ax) == ["target 3.42: $B_{crit}$ not identified"]


def test_a_partly_censored_point_is_hollow(ax: Axes) -> None:
    frontier(ax, [make_fit(partly=[1])], "image")
    faces = [line.get_markerfacecolor() for line in named(ax, "_point")]
    assert [face == "white" for face in faces] == [False, True] + [False] * 7
    assert "some of the runs did not reach the target" in legend_texts(ax)


def test_a_point_that_the_fit_set_aside_is_faint_and_crossed(ax: Axes) -> None:
    frontier(ax, [make_fit(aside=[2])], "image")
    assert [line.get_alpha() < 1 for line in named(ax, "_point")] == [False, False, True] + [False] * 6
    assert [line.get_xdata()[0] for line in named(ax, "_set aside")] == [13282]
    assert "set aside by the fit" in legend_texts(ax)


def test_the_band_holds_the_curve_and_the_region(ax: Axes) -> None:
    frontier(ax, [make_fit(region=True)], "image")
    (band,) = ax.patches
    x, y = band.get_xy().T
    at = np.isclose(np.log(y / x), np.log(B_CRIT), atol=0.02)
    assert x[at].min() < 2 * S_MIN < x[at].max()
    assert x[at].max() / x[at].min() < np.exp(0.4)


def test_each_target_has_its_colour_and_marker(ax: Axes) -> None:
    fits = [make_fit(target=t, steps=[s * t for s in ZHANG_STEPS], s_min=S_MIN * t) for t in (3.0, 2.0, 1.0)]
    frontier(ax, fits, "image")
    looks = {(to_hex(line.get_color()), line.get_marker()) for line in named(ax, "_point")}
    assert len(looks) == len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 3


def test_more_fits_than_colours_are_said(ax: Axes) -> None:
    fits = [make_fit(group={"model": str(i)}) for i in range(10)]
    frontier(ax, fits, "image")
    assert len(named(ax, "_b_crit")) == style.MOST == 7
    assert "3 more fits are not drawn" in legend_texts(ax)


def foreseen(
    target: float = 3.42, batch_size: float = 512, b_crit: float | None = 1000, **others: Forecast
) -> Fit:
    """A fit whose B_simple predicts S_min = 1000 and this B_crit; `others` by metric."""
    error = NOTHING if b_crit is None else around(b_crit / B_CRIT)
    mine = Forecast(batch_size, around(1000), around(1e6), around(b_crit), error)
    told = {"identity": mine, **others}
    return replace(
        make_fit(target=target), noise=tuple(make_comparison(m, forecast=f) for m, f in told.items())
    )


def test_a_forecast_is_a_hyperbola_beside_the_fitted_one(ax: Axes) -> None:
    frontier(ax, [foreseen()], "sequence")
    (curve,), (point,) = named(ax, "_predicted"), named(ax, "_predicted b_crit")
    steps, examples = curve.get_data()
    np.testing.assert_allclose((steps / 1000 - 1) * (examples / 1e6 - 1), 1, rtol=1e-6)
    assert (point.get_xdata(), point.get_ydata()) == ([2000], [2e6])
    assert curve.get_color() == named(ax, "_curve")[0].get_color()
    assert curve.get_linestyle() != "-"
    said = (
        "predicted from $B_{simple}$ at batch size 512 alone: $B_{crit}$ 0.46 (0.41–0.5) times the fitted one"
    )
    assert said in legend_texts(ax)


def test_what_predicts_b_crit_best_is_drawn(ax: Axes) -> None:
    frontier(
        ax, [foreseen(hessian=Forecast(256, around(900), around(9e5), around(1000), NOTHING))], "sequence"
    )
    assert named(ax, "_predicted b_crit")[0].get_xdata() == [1800]
    assert "predicted from $B_{noise}$ at batch size 256 alone" in legend_texts(ax)


def test_no_forecast_without_values(ax: Axes) -> None:
    frontier(ax, [make_fit(), foreseen(b_crit=None)], "sequence")
    assert not named(ax, "_predicted")
    assert not any("predicted" in text for text in legend_texts(ax))


def test_forecasts_of_several_fits_share_a_legend_line(ax: Axes) -> None:
    frontier(ax, [foreseen(3.0), foreseen(2.0, 256), foreseen(1.0)], "sequence")
    assert len(named(ax, "_predicted")) == 3
    (said,) = [text for text in legend_texts(ax) if "predicted" in text]
    assert said.startswith(
        "predicted from $B_{simple}$ at batch size 512, $B_{simple}$ at batch size 256 alone"
    )
    assert "0.46, 0.46, 0.46 times" in said


def test_of_many_forecasts_only_the_last_is_drawn(ax: Axes) -> None:
    frontier(ax, [foreseen(float(target)) for target in (5, 4, 3, 2)], "sequence")
    assert len(named(ax, "_predicted")) == 1
    assert named(ax, "_predicted")[0].get_color() == style.SERIES[3][0]
    assert any(text.endswith("(drawn for target 2 only)") for text in legend_texts(ax))


@pytest.mark.parametrize(
    "fits",
    [
        [make_fit([64], [1000], None, None, verdict="not identified")],
        [make_fit([64, 128], [10, 10], None, None, verdict="not identified", censored=[0, 1])],
        [make_fit([10**i for i in range(7)], [50 + 1.5e5 / 10**i for i in range(7)], 50, 3000)],
        [make_fit([2e6, 4e6], [3e7, 2e7], 1e7, 4e6)],
        [make_fit([1, 2], [1.5, 1.2], 1, 0.5, target=1e-7)],
        [make_fit(target=None, group={"model": "$x"}), make_fit(target=None, group={"model": "y$"})],
        [make_fit([], [], None, None, verdict="not identified")],
    ],
)
def test_hard_cases_are_drawn(ax: Axes, fits: Sequence[Fit]) -> None:
    frontier(ax, fits, "a long unit with a $ in its name and more words than fit")
    style.legend([ax])
    ax.get_figure(root=True).savefig(io.BytesIO(), format="svg")


def test_nothing_lies_outside_the_figure_or_on_other_text(ax: Axes) -> None:
    fits = [make_fit(target=t, steps=[s * t for s in ZHANG_STEPS], s_min=S_MIN * t) for t in (3.0, 2.0, 1.0)]
    frontier(ax, fits, "image")
    style.legend([ax])
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()
    above, beside = ax.child_axes
    texts = [ax.xaxis.label, ax.yaxis.label, above.xaxis.label, *figure.legends[0].get_texts()]
    texts += [tick.label1 for axis in (ax.xaxis, ax.yaxis) for tick in axis.get_major_ticks()]
    texts += [tick.label2 for axis in (above.xaxis, beside.yaxis) for tick in axis.get_major_ticks()]
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        assert figure.bbox.padded(1).contains(*box.min), texts[i]
        assert figure.bbox.padded(1).contains(*box.max), texts[i]
        assert not any(box.overlaps(other) for other in boxes[:i]), texts[i]
