"""Recorded operations against the function that they were recorded from."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bscrit.engine.recording import NotRecorded, record


def replayed(function, *tensors):
    with torch.no_grad():
        return record(function, tensors).module(*tensors)


def test_a_recording_computes_from_its_arguments_not_from_what_it_saw():
    def function(x, w):
        return [functional.relu(x @ w).sum(0), x * 2]

    recording = record(function, [torch.ones(3, 2), torch.ones(2, 4)])
    x, w = torch.randn(3, 2), torch.randn(2, 4)
    for found, expected in zip(recording.module(x, w), function(x, w), strict=True):
        assert torch.equal(found, expected)


def test_gradients_have_the_same_bits():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2))
    names = [name for name, _ in model.named_parameters()]

    def function(x, *parameters):
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        out = torch.func.functional_call(model, dict(zip(names, leaves, strict=True)), (x,))
        return list(torch.autograd.grad(out.square().sum(), leaves))

    parameters = [parameter.detach() for parameter in model.parameters()]
    recording = record(function, [torch.ones(5, 1, 6, 6), *parameters])
    x = torch.randn(5, 1, 6, 6)
    for found, expected in zip(recording.module(x, *parameters), function(x, *parameters), strict=True):
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


def test_what_is_written_into_arguments_is_written_again():
    def function(x, count):
        count.add_(1)
        return [x * count]

    recording = record(function, [torch.ones(2), torch.zeros(())])
    count = torch.tensor(5.0)
    assert recording.module(torch.ones(2), count)[0].tolist() == [6, 6]
    assert count.item() == 6


def test_a_view_that_is_written_through_is_kept():
    def function(x):
        copy = x.clone()
        copy.view(-1)[0] = 7.0
        return [copy]

    x = torch.zeros(2, 2)
    assert replayed(function, x)[0].tolist() == [[7, 0], [0, 0]]
    assert not x.any()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x.view(4)],
        lambda x: [x.detach()],
        lambda x: [x],
        lambda x: [x * 1],
        lambda _: [torch.zeros(4) + 0],
        lambda x: [x + 1] * 2,
        lambda x: [(y := x + 1), y.detach()],
    ],
)
def test_results_may_be_written_into(function):
    x = torch.arange(4.0)
    recording = record(function, [x.clone()])
    first = [tensor.clone() for tensor in recording.module(x)]
    for tensor in recording.module(x):
        tensor.add_(100)
    assert x.tolist() == [0, 1, 2, 3]
    again = recording.module(x)
    for place, tensor in enumerate(again):
        assert torch.equal(tensor, first[place])
        tensor.add_(1)  # none of the others changes with it
        assert all(torch.equal(other, first[k]) for k, other in enumerate(again) if k > place)


def test_only_what_the_results_need_is_done():
    def function(x):
        (x @ x).sum()
        return [x.expand(2, 2).view(2, 2) * 1 + torch.ones(2, 2)]

    recording = record(function, [torch.ones(2, 2)])
    calls = [node for node in recording.module.graph.nodes if node.op == "call_function"]
    assert [node.target for node in calls] == [torch.ops.aten.add.Tensor]


def test_draws_are_drawn_anew():
    recording = record(lambda x: [functional.dropout(x, 0.5)], [torch.ones(64)])
    assert recording.draws
    torch.manual_seed(1)
    found = recording.module(torch.ones(64))[0]
    torch.manual_seed(1)
    assert torch.equal(found, functional.dropout(torch.ones(64), 0.5))
    assert not record(lambda x: [x + 1], [torch.ones(2)]).draws


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x * 2 if x.sum() > 0 else x],
        lambda x: [x * x.max().item()],
        lambda x: [x * float(x[0])],
        lambda x: [x[x > 0].sum()],
        lambda x: [x.masked_select(x > 0)],
        lambda x: [x.nonzero() * 1.0],
        lambda x: [x * 2 if torch.equal(x, x + 0) else x],
        lambda x: [x * 2 if torch.allclose(x, x + 0) else x],
        lambda x: [x * float(x.numpy().max())],
        lambda x: [x * max(x.tolist())],
        lambda x: [x * float(np.asarray(x).max())],
    ],
)
def test_a_function_that_depends_on_values_is_refused(function):
    with pytest.raises(NotRecorded):
        record(function, [torch.ones(3)])


def test_a_write_into_a_tensor_from_elsewhere_is_refused_and_not_done():
    count = torch.zeros(3)
    with pytest.raises(NotRecorded, match="from elsewhere"):
        record(lambda x: [x + count.add_(1)], [torch.ones(3)])
    assert count.tolist() == [0, 0, 0]


def test_a_tensor_that_changes_its_shape_in_place_is_refused():
    with pytest.raises(NotRecorded, match="shape"):
        record(lambda x: [x.clone().unsqueeze_(0)], [torch.ones(3)])


def test_recording_does_not_import_the_compiler_of_torch():
    code = (
        "import sys, torch; from bscrit.engine.recording import record;"
        "record(lambda x: [torch.func.vmap(torch.sin)(x)], [torch.ones(3)]);"
        "assert not {'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_picking_by_positions_is_recorded():
    recording = record(lambda x, rows: [x[rows]], [torch.ones(3), torch.tensor([0])])
    assert recording.module(torch.arange(3.0), torch.tensor([2]))[0].tolist() == [2]


def test_tensors_from_elsewhere_are_read_where_they_are():
    weights = torch.ones(3)
    recording = record(lambda x: [x * weights], [torch.ones(3)])
    weights.mul_(4)
    assert recording.module(torch.ones(3))[0].tolist() == [4, 4, 4]


def test_several_results_of_one_operation():
    recording = record(lambda x: [*torch.sort(x), *x.split(2)], [torch.tensor([1.0, 2.0, 3.0])])
    found = recording.module(torch.tensor([3.0, 1.0, 2.0]))
    assert [tensor.tolist() for tensor in found] == [[1, 2, 3], [1, 2, 0], [3, 1], [2]]


def test_what_would_raise_raises_again():
    recording = record(lambda x: [torch.linalg.inv(x)], [torch.eye(2)])
    with pytest.raises(RuntimeError, match="singular"):
        recording.module(torch.zeros(2, 2))
