"""The law of the best rate against rates that follow it, exactly and with errors."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bscrit.rate_law import SURE, Known, Place, law
from bscrit.sweep.tune import OWN_ERROR, predicted_rates


def known_by_law(sizes, power, knee):
    return [Known(size, Place(math.log(0.9 / (1 + knee / size) ** power), OWN_ERROR)) for size in sizes]


@pytest.mark.parametrize(("power", "knee"), [(1.0, 50.0), (0.5, 20.0), (1.0, 1e6), (1.0, 1e-3)])
def test_the_next_batch_size_is_predicted_from_those_that_are_known(power, knee):
    for count in (2, 3, 4):
        *known, answer = known_by_law((1, 4, 16, 64, 256)[: count + 1], power, knee)
        place = law(known, answer.batch_size, power)
        rates = predicted_rates(place).rates
        assert rates[0] <= math.exp(answer.place.at) <= rates[-1]
        assert abs(place.at - answer.place.at) < place.error


def test_a_prediction_from_one_batch_size_is_less_sure_than_from_four_and_tries_more_rates():
    known = known_by_law((2, 4, 8, 16, 32, 64, 128, 256), 1.0, 20)
    unsure, sure = law(known[:1], 512, 1.0), law(known, 512, 1.0)
    assert unsure.error > SURE > sure.error
    wide, narrow = predicted_rates(unsure).rates, predicted_rates(sure).rates
    assert (len(wide), len(narrow)) == (3, 2)
    assert wide[-1] / wide[0] > narrow[-1] / narrow[0]


def test_the_error_of_the_law_is_that_of_its_predictions():
    """Coverage over 1,000 searches with the stated errors: the law's interval of two standard errors."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(1000):
        exact = known_by_law((4, 8, 16, 32, 64, 128), 1.0, math.exp(rng.uniform(1, 5)))
        noisy = [
            replace(one, place=Place(one.place.at + OWN_ERROR * rng.standard_normal(), OWN_ERROR))
            for one in exact[:-1]
        ]
        place = law(noisy, 128, 1.0)
        inside.append(abs(place.at - exact[-1].place.at) < 2 * place.error)
    assert 0.93 < np.mean(inside) <= 1
