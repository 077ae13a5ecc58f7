"""The noise scale's algebra on known Gaussians, and its file."""

import math

import numpy as np
import pytest

from bscrit.noise import (
    HEADER,
    NO_NOISE,
    NoiseSamples,
    noise_line,
    noise_scale,
    read_noise,
    samples_of,
)


def exact(signal, noise, n_small=4, n_big=32, steps=(0, 40, 80)):
    """Samples whose norms are their expectations."""
    n = len(steps)
    columns = (steps, np.multiply(steps, n_big), [n_small] * n, [signal + noise / n_small] * n)
    return NoiseSamples(*(np.array(c, float) for c in (*columns, [n_big] * n, [signal + noise / n_big] * n)))


def gaussian(signal, noise, samples, rng, parts=8, size=4, dimensions=200):
    """Samples of real gradients g ~ N(G, Sigma), |G|^2 = signal, tr(Sigma) = noise."""
    mean = np.full(dimensions, math.sqrt(signal / dimensions))
    scale = math.sqrt(noise / dimensions / size)
    g = mean + scale * rng.standard_normal((samples, parts, dimensions))
    small, big = (g**2).sum(2).mean(1), (g.mean(1) ** 2).sum(1)
    steps = np.arange(samples, dtype=float)
    ones = np.ones(samples)
    return NoiseSamples(steps, steps * size * parts, size * ones, small, size * parts * ones, big)


def lines(rows):
    return [noise_line(step, 32 * step, "identity", 4, small, 32, big) for step, small, big in rows]


def test_two_norms_give_signal_and_noise():
    samples = exact(signal=2.0, noise=50.0)
    assert samples.signal == pytest.approx([2, 2, 2])
    assert samples.noise == pytest.approx([50, 50, 50])


def test_single_samples_of_the_signal_may_be_negative_and_their_mean_is_right():
    samples = gaussian(0.02, 50.0, 4000, np.random.default_rng(0))
    assert (samples.signal < 0).mean() > 0.3
    error = samples.signal.std() / math.sqrt(4000)
    assert samples.signal.mean() == pytest.approx(0.02, abs=3 * error)
    assert samples.noise.mean() == pytest.approx(50, rel=0.01)


def test_the_scale_of_gaussian_gradients_lies_in_its_interval():
    rng = np.random.default_rng(1)
    scales = [noise_scale([gaussian(1.0, 64.0, 60, rng)]) for _ in range(300)]
    held = np.mean([scale.low <= 64 <= scale.high for scale in scales])
    assert 0.92 <= held <= 0.98
    assert np.median([scale.value for scale in scales]) == pytest.approx(64, rel=0.03)


def test_a_signal_that_is_not_resolved_gives_a_bound_and_no_number():
    scale = noise_scale([gaussian(1e-4, 64.0, 30, np.random.default_rng(2))])
    assert scale.value is None
    assert scale.high is None
    assert 0 < scale.low < 64 / 1e-4


def test_a_scale_of_ten_thousand_from_batches_of_64():
    """|G|^2 is negative in 45 % of the samples, and still their sums hold the answer."""
    rng = np.random.default_rng(3)
    runs = [gaussian(1.0, 1e4, 1500, rng, parts=8, size=8, dimensions=1000) for _ in range(4)]
    assert np.mean([(run.signal < 0).mean() for run in runs]) == pytest.approx(0.45, abs=0.02)
    scale = noise_scale(runs)
    assert scale.low < 1e4 < scale.high
    assert scale.ln_half_width < 0.25
    alone = noise_scale([runs[0].until(5)])
    assert (alone.value, alone.high) == (None, None)


def test_unresolved_means_that_the_interval_of_the_signal_holds_zero():
    """Of 300 measurements with a signal of exactly 0 about 2.5 % may pass for resolved."""
    rng = np.random.default_rng(4)
    scales = [noise_scale([gaussian(0.0, 50.0, 40, rng)]) for _ in range(300)]
    assert np.mean([scale.value is not None for scale in scales]) < 0.05
    assert all(scale.high is None for scale in scales if scale.value is None)


def test_neighbours_in_training_resemble_each_other_and_blocks_allow_for_it():
    """Samples that come in equal pairs hold half of what they seem to."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(300):
        run = gaussian(1.0, 64.0, 60, rng)
        twice = np.repeat(
            np.stack([run.steps, run.examples, run.n_small, run.sq_small, run.n_big, run.sq_big]), 4, 1
        )
        scale = noise_scale([NoiseSamples(*twice)])
        held.append(scale.low <= 64 <= scale.high)
    assert 0.92 <= np.mean(held) <= 0.98


def test_a_finite_data_set_adds_to_the_signal():
    samples = exact(signal=2.0, noise=50.0).from_data_of(100)
    assert samples.signal == pytest.approx([2.5] * 3)
    assert samples.noise == pytest.approx([50] * 3)
    assert samples.until(40).data == 100
    assert samples.from_data_of(None).signal == pytest.approx([2] * 3)


def test_several_metrics_of_one_run(tmp_path):
    rows = [HEADER + "\n"]
    for step in (0, 40):
        rows += [noise_line(step, 0, metric, 3.5, 2.5, 16, 1.5) for metric in ("identity", "hessian")]
    (tmp_path / "noise.csv").write_text("".join(rows))
    found = read_noise(tmp_path / "noise.csv")
    assert {metric: len(one) for metric, one in found.items()} == {"identity": 2, "hessian": 2}
    assert found["hessian"].n_small.tolist() == [3.5, 3.5]
    assert len(samples_of(found, "adam")) == 0


@pytest.mark.parametrize("runs", [[], [NO_NOISE], [exact(1, 1, steps=(0,))]])
def test_too_few_samples_give_no_scale(runs):
    scale = noise_scale(runs)
    assert (scale.value, scale.low, scale.high) == (None, None, None)


def test_a_part_of_a_run():
    samples = exact(1, 1)
    assert samples.until(40).steps.tolist() == [0, 40]


def test_samples_are_read_back(tmp_path):
    (tmp_path / "noise.csv").write_text("".join([HEADER + "\n", *lines([(0, 14.5, 3.5625), (40, 7.25, 2)])]))
    samples = read_noise(tmp_path / "noise.csv")["identity"]
    assert samples.steps.tolist() == [0, 40]
    assert samples.examples.tolist() == [0, 1280]
    assert samples.signal[0] == pytest.approx(2)
    assert samples.noise[0] == pytest.approx(50)
    assert samples.metric == "identity"


def test_torn_at_any_byte_only_the_last_line_is_lost(tmp_path):
    path = tmp_path / "noise.csv"
    whole = "".join([HEADER + "\n", *lines([(0, 14.5, 3.5), (40, 7.25, 2), (80, 1e-12, 1e30)])]).encode()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = max(whole[:length].count(b"\n") - 1, 0)
        samples = samples_of(read_noise(path), "identity")
        assert samples.steps.tolist() == [0, 40, 80][:complete]
        assert samples.sq_small.tolist() == [14.5, 7.25, 1e-12][:complete]
    path.unlink()
    assert read_noise(path) == {}


def test_samples_that_are_not_finite_are_dropped_and_counted(tmp_path):
    path = tmp_path / "noise.csv"
    path.write_text("".join([HEADER + "\n", *lines([(0, math.nan, 1), (40, 7.25, 2), (80, 1, math.inf)])]))
    samples = read_noise(path)["identity"]
    assert samples.steps.tolist() == [40]
    assert samples.dropped == 2
    assert samples.until(0).dropped == 2


def test_samples_of_which_none_is_finite_are_counted_too(tmp_path):
    (tmp_path / "noise.csv").write_text(
        "".join([HEADER + "\n", *lines([(0, math.nan, 1), (0, math.nan, 1)])])
    )
    samples = read_noise(tmp_path / "noise.csv")["identity"]
    assert len(samples) == 0
    assert samples.dropped == 1, "a step that was written twice is one sample"
