"""Copies of stacks keep the memory order of a lane."""

import pytest
import torch

from bscrit.engine.stacks import joined, laid_out_as, rows_of, zeros_like_strided

ORDERS = {
    "as made": torch.arange(24.0).reshape(4, 3, 2),
    "transposed": torch.arange(24.0).reshape(4, 2, 3).transpose(1, 2),
    "lanes innermost": torch.arange(24.0).reshape(3, 2, 4).permute(2, 0, 1),
    "numbers": torch.arange(4.0),
    "empty": torch.zeros(4, 0, 2),
}


def inner(stack):
    return [s for s, n in zip(stack.stride()[1:], stack.shape[1:], strict=True) if n > 1]


@pytest.mark.parametrize("stack", ORDERS.values(), ids=list(ORDERS))
def test_rows_zeros_and_joins(stack):
    some = rows_of(stack, [3, 1])
    assert torch.equal(some, stack[[3, 1]])
    assert some.data_ptr() != stack.data_ptr() or not stack.numel()
    back = joined([some[1:], some[:1], rows_of(stack, [0])])
    assert torch.equal(back, stack[[1, 3, 0]])
    zeros = zeros_like_strided(stack)
    assert zeros.shape == stack.shape
    assert not zeros.any()
    assert inner(some) == inner(back) == inner(zeros)


def test_strides_of_a_lane_survive_every_copy():
    stack = ORDERS["transposed"]
    for copy in (rows_of(stack, [0]), joined([stack, stack]), zeros_like_strided(stack)):
        assert copy.stride() == (6, 1, 3)
    assert rows_of(ORDERS["lanes innermost"], [0, 1]).stride() == (6, 2, 1)


def test_laying_out_copies_only_where_the_order_differs():
    stack = ORDERS["as made"]
    assert laid_out_as(stack, stack + 1) is stack
    other = laid_out_as(stack, ORDERS["transposed"])
    assert torch.equal(other, stack)
    assert other.stride() == (6, 1, 3)


def test_views_of_a_few_rows_do_not_keep_the_whole_storage():
    stack = torch.zeros(1000, 10)
    assert rows_of(stack, [5]).untyped_storage().nbytes() == 40
