"""The one algebra of noise samples, against independent sums and known Gaussians."""

import itertools

import numpy as np
import pytest
import torch

from bscrit.measure.metrics import diagonal, identity
from bscrit.measure.sums import Sums
from bscrit.noise import NoiseSamples


def groups(count, lanes=2, seed=0):
    """Gradients of `count` groups, [lanes, count, ...] for three parameters, one of them a scalar."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(3, 2), (4,), ()]
    return [torch.randn(lanes, count, *shape, generator=draw, dtype=torch.float64) for shape in shapes]


def flat(stacks):
    """(lanes, groups, all parameters)"""
    return torch.cat(
        [stack.flatten(2) if stack.dim() > 2 else stack.unsqueeze(2) for stack in stacks], 2
    ).numpy()


def test_norms_of_hand_made_gradients():
    sums = Sums(lanes=2)
    sums.add([torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]]]), torch.tensor([[0.0], [2.0]])], [3])
    sums.add([torch.tensor([[[1.0, 0.0]], [[1.0, 2.0]]]), torch.tensor([[2.0], [0.0]])], [3])
    first, second = sums.samples()["identity"]
    assert first == (3, (25 + 5) / 2, 6, 4 + 4 + 1)
    assert second == (3, (5 + 5) / 2, 6, 1 + 1 + 1)


def test_sums_are_float64():
    sums = Sums(lanes=1)
    for _ in range(2):
        sums.add([torch.full((1, 1, 10**4), 1e-4)], [1])
    ((_, small, _, big),) = sums.samples()["identity"]
    assert small == pytest.approx(10**4 * float(np.float32(1e-4)) ** 2, rel=1e-14)
    assert big == pytest.approx(small, rel=1e-14)


def solved(sample):
    n_small, small, n_big, big = sample
    one = NoiseSamples(*(np.array([value], float) for value in (0, 0, n_small, small, n_big, big)))
    return one.signal[0], one.noise[0]


def test_equal_groups_give_the_u_statistic_and_the_sample_covariance():
    stacks, m = groups(5), 7
    sums = Sums(lanes=2)
    sums.add(stacks, [m] * 5)
    for lane, sample in enumerate(sums.samples()["identity"]):
        g = flat(stacks)[lane]
        pairs = np.mean([a @ b for a, b in itertools.permutations(g, 2)])
        assert solved(sample) == pytest.approx((pairs, m * np.trace(np.cov(g.T))), rel=1e-12)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [1, 5, 2, 9], [3, 2]])
def test_uneven_groups_have_the_expectation_that_their_counts_say(sizes):
    """Exactly, by linearity: E|w-mean|^2 and sum w E|g_i|^2 / W for gradients of variance noise/m_i."""
    signal, noise, w = 2.0, 30.0, np.array(sizes, float)
    sums = Sums(lanes=1)
    sums.add([torch.zeros(1, len(sizes), 3)], sizes)
    ((n_small, _, n_big, _),) = sums.samples()["identity"]
    small = np.sum(w * (signal + noise / w)) / w.sum()
    big = signal + np.sum(w**2 * noise / w) / w.sum() ** 2
    assert signal + noise / n_small == pytest.approx(small, rel=1e-12)
    assert signal + noise / n_big == pytest.approx(big, rel=1e-12)
    assert n_big == sum(sizes)


@pytest.mark.parametrize("weights", [None, [1.0, 1.0, 1.0], [2.0, 1.0, 0.5]])
def test_any_split_and_any_weights_are_unbiased(weights):
    rng, sizes, d = np.random.default_rng(0), [2, 3, 11], 8
    mean = np.full(d, 0.5)
    draws = mean + rng.standard_normal((20_000, 3, d)) * np.sqrt(5.0 / d / np.array(sizes))[:, None]
    sums = Sums(lanes=len(draws))
    sums.add([torch.from_numpy(draws)], sizes, weights)
    found = np.array([solved(sample) for sample in sums.samples()["identity"]])
    error = found.std(0) / np.sqrt(len(draws))
    assert found.mean(0) == pytest.approx([mean @ mean, 5.0], abs=4 * error.max())


def test_the_order_and_the_chunks_of_groups_do_not_matter():
    stacks, sizes = groups(6), [1, 2, 3, 4, 5, 6]
    whole, chunks, merged = Sums(2), Sums(2), Sums(2)
    whole.add(stacks, sizes)
    for chosen in ([5, 0], [3], [1, 2, 4]):
        part = Sums(2)
        for sums in (chunks, part):
            sums.add([stack[:, chosen] for stack in stacks], [sizes[one] for one in chosen])
        merged.merge(part)
    for sums in (chunks, merged):
        assert np.allclose(sums.samples()["identity"], whole.samples()["identity"], rtol=1e-13)
        assert sums.examples == whole.examples == 21


def test_a_common_factor_changes_signal_and_noise_alike():
    stacks = groups(4)
    plain, scaled = Sums(2), Sums(2)
    plain.add(stacks, [3] * 4)
    scaled.add([1024 * stack for stack in stacks], [3] * 4)
    for one, other in zip(plain.samples()["identity"], scaled.samples()["identity"], strict=True):
        assert solved(other) == pytest.approx(np.multiply(solved(one), 1024**2), rel=1e-12)


def test_several_metrics_on_the_same_gradients():
    stacks = groups(3)
    weights = [torch.rand(2, *stack.shape[2:]) for stack in stacks]
    sums = Sums(2, {"identity": identity, "weighted": diagonal(weights)})
    sums.add(stacks, [2, 2, 2])
    p = flat([weight.unsqueeze(1) for weight in weights])
    for lane in range(2):
        g = flat(stacks)[lane]
        expected = np.mean(np.sum(p[lane] * g**2, 1)), np.sum(p[lane] * g.mean(0) ** 2)
        _, small, _, big = sums.samples()["weighted"][lane]
        assert (small, big) == pytest.approx(expected, rel=1e-12)
    assert sums.samples(["weighted"]).keys() == {"weighted"}


@pytest.mark.parametrize("sizes", [[], [8]])
def test_one_group_shows_no_noise(sizes):
    sums = Sums(lanes=1)
    if sizes:
        sums.add([torch.ones(1, 1, 2)], sizes)
    with pytest.raises(ValueError, match="two groups"):
        sums.samples()
