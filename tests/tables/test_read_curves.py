"""Curves: where logged points say that a target was met."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bscrit.crossing import CrossingTable, crossing_of
from bscrit.curve import Curve
from bscrit.errors import UserError
from bscrit.tables.table import read_table


def read(folder: Path, content: str, **options: object) -> CrossingTable:
    path = folder / "curves.csv"
    path.write_text(content)
    return read_table(path, **options)  # type: ignore[arg-type]


def refused(folder: Path, content: str, **options: object) -> UserError:
    with pytest.raises(UserError) as caught:
        read(folder, content, **options)
    return caught.value


COARSE = "batch_size,step,loss\n64,10,4\n64,100,3\n64,1000,2\n256,10,3.5\n256,100,1.5\n"


def test_a_coarse_log_gives_bounds_and_a_point_between_them(tmp_path: Path) -> None:
    first, second = read(tmp_path, COARSE, targets=[2.5]).crossings
    assert (first.low, first.high) == (100, 1000)
    assert first.steps == pytest.approx(exp((log(100) + log(1000)) / 2))
    assert first.where.endswith("line 4")
    assert (second.batch_size, second.low, second.high, second.target) == (256, 10, 100, 2.5)


def test_a_run_that_never_arrives_is_censored_at_its_last_point(tmp_path: Path) -> None:
    first, second = read(tmp_path, COARSE, targets=[1.8]).crossings
    assert first.censored
    assert (first.steps, first.low, first.high) == (1000, 1000, float("inf"))
    assert not second.censored


def test_several_targets(tmp_path: Path) -> None:
    table = read(tmp_path, COARSE, targets=[3.2, 2.5, 1.8])
    assert [(c.target, c.batch_size) for c in table.crossings] == [
        (target, size) for target in (3.2, 2.5, 1.8) for size in (64, 256)
    ]


def test_a_metric_that_gets_better_upwards(tmp_path: Path) -> None:
    content = "batch_size,step,val_accuracy\n64,10,0.2\n64,100,0.6\n64,1000,0.7\n"
    assert read(tmp_path, content, targets=[0.65]).crossings[0].low == 100
    assert read(tmp_path, content, targets=[0.8]).crossings[0].censored


def test_direction_overrides_and_is_needed_where_no_name_says_it(tmp_path: Path) -> None:
    content = "batch_size,step,metric\n64,10,4\n64,100,3\n64,1000,2\n"
    error = refused(tmp_path, content, targets=[2.5])
    assert "downwards or upwards" in error.what
    assert "--direction" in error.remedy
    for options in ({"direction": "down"}, {"columns": {"loss": "metric"}}):
        assert read(tmp_path, content, targets=[2.5], **options).crossings[0].low == 100


def test_examples_or_epochs_in_place_of_steps(tmp_path: Path) -> None:
    for axis, factor in (("examples", 64.0), ("epoch", 64.0)):
        content = f"batch_size,{axis},loss\n64,{10 * factor},4\n64,{100 * factor},3\n"
        crossing = read(tmp_path, content, targets=[3.5]).crossings[0]
        assert (crossing.low, crossing.high) == (10, 100)


def smooth(size: float, seed: int, points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    steps = np.unique(np.round(1.02 ** np.arange(points))).astype(int)
    noise = np.random.default_rng(seed).normal(0, 0.02, len(steps))
    return steps, 4 / (1 + steps / (20 + 4000 / size)) + noise


def dense(sizes: tuple[int, ...] = (16, 256), seeds: int = 3) -> pd.DataFrame:
    pieces = []
    for size in sizes:
        for seed in range(seeds):
            steps, loss = smooth(size, seed)
            pieces.append(pd.DataFrame({"batch_size": size, "seed": seed, "step": steps, "loss": loss}))
    return pd.concat(pieces, ignore_index=True)


def test_a_dense_log_follows_the_convention_of_the_package() -> None:
    table = read_table(dense(), targets=[2.0])
    for size in (16, 256):
        curves = [Curve(*(smooth(size, seed)[i].astype(float) for i in (0, 0, 1, 0))) for seed in range(3)]
        expected = crossing_of(curves, 2.0, confirmed=False)
        assert expected is not None
        found = [crossing for crossing in table.crossings if crossing.batch_size == size]
        assert [crossing.steps for crossing in found] == pytest.approx(list(expected.runs))
        assert all(crossing.low == crossing.steps == crossing.high for crossing in found)
        assert [crossing.seed for crossing in found] == ["0", "1", "2"]


def fluctuating(size: int, seed: int, every: int) -> pd.DataFrame:
    """A loss of single batches, standard deviation 2/sqrt(B), about 4 / (1 + step/S); the target 2 is met at S."""
    met = 500 * (1 + 256 / size)
    steps = np.arange(every, int(3 * met), every)
    noise = np.random.default_rng([size, seed]).normal(0, 2 / np.sqrt(size), len(steps))
    return pd.DataFrame(
        {"batch_size": size, "seed": seed, "step": steps, "loss": 4 / (1 + steps / met) + noise}
    )


def test_a_noisy_log_is_met_by_its_smoothed_curve_and_not_by_its_first_dip() -> None:
    """Fifty points lie in the window; where single points scatter by a third of ln(steps) they tell so."""
    frame = pd.concat([fluctuating(16, seed, 50) for seed in range(3)])
    crossings = read_table(frame, targets=[2.0]).crossings
    steps = np.array([crossing.steps for crossing in crossings])
    (error,) = {crossing.error for crossing in crossings}
    assert np.exp(np.log(steps).mean()) == pytest.approx(8500, rel=3 * error)
    assert 0.02 < error < 0.12


def test_the_error_of_a_crossing_is_its_scatter() -> None:
    logs = [read_table(fluctuating(64, seed, 50), targets=[2.0]).crossings[0] for seed in range(40)]
    scatter = np.log([crossing.steps for crossing in logs]).std()
    assert np.sqrt(np.mean([crossing.error**2 for crossing in logs])) == pytest.approx(scatter, rel=0.35)


def test_one_coarse_log_does_not_send_its_siblings_back_to_their_first_dips() -> None:
    frame = pd.concat([*(fluctuating(16, seed, 50) for seed in range(2)), fluctuating(16, 2, 2000)])
    crossings = {crossing.seed: crossing for crossing in read_table(frame, targets=[2.0]).crossings}
    assert crossings["2"].low < crossings["2"].high
    assert all(crossings[seed].low == crossings[seed].high for seed in "01")


def test_a_coarse_log_tells_its_fluctuation() -> None:
    coarse = pd.concat([fluctuating(64, 0, 500), fluctuating(4096, 0, 150)])
    noisy, quiet = read_table(coarse, targets=[2.0]).crossings
    assert (noisy.batch_size, quiet.batch_size) == (64, 4096)
    assert noisy.error > 0.1 > 0.05 > quiet.error


def test_rows_of_several_runs_may_alternate() -> None:
    frame = dense()
    mixed = frame.sort_values("step", kind="stable")
    steps = [sorted(c.steps for c in read_table(table, targets=[2.0]).crossings) for table in (frame, mixed)]
    assert steps[0] == pytest.approx(steps[1])


def test_a_log_that_ended_early_is_censored_and_does_not_spoil_its_siblings() -> None:
    frame = dense((16,))
    torn = frame[(frame["seed"] != 1) | (frame["step"] < 20)]
    crossings = {crossing.seed: crossing for crossing in read_table(torn, targets=[2.0]).crossings}
    assert crossings["1"].censored
    assert crossings["0"].low == crossings["0"].high == crossings["0"].steps


def test_newest_first(tmp_path: Path) -> None:
    lines = COARSE.splitlines()
    content = "\n".join([lines[0], *reversed(lines[1:])])
    steps = [crossing.steps for crossing in read(tmp_path, content, targets=[2.5]).crossings]
    assert sorted(steps) == sorted(
        crossing.steps for crossing in read(tmp_path, COARSE, targets=[2.5]).crossings
    )


def test_a_step_that_is_logged_twice_holds_its_later_value(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,step,loss\n64,10,4\n64,100,1\n64,100,3\n64,1000,2\n", targets=[2.5])
    assert table.crossings[0].low == 100
    assert any("logged twice" in note for note in table.notes)


NAN = "batch_size,lr,step,loss\n64,.1,10,4\n64,.1,100,3\n64,.1,200,2\n64,.8,10,3.5\n"
NAN += "64,.8,100,{}\n64,.8,200,{}\n"


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_divergence_is_a_rate_that_fails_not_a_slow_one(word: str, tmp_path: Path) -> None:
    table = read(tmp_path, NAN.format(word, word), targets=[3.8, 2.5])
    assert table.diverged == ((64.0, 0.8, ()),)
    assert [(crossing.lr, crossing.target) for crossing in table.crossings] == [
        (0.1, 3.8),
        (0.8, 3.8),
        (0.1, 2.5),
    ]


def test_an_empty_cell_is_a_step_without_evaluation(tmp_path: Path) -> None:
    table = read(tmp_path, NAN.format("", ""), targets=[2.5])
    assert not table.diverged
    assert [(crossing.lr, crossing.censored, crossing.steps) for crossing in table.crossings][1] == (
        0.8,
        True,
        10,
    )


def test_nan_of_a_data_frame_may_be_either() -> None:
    frame = pd.DataFrame(
        {"batch_size": 64, "step": [1, 2, 3, 4, 5, 6], "loss": [4, 3.5, 3, 2.5, np.nan, np.nan]}
    )
    assert read_table(frame, targets=[3.2]).diverged
    sparse = frame.assign(loss=[4, np.nan, 3, np.nan, 2.5, np.nan])
    assert not read_table(sparse, targets=[3.2]).diverged


def test_status_of_curves(tmp_path: Path) -> None:
    content = (
        "run,state,batch_size,lr,step,loss\na,finished,64,.1,1,4\na,finished,64,.1,9,2\nb,diverged,64,.2,1,4\n"
        "b,diverged,64,.2,9,5\nc,crashed,64,.3,1,4\nc,crashed,64,.3,9,2\nd,running,64,.1,1,4\nd,running,64,.1,2,3\n"
    )
    table = read(tmp_path, content, targets=[2.5])
    assert [(crossing.steps > 2, crossing.censored) for crossing in table.crossings] == [
        (True, False),
        (False, True),
    ]
    assert table.diverged == ((64.0, 0.2, ()),)
    assert "left out 2 rows: of runs that failed (line 6, line 7)" in table.notes


def test_a_schedule_of_rates_is_one_run(tmp_path: Path) -> None:
    content = "batch_size,step,lr,loss\n64,0,0,5\n64,10,.1,4\n64,100,.2,3\n64,1000,.1,2\n"
    table = read(tmp_path, content, targets=[2.5])
    assert [(crossing.lr, crossing.low) for crossing in table.crossings] == [(0.2, 100)]
    assert any("schedule" in note for note in table.notes)


def test_rates_that_follow_each_other_are_several_runs(tmp_path: Path) -> None:
    content = "batch_size,step,lr,loss\n64,10,.1,4\n64,100,.1,3\n64,11,.2,4\n64,90,.2,2\n"
    assert [crossing.lr for crossing in read(tmp_path, content, targets=[3.5]).crossings] == [0.1, 0.2]


def test_a_target_that_is_met_at_once_is_left_out(tmp_path: Path) -> None:
    table = read(tmp_path, COARSE, targets=[4.5, 2.5])
    assert {crossing.target for crossing in table.crossings} == {2.5}
    assert "4.5 is met by the first logged point of every run: left out" in table.notes
    early = read(tmp_path, COARSE, targets=[3.7]).crossings[1]
    assert early.low < early.steps == early.high == 10


def test_no_bound_lies_at_step_zero(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,step,loss\n64,0,4\n64,10,2\n64,20,1\n128,0,4\n128,10,3\n", targets=[3])
    assert [crossing.steps for crossing in table.crossings] == pytest.approx([5, 10])
    assert all(0 < crossing.low <= crossing.steps <= crossing.high for crossing in table.crossings)


def test_without_targets_the_range_is_shown(tmp_path: Path) -> None:
    error = refused(tmp_path, COARSE)
    assert "every batch size reaches 3.5 to 2" in error.what
    proposed = [float(value) for value in error.remedy.removeprefix("--targets ").split(",")]
    assert proposed == sorted(proposed, reverse=True)
    table = read(tmp_path, COARSE, targets=proposed)
    assert len(table.crossings) == 2 * len(proposed)
    assert not any(crossing.censored for crossing in table.crossings)


def test_without_a_common_target(tmp_path: Path) -> None:
    error = refused(tmp_path, "batch_size,step,loss\n64,1,5\n64,2,4\n128,1,3\n128,2,2\n")
    assert "no value is reached by every batch size" in error.what


def test_the_metric_is_the_held_out_one(tmp_path: Path) -> None:
    content = "batch_size,step,train/loss,val/loss\n64,10,3,4\n64,100,1,3\n"
    table = read(tmp_path, content, targets=[3.5])
    assert table.crossings[0].low == 10
    assert "the metric is 'val/loss', not 'train/loss'" in table.notes


def test_two_metrics_need_a_choice(tmp_path: Path) -> None:
    content = "batch_size,step,val_loss,val_acc\n64,10,3,.2\n64,100,1,.5\n"
    error = refused(tmp_path, content, targets=[2])
    assert error.remedy == "choose one: --columns metric=val_loss"
    assert read(tmp_path, content, targets=[0.3], columns={"metric": "val_acc"}).crossings[0].high == 100


def test_two_workloads_of_opposite_metrics(tmp_path: Path) -> None:
    """The shape and some rows of petuum/adaptdl, branch osdi21-artifact (Apache-2.0)."""
    content = (
        "workload,batch_size,si_epoch,progress,steps,metric,grad_sqr,grad_var,init_batch_size,examples\n"
        "cifar10,128,1,391.0,390,0.4455,8.947307535897329,5.066593295150894,128,49920\n"
        "cifar10,128,2,782.0,781,0.6007,1.895227805639273,1.5924912096114732,128,99968\n"
        "cifar10,128,3,1172.0,1171,0.6562,1.2704333914247241,1.4399027684354835,128,149888\n"
        "deepspeech2,20,1,1.0,390,84.9,1,1,20,7800\n"
        "deepspeech2,20,2,2.0,780,42.5,1,1,20,15600\n"
    )
    up = read(tmp_path, content, columns={"accuracy": "metric"}, targets=[0.6])
    assert [(c.group, c.low, c.high) for c in up.crossings] == [((("workload", "cifar10"),), 390, 781)]
    down = read(tmp_path, content, columns={"wer": "metric"}, targets=[50])
    assert [(c.group, c.low, c.high) for c in down.crossings] == [((("workload", "deepspeech2"),), 390, 780)]


def test_batch_sizes_in_seconds(tmp_path: Path) -> None:
    """The shape and some rows of nikvaessen/w2v2-batch-size (MIT)."""
    content = (
        "workload,steps,batch_label,val_acc,val_loss_l2,batch_size_sec,lr_selected,examples_audio_hours\n"
        "wav2vec2,5000,87.5 sec,0.149900361895561,1.20710730552673,87.5,7.29e-06,121.52777777777777\n"
        "wav2vec2,10000,87.5 sec,0.163126066327095,0.671536505222321,87.5,7.29e-06,243.05555555555554\n"
        "wav2vec2,15000,87.5 sec,0.224911972880363,0.493232399225235,87.5,7.29e-06,364.5833333333333\n"
    )
    table = read(tmp_path, content, columns={"metric": "val_acc"}, targets=[0.2, 0.4])
    assert table.unit == "second"
    assert [(c.batch_size, c.lr, c.low, c.high) for c in table.crossings] == [
        (87.5, 7.29e-06, 10000, 15000),
        (87.5, 7.29e-06, 15000, float("inf")),
    ]


def test_files_without_a_run_column_are_runs_of_their_own(tmp_path: Path) -> None:
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, last in zip(paths, (2, 1), strict=True):
        path.write_text(f"batch_size,step,loss\n64,10,4\n64,100,{last}\n")
    assert len(read_table(paths, targets=[3]).crossings) == 2


def test_a_dense_log_that_ends_at_the_target_is_smoothed_as_the_others_are() -> None:
    frame = dense((16,))
    whole = read_table(frame, targets=[2.0]).crossings
    met = frame.groupby("seed")["loss"].transform(lambda loss: (loss <= 1.95).cumsum().shift(fill_value=0))
    cut = read_table(frame[met == 0], targets=[2.0]).crossings
    assert all(crossing.low == crossing.high for crossing in cut)
    ratio = np.exp(np.mean(np.log([c.steps for c in cut])) - np.mean(np.log([c.steps for c in whole])))
    assert ratio == pytest.approx(1, abs=0.03)


def test_an_overflow_before_anything_was_learned_is_no_divergence(tmp_path: Path) -> None:
    def rows(first: str, last: str) -> str:
        return f"batch_size,step,loss\n64,0,{first}\n64,10,4\n64,100,3\n64,1000,{last}\n"

    for first in ("inf", "nan"):
        (crossing,) = read(tmp_path, rows(first, "2"), targets=[2.5]).crossings
        assert (crossing.low, crossing.high) == (100, 1000)
    for last in ("inf", "nan"):
        assert read(tmp_path, rows("inf", last), targets=[3.5]).diverged == ((64, None, ()),)


def test_names_that_several_batch_sizes_share_are_no_ramp(tmp_path: Path) -> None:
    """Numbers of seeds; and examples, which go on from one batch size to the next without being one run."""
    shared = "run,batch_size,step,loss\n0,16,10,4\n0,16,90,2\n0,64,10,4\n0,64,40,2\n"
    nameless = "batch_size,examples,loss\n16,160,4\n16,320,2\n64,640,4\n64,1280,2\n"
    for content in (shared, nameless):
        assert [c.batch_size for c in read(tmp_path, content, targets=[3]).crossings] == [16, 64]


def test_tokens_seen_that_count_something_else_give_no_unit(tmp_path: Path) -> None:
    content = (
        "batch_size,step,loss,tokens_seen\n8,10,4,81920\n8,90,2,737280\n16,10,4,163840\n16,50,2,819200\n"
    )
    assert read(tmp_path, content, targets=[3]).unit == "example"


def scattered(sizes: tuple[int, ...], spread: int) -> list[tuple[int, int, float]]:
    """(batch size, step, loss) of runs whose batches scatter; 3 is met after 400 (1 + 128 / size) steps."""
    return [
        (size + spread * (7 * step % 11 - 5), step, 5 - 2 * step / (400 + 51200 / size))
        for size in sizes
        for step in range(10, 4001, 10)
    ]


@pytest.mark.parametrize("named", [False, True])
def test_batch_sizes_that_scatter_about_a_constant_are_one(tmp_path: Path, named: bool) -> None:
    rows = scattered((1000, 4000), 20) + (scattered((1000,), 19) if named else [])
    header = "batch_size,step,loss" + (",seed,lr" if named else "")
    seeds = [f",{i // 400},{0.1 / (1 + i % 400)}" if named else "" for i in range(len(rows))]
    lines = [f"{b},{s},{loss:.6f}{seed}" for (b, s, loss), seed in zip(rows, seeds, strict=True)]
    table = read(tmp_path, "\n".join([header, *lines]), targets=[3.0])
    assert {crossing.batch_size for crossing in table.crossings} == {1000, 4000}
    assert len(table.crossings) == 2 + named
    assert [c.steps for c in table.crossings if c.batch_size == 4000] == [pytest.approx(412.8, rel=0.01)]
    assert "batch sizes scatter by up to 10% along a run" in " ".join(table.notes)


def test_batch_sizes_of_a_design_are_not_one(tmp_path: Path) -> None:
    rows = [(size, step, 5 - step / 10) for step in range(1, 41) for size in (64, 72, 80)]
    table = read(
        tmp_path, "\n".join(["batch_size,step,loss", *(f"{b},{s},{x}" for b, s, x in rows)]), targets=[3.0]
    )
    assert [crossing.batch_size for crossing in table.crossings] == [64, 72, 80]


def test_a_setting_of_runs_that_nobody_recognised_is_named(tmp_path: Path) -> None:
    def notes(decay: tuple[float, float], logged: bool = False) -> str:
        rows = [
            f"r{size}-{value},{size},{value + step * logged},{step},{5 - step / (40 + size)}"
            for size in (8, 64)
            for value in decay
            for step in range(10, 301, 10)
        ]
        lines = "\n".join(["run,batch_size,strength,step,loss", *rows])
        return " ".join(read(tmp_path, lines, targets=[3.0]).notes)

    assert "rows with different 'strength' are pooled; --by strength separates them" in notes((0.0, 0.1))
    assert "pooled" not in notes((0.1, 0.1))
    assert "pooled" not in notes((0.0, 0.1), logged=True), "a value that changes along a run is no setting"


def test_a_rate_that_is_another_in_every_row_is_a_schedule(tmp_path: Path) -> None:
    rows = [
        (b, s, 5 - 2 * s / (400 + 51200 / b), 0.1 * (1 - s / 4001))
        for b in (64, 256)
        for s in range(10, 4001, 10)
    ]
    content = "\n".join(["batch_size,step,loss,lr", *(f"{b},{s},{x:.6f},{lr:.7f}" for b, s, x, lr in rows)])
    table = read(tmp_path, content, targets=[3.0])
    assert [crossing.steps for crossing in table.crossings] == [
        pytest.approx(s, rel=0.01) for s in (1200, 600)
    ]
    grid = "batch_size,steps,lr,final_loss\n" + "".join(
        f"8,{90 + (i - 3) ** 2},{2**-i},3.2\n" for i in range(7)
    )
    assert len(read(tmp_path, grid).crossings) == 7
