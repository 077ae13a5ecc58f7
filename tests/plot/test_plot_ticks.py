from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from plotted import tick_texts

from bscrit.plot import style
from bscrit.plot.ticks import batch_axis, limits, log_axis


def test_limits_hold_the_values_with_a_margin_in_ln() -> None:
    low, high = limits([10, 1000], pad=0.1)
    assert low == pytest.approx(10 / 100**0.1)
    assert high == pytest.approx(1000 * 100**0.1)


@pytest.mark.parametrize("values", [[], [float("nan")], [0.0, -1.0], [5.0]])
def test_limits_are_usable_without_a_range(values: list[float]) -> None:
    low, high = limits(values)
    assert 0 < low < high


def test_every_batch_size_has_a_tick_and_a_label_where_there_is_room() -> None:
    sizes = [4, 8, 16, 32, 64]
    with style.styled():
        (ax,) = style.panels()
        batch_axis(ax.xaxis, sizes, "", (3, 80))
        assert tick_texts(ax, "x") == ["4", "8", "16", "32", "64"]


def test_labels_of_forty_batch_sizes_stay_apart() -> None:
    sizes = np.unique(np.geomspace(1, 1e6, 40).round()).tolist()
    with style.styled():
        (ax,) = style.panels()
        batch_axis(ax.xaxis, sizes, "", (0.5, 2e6))
        texts = tick_texts(ax, "x")
        boxes = [tick.label1.get_window_extent() for tick in ax.xaxis.get_major_ticks()]
        ticks = {*ax.xaxis.get_minorticklocs(), *ax.xaxis.get_majorticklocs()}
    assert 4 <= len(texts) < 15
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert ticks == set(sizes)


def test_a_lone_large_batch_size_keeps_its_label() -> None:
    with style.styled():
        (ax,) = style.panels()
        batch_axis(ax.xaxis, [100, 101, 200, 256, 300, 1000], "", (70, 1400))
        assert tick_texts(ax, "x") == ["100", "200", "300", "1,000"]


@pytest.mark.parametrize(
    "span", [(1, 10), (95, 105), (1600, 1610), (0.9, 1.1e9), (1e-9, 1e-2), (2e14, 3e16), (3, 4e2)]
)
@pytest.mark.parametrize("which", ["x", "y"])
def test_a_log_axis_has_a_few_readable_ticks_whatever_its_range(
    span: tuple[float, float], which: str
) -> None:
    with style.styled():
        (ax,) = style.panels()
        log_axis(getattr(ax, f"{which}axis"), "", span)
        texts = tick_texts(ax, which)
    assert 2 <= len(texts) <= 9
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 7
