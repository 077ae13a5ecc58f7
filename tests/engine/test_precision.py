"""What a run computes in."""

import numpy as np
import pytest
import torch
from small import regression

from bscrit.engine.lanes import Lanes
from bscrit.engine.self_test import self_test
from bscrit.workloads.classifier import Classifier


def lanes_in(dtype, engine="loop", workload=None):
    return Lanes(
        workload or regression("mlp"), seeds=(0, 1), lrs=(0.1, 0.2), batch_size=8, optimizer={"use": "sgd"},
        engine=engine, dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_bfloat16_is_an_ordinary_loop_under_autocast(engine):
    workload = regression("mlp")
    lanes = lanes_in("bfloat16", engine)
    model = workload.model(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(5):
        lanes.step(8 * step, 1.0)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            losses = workload.losses(model, workload.batch(1, 8 * step, 8))
        losses.float().mean().backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert lanes.parameters[name].dtype == torch.float32
        assert torch.allclose(lanes.parameters[name][1], parameter, atol=2e-3)


def test_bfloat16_rounds_and_float32_does_not():
    fine, coarse = (lanes_in(dtype).gradients(0) for dtype in ("float32", "bfloat16"))
    apart = max(float((fine[name] - coarse[name]).abs().max() / fine[name].abs().max()) for name in fine)
    assert 1e-4 < apart < 0.1


def test_the_workload_itself_stays_as_it_is():
    workload = Classifier(hidden=8)
    lanes = lanes_in("bfloat16", workload=workload)
    lanes.step(0, 1.0)
    assert "losses" not in vars(workload)
    assert type(lanes.workload) is Classifier
    alone = lanes_in("float32", workload=workload).evaluate()
    assert np.isfinite(lanes.evaluate()).all()
    assert np.isfinite(alone).all()


@pytest.mark.parametrize("dtype", ["tf32", "bfloat16"])
def test_vectorised_lanes_pass_the_self_test(dtype):
    assert self_test(Classifier(hidden=8), 8, {"use": "sgd"}, dtype=dtype) == ""


@pytest.mark.parametrize(("dtype", "rounded"), [("float32", False), ("tf32", True), ("float64", False)])
def test_products_are_rounded_where_that_was_asked_for(dtype, rounded):
    lanes = lanes_in(dtype)
    assert torch.backends.cuda.matmul.allow_tf32 == rounded
    assert torch.backends.cudnn.allow_tf32 == rounded
    expected = torch.float64 if dtype == "float64" else torch.float32
    assert all(tensor.dtype == expected for tensor in lanes.parameters.values())
