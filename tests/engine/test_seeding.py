"""Seeds made of integers, and the global random state left as it was."""

import contextlib

import pytest
import torch

from bscrit.engine.seeding import generator, mix, seeded

CPU = torch.device("cpu")


def test_near_numbers_give_unrelated_seeds():
    seeds = [mix(a, b) for a in range(-2, 40) for b in range(40)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    ones = sum(bin(mix(a) ^ mix(a + 1)).count("1") for a in range(100)) / 100
    assert 29 < ones < 34
    assert len({mix(), mix(0), mix(0, 0), mix(1), mix(1, 0), mix(0, 1)}) == 6


def test_a_generator_depends_on_its_numbers_alone():
    assert torch.equal(torch.rand(3, generator=generator(1, 2)), torch.rand(3, generator=generator(1, 2)))
    assert not torch.equal(torch.rand(3, generator=generator(1, 2)), torch.rand(3, generator=generator(2, 1)))


def test_the_global_state_is_a_function_of_the_numbers_inside_and_restored_after():
    torch.rand(5)
    before = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with seeded(CPU, 3, 4):
            draws.append(torch.rand(3))
    with contextlib.suppress(KeyError), seeded(CPU, 5):
        draws.append(torch.rand(3))
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.gpu
def test_on_a_gpu_as_well():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    before = torch.cuda.get_rng_state()
    draws = []
    for _ in range(2):
        with seeded(torch.device("cuda"), 3, 4):
            draws.append(torch.rand(3, device="cuda"))
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(torch.cuda.get_rng_state(), before)
