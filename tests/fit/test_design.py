"""The next batch size: the formula against the fits that it predicts, and against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bscrit.crossing import Crossing, CrossingTable
from bscrit.fit.core import fit_table
from bscrit.fit.design import REACH, narrowed, next_batch_size

SIZES = [16 * 2**i for i in range(9)]
X = np.array(SIZES, float)


def error(sizes, b_crit):
    """SE(ln b_crit) at sigma 1."""
    p = 1 / (1 + np.array(sizes) / b_crit)
    return 1 / np.sqrt(((p - p.mean()) ** 2).sum())


def test_the_formula_predicts_the_standard_error():
    random = np.random.default_rng(0)
    betas = []
    for _ in range(100):
        steps = 1000 * (1 + 256 / X) * np.exp(0.05 * random.standard_normal(len(X)))
        table = CrossingTable(tuple(Crossing(b, s) for b, s in zip(X, steps, strict=True)))
        betas.append(fit_table(table).fits[0].curve.beta)
    assert np.std(betas) == pytest.approx(0.05 * error(X, 256), rel=0.2)


@pytest.mark.parametrize("b_crit", [30.0, 100.0, 256.0, 900.0])
def test_no_candidate_is_worth_more_per_example(b_crit):
    tried = [32.0, 128.0, 512.0]
    candidates = [float(2**k) for k in range(2, 13)]
    best = next_batch_size(tried, b_crit, "identified", candidates)

    def worth(size):
        return (error([*tried, size], b_crit) ** -2 - error(tried, b_crit) ** -2) / (1 + size / b_crit)

    assert worth(best) >= 0.9 * max(map(worth, candidates))
    assert all(worth(size) < 0.9 * max(map(worth, candidates)) for size in candidates if size > best)


def test_what_an_addition_narrows():
    tried = [64.0, 128.0, 256.0, 512.0]
    chosen = next_batch_size(tried, 256.0, "identified")
    assert narrowed(tried, 256.0, chosen) == pytest.approx(error([*tried, chosen], 256) / error(tried, 256))
    assert narrowed(tried, 256.0, chosen) < 0.85
    assert chosen < 64 or chosen > 512


@pytest.mark.parametrize(("verdict", "b_crit"), [("lower bound", 1e6), ("upper bound", 1e-3)])
def test_where_one_side_is_open_the_next_lies_there_and_not_out_of_reach(verdict, b_crit):
    tried = [16.0, 32.0, 64.0]
    candidates = [2.0**k for k in range(14)]
    chosen = next_batch_size(tried, b_crit, verdict, candidates)
    assert (64 < chosen <= 64 * REACH) if verdict == "lower bound" else (16 / REACH <= chosen < 16)
    assert next_batch_size(tried, b_crit, verdict, [24, 48]) is None, "nothing inside would tell"
    assert next_batch_size(tried, 32.0, verdict, [24, 48]) is not None, "unless the knee may lie inside"


def test_powers_of_two_go_first():
    tried = [16.0, 64.0, 256.0]
    assert next_batch_size(tried, 256.0, "identified", [1023, 1024, 1025]) == 1024
    assert next_batch_size(tried, 256.0, "identified", [60, 1025]) == 1025, (
        "a good one before a useless power"
    )


def test_by_default_only_what_was_not_tried_and_nothing_below_one_example():
    for tried in ([1.0, 2.0, 4.0], [1.0, 4.0], [8.0]):
        for b_crit in (0.1, 2.0, 100.0):
            for verdict in ("identified", "lower bound", "upper bound"):
                chosen = next_batch_size(tried, b_crit, verdict)
                assert chosen is None or (chosen >= 1 and chosen not in tried)
