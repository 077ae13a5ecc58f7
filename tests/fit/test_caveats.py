"""Each code of the closed list: data that call for it, its numbers, and clean data that call for none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bscrit.crossing import Crossing, CrossingTable
from bscrit.estimate import Estimate
from bscrit.fit.caveats.codes import CODES, with_noise_caveats
from bscrit.fit.core import fit_family, fit_table
from bscrit.fit.crossings import families
from bscrit.fit.result import NoiseComparison, NoiseWindows

SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def rows(scatter=0.03, seeds=3, sizes=SIZES, b_crit=256.0, seed=0, tuning=0.0, **fields) -> list[Crossing]:
    random = np.random.default_rng(seed)
    return [
        Crossing(
            float(b),
            1000 * (1 + b_crit / b) * np.exp(off + scatter * random.standard_normal()),
            seed=str(s),
            **fields,
        )
        for b in sizes
        for off in [tuning * random.standard_normal()]
        for s in range(seeds)
    ]


def grid(best: dict[int, int], rates=(0.1, 0.14, 0.2, 0.28, 0.4), seed=0) -> list[Crossing]:
    """Rates at every batch size, the fastest of which is number best[B] (else the middle one)."""
    return [
        replace(
            row, lr=rate, steps=row.steps * (1 + 0.2 * abs(i - best.get(int(row.batch_size), 2))), seed="0"
        )
        for row in rows(seeds=1, seed=seed)
        for i, rate in enumerate(rates)
    ]


def found(crossings, **options) -> dict[str, object]:
    (fit,) = fit_table(CrossingTable(tuple(crossings), **options)).fits
    assert {caveat.code for caveat in fit.caveats} <= set(CODES)
    return {caveat.code: caveat for caveat in fit.caveats}


def test_clean_data_call_for_none():
    assert found(rows(seed=1)) == {}


def test_serious_ones_come_first():
    (fit,) = fit_table(CrossingTable(tuple(grid({64: 4})), horizons=("cosine",))).fits
    serious = [caveat.serious for caveat in fit.caveats]
    assert serious == sorted(serious, reverse=True)
    assert serious[0]


def test_in_warmup():
    family = families(CrossingTable(tuple(rows(seed=1))))[0]
    long = {float(b): 1000.0 for b in SIZES[-3:]}  # about 1000 steps are taken there
    table = CrossingTable((), warmups=long)
    codes = {caveat.code: caveat for caveat in fit_family(family, table).caveats}
    assert codes["in-warmup"].serious
    assert "1024, 2048, 4096" in codes["in-warmup"].text
    short = dict.fromkeys(long, 100.0)
    assert not fit_family(family, CrossingTable((), warmups=short)).caveats


def test_few_steps():
    few = [replace(row, steps=row.steps / 200) for row in rows(seed=1)]
    caveat = found(few)["few-steps"]
    assert caveat.serious
    assert "4096" in caveat.text
    assert "16," not in caveat.text
    (fit,) = fit_table(CrossingTable(tuple(few))).fits
    steps = [point.steps for point in fit.points if point.steps < 10]
    assert f"within {min(steps):.3f} to {max(steps):.3f} steps" in caveat.text
    epochs = [replace(row, steps=row.steps / 1e6) for row in rows(seed=1)]
    assert found(epochs) == {}


def test_few_batch_sizes():
    four, three = found(rows(sizes=SIZES[::2][:4])), found(rows(sizes=SIZES[::3]))
    assert "4 batch sizes met the target: 2 degrees" in four["few-batch-sizes"].text
    assert not four["few-batch-sizes"].serious
    assert three["few-batch-sizes"].serious
    assert "add batch size 2" in three["few-batch-sizes"].hint


def test_needs_larger_says_where():
    caveat = found(rows(sizes=SIZES[:4], b_crit=4000.0, seeds=5))["needs-larger"]
    assert "128" in caveat.text
    assert "add batch size 1024" in caveat.hint
    assert caveat.serious


def test_needs_smaller_says_where():
    caveat = found(rows(sizes=SIZES[4:], b_crit=20.0, seeds=5))["needs-smaller"]
    assert "256" in caveat.text
    assert "add batch size 32" in caveat.hint


def test_undecided():
    assert found(rows(0.4, 1, sizes=(48, 56, 64, 72, 80), seed=3))["undecided"].serious


def test_a_wide_interval_names_the_best_addition():
    data = rows(0.15, 1, sizes=SIZES[::2], seed=2)
    caveat = found(data)["wide"]
    assert caveat.serious
    assert "more than 4" in caveat.text
    assert "would help most" in caveat.hint
    (fit,) = fit_table(CrossingTable(tuple(data)), widest=100.0).fits
    assert fit.verdict == "identified"
    assert "wide" not in {caveat.code for caveat in fit.caveats}


def test_heavy_tails():
    data = rows(0.02, 4)
    for place in range(0, 36, 7):
        data[place] = replace(data[place], steps=3 * data[place].steps)
    caveats = found(data)
    assert caveats["heavy-tails"].serious
    assert "6 of 36 runs" in caveats["heavy-tails"].text
    assert "outlier" not in caveats
    assert "heavy-tails" in found(replace(row, shared=True) for row in data)


@pytest.mark.parametrize("rise", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("seeds", [1, 3])
def test_steps_rise(rise, seeds):
    """S_min (1 + B_crit/B) (1 + B/(rise B_crit)): B_crit and S_min are bounded by what was seen before the rise."""
    data = [replace(row, steps=row.steps * (1 + row.batch_size / (rise * 256))) for row in rows(0.02, seeds)]
    (fit,) = fit_table(CrossingTable(tuple(data))).fits
    caveats = {caveat.code: caveat for caveat in fit.caveats}
    assert caveats["steps-rise"].serious
    assert not {"needs-larger", "outlier"} & set(caveats)
    assert fit.verdict == "lower bound"
    assert fit.b_crit.low < 256
    assert fit.s_min.high > 1000
    last = min(fit.points, key=lambda point: point.steps).batch_size
    assert [point.robust_weight for point in fit.points] == [float(p.batch_size <= last) for p in fit.points]


def test_a_rise_from_the_first_batch_sizes_on_leaves_nothing_to_bound():
    """From B_crit/4 on to a rise that doubles steps at 2 B_crit: a bump, and no upper bound."""
    data = [replace(row, steps=row.steps * (1 + row.batch_size / 512)) for row in rows(0.02, 3, SIZES[2:])]
    (fit,) = fit_table(CrossingTable(tuple(data))).fits
    assert fit.verdict == "not identified"
    assert fit.b_crit == fit.s_min == Estimate(None)
    codes = {caveat.code for caveat in fit.caveats}
    assert "steps-rise" in codes
    assert "undecided" not in codes


def test_a_large_batch_that_never_arrives_is_a_rise():
    data = [replace(row, censored=row.batch_size > 1024) for row in rows(0.02)]
    beyond = [replace(row, steps=3 * row.steps) if row.censored else row for row in data]
    assert "steps-rise" in found(beyond)
    assert "steps-rise" not in found(data)


def test_no_replicates():
    assert "no-replicates" in found(rows(seeds=1))


def test_hangs_on_one():
    """A single batch size in the linear part."""
    alone = found(rows(0.05, 3, (16, 1024, 1500, 2048, 3000, 4096), 200.0, seed=2))["hangs-on-one"]
    assert "without batch size 16 B_crit would be 244" in alone.text
    assert alone.serious


def test_a_shift_that_no_one_would_act_upon_hangs_on_nothing():
    alone = rows(1e-4, 3, (16, 1024, 1500, 2048, 3000, 4096), 200.0, seed=2)
    assert "hangs-on-one" not in found(alone)


def test_lack_of_fit_against_seeds():
    caveat = found(rows(0.01, 3, tuning=0.08))["lack-of-fit"]
    assert "p =" in caveat.text
    assert "lack-of-fit" not in found(rows(0.08, 3))


def test_a_misfit_of_form_is_not_in_the_interval():
    """Tuning that scatters between batch sizes is; a knee of another form is not."""
    soft = [
        replace(
            row,
            steps=row.steps
            * 1000
            * (1 + (256 / row.batch_size) ** 0.7)
            / (1000 * (1 + 256 / row.batch_size)),
        )
        for row in rows(0.01)
    ]
    assert found(rows(0.01, 3, tuning=0.08))["lack-of-fit"].text.endswith("the interval includes it")
    assert "the interval includes it" not in found(soft)["lack-of-fit"].text


def test_knee_shape():
    sharp = [Crossing(float(b), 1000 * (1 + (256 / b) ** 1.6) ** (1 / 1.6)) for b in SIZES]
    assert "sharper" in found(sharp)["knee-shape"].text
    assert not found(sharp)["knee-shape"].serious
    floor = [replace(row, steps=max(row.steps, 2500.0)) for row in rows(0.01)]
    assert found(floor)["knee-shape"].serious


@pytest.mark.parametrize(("exponent", "remedy"), [(0.7, "smaller batch sizes"), (1.5, "weight decay")])
def test_another_fall_at_small_batch(exponent, remedy):
    """S_min (1 + (B_crit/B)^exponent): perfect scaling was not seen, and nothing is identified."""
    ideal = {b: (1 + (256 / b) ** exponent) / (1 + 256 / b) for b in SIZES}
    (fit,) = fit_table(
        CrossingTable(tuple(replace(row, steps=row.steps * ideal[row.batch_size]) for row in rows(0.02)))
    ).fits
    caveats = {caveat.code: caveat for caveat in fit.caveats}
    assert fit.verdict == "not identified"
    assert fit.b_crit == Estimate(None)
    assert caveats["knee-shape"].serious
    assert remedy in caveats["knee-shape"].hint
    assert "undecided" not in caveats
    assert fit.diagnostics["scaling_exponent"]["value"] == pytest.approx(exponent, rel=0.1)


def test_commands_are_a_remedy_for_sweeps_alone():
    swept = found(rows(sizes=SIZES[:3], role="measure"))["few-batch-sizes"]
    assert "by the same `bscrit sweep` with --set 'sweep.batch_sizes=[16,32,64," in swept.hint
    assert "bscrit sweep" not in found(rows(sizes=SIZES[:3]))["few-batch-sizes"].hint


def test_power_law():
    law = [Crossing(float(b), 1e5 * b**-0.5 * (1 + 0.01 * (-1) ** i)) for i, b in enumerate(SIZES)]
    assert "B^-0.50" in found(law)["power-law"].text


def test_outlier_is_named():
    data = rows()
    data[4] = replace(data[4], steps=data[4].steps * 11, where="runs.csv, line 6")
    caveat = found(data)["outlier"]
    assert "runs.csv, line 6" in caveat.text
    assert "11 times" in caveat.text


def test_many_outliers_are_counted():
    data = rows(seeds=20)
    for place in range(3, 123, 15):
        data[place] = replace(data[place], steps=data[place].steps * 11)
    (fit,) = fit_table(CrossingTable(tuple(data))).fits
    texts = [caveat.text for caveat in fit.caveats if caveat.code == "outlier"]
    assert len(texts) == 6
    assert texts[-1].startswith("and 3 more runs ")


def test_rate_at_edge():
    caveat = found(grid({64: 4, 128: 4, 16: 0}))["rate-at-edge"]
    codes = fit_table(CrossingTable(tuple(grid({64: 4, 128: 4, 16: 0})))).fits[0].caveats
    texts = [c.text for c in codes if c.code == "rate-at-edge"]
    assert caveat.serious
    assert any("lowest" in text and "16" in text for text in texts)
    assert any("highest" in text and "64, 128" in text for text in texts)


def test_rate_beside_diverged():
    caveats = found(grid({64: 4}), diverged=[(64.0, 0.56, ())])
    assert "64" in caveats["rate-beside-diverged"].text
    assert "rate-at-edge" not in caveats


def test_no_feasible_rate():
    assert "8192" in found(rows(), diverged=[(8192.0, 0.1, ())])["no-feasible-rate"].text


def test_never_reached():
    data = [*rows(), Crossing(8.0, 5000.0, censored=True)]
    assert "batch size 8;" in found(data)["never-reached"].text


def test_chosen_by_speed_and_not_where_fresh_seeds_measure():
    searched = grid({})
    assert "9 batch sizes" in found(searched)["chosen-by-speed"].text
    measured = [replace(row, role="search") for row in searched]
    measured += [replace(row, role="measure", seed="9") for row in searched if row.lr == 0.2]
    assert "chosen-by-speed" not in found(measured)


def test_one_rate():
    assert "0.1" in found(rows(lr=0.1))["one-rate"].text
    assert "one-rate" not in found(rows())


def test_coarse_rates():
    assert "coarse-rates" not in found(grid({}))
    assert "4.0 times" in found(grid({}, rates=(0.01, 0.05, 0.2, 0.8, 3.2)))["coarse-rates"].text


def test_horizon():
    assert "cosine" in found(rows(), horizons=["cosine"])["horizon"].text


def test_examples_rise():
    data = [replace(r, steps=r.steps * 1.3) if r.batch_size == 16 else r for r in rows(0.01, 3, tuning=0.0)]
    data = [replace(r, steps=r.steps * 1.12) if r.batch_size == 32 else r for r in data]
    assert "rise again below batch size 64" in found(data)["examples-rise"].text


def test_a_metric_that_fluctuates():
    def noisy(error):
        return found(replace(row, error=error * (row.batch_size < 64)) for row in rows())

    assert noisy(0.2)["noisy-metric"].serious
    assert "22 % at batch size 16" in noisy(0.2)["noisy-metric"].text
    assert not noisy(0.06)["noisy-metric"].serious
    assert "noisy-metric" not in noisy(0.03)


def test_an_averaged_metric_lags_behind():
    """Half a logging interval of 200 steps is a tenth of S(4096)."""
    late = found(rows(), averaged="'loss' is a mean", lag=100.0)["averaged-metric"]
    assert late.serious
    assert "100 steps late" in late.text
    assert not found(rows(), averaged="'loss' is a mean", lag=15.0)["averaged-metric"].serious
    assert found(rows(), averaged="'loss_ema' is a mean", lag=np.inf)["averaged-metric"].serious


def test_wide_gaps():
    data = [replace(row, low=row.steps * 0.8, high=row.steps * 1.2) for row in rows()]
    assert "uncertain" in found(data)["wide-gaps"].text


def compared(verdict: str, metric: str = "identity", mean: Estimate | None = None, adaptive=()):
    """Codes of a fit whose noise scale was compared."""
    windows = NoiseWindows(*[mean or Estimate(50.0, 40.0, 60.0)] * 4)
    ratio = Estimate(0.2, 0.15, 0.3) if windows.mean.value else Estimate(None)
    one = NoiseComparison(metric, windows, (64.0,), ratio, verdict, "", {64.0: windows})
    (fit,) = fit_table(CrossingTable(tuple(rows(seed=1)))).fits
    return {c.code: c for c in with_noise_caveats(replace(fit, noise=(one,)), adaptive).caveats}


def test_noise_that_agrees_calls_for_nothing():
    assert compared("agrees") == {}


def test_euclidean_noise():
    assert "adamw" in compared("agrees", adaptive=["adamw"])["euclidean-noise"].text
    assert compared("agrees", "adam", adaptive=["adamw"]) == {}


def test_noise_disagrees():
    caveat = compared("differs")["noise-disagrees"]
    assert "B_simple is 0.20 [0.15, 0.30] of B_crit" in caveat.text
    assert not caveat.serious


def test_noise_unresolved_is_a_bound():
    caveat = compared("unresolved", "hessian", Estimate(None, 12.0))["noise-unresolved"]
    assert "B_noise is not resolved at any batch size: at least 12.0" in caveat.text
    assert "at least" not in compared("unresolved", mean=Estimate(None))["noise-unresolved"].text


def test_a_scale_that_is_resolved_is_not_called_unresolved():
    """Where only its ratio to B_crit is too uncertain for a verdict."""
    assert compared("unresolved") == {}


def test_noise_caveats_leave_the_others_in_their_order():
    (fit,) = fit_table(CrossingTable(tuple(grid({64: 4})))).fits
    windows = NoiseWindows(*[Estimate(None)] * 4)
    one = NoiseComparison("identity", windows, (), Estimate(None), "unresolved", "", {64.0: windows})
    after = with_noise_caveats(replace(fit, noise=(one,))).caveats
    assert after[: len(fit.caveats)] == fit.caveats
    assert after[-1].code == "noise-unresolved"


def test_every_code_has_a_test():
    text = Path(__file__).read_text("utf-8")
    assert [code for code in CODES if f'"{code}"' not in text] == []
