"""Stacked optimizers against torch.optim, lane by lane."""

import pytest
import torch

from bscrit.engine.optimizers import StackedOptimizer, resolve
from bscrit.engine.stacks import laid_out_as, rows_of

SHAPES = [(7, 5), (5,), (2, 3, 2, 2), ()]
LRS = [0.3, 0.01, 0.07]
CASES = [
    ({"use": "sgd"}, torch.optim.SGD, {}),
    ({"use": "sgd", "weight_decay": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    ({"use": "sgd", "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    (
        {"use": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    ({"use": "adam"}, torch.optim.Adam, {}),
    (
        {"use": "adam", "beta1": 0.8, "beta2": 0.99, "eps": 1e-5, "weight_decay": 0.1},
        torch.optim.Adam,
        {"betas": (0.8, 0.99), "eps": 1e-5, "weight_decay": 0.1},
    ),
    ({"use": "adamw", "beta2": 0.99}, torch.optim.AdamW, {"betas": (0.9, 0.99)}),
]


def stacks(seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(len(LRS), *shape, generator=generator, dtype=dtype) for shape in SHAPES]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("settings", "oracle", "keywords"), CASES)
def test_fifty_updates_equal_torch_optim_to_rounding(settings, oracle, keywords, dtype):
    parameters = stacks(0, dtype)
    singles = [[stack[lane].clone() for stack in parameters] for lane in range(len(LRS))]
    references = [oracle(single, lr=lr, **keywords) for single, lr in zip(singles, LRS, strict=True)]
    optimizer = StackedOptimizer(settings, LRS)
    for step in range(50):
        factor = 1 / (1 + step % 3)
        gradients = stacks(100 + step, dtype)
        optimizer.step(parameters, gradients, factor)
        for lane, (single, reference) in enumerate(zip(singles, references, strict=True)):
            for group in reference.param_groups:
                group["lr"] = LRS[lane] * factor
            for parameter, gradient in zip(single, gradients, strict=True):
                parameter.grad = gradient[lane]
            reference.step()
    tolerance = 0 if settings["use"] == "sgd" else 4 * torch.finfo(dtype).eps
    for lane, single in enumerate(singles):
        for parameter, stack in zip(single, parameters, strict=True):
            torch.testing.assert_close(stack[lane], parameter, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("settings", [case[0] for case in CASES])
def test_dropping_lanes_and_resuming_are_bitwise_and_keep_the_memory_order(settings):
    def run(interrupted: bool) -> list[torch.Tensor]:
        parameters = [
            laid_out_as(stack, stack.transpose(-1, -2)) if stack.dim() == 3 else stack
            for stack in stacks(0, torch.float32)
        ]
        strides = [stack.stride() for stack in parameters]
        optimizer = StackedOptimizer(settings, LRS)
        for step in range(6):
            if interrupted and step == 3:
                parameters = [rows_of(stack, [2, 0]) for stack in parameters]
                assert [stack.stride() for stack in parameters] == strides
                state = optimizer.state_dict([0, 1, 2])
                optimizer = StackedOptimizer(settings, [1.0])
                optimizer.load_state_dicts([state], torch.device("cpu"))
                optimizer.keep([2, 0])
                for moments in optimizer.moments.values():
                    assert [stack.stride() for stack in moments] == strides
            gradients = stacks(100 + step, torch.float32)
            if len(parameters[0]) == 2:
                gradients = [gradient[[2, 0]] for gradient in gradients]
            optimizer.step(parameters, gradients)
        return parameters

    for whole, part in zip(run(False), run(True), strict=True):
        assert torch.equal(whole[[2, 0]], part)


def test_settings_default_to_those_of_torch():
    assert resolve({"use": "adamw", "beta2": 0.99}) == {
        "use": "adamw", "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.01,
    }  # fmt: skip
    assert resolve({})["use"] == "sgd"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use": "sdg"}, "sgd"),
        ({"use": "sgd", "beta1": 0.9}, "beta1"),
        ({"use": "sgd", "momentun": 0.9}, "momentum"),
        ({"use": "sgd", "momentum": 1.0}, "below 1"),
        ({"use": "sgd", "momentum": "0.9"}, "number"),
        ({"use": "sgd", "nesterov": True}, "momentum"),
        ({"use": "sgd", "momentum": 0.9, "nesterov": 1}, "nesterov"),
        ({"use": "adam", "weight_decay": -1}, "weight_decay"),
        ({"use": "adam", "eps": float("nan")}, "eps"),
    ],
)
def test_a_wrong_setting_is_named(settings, words):
    with pytest.raises(ValueError, match=words):
        resolve(settings)
