"""Where mean curves meet targets: against closed forms, and every odd curve that a run can leave."""

import math
from dataclasses import replace

import numpy as np
import pytest
from exact import power_law

from bscrit.cohort.evaluations import evaluation_after
from bscrit.crossing import OVERRUN, crossing_of, examples_at, forecast, steps_to
from bscrit.curve import Curve
from bscrit.goal import Goal

FIXTURE = power_law()
B_CRIT = 59.295


def curve(loss, steps=None):
    loss = np.asarray(loss, float)
    steps = np.arange(len(loss), dtype=float) if steps is None else np.asarray(steps, float)
    return Curve(steps, 4 * steps, loss, np.zeros(len(loss)))


def evaluation_grid(last):
    steps = [0]
    while steps[-1] < last:
        steps.append(evaluation_after(steps[-1]))
    return np.array(steps)


GRID = evaluation_grid(3000)
POWER = curve(10 * np.maximum(GRID, 0.5) ** -0.5, GRID)  # meets 1 at step 100


def noisy_runs(batch_size, runs, rng):
    """Curves of SGD at the best rate on the noisy quadratic, and the exact steps to 0.1."""
    lr, exact = FIXTURE.tuned(0.1, batch_size)
    grid = evaluation_grid(2.5 * exact)
    theta = np.ones((runs, 100))
    losses = np.empty((len(grid), runs))
    deviation = np.sqrt(FIXTURE.noise / batch_size)
    place = 0
    for step in range(grid[-1] + 1):
        if step == grid[place]:
            losses[place] = 0.5 * theta**2 @ FIXTURE.curvature
            place += 1
        theta -= lr * (FIXTURE.curvature * theta + deviation * rng.standard_normal(theta.shape))
    return [curve(loss, grid) for loss in losses.T], exact


@pytest.mark.parametrize("batch_size", [4, 16, 64, 256, 1024])
def test_three_seeds_meet_a_target_where_the_expected_curve_does(batch_size):
    """From B_crit/16 to 16 B_crit, to 3 %; the first crossing of one curve is 22 % early."""
    curves, exact = noisy_runs(batch_size, 240, np.random.default_rng(batch_size))
    crossings = [crossing_of(curves[row : row + 3], 0.1) for row in range(0, 240, 3)]
    errors = np.log([crossing.steps / exact for crossing in crossings])
    assert abs(errors.mean()) + errors.std() / math.sqrt(len(errors)) < 0.03
    first = np.log([one.steps[np.argmax(one.loss <= 0.1)] / exact for one in curves])
    if batch_size < B_CRIT:
        assert first.mean() < -0.1


def test_shares_of_the_runs_tell_how_sure_their_mean_is():
    curves, _ = noisy_runs(16, 240, np.random.default_rng(5))
    crossings = [crossing_of(curves[row : row + 3], 0.1) for row in range(0, 240, 3)]
    scatter = np.std([math.log(crossing.steps) for crossing in crossings])
    shares = [np.log(crossing.runs).std(ddof=1) / math.sqrt(3) for crossing in crossings]
    assert np.sqrt(np.mean(np.square(shares))) == pytest.approx(scatter, rel=0.25)


def test_a_power_law_is_met_where_it_is():
    crossing = crossing_of([POWER], 1.0)
    assert crossing.steps == pytest.approx(100, rel=2e-3)
    assert crossing.runs == pytest.approx([crossing.steps])
    assert crossing.error < 0.01


def test_the_geometric_mean_of_the_runs_is_the_crossing():
    rng = np.random.default_rng(0)
    curves = [curve(POWER.loss * np.exp(0.1 * rng.standard_normal(len(GRID))), GRID) for _ in range(5)]
    crossing = crossing_of(curves, 1.0)
    assert np.log(crossing.runs).mean() == pytest.approx(math.log(crossing.steps))
    assert np.log(crossing.runs).std() > 0.01


def test_a_run_that_is_slower_has_the_larger_share():
    slow, fast = (curve(factor * POWER.loss, GRID) for factor in (1.05, 0.95))
    crossing = crossing_of([slow, fast], 1.0)
    assert crossing.runs[0] > 100 > crossing.runs[1]
    assert crossing.runs == pytest.approx([110, 90], rel=0.02)


def test_a_crossing_is_confirmed_once_the_curves_reach_the_end_of_its_window():
    last = 100 * OVERRUN
    assert crossing_of([POWER.until(last * 0.97)], 1.0) is None
    early = crossing_of([POWER.until(last * 0.97)], 1.0, confirmed=False)
    late = crossing_of([POWER.until(last * 1.02)], 1.0)
    assert early.steps == pytest.approx(late.steps, rel=1e-3)
    assert late.steps == pytest.approx(crossing_of([POWER], 1.0).steps, rel=1e-3)


def test_one_lucky_dip_is_no_crossing():
    dipped = POWER.loss.copy()
    dipped[np.searchsorted(GRID, 60)] = 0.9
    assert crossing_of([curve(dipped, GRID)], 1.0).steps == pytest.approx(100, rel=0.02)
    assert crossing_of([curve(dipped, GRID).until(80)], 1.0, confirmed=False) is None


def test_a_plateau_above_the_target_is_never_met():
    plateau = curve(np.maximum(POWER.loss, 1.2), GRID)
    assert crossing_of([plateau], 1.0) is None
    assert crossing_of([plateau], 1.0, confirmed=False) is None
    assert crossing_of([plateau], 1.5).steps == pytest.approx((10 / 1.5) ** 2, rel=5e-3)


@pytest.mark.parametrize("level", [1.0, 0.5])
def test_a_constant_curve_at_or_below_the_target_is_met_at_once(level):
    crossing = crossing_of([curve(np.full(50, level))], 1.0)
    assert crossing.steps == 1
    assert np.isfinite(crossing.runs).all()


def test_a_curve_that_begins_below_the_target_is_met_at_its_first_step():
    assert crossing_of([POWER], 11.0).steps == 1


def test_a_crossing_between_the_first_two_steps():
    fast = curve([4.0, 2.0, 0.5, 0.2, 0.1, 0.05])
    assert 1 < crossing_of([fast], 1.0).steps < 2


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_comes_after_a_run_broke_is_not_read(broken):
    loss = np.where(GRID > 300, broken, POWER.loss)
    assert crossing_of([curve(loss, GRID)], 1.0).steps == pytest.approx(100, rel=2e-3)
    assert crossing_of([POWER, curve(loss, GRID)], 1.0).steps == pytest.approx(100, rel=2e-3)
    assert crossing_of([curve(np.where(GRID > 50, broken, POWER.loss), GRID)], 1.0, confirmed=False) is None
    other_grid = curve(np.where(GRID > 105, broken, POWER.loss)[::2], GRID[::2])
    assert crossing_of([POWER, other_grid], 1.0) is None, "105 steps do not confirm what is met at 100"
    assert crossing_of([POWER, other_grid], 1.0, confirmed=False).steps == pytest.approx(100, rel=5e-3)
    assert crossing_of([curve(np.full(50, broken))], 1.0) is None


def test_curves_of_other_steps_are_brought_together():
    assert crossing_of([POWER, curve(POWER.loss[::3], GRID[::3])], 1.0).steps == pytest.approx(100, rel=5e-3)


def test_curves_of_other_lengths_are_averaged_up_to_the_shortest():
    assert crossing_of([POWER, POWER.until(80)], 1.0) is None
    assert crossing_of([POWER, POWER.until(150)], 1.0).steps == pytest.approx(100, rel=2e-3)


@pytest.mark.parametrize("curves", [[], [curve([])], [curve([1.0])], [curve([2.0, 0.5])], [POWER, curve([])]])
def test_too_little_to_say(curves):
    assert crossing_of(curves, 1.0) is None


def test_a_budget_of_a_few_steps():
    assert 1 <= crossing_of([curve([4.0, 2.0, 0.5])], 1.0, confirmed=False).steps <= 2


def test_between_evaluations_the_smoothed_curve_is_a_line_in_ln_step():
    """A curve that falls by 1 in each unit of ln(step), evaluated at doubled steps: a line in the step is 4 % off."""
    grid = 2.0 ** np.arange(10)
    falling = curve(5 - np.log(grid), grid)
    crossing = crossing_of([falling], 5 - math.log(48), confirmed=False)
    assert crossing.steps == pytest.approx(48, rel=1e-12)
    assert steps_to([falling], 5 - math.log(48), confirmed=False) == crossing.steps


def test_a_crossing_has_the_examples_of_its_steps():
    """At one batch size they are steps times it; where it grows along the run they are those of the curve."""
    assert crossing_of([POWER], 1.0).examples == pytest.approx(4 * crossing_of([POWER], 1.0).steps, rel=1e-12)
    grown = replace(POWER, examples=4 * np.minimum(GRID, 50) + 64 * np.maximum(GRID - 50, 0))
    crossing = crossing_of([grown], 1.0)
    assert crossing.examples == pytest.approx(4 * 50 + 64 * (crossing.steps - 50), rel=1e-12)
    assert examples_at(POWER, 6000) == 24_000, "beyond its last step"


def test_a_metric_that_rises_crosses_where_its_negative_falls():
    rising = replace(
        POWER, loss=POWER.loss, goal=Goal("return", "up")
    )  # the curve of a return -10/sqrt(step)
    assert crossing_of([rising], -1.0).steps == crossing_of([POWER], 1.0).steps
    assert crossing_of([rising], 1.0) is None
    assert forecast(rising.until(81), -1.0) == forecast(POWER.until(81), 1.0)


def test_forecast_goes_on_along_the_last_line():
    until = POWER.until(81)
    line = np.polyfit(np.log(until.steps[-14:]), until.loss[-14:], 1)
    assert forecast(until, 1.0) == pytest.approx(math.exp((1.0 - line[1]) / line[0]), rel=0.02)
    assert forecast(until, 1.0) > 81
    assert forecast(POWER, 1.0) == pytest.approx(3000, rel=0.02), "already below: where it stands"


@pytest.mark.parametrize("loss", [[1.0, 1.0, 1.0, 1.0], [1, 2, 3, 4], [], [1.0], [1, math.nan, math.nan]])
def test_no_forecast_where_nothing_falls(loss):
    assert forecast(curve(loss), 0.5) == math.inf


def test_a_forecast_beyond_all_numbers_is_still_a_number():
    assert forecast(curve([1, 1, 1 - 1e-12, 1 - 2e-12]), -1e9) < math.inf
    assert math.log(OVERRUN) == pytest.approx(0.1)
