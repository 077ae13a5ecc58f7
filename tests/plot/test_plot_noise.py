from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from plotted import NOTHING, legend_texts, make_fit, make_noise, make_record, named

from bscrit.noise import NoiseSamples
from bscrit.plot import style
from bscrit.plot.noise import noise


@pytest.fixture
def ax() -> Iterator[Axes]:
    with style.styled():
        (axes,) = style.panels()
        yield axes


def scattered(signal: float, trace: float, scatter: float, seed: int = 0) -> NoiseSamples:
    """Samples whose signal scatters by `scatter` around its mean."""
    clean = make_noise(trace, signal=signal, count=512)
    shift = scatter * np.random.default_rng(seed).normal(size=512)
    return replace(clean, sq_small=clean.sq_small + shift, sq_big=clean.sq_big + shift)


def test_the_scale_is_drawn_over_steps_with_its_unit(ax: Axes) -> None:
    noise(ax, [make_record(64, 0.1, noise=make_noise(50))], [], "image")
    (line,) = named(ax, "_noise scale")
    np.testing.assert_allclose(line.get_ydata(), 50)
    assert len(line.get_xdata()) >= 4
    assert ax.get_ylabel() == "Noise scale (images)"


def test_sums_are_pooled_before_the_ratio_is_formed(ax: Axes) -> None:
    loud, quiet = make_noise(100, signal=10), make_noise(100, signal=0.1)
    noise(ax, [make_record(64, 0.1, noise=loud), make_record(64, 0.1, seed=1, noise=quiet)], [], "image")
    (line,) = named(ax, "_noise scale")
    np.testing.assert_allclose(line.get_ydata(), 200 / 10.1)


def test_a_scattering_signal_does_not_bias_the_scale(ax: Axes) -> None:
    noise(ax, [make_record(64, 0.1, noise=scattered(1.0, 50, scatter=2.0))], [], "image")
    (line,) = named(ax, "_noise scale")
    assert line.get_ydata()[-1] == pytest.approx(50, rel=0.25)


def test_an_unresolved_signal_is_a_gap_and_a_mark(ax: Axes) -> None:
    noise(ax, [make_record(64, 0.1, noise=scattered(0.0, 50, scatter=1.0))], [], "image")
    (line,), (marks,) = named(ax, "_noise scale"), named(ax, "_unresolved")
    gaps = int(np.isnan(line.get_ydata()).sum())
    assert gaps == len(marks.get_xdata()) > len(line.get_ydata()) / 2
    assert any(text.startswith("unresolved") for text in legend_texts(ax))


def test_geometries_are_not_mixed(ax: Axes) -> None:
    records = [
        make_record(64, 0.1, noise=make_noise(50)),
        make_record(64, 0.1, seed=1, noise=make_noise(9000, metric="adam")),
    ]
    noise(ax, records, [], "image")
    np.testing.assert_allclose(named(ax, "_noise scale")[0].get_ydata(), 50)
    assert any("$B_{simple}$," in text for text in legend_texts(ax))


def test_b_crit_is_a_line_with_its_interval_where_there_is_one(ax: Axes) -> None:
    records = [make_record(64, 0.1, noise=make_noise(50))]
    without = replace(make_fit(target=1.0, verdict="not identified"), b_crit=NOTHING)
    noise(ax, records, [make_fit(target=2.0), without], "image")
    (line,) = named(ax, "_b_crit")
    assert line.get_ydata()[0] == pytest.approx(2190.6)
    assert len(named(ax, "_b_crit")) == len(ax.patches) == 1
    assert "target 1: $B_{crit}$ not identified" in legend_texts(ax)
    assert ax.get_ylim()[0] < 50 < 2190.6 < ax.get_ylim()[1]
