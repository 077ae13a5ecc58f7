"""Metrics that are averages over past steps, told by their names and their company."""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd
import pytest

from bscrit.tables.table import read_table

STEPS = np.arange(20, 2001, 20)


def table(metric: str, **columns: float):
    curve = {"step": STEPS, metric: 4 / (1 + STEPS / 400)}
    return read_table(pd.DataFrame({"batch_size": 64, **curve, **columns}), targets=[2.0])


@pytest.mark.parametrize("metric", ["loss_ema", "train/loss_smoothed", "running_loss"])
def test_names_of_averages_over_steps(metric):
    crossings = table(metric)
    assert repr(metric) in crossings.averaged
    assert crossings.lag == inf


def test_an_average_may_be_one_over_examples():
    assert "may be" in table("avg_loss").averaged
    assert table("avg_loss").lag == 0


def test_the_trainer_s_loss_lags_half_a_logging_interval():
    assert table("loss", grad_norm=1.0, epoch=0.5).lag == 10
    assert table("loss", grad_norm=1.0).averaged == ""
    assert table("eval_loss", grad_norm=1.0, epoch=0.5).averaged == ""
