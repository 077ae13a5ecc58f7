"""Stacked optimizers against torch.optim, lane by lane."""

import pytest
import torch

from bscrit.engine.optimizers import RULES, StackedOptimizer
from bscrit.engine.stacks import laid_out_as, rows_of
from bscrit.recipe.optimizers import OPTIMIZERS

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
    ({"use": "rmsprop"}, torch.optim.RMSprop, {"eps": 1e-5}),
    (
        {"use": "rmsprop", "alpha": 0.9, "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.1},
        torch.optim.RMSprop,
        {"alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1},
    ),
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


def test_each_optimizer_of_a_recipe_has_its_update_and_is_compared_with_torch():
    names = {kind.model_fields["use"].annotation.__args__[0] for kind in OPTIMIZERS}
    assert names == set(RULES) == {settings["use"] for settings, _, _ in CASES}


@pytest.mark.parametrize("settings", [case[0] for case in CASES])
def test_lanes_that_are_loaded_go_on_at_their_own_rates(settings):
    parameters, gradients = stacks(0, torch.float64), stacks(1, torch.float64)
    optimizer, other = StackedOptimizer(settings, LRS), StackedOptimizer(settings, [10 * lr for lr in LRS])
    for updated in (optimizer, other):
        updated.step([stack.clone() for stack in parameters], gradients)
    optimizer.load_state_dicts([other.state_dict([0, 1, 2])], torch.device("cpu"))
    again = [stack.clone() for stack in parameters]
    optimizer.step(parameters, gradients)
    other.step(again, gradients)
    assert all(map(torch.equal, parameters, again))


class TestClip:
    """Lanes whose gradients are short, long and longer: one is never clipped."""

    SCALES = torch.tensor([0.001, 1.0, 30.0], dtype=torch.float64)

    def gradients(self, step: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
        return [
            (stack.double() * self.SCALES.view(-1, *(1,) * (stack.dim() - 1))).to(dtype)
            for stack in stacks(100 + step, dtype)
        ]

    @pytest.mark.parametrize(("settings", "oracle", "keywords"), CASES)
    def test_fifty_updates_equal_a_loop_by_hand(self, settings, oracle, keywords):
        parameters = stacks(0, torch.float64)
        optimizer, counts = StackedOptimizer({**settings, "clip": 8.0}, LRS), [0, 0, 0]
        singles = [[stack[lane].clone() for stack in parameters] for lane in range(len(LRS))]
        references = [oracle(single, lr=lr, **keywords) for single, lr in zip(singles, LRS, strict=True)]
        for step in range(50):
            gradients = self.gradients(step)
            optimizer.step(parameters, gradients)
            for lane, (single, reference) in enumerate(zip(singles, references, strict=True)):
                for parameter, gradient in zip(single, gradients, strict=True):
                    parameter.grad = gradient[lane].clone()
                counts[lane] += bool(torch.nn.utils.clip_grad_norm_(single, 8.0) > 8.0)
                reference.step()
        for lane, single in enumerate(singles):
            for parameter, stack in zip(single, parameters, strict=True):
                torch.testing.assert_close(stack[lane], parameter, rtol=1e-12, atol=1e-12)
        assert counts[0] == 0 < counts[1] < counts[2] == 50
        assert optimizer.clipped_shares() == [count / 50 for count in counts]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_lane_is_clipped_as_if_alone_to_the_last_bit(self, dtype):
        together = stacks(0, dtype)
        alone = [[stack[lane : lane + 1].clone() for stack in together] for lane in range(3)]
        optimizer = StackedOptimizer({"clip": 8.0}, LRS)
        single = [StackedOptimizer({"clip": 8.0}, [lr]) for lr in LRS]
        for step in range(20):
            gradients = self.gradients(step, dtype)
            optimizer.step(together, gradients)
            for lane in range(3):
                single[lane].step(alone[lane], [stack[lane : lane + 1] for stack in gradients])
        for lane in range(3):
            for stack, own in zip(together, alone[lane], strict=True):
                assert torch.equal(stack[lane], own[0])
            assert optimizer.clipped_shares()[lane] == single[lane].clipped_shares()[0]

    def test_the_norm_of_float32_gradients_does_not_overflow_and_one_that_is_not_finite_shows(self):
        parameters = [torch.zeros(3, 2)]
        gradients = [torch.tensor([[3e30, 4e30], [torch.nan, 1.0], [torch.inf, 1.0]])]
        optimizer = StackedOptimizer({"clip": 5.0}, [1.0] * 3)
        optimizer.step(parameters, gradients)
        torch.testing.assert_close(parameters[0][0], torch.tensor([-3.0, -4.0]))
        assert parameters[0][1:].isnan().all()
        assert gradients[0][0, 0] == 3e30

    def test_none_without_it(self):
        assert StackedOptimizer({}, LRS).clipped_shares() is None

    def test_counts_follow_their_lanes(self):
        optimizer = StackedOptimizer({"clip": 8.0}, LRS)
        for step in range(4):
            optimizer.step(stacks(0, torch.float64), self.gradients(step))
        shares = optimizer.clipped_shares()
        assert shares[0] < shares[2]
        optimizer.load_state_dicts(
            [optimizer.state_dict([2]), optimizer.state_dict([1, 0])], torch.device("cpu")
        )
        assert optimizer.clipped_shares() == [shares[2], shares[1], shares[0]]
        optimizer.keep([2, 0])
        assert optimizer.clipped_shares() == [shares[0], shares[2]]
