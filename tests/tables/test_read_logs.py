"""Logs of printed lines, as training scripts write them: curves that are known come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bscrit.crossing import CrossingTable
from bscrit.errors import UserError
from bscrit.tables.printed_logs import is_log, pairs
from bscrit.tables.table import read_table

SIZES = (16, 64, 256, 1024)
STEPS = {size: 400 + 51200 // size for size in SIZES}  # B_crit is 128, S_min is 400


def loss(size: int, step: int) -> float:
    """5 at the start and 3 after STEPS."""
    return 5 - 2 * step / STEPS[size]


def nanogpt(size: int, step: int) -> str:
    text = f"iter {step}: loss {loss(size, step) - 0.3:.4f}, time 22.11ms, mfu 17.50%\n"
    if step % 100:
        return text
    return f"step {step}: train loss {loss(size, step) - 0.2:.4f}, val loss {loss(size, step):.4f}\n{text}"


def llm_c(size: int, step: int) -> str:
    return f"s:{step} trl:{loss(size, step) - 0.2:.4f} lr:0.000600 norm:0.33\n" + (
        f"s:{step} tel:{loss(size, step):.4f}\n" if step % 100 == 0 else ""
    )


def megatron(size: int, step: int) -> str:
    line = (
        f" [2026-01-01 10:00:00] iteration {step:8d}/   50000 | consumed samples: {size * step:12d} |"
        f" elapsed time per iteration (ms): 123.4 | learning rate: 1.5000E-04 | global batch size: {size:5d} |"
        f" lm loss: {loss(size, step):.6E} | loss scale: 65536.0 | grad norm: 1.2 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
    )
    check = f" validation loss at iteration {step} | lm loss value: {loss(size, step):.6E} | lm loss PPL: 2.0E+01 | \n"
    return line.replace(f"{loss(size, step):.6E}", f"{loss(size, step) - 0.2:.6E}") + (
        check if step % 100 == 0 else ""
    )


def modded(size: int, step: int) -> str:
    return f"step:{step}/6200 val_loss:{loss(size, step):.4f} train_time:3ms step_avg:nanms\n"


def coloured(size: int, step: int) -> str:
    return f"\x1b[31mstep: {step:3d}  \x1b[32mloss: {loss(size, step):.4f}  \x1b[39mmemory: 1.2GiB\x1b[0m\n"


def build_nanogpt(size: int, step: int) -> str:
    return f"{step} train {loss(size, step) - 0.2:.6f}\n" + (
        f"{step} val {loss(size, step):.4f}\n{step} hella 0.25\n" if step % 100 == 0 else ""
    )


def progress(size: int, step: int) -> str:
    return f"  5%|#   | {step}/900 [00:01<00:02]\rstep={step}, val_loss={loss(size, step):.4f}\n"


def mlperf(size: int, step: int) -> str:
    def entry(key: str, value: float, **metadata: float) -> str:
        return f":::MLLOG {json.dumps({'time_ms': 1, 'key': key, 'value': value, 'metadata': metadata})}\n"

    settings = entry("global_batch_size", size) + entry("opt_base_learning_rate", 0.001) if not step else ""
    return settings + entry("eval_loss", loss(size, step), samples_count=size * step, epoch_num=1)


PRINTED: dict[str, Callable[[int, int], str]] = {
    "nanoGPT": nanogpt,
    "llm.c": llm_c,
    "Megatron": megatron,
    "modded-nanogpt": modded,
    "torchtitan": coloured,
    "build-nanogpt": build_nanogpt,
    "progress": progress,
    "MLPerf": mlperf,
}


def written(
    folder: Path, dialect: str, head: str = "number of parameters: 10.65M\nusing 1 GPU\n"
) -> list[Path]:
    paths = []
    for size in SIZES:
        path = folder / f"bs{size}" / "main.log"
        path.parent.mkdir()
        lines = [PRINTED[dialect](size, step) for step in range(0, 4001, 20)]
        path.write_text(head + "".join(lines))
        paths.append(path)
    return paths


def steps(table: CrossingTable) -> dict[float, float]:
    return {crossing.batch_size: crossing.steps for crossing in table.crossings}


@pytest.mark.parametrize("dialect", PRINTED)
def test_a_log_of_every_dialect(dialect: str, tmp_path: Path) -> None:
    table = read_table(written(tmp_path, dialect), targets=[3.0])
    assert steps(table) == {size: pytest.approx(count, rel=0.01) for size, count in STEPS.items()}
    assert not any(crossing.censored for crossing in table.crossings)
    assert any("read as a log: " in note for note in table.notes)


def test_a_log_that_begins_with_its_source(tmp_path: Path) -> None:
    source = "import torch\nval_loss_every : int = 125\nfor step in range(9):\n    loss = 4.2\n" * 300
    assert steps(read_table(written(tmp_path, "modded-nanogpt", source), targets=[3.0])) == {
        size: pytest.approx(count, rel=0.01) for size, count in STEPS.items()
    }


def test_dicts_without_steps_count_epochs(tmp_path: Path) -> None:
    rows = [
        {"eval_loss": f"{5 - epoch / 10:.4g}", "eval_runtime": "1.2", "epoch": str(epoch)}
        for epoch in range(31)
    ]
    path = tmp_path / "bs16.txt"
    path.write_text("".join(f"{row}\n" for row in rows))
    (crossing,) = read_table(path, targets=[3.0]).crossings
    assert crossing.examples == pytest.approx(20, rel=0.01)


def test_a_loss_of_zero_beside_a_gradient_that_is_not_finite_diverged(tmp_path: Path) -> None:
    path = tmp_path / "bs16.txt"
    lines = [f"step {step}: loss {5 - step / 100}, grad_norm 1.5\n" for step in range(0, 101, 10)]
    path.write_text("".join(lines) + "step 110: loss 0.0, grad_norm nan\n")
    table = read_table(path, targets=[4.5, 1.0])
    assert [crossing.target for crossing in table.crossings] == [4.5]
    assert table.diverged == ((16.0, None, ()),)


def test_a_run_that_was_resumed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "bs16.log"
    first = [f"step {step}: val loss {5 - step / 100:.3f}\n" for step in range(0, 151, 10)]
    again = [f"step {step}: val loss {5 - step / 200:.3f}\n" for step in range(100, 501, 10)]
    path.write_text("".join(first + again))
    table = read_table(path, targets=[3.0])
    assert table.crossings[0].steps == pytest.approx(400, rel=0.01)
    assert "begins again at step 100 in line 17" in " ".join(table.notes)


def test_steps_that_begin_again_in_each_epoch_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bs16.log"
    path.write_text(
        "epoch 1 | step 100 | loss 3.5\nepoch 1 | step 200 | loss 3\nepoch 2 | step 100 | loss 2\n"
    )
    with pytest.raises(
        UserError, match=r"bs16.log, line 3: steps begin again in each epoch: 100 comes after 200"
    ):
        read_table(path, targets=[3.0])


def test_a_number_that_was_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bs16.log"
    path.write_text(
        "step 100: loss 3.50\nstep 200: loss 3.25\nstep 300: loss 3.1\nstep 400: loss 3.05\nstep 500: loss 2"
    )
    assert read_table(path, targets=[3.0]).crossings[0].censored


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("{'loss': '2.345', 'epoch': '0.5'}", {"loss": "2.345", "epoch": "0.5"}),
        ("step:10/20 loss:nan", {"step": "10", "loss": "nan"}),
        ("iter 3: loss 4.5, time 22.11ms", {"step": "3", "loss": "4.5"}),
        ("12 ms per step 12.5 | max steps 90 | step 3 | loss 4.5", {"step": "3", "loss": "4.5"}),
        ("print(f'step:{step} loss:{loss:.4f}')", {}),
    ],
)
def test_pairs(line: str, cells: dict[str, str]) -> None:
    assert {name: cell for name, cell in pairs(line).items() if name in ("step", "epoch", "loss")} == cells


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n',
        '[\n{"step": 1, "loss": 3},\n{"step": 2, "loss": 2}]\n',
        "batch_size,step,loss\n16,1,3\n16,2,2\n",
        '"Step","bs64 - loss","bs8 - loss"\n1,4,5\n2,3,4\n',
        "step 1: loss 3\n",
    ],
)
def test_a_table_is_no_log(text: str) -> None:
    assert not is_log(text)


def test_a_text_that_is_neither_gets_no_table_s_remedy(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(
        "loading data\nbuilt the model, 10 layers\ndone in 3 s, 2 s of it waiting, 1 s idle\nepoch 2\nbye, and thanks\n"
    )
    with pytest.raises(UserError, match="neither a table nor a log") as caught:
        read_table(path)
    assert "sed -nE" in caught.value.remedy
