"""Tables of crossings, in every dialect that people export."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bscrit.crossing import CrossingTable
from bscrit.tables.numerals import parse_number
from bscrit.tables.table import read_table

PLAIN = "batch_size,steps,lr\n64,46000,0.003\n128,23000,0.004\n1024,3840,0.01\n"
ROWS = [(64.0, 46000.0, 0.003), (128.0, 23000.0, 0.004), (1024.0, 3840.0, 0.01)]


def read(folder: Path, content: str | bytes, name: str = "runs.csv", **options: object) -> CrossingTable:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)  # type: ignore[arg-type]


def rows(table: CrossingTable) -> list[tuple[float, float, float | None]]:
    return [(crossing.batch_size, crossing.steps, crossing.lr) for crossing in table.crossings]


DIALECTS = {
    "plain": PLAIN,
    "tabs": PLAIN.replace(",", "\t"),
    "bars": PLAIN.replace(",", "|"),
    "spaces": PLAIN.replace(",", "   "),
    "semicolons": PLAIN.replace(",", ";"),
    "decimal commas": PLAIN.replace(",", ";").replace(".", ","),
    "dots for thousands": "batch_size;steps;lr\n64;46.000;0,003\n128;23.000;0,004\n1.024;3.840;0,01\n",
    "excel's separator line": "sep=;\n" + PLAIN.replace(",", ";"),
    "windows line ends": PLAIN.replace("\n", "\r\n"),
    "old mac line ends": PLAIN.replace("\n", "\r"),
    "no last line end": PLAIN.rstrip("\n"),
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n\n"),
    "empty rows of a spreadsheet": PLAIN + ",,\n,,\n",
    "a trailing separator": PLAIN.replace("\n", ",\n"),
    "comments": "# exported yesterday\n" + PLAIN.replace("128,", "# the next one is good\n128,"),
    "a title": "My sweep\n\n" + PLAIN,
    "a title of a spreadsheet": "My sweep;;\n;;\n" + PLAIN.replace(",", ";"),
    "a commented header": "# " + PLAIN.replace(",", " "),
    "padding": PLAIN.replace(",", " , "),
    "quotes": '"' + PLAIN.strip().replace(",", '","').replace("\n", '"\n"') + '"\n',
    "quoted thousands": 'batch_size,steps,lr\n64,"46,000",0.003\n128,"23,000",0.004\n"1,024","3,840",0.01\n',
    "spaces for thousands": "batch_size,steps,lr\n64,46 000,0.003\n128,23\u202f000,0.004\n1024,3 840,0.01\n",
    "exponents": "batch_size,steps,lr\n64,4.6e4,3e-3\n128,2.3E+04,4e-3\n1.024e3,3840.0,1e-2\n",
    "utf-8 with mark": PLAIN.encode("utf-8-sig"),
    "utf-16 as spreadsheets write it": PLAIN.replace(",", "\t").encode("utf-16"),
    "utf-16 big-endian": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "utf-16 without mark": PLAIN.encode("utf-16-le"),
    "latin-1": PLAIN.replace("\n", ",caf\u00e9\n").replace("lr,caf\u00e9", "lr,note").encode("latin-1"),
    "json array": json.dumps([dict(zip(("batch_size", "steps", "lr"), row, strict=True)) for row in ROWS]),
    "json lines": "".join(
        json.dumps({"config": {"batch_size": size, "lr": lr}, "steps": steps}) + "\n"
        for size, steps, lr in ROWS
    ),
    "json columns": json.dumps(
        dict(zip(("batch_size", "steps", "lr"), zip(*ROWS, strict=True), strict=True))
    ),
    "other names": PLAIN.replace("batch_size,steps,lr", "Global Batch Size,Steps to target,learningRate"),
    "a tracker's names": PLAIN.replace("batch_size,steps,lr", "config.batch_size,_step,params.learning_rate"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_says_the_same(dialect: str, tmp_path: Path) -> None:
    assert rows(read(tmp_path, DIALECTS[dialect])) == ROWS


def test_parquet_and_data_frames(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(io.StringIO(PLAIN))
    frame.to_parquet(tmp_path / "runs.parquet")
    assert rows(read_table(tmp_path / "runs.parquet")) == rows(read_table(frame)) == ROWS
    assert read_table(frame).crossings[1].where == "data frame, row 2"
    assert rows(read_table(frame.set_index("batch_size"))) == ROWS
    assert rows(read_table(frame.astype({"steps": "Int64", "lr": str, "batch_size": "category"}))) == ROWS


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN.encode())))
    table = read_table("-")
    assert rows(table) == ROWS
    assert table.source == "standard input"


def test_places_name_the_line(tmp_path: Path) -> None:
    table = read(tmp_path, '# a\n\nbatch_size,steps,note\n64,1,"two\nlines"\n\n128,1,x\n')
    assert [crossing.where.rsplit(", ", 1)[1] for crossing in table.crossings] == ["line 5", "line 7"]


def test_several_files_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("batch_size,steps\n64,100\n")
    (tmp_path / "b.csv").write_text("batch_size,steps\n128,60\n")
    table = read_table([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [crossing.steps for crossing in table.crossings] == [100, 60]
    assert table.crossings[1].where == f"{tmp_path / 'b.csv'}, line 2"


def test_examples_and_epochs_become_steps(tmp_path: Path) -> None:
    assert rows(read(tmp_path, "batch_size,examples\n64,6400\n"))[0][1] == 100
    assert rows(read(tmp_path, "batch_size,steps,examples\n64,,6400\n64,90,\n"))[0][1] == 100
    table = read(tmp_path, "batch_size,epochs\n64,3.2\n")
    assert table.crossings[0].examples == pytest.approx(3.2)
    assert any("epochs" in note for note in table.notes)


def test_rounding_is_no_contradiction(tmp_path: Path) -> None:
    assert len(read(tmp_path, "batch_size,steps,examples\n64,100,6339\n128,100,12900\n").crossings) == 2


@pytest.mark.parametrize(
    ("content", "unit"),
    [
        ("batch_size,steps\n64,1\n", "example"),
        ("batch_size_tokens,steps\n64,1\n", "token"),
        ("images_per_batch,steps\n64,1\n", "image"),
        ("batch_size_sec,steps\n87.5,1\n", "second"),
        ("batch_size,steps,unit\n64,1,frame\n128,1,\n", "frame"),
        ("batch_size,steps,unit\n64,1,tokens\n", "token"),
    ],
)
def test_unit(content: str, unit: str, tmp_path: Path) -> None:
    assert read(tmp_path, content).unit == unit
    assert read(tmp_path, content, unit="sequence").unit == "sequence"


def test_tokens_beside_steps_may_count_something_else(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,tokens\n64,46000,1507328000\n")
    assert table.crossings[0].examples == 64 * 46000
    assert table.unit == "example"
    assert any("tokens" in note for note in table.notes)
    assert read(tmp_path, "batch_size,steps,tokens\n64,46000,2944000\n").unit == "token"


@pytest.mark.parametrize("name", ["gradient_accumulation_steps", "grad_accum", "num_gpus", "world_size"])
def test_parts_of_a_batch_are_noticed(name: str, tmp_path: Path) -> None:
    def noticed(head: str, *values: int) -> list[str]:
        rows = "".join(f"{2**i},{100 - i},{value}\n" for i, value in enumerate(values))
        return [note for note in read(tmp_path, f"{head},steps,{name}\n{rows}").notes if name in note]

    (note,) = noticed("batch_size", 4, 4)
    assert f"{name!r} is 4: multiply if 'batch_size' counts one part" in note
    assert "up to 8" in noticed("batch_size", 1, 8)[0]
    assert noticed("batch_size", 1, 1) == noticed("global_batch_size", 4, 4) == []


def test_a_part_that_is_asked_for_is_noticed(tmp_path: Path) -> None:
    content = "micro_batch_size,steps\n8,90\n"
    notes = read(tmp_path, content, columns={"batch_size": "micro_batch_size"}).notes
    assert any("its name says a part" in note for note in notes)


def test_counts_that_look_like_a_budget_are_noticed(tmp_path: Path) -> None:
    def noticed(content: str) -> list[str]:
        return [note for note in read(tmp_path, content).notes if "budget" in note]

    (note,) = noticed("batch_size,steps\n1,4000\n2,4000\n4,4000\n8,3100\n")
    assert note.startswith("steps are exactly 4000 at batch size 1, 2, 4: if that is a budget")
    (note,) = noticed("batch_size,steps\n8,300\n32,250\n64,125\n")
    assert note.startswith("examples are exactly 8000 at batch size 32, 64")
    assert not noticed("batch_size,steps\n1,4000\n1,4000\n2,2500\n4,1800\n8,1800\n")
    assert not noticed("batch_size,steps,censored\n1,4000,1\n2,4000,0\n4,3000,0\n")
    assert not noticed("batch_size,epochs\n1,3\n2,3\n4,3\n")
    assert not noticed("batch_size,steps,target\n1,4000,3\n2,4000,2\n")


@pytest.mark.parametrize("yes", ["true", "True", "TRUE", "yes", "y", "1", "x", " t "])
@pytest.mark.parametrize("no", ["false", "False", "no", "n", "0", ""])
def test_censored_in_all_spellings(yes: str, no: str, tmp_path: Path) -> None:
    table = read(tmp_path, f"batch_size,steps,censored\n64,900,{yes}\n128,500,{no}\n")
    censored, reached = table.crossings
    assert censored.censored
    assert (censored.steps, censored.low, censored.high) == (900, 900, float("inf"))
    assert not reached.censored
    assert (reached.low, reached.high) == (500, 500)


def test_other_ways_to_say_censored(tmp_path: Path) -> None:
    flags = "batch_size,steps,reached\n64,900,no\n128,500,yes\n"
    beyond = "batch_size,steps\n64,> 900\n128,500\n"
    for content in (flags, beyond):
        assert [crossing.censored for crossing in read(tmp_path, content).crossings] == [True, False]


def test_status(tmp_path: Path) -> None:
    content = (
        "batch_size,steps,lr,status\n16,9,.1,reached\n32,8,.1,Finished\n64,7,.1,exhausted\n128,6,.1,stopped\n"
        "256,,.4,diverged\n256,3,.4,NaN\n512,5,.1,crashed\n512,5,.1,running\n1024,4,.1,\n"
    )
    table = read(tmp_path, content)
    assert [(crossing.batch_size, crossing.censored) for crossing in table.crossings] == [
        (16, False),
        (32, False),
        (64, True),
        (128, True),
        (1024, False),
    ]
    assert table.diverged == ((256.0, 0.4, ()),)
    assert "left out 2 rows: failed or still running (line 8, line 9)" in table.notes


def test_rows_without_steps_are_left_out(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps\n64,\n64,inf\n64,nan\n64,n/a\n128,500\n")
    assert [crossing.batch_size for crossing in table.crossings] == [128]
    assert "left out 4 rows: no count of steps (line 2, line 3, line 4 and others)" in table.notes


def test_exact_duplicates_are_dropped(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,seed\n64,9,0\n64,9,1\n64,9,0\n")
    assert len(table.crossings) == 2
    assert "left out 1 row: exact duplicates of earlier rows (line 4)" in table.notes


def test_a_seed_that_stands_twice_is_noticed(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,seed\n64,9,0\n64,10,0\n")
    assert len(table.crossings) == 2
    assert any("repeat a seed" in note for note in table.notes)


def test_groups(tmp_path: Path) -> None:
    content = "task,batch_size,steps,layers\nA,64,9,2\nA,64,8,4\nB,64,9,2.5\n"
    assert [crossing.group for crossing in read(tmp_path, content, by=["layers"]).crossings] == [
        (("workload", "A"), ("layers", "2")),
        (("workload", "A"), ("layers", "4")),
        (("workload", "B"), ("layers", "2.5")),
    ]


def test_pooled_columns_are_noticed(tmp_path: Path) -> None:
    content = "batch_size,steps,optimizer\n64,9,sgd\n128,8,sgd\n64,9,adam\n128,7,adam\n"
    assert any("--by optimizer" in note for note in read(tmp_path, content).notes)
    for by in (["optimizer"], ["optimizer", "optimizer"], "optimizer"):
        table = read(tmp_path, content, by=by)
        assert not table.notes
        assert {crossing.group for crossing in table.crossings} == {
            (("optimizer", "sgd"),),
            (("optimizer", "adam"),),
        }


def test_targets(tmp_path: Path) -> None:
    content = "batch_size,steps,target_val_loss\n64,9,3.2\n64,12,3.0\n"
    assert [crossing.target for crossing in read(tmp_path, content).crossings] == [3.2, 3.0]
    assert [crossing.steps for crossing in read(tmp_path, content, targets=[3.0]).crossings] == [12]
    assert read(tmp_path, PLAIN, targets=[3.2]).crossings[0].target == 3.2


@pytest.mark.parametrize(
    "targets",
    [3.0, "3.0", ["3.0"], np.float32(3), np.array(3.0), np.array([3.0]), pd.Series([3.0]), iter([3])],
)
def test_targets_in_every_shape(targets: object, tmp_path: Path) -> None:
    content = "batch_size,steps,target\n64,9,3.2\n64,12,3.0\n"
    assert [crossing.steps for crossing in read(tmp_path, content, targets=targets).crossings] == [12]


def test_infinite_targets_are_left_out(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,target\n64,9,inf\n64,12,3.0\n64,8,1e400\n")
    assert [crossing.target for crossing in table.crossings] == [3.0]
    assert "left out 2 rows: an infinite target (line 2, line 4)" in table.notes


def test_targets_in_words(tmp_path: Path) -> None:
    content = "batch_size,steps,target\n64,9,75.90% top-1\n64,12,76.5% top-1\n"
    assert [crossing.target for crossing in read(tmp_path, content).crossings] == [75.9, 76.5]
    table = read(tmp_path, "batch_size,steps,target\n64,9,easy\n64,12,hard\n")
    assert [(crossing.target, crossing.group) for crossing in table.crossings] == [
        (None, (("target", "easy"),)),
        (None, (("target", "hard"),)),
    ]


def test_bounds_and_roles_come_back(tmp_path: Path) -> None:
    table = read(tmp_path, "batch_size,steps,low,high,role\n64,9,8,10,measure\n64,9,,,search\n")
    assert [(c.low, c.high, c.role) for c in table.crossings] == [(8, 10, "measure"), (9, 9, "search")]


def test_the_mlperf_reference_points(tmp_path: Path) -> None:
    """The shape and some rows of mlcommons/logging, rcp_checker, 2.0.0/rcps_resnet.json (Apache-2.0)."""
    content = (
        "benchmark,version,batch_size,seed_index,target,converge_raw,converge_unit,examples,steps,lr,optimizer\n"
        "resnet,2.0.0,1632,0,75.90% top-1,34.0,epochs,43559678.0,26690.979166666668,7.4,lars\n"
        "resnet,2.0.0,1632,1,75.90% top-1,34.0,epochs,43559678.0,26690.979166666668,7.4,lars\n"
        "rgat,5.0.0,4096,0,72.0% classification,0.85,epochs,,,0.001,\n"
        "llama2_70b_lora,5.1.0,8,0,0.925 eval loss,3072.0,samples,3072.0,384.0,0.0004,\n"
    )
    assert [crossing.group[0][1] for crossing in read(tmp_path, content).crossings] == ["resnet"] * 2 + [
        "llama2_70b_lora"
    ]
    table = read(tmp_path, content, columns={"epochs": "converge_raw"})
    assert [crossing.target for crossing in table.crossings] == [75.9, 75.9, 72, 0.925]
    assert [crossing.examples for crossing in table.crossings] == pytest.approx(
        [43559678, 43559678, 0.85, 3072]
    )


def test_steps_to_target_of_two_fits_in_one_file(tmp_path: Path) -> None:
    """Rows of hlzhang109/critical-batch-size, plots/chinchilla.ipynb (MIT)."""
    content = (
        "source_cell,workload,model_size,batch_size,target_val_loss,steps,lr,run_name,tokens\n"
        'query,"LM on C4, Chinchilla",85M,64,3.42,46000,0.00316,bs64-lr0.00316,1507328000\n'
        'query,"LM on C4, Chinchilla",85M,2048,3.42,2500,0.00316,bs2048-lr0.00316,2621440000\n'
        'fit,"LM on C4, Chinchilla",85M,64,3.42,46000,,,1507328000\n'
        'fit,"LM on C4, Chinchilla",85M,2048,3.42,2528,,,2650800128\n'
    )
    table = read(tmp_path, content, by=["source_cell"])
    assert [
        (dict(c.group)["source_cell"], c.batch_size, c.steps, c.lr, c.target) for c in table.crossings
    ] == [
        ("query", 64, 46000, 0.00316, 3.42),
        ("query", 2048, 2500, 0.00316, 3.42),
        ("fit", 64, 46000, None, 3.42),
        ("fit", 2048, 2528, None, 3.42),
    ]


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1e3", ".", 1000),
        (" 5 ", ".", 5),
        ("1,234,567", ".", 1234567),
        ("1.234.567", ",", 1234567),
        ("1.234,5", ",", 1234.5),
        ("1_000", ".", 1000),
        ("1\u2019000", ".", 1000),
        ("\u22123.5", ".", -3.5),
        ("30 %", ".", 30),
        ("-\u221e", ".", float("-inf")),
        ("0,003", ".", None),
        ("1,00", ".", None),
        ("0x10", ".", None),
        ("1 2", ".", None),
        ("64k", ".", None),
        ("", ".", None),
    ],
)
def test_parse_number(text: str, decimal: str, value: float | None) -> None:
    assert parse_number(text, decimal) == value  # type: ignore[arg-type]


def test_decimal_commas_with_three_digits_are_decided_by_the_file(tmp_path: Path) -> None:
    alone = "batch_size;steps;lr\n64;9;1,234\n"
    assert read(tmp_path, alone).crossings[0].lr == 1.234
    assert read(tmp_path, alone + "128;8;0,5\n").crossings[0].lr == 1.234


def test_importing_the_reader_imports_no_pandas() -> None:
    import subprocess

    code = "import sys, bscrit.tables.table; assert not {'pandas', 'scipy', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
