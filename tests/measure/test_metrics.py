"""Metrics against their formulas."""

import numpy as np
import torch

from bscrit.measure.metrics import adam, diagonal, hessian, identity


def stacks(dtype=torch.float64):
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(2, 4, *shape, generator=draw, dtype=dtype) for shape in ((3, 2), (5,), ())]


def test_identity():
    expected = sum((stack**2).flatten(2).sum(2) if stack.dim() > 2 else stack**2 for stack in stacks())
    assert torch.allclose(identity(stacks()), expected, rtol=1e-13)
    assert identity(stacks()).dtype == torch.float64


def test_a_diagonal_weighs_every_element_of_a_lane():
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    gradient = torch.tensor([[[1.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 2.0]]], dtype=torch.float64)
    assert diagonal([weight])([gradient]).tolist() == [[3, 4], [7, 16]]


def test_adam_is_the_scaling_that_the_next_update_has():
    """One parameter, trained by torch.optim.Adam: update = lr p m/(1 - beta1^t) with the p of the metric."""
    x = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = torch.optim.Adam([x], lr=0.1, betas=(0.5, 0.9), eps=1e-3)
    for slope in ([1.0, 3.0], [2.0, -1.0]):
        before = x.detach().clone()
        x.grad = torch.tensor(slope, dtype=torch.float64)
        optimizer.step()
    state = optimizer.state[x]
    metric = adam([state["exp_avg_sq"].unsqueeze(0)], 2, 0.9, 1e-3)
    direction = state["exp_avg"] / (1 - 0.5**2)
    p = (before - x.detach()) / (0.1 * direction)
    gradient = torch.tensor([0.3, 0.7], dtype=torch.float64)
    assert np.isclose(float(metric([gradient.reshape(1, 1, 2)])), float((p * gradient**2).sum()), rtol=1e-12)


def test_hessian_products_are_taken_group_by_group():
    h = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    metric = hessian(lambda stacks: [stacks[0] @ h])
    g = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(metric([g]), torch.einsum("kgi,ij,kgj->kg", g, h, g), rtol=1e-13)


def test_what_no_update_has_moved_yet_is_left_out_of_adam():
    """A row of an embedding that no example has used: 1/eps would make its first gradient the whole metric."""
    moments = [torch.tensor([[4.0, 0.0]], dtype=torch.float64)]
    gradient = torch.tensor([[[1.0, 1.0]]], dtype=torch.float64)
    assert float(adam(moments, 1, 0.0, 0.0)([gradient])) == 0.5
    none_yet = [torch.full((1, 2), torch.nan, dtype=torch.float64)]
    assert adam(none_yet, 1, 0.999, 1e-8)([gradient]).isnan().all()
