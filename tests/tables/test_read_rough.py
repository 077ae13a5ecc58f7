"""Tables as people paste, append and compress them: repeated headers, Markdown, gzip, blank groups, units."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from bscrit.crossing import CrossingTable
from bscrit.errors import UserError
from bscrit.tables.table import read_table

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
STEPS = {size: 400 + 51200 // size for size in SIZES}  # B_crit is 128, S_min is 400
ROWS = [f"{size},{steps}" for size, steps in STEPS.items()]
CURVES = {size: [f"{size},{step},{5 - 2 * step / 800:.4f}" for step in range(20, 1001, 20)] for size in SIZES}


def read(folder: Path, content: str | bytes, name: str = "runs.csv", **options: object) -> CrossingTable:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)  # type: ignore[arg-type]


def refused(folder: Path, content: str, **options: object) -> UserError:
    with pytest.raises(UserError) as caught:
        read(folder, content, **options)
    return caught.value


def steps(table: CrossingTable) -> dict[float, float]:
    return {crossing.batch_size: crossing.steps for crossing in table.crossings}


def test_a_header_that_stands_again_is_left_out_with_a_note(tmp_path: Path) -> None:
    header = "batch_size,step,val_loss"
    whole = "\n".join([header, *(row for rows in CURVES.values() for row in rows)]) + "\n"
    appended = "\n".join(row for rows in CURVES.values() for row in [header, *rows]) + "\n"
    table = read(tmp_path, appended, targets=[3.0])
    assert steps(table) == steps(read(tmp_path, whole, targets=[3.0]))
    assert "left out lines that repeat the header (52, 103, 154 and others)" in table.notes
    assert table.crossings[1].where.endswith("line 92")


def test_a_header_that_stands_again_among_ragged_rows(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,\n8,6800\nbatch_size,steps,\n# again\n16,3600\n")
    assert steps(table) == {8: 6800, 16: 3600}
    assert table.crossings[1].where.endswith("line 5")


def test_a_header_of_another_table_has_an_error_of_its_own(tmp_path: Path) -> None:
    error = refused(tmp_path, "batch_size,step,loss\n8,10,4\nbatch_size,loss,step\n16,4,10\n", targets=[4])
    assert "line 3: begins another table, with the columns batch_size, loss, step" in str(error)


MARKDOWN = "\n".join(
    ["| batch size | steps to 3.28 |", "|---:|:---|", *(f"| {b} | {s:,} |" for b, s in STEPS.items())]
)


@pytest.mark.parametrize(
    "content",
    [
        MARKDOWN + "\n",
        f"## Results\n\nAll of them:\n\n{MARKDOWN}\n\nThe rest | later.\n".replace(
            "The rest | later.", "Later."
        ),
        MARKDOWN.replace("| 8 |", "| **8** |").replace("\n", "\r\n"),
        MARKDOWN.replace("| batch", "batch").replace("3.28 |", "3.28").replace("|---:|:---|", "---|---"),
    ],
)
def test_a_markdown_table(tmp_path: Path, content: str) -> None:
    table = read(tmp_path, content, "table.md")
    assert steps(table) == STEPS
    assert table.notes[0] == "read as a Markdown table"
    first = (
        content.replace("\r\n", "\n").split("\n").index(next(r for r in content.splitlines() if "6,800" in r))
    )
    assert table.crossings[0].where.endswith(f"line {first + 1}")


def test_a_compressed_table(tmp_path: Path) -> None:
    content = "\n".join(["batch_size,steps", *ROWS]).encode()
    assert steps(read(tmp_path, gzip.compress(content), "runs.csv.gz")) == STEPS
    with pytest.raises(UserError, match="is a damaged gzip file"):
        read(tmp_path, gzip.compress(content)[:-9], "runs.csv.gz")


@pytest.mark.parametrize(
    ("content", "options", "pasted"),
    [
        ("bs,my steps\n8,1\n", {}, ["--columns", "steps=my steps"]),
        (
            "bs,step,wer clean,cer\n8,1,.5,.4\n8,2,.4,.3\n",
            {"targets": [0.2]},
            ["--columns", "metric=wer clean"],
        ),
        ("bs,steps,lr a,model name\n8,2,1,a\n8,2,1,b\n16,2,1,a\n16,2,1,b\n", {}, ["--by", "model name"]),
    ],
)
def test_a_hint_can_be_pasted_into_a_shell(
    tmp_path: Path, content: str, options: dict[str, object], pasted: list[str]
) -> None:
    hint = refused(tmp_path, content, **options).remedy
    assert shlex.split(hint)[-2:] == pasted


@pytest.mark.parametrize("column", ["stderr_delta_loss", "num_gpus", "sample_id", "hours seen"])
def test_a_column_that_shares_no_word_with_the_role_is_no_guess(tmp_path: Path, column: str) -> None:
    error = refused(tmp_path, f"batch_size,{column}\n8,1\n")
    assert error.remedy == "say which one it is: --columns steps=NAME"


RATES = [(size, lr) for size in (8, 16, 32) for lr in (0.1, 0.2)]


@pytest.mark.parametrize(
    "name",
    [
        "params_lr",
        "optimizer.lr",
        "optim/lr",
        "lr-AdamW",
        "config.optimizer.lr",
        "train/learning_rate",
        "learning_rate_init",
        "initial_learning_rate",
        "step_size",
        "hp_lr",
        "train_lr",
        "alpha",
    ],
)
def test_a_learning_rate_in_a_column_of_another_name(tmp_path: Path, name: str) -> None:
    table = read(tmp_path, "\n".join([f"batch_size,{name},steps", *(f"{b},{lr},100" for b, lr in RATES)]))
    assert [(crossing.batch_size, crossing.lr) for crossing in table.crossings] == RATES


def test_two_learning_rates_are_asked_about(tmp_path: Path) -> None:
    error = refused(tmp_path, "batch_size,encoder_lr,decoder_lr,steps\n8,.1,.2,9\n16,.1,.3,8\n")
    assert "'encoder_lr' and 'decoder_lr' may both be lr" in str(error)


def test_a_setting_that_nobody_recognised_is_named(tmp_path: Path) -> None:
    rows = [f"{index},{size},{rate},100" for index, (size, rate) in enumerate(RATES)]
    (note,) = [
        n for n in read(tmp_path, "\n".join(["number,bs,my rate,steps", *rows])).notes if "pooled" in n
    ]
    assert "'my rate' are pooled; --by 'my rate' separates them, --columns 'lr=my rate'" in note


@pytest.mark.parametrize("name", ["success", "solved", "is_reached", "goal_reached", "crossed", "target_hit"])
@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("1", "0")])
def test_arrivals_in_a_column_of_another_name(tmp_path: Path, name: str, yes: str, no: str) -> None:
    table = read(tmp_path, f"batch_size,steps,{name}\n8,2500,{no}\n16,3600,{yes}\n32,2000,{yes}\n")
    assert [crossing.censored for crossing in table.crossings] == [True, False, False]
    assert {crossing.target for crossing in table.crossings} == {None}


@pytest.mark.parametrize("name", ["timed_out", "timeout", "truncated", "dnf", "did_not_converge"])
def test_endings_in_a_column_of_another_name(tmp_path: Path, name: str) -> None:
    table = read(tmp_path, f"batch_size,steps,{name}\n8,2500,True\n16,3600,False\n32,2000,False\n")
    assert [crossing.censored for crossing in table.crossings] == [True, False, False]


def test_a_limit_of_seconds_is_no_ending(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,timeout,result\n8,2500,3600,0.5\n16,3600,3600,0.6\n")
    assert not any(crossing.censored for crossing in table.crossings)


@pytest.mark.parametrize("name", ["exit_reason", "stop_reason", "result"])
def test_reasons_of_an_ending(tmp_path: Path, name: str) -> None:
    table = read(tmp_path, f"batch_size,steps,{name}\n8,2500,walltime\n16,3600,target\n32,2000,target\n")
    assert [crossing.censored for crossing in table.crossings] == [True, False, False]


def test_truth_values_that_nobody_recognised_are_named(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,fine\n8,2500,False\n16,3600,True\n32,2000,True\n")
    assert "'fine' holds truth values and is not used; --columns reached=fine" in " ".join(table.notes)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("TrialState.COMPLETE TrialState.PRUNED FAIL RUNNING WAITING", [False, True]),
        ("TERMINATED PENDING PAUSED ERROR RUNNING", [False]),
        ("COMPLETED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED", [False, True]),
        ("finished crashed killed preempted running", [False]),
    ],
)
def test_states_of_trackers(tmp_path: Path, words: str, kept: list[bool]) -> None:
    rows = [f"{8 * 2**index},{100 + index},{word}" for index, word in enumerate(words.split())]
    table = read(tmp_path, "\n".join(["params_batch_size,user_attrs_steps,state", *rows]))
    assert [crossing.censored for crossing in table.crossings] == kept


def test_a_job_that_somebody_cancelled_is_censored(tmp_path: Path) -> None:
    table = read(tmp_path, "bs,steps,state\n8,99,COMPLETED\n16,80,CANCELLED by 1000\n")
    assert [crossing.censored for crossing in table.crossings] == [False, True]


def test_an_unknown_state_leaves_its_row_out_with_a_note(tmp_path: Path) -> None:
    table = read(tmp_path, "bs,steps,state\n8,99,finished\n16,80,zombie\n")
    assert steps(table) == {8: 99}
    assert "left out 1 row: state is 'zombie', not one of reached" in " ".join(table.notes)


def test_final_losses_at_one_budget_are_no_arrivals(tmp_path: Path) -> None:
    rows = ["64,2250,0.9720", "128,1125,0.9723", "256,562,0.9746", "512,281,0.9824", "1024,140,0.9909"]
    error = refused(tmp_path, "\n".join(["batch_size,steps,final_eval_bpb", *rows]))
    assert "says where runs ended, with final_eval_bpb from 0.972 to 0.9909" in str(error)
    arrivals = [f"{size},{count},{3.2 - size / 1e5}" for size, count in STEPS.items()]
    assert steps(read(tmp_path, "\n".join(["batch_size,steps,final_loss", *arrivals]))) == STEPS


def test_records_that_an_object_wraps(tmp_path: Path) -> None:
    log = [{"step": step, "eval_loss": 5 - step / 100} for step in (50, 100, 150, 200, 250)]
    state = {
        "global_step": 10240,
        "epoch": 8.0,
        "best_metric": None,
        "train_batch_size": 32,
        "log_history": log,
    }
    table = read(tmp_path, json.dumps(state, indent=1), "trainer_state.json", targets=[3.0])
    assert steps(table) == {32: pytest.approx(200)}
    assert "the records are read from 'log_history'" in table.notes
    rows = [{"bs": size, "steps": count} for size, count in STEPS.items()]
    assert steps(read(tmp_path, json.dumps({"kind": "sweep", "rows": rows}), "rows.json")) == STEPS


def test_crossings_before_the_first_whole_step(tmp_path: Path) -> None:
    rows = [
        (size, epoch / 20, 5 - epoch / 20 / (1 + size / 24)) for size in SIZES for epoch in range(1, 3001)
    ]
    content = "\n".join(["batch_size,epoch,val_loss", *(f"{b},{e:g},{loss:.6f}" for b, e, loss in rows)])
    crossed = steps(read(tmp_path, content, targets=[3.0]))
    assert crossed == {size: pytest.approx(2 * (1 + size / 24) / size, rel=0.02) for size in SIZES}


def test_blank_cells_in_a_column_of_groups(tmp_path: Path) -> None:
    error = refused(tmp_path, "model,batch_size,steps\n85M,16,8559\n,32,4575\n151M,16,17118\n", by=["model"])
    assert str(error).startswith(f"{tmp_path / 'runs.csv'}, line 3: model is empty")


@pytest.mark.parametrize(
    "header", ["batch_size,tokens_seen", "batch_size_sequences,tokens", "bs_in_sec,hours_seen"]
)
def test_examples_in_another_unit_than_the_batch_size(tmp_path: Path, header: str) -> None:
    options = {"columns": dict(zip(("batch_size", "examples"), header.split(","), strict=True))}
    assert "steps can't be told" in str(refused(tmp_path, f"{header}\n8,55705600\n16,58982400\n", **options))


def test_a_batch_size_in_tokens_counts_tokens(tmp_path: Path) -> None:
    content = "batch_size,tokens\n8000,80000\n16000,96000\n"
    assert steps(read(tmp_path, content, unit="token")) == {8000: 10, 16000: 6}


def test_a_multiple_in_a_name_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, "batch size (M tokens),steps\n0.016,8559\n0.032,4575\n")
    assert "'batch size (M tokens)' counts thousands, millions or billions" in str(error)


def test_epochs_that_begin_at_zero(tmp_path: Path) -> None:
    rows = [(size, epoch, 4.9 - (epoch + 1) / (1 + size / 24)) for size in SIZES for epoch in range(200)]
    options = {"targets": [3.0], "columns": {"loss": "val_loss"}}
    logged = "\n".join(["batch_size,epoch,loss,val_loss", *(f"{b},{e},1,{loss}" for b, e, loss in rows)])
    table = read(tmp_path, logged, **options)
    one = "\n".join(["batch_size,epoch,loss,val_loss", *(f"{b},{e + 1},1,{loss}" for b, e, loss in rows)])
    assert steps(table) == steps(read(tmp_path, one, **options))
    assert "'epoch' begins at 0 beside a training metric" in " ".join(table.notes)


def test_a_column_of_lists_is_read_past(tmp_path):
    rows = [{"batch_size": size, "steps": count, "tags": [1, size]} for size, count in STEPS.items()]
    assert steps(read(tmp_path, json.dumps(rows), "runs.json")) == STEPS
