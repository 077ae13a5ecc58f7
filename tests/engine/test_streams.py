"""The example stream and nests of tensors."""

from typing import NamedTuple

import pytest
import torch

from bscrit.engine.streams import ExampleStream, moved, stacked
from bscrit.measure.nested import map_tensors, parts_of, tensors_of


@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_every_epoch_holds_every_example_once_whatever_the_batch_size(size):
    stream = ExampleStream(10, seed=3)
    drawn = torch.cat([stream.batch(size * number, size) for number in range(30)])
    for epoch in drawn[: len(drawn) // 10 * 10].view(-1, 10):
        assert epoch.sort().values.tolist() == list(range(10))


def test_batch_sizes_cut_the_same_stream():
    stream = ExampleStream(10, seed=3)
    ones = torch.cat([stream.batch(start, 1) for start in range(60)])
    sixes = torch.cat([stream.batch(start, 6) for start in range(0, 60, 6)])
    growing = torch.cat([stream.batch(0, 4), stream.batch(4, 7), stream.batch(11, 9)])
    assert torch.equal(ones, sixes)
    assert torch.equal(ones[:20], growing)


def test_a_batch_is_a_function_of_seed_start_and_size_alone():
    forward, backward = ExampleStream(10, seed=3), ExampleStream(10, seed=3)
    expected = [forward.batch(start, 7) for start in range(0, 60, 3)]
    for number in reversed(range(20)):
        assert torch.equal(backward.batch(3 * number, 7), expected[number])
    assert not torch.equal(ExampleStream(10, seed=4).batch(0, 10), expected[0])


def test_epochs_and_seeds_have_unrelated_orders():
    orders = [
        tuple(ExampleStream(50, seed).batch(50 * epoch, 50).tolist())
        for seed in range(5)
        for epoch in range(5)
    ]
    assert len(set(orders)) == 25


@pytest.mark.parametrize("size", [0, 11])
def test_a_batch_beyond_the_data_is_refused(size):
    with pytest.raises(ValueError, match="10"):
        ExampleStream(10, seed=0).batch(0, size)


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    ExampleStream(10, seed=0).batch(0, 5)
    assert torch.equal(torch.get_rng_state(), before)


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def nest(value: float) -> dict:
    return {"pair": Pair(torch.full((5, 2), value), torch.arange(5)), "more": [(torch.ones(5),)]}


def test_nests_keep_their_shape():
    doubled = map_tensors(lambda tensor: 2 * tensor, nest(3.0))
    assert isinstance(doubled["pair"], Pair)
    assert doubled["pair"].x[0, 0] == 6
    assert isinstance(doubled["more"][0], tuple)
    assert len(tensors_of(doubled)) == 3
    with pytest.raises(TypeError, match="str"):
        map_tensors(len, ["text"])


def test_only_floating_tensors_change_their_type():
    cast = moved(nest(1.0), torch.device("cpu"), torch.float64)
    assert cast["pair"].x.dtype == torch.float64
    assert cast["pair"].y.dtype == torch.int64


def test_lanes_of_a_seed_get_the_batch_of_that_seed():
    batch = stacked([nest(1.0), nest(2.0)], [1, 0, 1])
    assert batch["pair"].x[:, 0, 0].tolist() == [2.0, 1.0, 2.0]
    common = stacked([nest(1.0)], [0, 0, 0])
    assert common["pair"].x.shape == (3, 5, 2)
    assert common["pair"].x.stride()[0] == 0


def test_parts_cover_the_batch_with_an_uneven_last_one():
    parts = list(parts_of(nest(1.0), 2))
    assert [len(part["pair"].x) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part["pair"].y for part in parts]), torch.arange(5))
    lanes = list(parts_of(stacked([nest(1.0)], [0, 0]), 4, axis=1))
    assert [part["pair"].x.shape for part in lanes] == [(2, 4, 2), (2, 1, 2)]
