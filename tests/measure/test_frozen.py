"""Measurements at frozen parameters, on Gaussian gradients whose noise scale is known."""

import numpy as np
import pytest
import torch

from bscrit.frozen_noise import HEADER, frozen_lines, read_frozen
from bscrit.measure.frozen import BLOCKS, measure_frozen
from bscrit.measure.metrics import identity
from bscrit.measure.sums import Sums

AT = (40.0, 640.0, 0.5)


def gaussian(signal, noise, seed, dimensions=60, size=8, parts=4):
    """Fresh batches of gradients g ~ N(G, Sigma), |G|^2 = signal, tr(Sigma) = noise, cut into parts."""
    rng = np.random.default_rng(seed)
    mean, scale = np.sqrt(signal / dimensions), np.sqrt(noise / dimensions / (size // parts))

    def draw(_):
        sums = Sums(1)
        sums.add(
            [torch.from_numpy(mean + scale * rng.standard_normal((1, parts, dimensions)))],
            [size // parts] * parts,
        )
        return sums

    return draw


def measured(signal, noise, seed, precision=0.1, draws=10_000, **shape):
    metrics = {"identity": identity}
    (found,) = measure_frozen(
        gaussian(signal, noise, seed, **shape), metrics, at=AT, precision=precision, draws=draws
    )
    return found


@pytest.mark.slow
def test_the_scale_lies_in_its_interval():
    found = [measured(1.0, 50.0, seed, precision=0.15) for seed in range(300)]
    scales = [one.scale() for one in found]
    held = np.mean([scale.low <= 50 <= scale.high for scale in scales])
    assert 0.93 <= held <= 0.97
    assert np.median([scale.value for scale in scales]) == pytest.approx(50, rel=0.02)
    assert all(scale.ln_half_width <= 0.15 for scale in scales)


def test_it_takes_as_many_examples_as_the_precision_wants():
    coarse, fine = (measured(1.0, 50.0, 0, precision=p) for p in (0.3, 0.05))
    assert coarse.measured_on < fine.measured_on
    assert fine.measured_on % (8 * BLOCKS) == 0


def test_a_scale_of_ten_thousand_from_batches_of_64():
    """The mean of single batches would need 16 times the data."""
    found = measured(1.0, 1e4, 1, precision=0.1, size=64, parts=4, dimensions=1000)
    scale = found.scale()
    assert scale.low < 1e4 < scale.high
    assert scale.ln_half_width <= 0.1
    assert found.measured_on < 64 * 1600


def test_at_the_cap_it_ends_and_says_that_nothing_is_resolved():
    found = measured(1e-6, 50.0, 2, draws=2 * BLOCKS + 5)
    assert found.measured_on == 2 * BLOCKS * 8
    scale = found.scale()
    assert scale.value is None
    assert scale.high is None
    assert scale.low < 50e6


def test_products_of_blocks_are_the_u_statistic():
    rng = np.random.default_rng(5)
    g = rng.standard_normal((BLOCKS, 2, 6)) + 1

    def draw(block):
        sums = Sums(1)
        sums.add([torch.from_numpy(g[block][None])], [3, 3])
        return sums

    (found,) = measure_frozen(draw, {"identity": identity}, at=AT, precision=0.0, draws=BLOCKS)
    means = g.mean(1)
    dots = [sum(means[j] @ means[k] for k in range(BLOCKS) if k != j) for j in range(BLOCKS)]
    assert found.dot == pytest.approx(dots, rel=1e-10)
    signal = np.sum(dots) / (BLOCKS * (BLOCKS - 1))
    noise = 3 * (np.mean(np.sum(g**2, 2)) - signal)
    assert found.scale().value == pytest.approx(noise / signal, rel=1e-10)

    def without(block):
        left = [k for k in range(BLOCKS) if k != block]
        apart = sum(means[j] @ means[k] for j in left for k in left if j != k) / (len(left) * (len(left) - 1))
        return np.log(3 * (np.mean(np.sum(g[left] ** 2, 2)) - apart) / apart)

    logs = np.array([without(block) for block in range(BLOCKS)])
    error = 2.131449546 * np.sqrt((BLOCKS - 1) / BLOCKS * np.sum((logs - logs.mean()) ** 2))
    assert found.scale().ln_half_width == pytest.approx(error, rel=1e-6)


def test_an_estimated_metric_is_taken_batch_by_batch():
    """The metric of a batch is drawn with it: h/2 or 3h/2, and both belong into the mean."""
    rng = np.random.default_rng(6)

    def draw(_):
        h = rng.choice([0.5, 1.5])
        sums = Sums(1, {"hessian": lambda stacks: h * identity(stacks)})
        sums.add([torch.from_numpy(0.3 + rng.standard_normal((1, 4, 10)))], [1] * 4)
        return sums

    (found,) = measure_frozen(draw, {"hessian": identity}, at=AT, precision=0.1, draws=4000)
    assert np.isnan(found.dot).all()
    scale = found.scale()
    assert scale.low < 10 / 0.9 < scale.high


def test_a_finite_data_set_adds_to_the_signal():
    found = measured(1.0, 50.0, 7)
    plain, finite = found.scale().value, found.from_data_of(100).scale().value
    assert 1 / finite == pytest.approx(1 / plain + 1 / 100, rel=1e-12)


def test_the_file(tmp_path):
    one, other = measured(1.0, 50.0, 8), measured(1.0, 20.0, 9)
    path = tmp_path / "frozen.csv"
    text = HEADER + "\n" + frozen_lines(one) + frozen_lines(other).replace("40,0,640,0.5", "90,0,1440,0.25")
    path.write_text(text)
    first, second = read_frozen(path)
    assert (first.step, first.examples, first.loss, first.metric) == (40, 640, 0.5, "identity")
    assert (second.step, second.loss) == (90, 0.25)
    assert first.scale().value == pytest.approx(one.scale().value, rel=1e-8)
    for cut in range(0, len(text), 37):
        path.write_text(text[:cut])
        assert sum(len(found.dot) for found in read_frozen(path)) <= text[:cut].count("\n")
    path.unlink()
    assert read_frozen(path) == ()
