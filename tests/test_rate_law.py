"""The law of the best rate against rates that follow it, exactly and with errors."""

import math

import numpy as np
import pytest

from bscrit.rate_law import ONE_SEARCH, BestRate, RateEstimate, fit_law
from bscrit.sweep.rates import predicted_rates


def points(sizes, power, b, lr_max=0.9):
    return [BestRate(size, RateEstimate(math.log(lr_max / (1 + b / size) ** power))) for size in sizes]


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_exact_rates_come_back(power):
    law = fit_law(points([4, 16, 64, 256, 1024], power, 96.0, lr_max=0.4), power)
    assert law.lr_max == pytest.approx(0.4, rel=0.002)
    assert law.b == pytest.approx(96, rel=0.002)
    assert law.at(64).rate == pytest.approx(0.4 / (1 + 96 / 64) ** power, rel=0.03)


def test_the_formula():
    """eps = 0.27 B/(96 + B), the rates of the paper's SVHN runs (McCandlish et al. 2018)."""
    law = fit_law(points([8, 32, 96, 512], 1.0, 96.0, lr_max=0.27), 1.0)
    assert law.curve(np.array([96.0, 32.0])) == pytest.approx([0.135, 0.27 * 32 / 128], rel=0.002)


def test_a_surer_rate_counts_for_more():
    low, high = BestRate(64, RateEstimate(0.0, 0.05)), BestRate(64, RateEstimate(1.0, 0.5))
    weights = [1 / (error**2 + 0.1**2) for error in (0.05, 0.5)]
    assert fit_law([low, high], 1.0).at(64).ln_rate == pytest.approx(weights[1] / sum(weights))


@pytest.mark.parametrize(("power", "knee"), [(1.0, 50.0), (0.5, 20.0), (1.0, 1e6), (1.0, 1e-3)])
def test_the_next_batch_size_is_predicted_from_those_that_are_known(power, knee):
    for count in (2, 3, 4):
        *known, answer = points((1, 4, 16, 64, 256)[: count + 1], power, knee)
        predicted = fit_law(known, power).at(answer.batch_size)
        rates = predicted_rates(predicted).rates
        assert rates[0] <= answer.estimate.rate <= rates[-1]
        assert abs(predicted.ln_rate - answer.estimate.ln_rate) < predicted.error


def test_a_prediction_from_one_batch_size_is_less_sure_than_from_many_and_tries_more_rates():
    known = points((2, 4, 8, 16, 32, 64, 128, 256), 1.0, 20)
    unsure, sure = fit_law(known[:1], 1.0).at(512), fit_law(known, 1.0).at(512)
    assert unsure.error > 2 * sure.error
    wide, narrow = predicted_rates(unsure).rates, predicted_rates(sure).rates
    assert (len(wide), len(narrow)) == (3, 2)
    assert wide[-1] / wide[0] > narrow[-1] / narrow[0]


def test_the_error_of_the_law_is_that_of_its_predictions():
    """Coverage over 1,000 searches with the stated errors: the law's interval of two standard errors."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(1000):
        *exact, answer = points((4, 8, 16, 32, 64, 128), 1.0, math.exp(rng.uniform(1, 5)))
        noisy = [
            BestRate(p.batch_size, RateEstimate(p.estimate.ln_rate + ONE_SEARCH * rng.standard_normal()))
            for p in exact
        ]
        predicted = fit_law(noisy, 1.0).at(128)
        inside.append(abs(predicted.ln_rate - answer.estimate.ln_rate) < 2 * predicted.error)
    assert 0.93 < np.mean(inside) <= 1


def test_two_estimates_are_weighted_by_their_precision():
    both = RateEstimate(0.0, 0.1).combined(RateEstimate(1.0, 0.2))
    assert both.ln_rate == pytest.approx(0.2)
    assert both.error == pytest.approx(1 / math.sqrt(125))
