"""The noise scale beside B_crit: what is pooled, ratio, verdict and words, and the caveats that follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_runs import TOY, fit, grid, records, runs, sampled

from bscrit.estimate import Estimate
from bscrit.fit.noise.compare import noted, with_noise
from bscrit.fit.noise.frozen import frozen_scales
from bscrit.fit.noise.verdict import judged, said
from bscrit.fit.noise.windows import Runs
from bscrit.fit.result import NoiseComparison, NoiseWindows
from bscrit.frozen_noise import FrozenNoise
from bscrit.noise_settings import NoiseSettings
from bscrit.record import Record

SIZES = (16, 64, 256)


def swept(seed: int = 0, sizes=SIZES, seeds: int = 3, **trial) -> list[Record]:
    random = np.random.default_rng(seed)
    return [
        record for b in sizes for record in records(runs(float(b), seeds, random, every=40), lr=0.1, **trial)
    ]


def flat(scale: float, batch_size: float = 256.0, seed: int = 1, seeds: int = 3) -> list[Record]:
    """Runs of one noise scale from beginning to end."""
    random, steps = np.random.default_rng(seed), TOY.steps(batch_size)
    at = grid(steps, 40)
    samples = tuple(sampled(np.full(len(at), scale), batch_size, at, random) for _ in range(seeds))
    return records(Runs(batch_size, steps, samples))


def test_nothing_measured_changes_nothing():
    before = fit(60.0)
    assert with_noise(before, []) is before
    silent = [replace(record, noise={}) for record in swept()]
    assert with_noise(before, silent) is before


def test_the_toy_agrees_with_its_own_b_crit():
    found = with_noise(fit(TOY.b_crit), swept())
    (one,) = found.noise
    assert one.metric == "identity"
    assert one.pooled_over == (256.0,)
    assert one.verdict == "agrees"
    assert one.ratio.low < 1 < one.ratio.high
    assert list(one.by_batch_size) == [16.0, 64.0, 256.0]
    assert found.caveats == ()


def test_pooled_are_the_batch_sizes_at_or_above_b_crit():
    sizes = (16, 64, 128, 256)
    many = swept(sizes=sizes)
    for b_crit, over in ((64.0, (64.0, 128.0, 256.0)), (65.0, (128.0, 256.0)), (5000.0, (256.0,))):
        (one,) = with_noise(fit(b_crit, sizes), many).noise
        assert one.pooled_over == over
    (one,) = with_noise(fit(None, sizes), many).noise
    assert one.pooled_over == (128.0, 256.0), "the geometric middle is 76"
    each = [one.by_batch_size[b].mean.value for b in one.pooled_over]
    assert min(each) < one.pooled.mean.value < max(each)
    assert one.pooled.mean.low < TOY.b_crit < one.pooled.mean.high
    assert one.pooled.samples == sum(one.by_batch_size[b].samples for b in one.pooled_over)


def test_a_batch_size_that_is_not_resolved_is_not_pooled():
    noisy = flat(1e5, 256.0)
    (one,) = with_noise(fit(200.0), [*swept(sizes=(16, 64)), *noisy]).noise
    assert one.by_batch_size[256.0].mean.value is None
    assert one.pooled_over == (64.0,), "the nearest one that is resolved"
    (alone,) = with_noise(fit(200.0), noisy).noise
    assert alone.verdict == "unresolved"
    assert alone.pooled_over == (256.0,)
    assert alone.ratio == Estimate(None)
    assert alone.forecast is None


def test_runs_at_other_rates_and_search_runs_do_not_count():
    mine = swept(sizes=(256,))
    strangers = [
        *records(runs(256.0, 3, np.random.default_rng(9), every=40), lr=0.2),
        *(replace(r, order=replace(r.order, role="search")) for r in swept(3, (256,))),
    ]
    assert with_noise(fit(90.0), [*mine, *strangers]) == with_noise(fit(90.0), mine)


@pytest.mark.parametrize(
    ("scale", "verdict", "side"),
    [
        (90.0, "agrees", ""),
        (180.0, "same order", "above"),
        (9.0, "differs", "below"),
        (2e3, "differs", "above"),
    ],
)
def test_verdicts(scale, verdict, side):
    found = with_noise(fit(90.0), flat(scale))
    (one,) = found.noise
    assert one.verdict == verdict
    assert side in one.text
    codes = [caveat.code for caveat in found.caveats]
    assert codes == (["noise-disagrees"] if verdict == "differs" else [])
    assert ("cannot stand in" in one.text) == (verdict == "differs")
    assert one.ratio.value == pytest.approx(scale / 90, rel=0.1)


def test_published_ratios_are_the_context():
    below = said("identity", "differs", Estimate(9.0), Estimate(0.1), Estimate(90.0))
    assert "0.05 to 8" in below
    assert "Hessian" in below
    assert "even" in said("identity", "differs", Estimate(9e3), Estimate(100.0), Estimate(90.0))
    assert "0.05" not in said("hessian", "differs", Estimate(9.0), Estimate(0.1), Estimate(90.0))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Estimate(1.2, 0.1, 12.0), "unresolved"),
        (Estimate(1.2, 0.5, 2.9), "agrees"),
        (Estimate(0.6, 0.4, 0.9), "same order"),
        (Estimate(0.29, 0.09, 0.99), "unresolved"),
        (Estimate(0.1, 0.05, 0.2), "differs"),
    ],
)
def test_an_interval_that_holds_everything_is_no_agreement(ratio, verdict):
    assert judged(Estimate(100.0), ratio) == verdict
    if verdict == "unresolved":
        assert "too wide to tell" in said("identity", verdict, Estimate(100.0), ratio, Estimate(90.0))


def test_without_b_crit_there_is_no_ratio():
    (one,) = with_noise(fit(None), swept()).noise
    assert one.verdict == "nothing to compare"
    assert one.ratio == Estimate(None)
    assert "no B_crit" in one.text
    bound = replace(fit(None), b_crit=Estimate(None, 1000.0))
    assert "larger: at least 1,000" in with_noise(bound, swept()).noise[0].text


def test_what_is_not_resolved_is_a_bound():
    found = with_noise(fit(90.0, (16,)), flat(1e5, 16.0))
    (one,) = found.noise
    assert one.verdict == "unresolved"
    assert one.pooled.mean.value is None
    assert one.pooled.mean.high is None
    (caveat,) = found.caveats
    assert caveat.code == "noise-unresolved"
    assert not caveat.serious
    assert "above B_crit" in said(
        "identity", "unresolved", Estimate(None, 500.0), Estimate(None), Estimate(90.0, 80.0, 99.0)
    )


@pytest.mark.parametrize(
    ("mean", "resolved"), [(Estimate(5.2, 3.6, 7.5), True), (Estimate(None, 3.6), False)]
)
def test_unresolved_is_said_of_the_scale_and_not_of_the_ratio(mean, resolved):
    """B_simple 5.2 [3.6, 7.5] beside a B_crit that is known to a factor of 20."""
    windows = NoiseWindows(Estimate(None), mean, Estimate(None), Estimate(None))
    ratio = Estimate(1.1, 0.05, 20.0) if resolved else Estimate(None)
    comparison = NoiseComparison(
        "identity", windows, (64.0,), ratio, judged(mean, ratio), "", {64.0: windows}
    )
    assert comparison.verdict == "unresolved"
    codes = [caveat.code for caveat in noted(fit(90.0), [comparison]).caveats]
    assert codes == ([] if resolved else ["noise-unresolved"])


@pytest.mark.parametrize(
    ("batch_sizes", "low", "larger"),
    [
        ((16.0,), 500.0, True),
        ((16.0,), None, True),
        ((16.0, 64.0), 500.0, False),
        ((16.0, 64.0), None, False),
        ((1024.0,), 500.0, False),
    ],
)
def test_larger_batches_are_advised_where_none_was_tried(batch_sizes, low, larger):
    """Nor where the batch is beyond the bound already: samples are what is missing there."""
    for b_crit in (Estimate(None), Estimate(90.0, 80.0, 99.0)):
        text = said("identity", "unresolved", Estimate(None, low), Estimate(None), b_crit, batch_sizes)
        assert ("larger batches" in text) == larger
        assert "more samples" in text


class TestOptimizers:
    def test_a_plain_norm_with_adam_says_what_was_measured(self):
        adam = swept(optimizer={"use": "adamw"})
        (caveat,) = with_noise(fit(TOY.b_crit), adam).caveats
        assert caveat.code == "euclidean-noise"
        assert "scaled by adamw" in caveat.text
        assert "0.6 of B_crit on the built-in digits" in caveat.text
        both = [replace(r, noise={**r.noise, "adam": r.noise["identity"]}) for r in adam]
        found = with_noise(fit(TOY.b_crit), both)
        assert found.caveats == ()
        assert [one.metric for one in found.noise] == ["identity", "adam"]

    def test_temperature(self):
        sgd = {"use": "sgd", "momentum": 0.9}
        (one,) = with_noise(fit(TOY.b_crit), swept(optimizer=sgd)).noise
        assert one.by_batch_size[64.0].temperature == pytest.approx(0.1 / 0.1 / 64)
        (one,) = with_noise(fit(TOY.b_crit), swept(optimizer={"use": "adam"})).noise
        assert one.by_batch_size[64.0].temperature is None


def test_caveats_are_not_said_twice():
    once = with_noise(fit(90.0), flat(2e3))
    assert with_noise(once, flat(2e3)).caveats == once.caveats


def test_metrics_in_their_order():
    every = [
        replace(r, noise=dict.fromkeys(("adam", "hessian", "identity"), r.noise["identity"])) for r in swept()
    ]
    assert [one.metric for one in with_noise(fit(90.0), every).noise] == ["identity", "hessian", "adam"]


def frozen(
    scale: float, loss: float, random: np.random.Generator, blocks: int = 40, n: int = 256
) -> FrozenNoise:
    """Blocks of real gradients ~ N(G, Sigma/n), |G|^2 = 1."""
    d = 50
    mean = np.full(d, d**-0.5)
    g = mean + np.sqrt(scale / d / n) * random.standard_normal((blocks, d))
    small = mean + np.sqrt(scale / d / 4) * random.standard_normal((blocks, d))
    total, one = g.sum(0), np.ones(blocks)
    dot = g @ total - (g**2).sum(1)
    sizes, squares = (4 * one, (small**2).sum(1)), (n * one, (g**2).sum(1))
    return FrozenNoise(100.0, 1e4, loss, "identity", n * one, *sizes, *squares, dot)


class TestFrozen:
    def measured(self, scales: dict[float, float], asked=(0.5, 0.2), blocks=40) -> list[Record]:
        random = np.random.default_rng(4)
        return [
            replace(
                record,
                order=replace(record.order, noise=NoiseSettings(losses=asked)),
                frozen=tuple(frozen(scale, loss, random, blocks) for loss, scale in scales.items()),
            )
            for record in swept()
        ]

    def test_seeds_and_batch_sizes_are_put_together_at_each_loss(self):
        (one,) = with_noise(fit(TOY.b_crit), self.measured({0.5: 30.0, 0.2: 90.0})).noise
        high, low = one.frozen
        assert (low.loss, high.loss) == (0.2, 0.5)
        for found, exact in ((low, 90.0), (high, 30.0)):
            assert found.scale.low < exact < found.scale.high
            assert found.scale.value == pytest.approx(exact, rel=0.1)
            assert found.examples == 9 * 40 * 256

    def test_losses_close_together_are_kept_apart(self):
        (one,) = with_noise(fit(90.0), self.measured({0.5: 30.0, 0.46: 40.0}, asked=(0.5, 0.46))).noise
        assert len(one.frozen) == 2

    def test_one_that_is_not_resolved_leaves_a_bound(self):
        (one,) = with_noise(fit(90.0), self.measured({0.2: 1e5}, blocks=4)).noise
        assert one.frozen[0].scale.value is None

    def test_frozen_alone_is_reported(self):
        silent = [replace(r, noise={}) for r in self.measured({0.2: 90.0})]
        (one,) = with_noise(fit(90.0), silent).noise
        assert one.by_batch_size == {}
        assert len(one.frozen) == 1

    def test_the_bound_over_runs_is_that_of_a_sum(self):
        """Blocks that agree leave the scatter of R runs, whose sum has the variance R s^2."""
        signals, noise, blocks = np.array([1.0, -0.4, 0.3]), 50.0, np.ones(8)
        of_runs = [
            FrozenNoise(
                100.0, 1e4, 0.2, "identity", 64 * blocks,
                4 * blocks, (signal + noise / 4) * blocks, 64 * blocks, (signal + noise / 64) * blocks,
                7 * signal * blocks,
            )
            for signal in signals
        ]  # fmt: skip
        (found,) = frozen_scales(
            [replace(record, frozen=(one,)) for record, one in zip(swept(), of_runs, strict=False)],
            "identity",
            None,
        )
        reach = 4.302653 * np.sqrt(3 * signals.var(ddof=1))
        assert found.scale == Estimate(None, pytest.approx(3 * noise / (signals.sum() + reach), rel=1e-6))
