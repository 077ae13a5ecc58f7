"""Windows of steps: they tile the run, weigh samples by the steps they stand for, and are as fine as is precise."""

from __future__ import annotations

import numpy as np
import pytest
from toy_runs import TOY, grid, runs, sampled

from bscrit.fit.noise.windows import Runs, last_window, windows
from bscrit.noise import NO_NOISE


@pytest.mark.parametrize("batch_size", [16.0, 1024.0])
@pytest.mark.parametrize("seeds", [1, 5])
def test_windows_tile_the_steps_to_the_target(batch_size, seeds):
    found = windows(runs(batch_size, seeds, np.random.default_rng(0)))
    assert found[0].low == 0
    assert found[-1].high == TOY.steps(batch_size)
    assert [w.low for w in found[1:]] == [w.high for w in found[:-1]]
    assert all(len(w.blocks) >= 2 for w in found)


def test_precise_samples_make_finer_windows():
    coarse, fine = (len(windows(runs(b, 5, np.random.default_rng(1)))) for b in (8.0, 1024.0))
    assert coarse < fine


def test_the_last_half_is_never_joined_with_what_was_before():
    found = windows(runs(2.0, 3, np.random.default_rng(2)))
    halves = [w for w in found if w.low < 0.45 * TOY.steps(2.0) and w.high > 0.55 * TOY.steps(2.0)]
    assert not halves


def test_samples_stand_for_the_steps_around_them():
    """Without scatter, a rate is the average over steps although most samples are early."""
    at = grid(2000.0)
    assert np.mean(at < 400) > 0.4
    found = windows(runs(1024.0, 5, np.random.default_rng(3)))
    steps = [float(w.blocks[:, 2].sum()) / 5 for w in found]
    assert steps[:-1] == pytest.approx([w.length for w in found[:-1]])
    assert 0 < steps[-1] <= found[-1].length


def test_a_run_that_ended_early_does_not_stand_for_what_it_did_not_see():
    random, at = np.random.default_rng(4), grid(1000.0)
    whole = sampled(np.full(len(at), 10.0), 64.0, at, random)
    short = whole.until(300.0)
    found = windows(Runs(64.0, 1000.0, (whole, whole, short)))
    alone = [w for w in found if w.low >= 330]
    assert alone
    assert all(set(w.run.tolist()) == {0, 1} for w in alone)


def test_a_block_and_a_run_can_be_left_out():
    (window, *_) = windows(runs(64.0, 5, np.random.default_rng(5)))
    assert len(window.without) == len(window.blocks) == 5
    assert window.without_run(2) == pytest.approx(window.without[2])
    assert window.blocks[:, 0].sum() / window.blocks[:, 2].sum() == pytest.approx(window.rates[0])


def test_weights_make_a_noisy_step_and_a_loud_one_alike():
    """tr(Sigma)/Q and |G|^2/Q lie on the line |G|^2/Q + tr(Sigma)/Q/B = 1."""
    for window in windows(runs(256.0, 5, np.random.default_rng(6), decay=6.0)):
        noise, signal = window.rates
        assert signal + noise / 256 == pytest.approx(1, abs=0.2)


def test_the_last_window_holds_all_batch_sizes():
    random = np.random.default_rng(7)
    several = [runs(b, 3, random) for b in (64.0, 256.0)]
    (window,) = last_window(several, 0.2)
    assert set(window.run.tolist()) == set(range(6))
    assert last_window([Runs(64.0, 100.0, (NO_NOISE,))], 0.2) == ()


def test_no_samples_no_windows():
    assert windows(Runs(64.0, 100.0, (NO_NOISE, NO_NOISE))) == ()
