"""What can't be understood: a sentence with the place, the value and the remedy."""

from __future__ import annotations

import builtins
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bscrit.errors import UserError
from bscrit.tables.table import read_table


def refused(source: Any, **options: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        read_table(source, **options)
    return caught.value


# content, place after the file's name, what is said, what the remedy says
TABLES: dict[str, tuple[str, str, str, str]] = {
    "no steps": ("batch_size,stepz\n64,9\n", "", "found: batch_size, stepz", "--columns steps=stepz"),
    "no batch size": ("bsize,steps\n64,9\n", "", "no column for batch size", "--columns batch_size=bsize"),
    "nothing like it": ("a,steps\n64,9\n", "", "found: a, steps", "--columns batch_size=NAME"),
    "negative": ("batch_size,steps\n64,9\n128,-3\n", "line 3", "steps is -3", "positive"),
    "zero": ("batch_size,steps\n0,9\n", "line 2", "batch_size is 0", "positive"),
    "zero examples": ("batch_size,examples\n64,0\n", "line 2", "examples is 0", "positive"),
    "no size in a row": ("batch_size,steps\n64,9\n,7\n", "line 3", "batch_size is empty", "positive"),
    "words for counts": ("batch_size,steps\n64,fast\n", "line 2", "steps is 'fast'", "number"),
    "sizes with letters": ("batch_size,steps\n1,2\n64k,9\n", "line 3", "batch_size is '64k'", "number"),
    "sizes beyond": ("batch_size,steps\n>64,9\n", "line 2", "batch_size is >64", "positive"),
    "rate of zero": ("batch_size,steps,lr\n64,9,0\n", "line 2", "lr is 0", "positive"),
    "duplicate names": ("batch_size,steps,steps\n64,9,8\n", "line 1", "2 columns named 'steps'", "rename"),
    "two sizes": (
        "batch_size,global_batch_size,steps\n8,64,9\n",
        "",
        "'batch_size' and 'global_batch_size' may both be batch size",
        "--columns batch_size=batch_size",
    ),
    "two units": (
        "batch_size,steps,examples\n64,10,640\n128,10,640\n",
        "line 3",
        "examples is 640, but steps 10 times batch_size 128 is 1280",
        "one unit",
    ),
    "two words for the unit": (
        "batch_size,steps,unit\n1,2,token\n4,1,image\n",
        "line 3",
        "'image'",
        "one unit",
    ),
    "two decimal signs": (
        'batch_size,steps,lr\n64,9,"0,05"\n128,8,0.1\n',
        "line 2",
        "lr '0.1' and lr '0,05'",
        "decimal point",
    ),
    "thousands or decimals": (
        'batch_size,steps,lr\n64,9,"1,234"\n',
        "line 2",
        "lr is '1,234'",
        "decimal point",
    ),
    "dots or decimals": ("batch_size;steps\n64;46.000\n", "line 2", "steps is '46.000'", "decimal point"),
    "too many cells": (
        "batch_size,steps\n64,1,000\n",
        "line 2",
        "3 cells, but there are 2 columns",
        "quotes",
    ),
    "too few cells": ("batch_size,lr,steps\n64,9\n1,2,3\n", "line 2", "2 cells", "empty cell"),
    "an open quote": (
        'batch_size,steps,n\n64,9,"a\n1,2,3\n',
        "line 3",
        "runs on over several lines",
        "close",
    ),
    "a quote in the wrong place": (
        'batch_size,steps,n\n64,"9,a\n1,2,3\n4,5,"6\n',
        "line 2",
        "runs on over several lines",
        "close",
    ),
    "no header": (
        "64,46000\n128,23000\n",
        "line 1",
        "no column names, it begins with 64, 46000",
        "batch_size",
    ),
    "only a header": ("batch_size,steps\n", "", "holds no rows", "export"),
    "blank": (" \n\n", "", "is empty", "export"),
    "unknown status": (
        "batch_size,steps,status\n64,9,reachd\n",
        "",
        "status is 'reachd'",
        "give runs that met a target",
    ),
    "unknown truth": (
        "batch_size,steps,censored\n64,9,maybe\n",
        "line 2",
        "censored is 'maybe'",
        "true or false",
    ),
    "one target is no number": (
        "batch_size,steps,target\n64,9,3.2\n64,9,low\n",
        "line 3",
        "target is 'low'",
        "number",
    ),
    "low above high": ("batch_size,steps,low,high\n64,9,10,12\n", "line 2", "not between", "bounds"),
    "two models": (
        "batch_size,steps,model_size\n64,9,1\n128,8,1\n64,19,2\n128,18,2\n",
        "",
        "'model_size' has 2 values (1, 2)",
        "--by model_size",
    ),
    "nothing usable": ("batch_size,steps,status\n64,9,failed\n", "", "holds no crossing", "runs"),
    "steps backwards": (
        "batch_size,step,loss\n64,10,4\n64,30,3\n64,20,2\n",
        "line 4",
        "steps go backwards, from 30 to 20, at batch size 64",
        "sort",
    ),
    "a ramp of batch sizes": (
        "run,batch_size,step,loss\na,16,0,5\na,16,10,4\na,64,20,3\na,64,30,2\n",
        "line 4",
        "rises from 16 to 64 at 20 steps of the run 'a'",
        "one batch size",
    ),
    "a ramp in examples": (
        "run,batch_size,examples,loss\na,16,160,5\na,16,320,4\na,64,960,3\na,64,1600,2\n",
        "line 4",
        "rises from 16 to 64 at 960 examples of the run 'a'",
        "one batch size",
    ),
    "curves of a metric unknown": (
        "batch_size,step,foo\n8,0,4\n8,100,3\n16,0,4\n16,100,2\n",
        "",
        "no column is known as their metric; found: batch_size, step, foo",
        "--columns loss=foo",
    ),
    "a part of a batch": (
        "per_device_batch_size,num_gpus,steps\n8,4,90\n",
        "",
        "no column for batch size",
        "multiply it by devices and accumulation into a new column batch_size",
    ),
    "tokens of a part": ("micro_batch_tokens,steps\n8,9\n", "", "no column for batch size", "multiply"),
    "our own frontier": (
        "batch_size,steps,low,high,runs,censored,robust_weight\n4,174,153,199,5,2,1.0\n",
        "",
        "the points of a fit, not the runs",
        "crossings.csv",
    ),
    "nothing but infinite targets": ("batch_size,steps,target\n4,9,1e400\n", "", "infinite target", "runs"),
    "a size beyond belief": ("batch_size,steps\n1e300,9\n", "line 2", "batch_size is 1e+300", "1e18"),
    "a size next to nothing": ("batch_size,steps\n1e-320,9\n", "line 2", "batch_size is", "1e-9"),
    "steps beyond belief": ("batch_size,steps\n4,1e30\n", "line 2", "steps is 1e+30", "1e18"),
    "a number of 400 digits": (
        f'[{{"batch_size": 4, "steps": {10**400}}}]',
        "",
        "no count of steps (record 1)",
        "runs",
    ),
    "broken json": ('{"batch_size": 64,', "", "not valid JSON", "restore"),
    "a broken line of json": ('{"a": 1}\n{"a": }\n{"a": 2}\n', "line 2", "not valid JSON", "restore"),
    "json of numbers": ("[1, 2]", "record 1", "1 is not an object", "batch_size"),
    "json of uneven columns": ('{"a": [1], "b": []}', "", "different lengths", "equally"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_wrong_tables(kind: str, tmp_path: Path) -> None:
    content, place, what, remedy = TABLES[kind]
    path = tmp_path / "runs.csv"
    path.write_text(content)
    error = refused(path)
    assert error.where == (f"{path}, {place}" if place else str(path))
    assert what in error.what
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", bytes(range(256)), "is a binary file"),
        ("a.csv", b"PK\x03\x04rest", "is a workbook or a zip archive"),
        ("a.csv", b"\x1f\x8brest", "is a damaged gzip file"),
        ("a.csv", b"SQLite format 3\0", "is a database"),
        ("a.parquet", b"PAR1 but not really PAR1", "is a damaged Parquet file"),
        ("a.pkl", pickle.dumps({"batch_size": [64]}), ".pkl files are not read"),
        ("a.csv", pickle.dumps({"batch_size": [64]}), "is a binary file"),
        ("a.yaml", b"batch_size: 64\n", ".yaml files are not read"),
    ],
)
def test_files_that_are_no_tables(name: str, content: bytes, what: str, tmp_path: Path) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    assert refused(path).what.startswith(what)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "not a results folder" in refused(tmp_path).what
    assert refused(tmp_path / "none.csv").what == "No such file or directory"
    assert refused("a\0b").remedy == "check the path"
    assert refused([]).what == "no file is named"
    (tmp_path / "a.csv").write_text("batch_size,steps\n1,2\n")
    assert refused([tmp_path / "a.csv", tmp_path / "a.csv"]).what == "is named twice"


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")

    def missing(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr(pd, "read_parquet", missing)
    assert refused(path).remedy == "pip install 'bscrit[parquet]'"


def test_wrong_options(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("batch,stp,target\n64,9,3.2\n")
    assert "did you mean 'stp'" in refused(path, columns={"steps": "step"}).remedy
    assert "did you mean 'steps'" in refused(path, columns={"stepz": "stp"}).remedy
    assert refused(path, columns={"stp": "steps"}).remedy == "--columns steps=stp"
    assert "twice" in refused(path, columns={"steps": "stp", "step": "batch"}).what
    assert "no column 'modl'" in refused(path, by=["modl"]).what
    columns = {"steps": "stp"}
    assert refused(path, columns=columns, targets=[3.0]).remedy == "there are rows with 3.2"
    assert "no target" in refused(path, columns=columns, targets=[float("nan")]).what
    path.write_text("batch,steps\n64,9\n")
    assert "no target column" in refused(path, targets=[3.0, 2.0]).what


def test_a_role_is_no_group_and_a_column_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("batch_size,steps,loss\n64,9,3\n128,5,2\n")
    for role in ("steps", "batch_size"):
        error = refused(path, by=[role])
        assert (error.where, error.what.endswith("a role, not a group")) == (f"--by {role}", True)
    error = refused(path, columns={"steps": "batch_size"})
    assert error.where == "--columns steps=batch_size"
    assert error.remedy == "give steps another column"


@pytest.mark.parametrize(
    ("options", "where", "what"),
    [
        ({"by": [3]}, "--by", "3 is no name of a column"),
        ({"by": 3}, "--by", "3 is no name of a column"),
        ({"columns": {"steps": 7}}, "--columns", "'steps': 7 does not map"),
        ({"columns": ["steps"]}, "--columns steps", "is not of the form role=column"),
        ({"direction": "sideways"}, "--direction", "'sideways' is not a direction"),
        ({"targets": []}, "--targets", "names no target"),
        ({"targets": ""}, "--targets", "names no target"),
        ({"targets": "low"}, "--targets", "l"),
        ({"targets": [None]}, "--targets", "None is no target"),
        ({"targets": [[3.2]]}, "--targets", "[3.2] is no target"),
        ({"targets": float("inf")}, "--targets", "inf is no target"),
    ],
)
def test_options_of_no_sense(options: dict[str, Any], where: str, what: str) -> None:
    error = refused(pd.DataFrame({"batch_size": [64], "steps": [9]}), **options)
    assert error.where == where
    assert what in error.what


@pytest.mark.parametrize("source", [[{"batch_size": 1}], [None], pd.DataFrame, b"a.csv", 3, None])
def test_sources_of_no_sense(source: Any) -> None:
    assert refused(source).what.startswith("cannot read ")


def test_a_path_as_long_as_a_page_is_cut() -> None:
    assert len(refused("x" * 5000).where) < 300


def test_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-").what == "is closed"


def test_frames_that_surprise_pandas() -> None:
    frame = pd.DataFrame({"batch_size": [64, 128], "steps": [9, 5], "seed": [0, 1]})
    assert "2 columns named 'seed'" in refused(frame.set_index("seed", drop=False)).what
    frame["batch_size"] = pd.array([64, None], "Int64")
    assert refused(frame).what == "batch_size is empty"


def test_nothing_is_unpickled_or_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(pickle, "loads", never)
    monkeypatch.setattr(pickle, "load", never)
    monkeypatch.setattr(builtins, "eval", never)
    path = tmp_path / "a.csv"
    path.write_text("batch_size,steps\n__import__('os'),9\n")
    assert "__import__" in refused(path).what


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.csv")
    for path in (tmp_path / "runs.csv", Path("/dev/zero")):
        assert "is no ordinary file" in str(refused(path))
