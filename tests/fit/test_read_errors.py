"""What can't be understood: a sentence with the place, the value and the remedy."""

from __future__ import annotations

import builtins
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bscrit.errors import UserError
from bscrit.fit.reading.table import read_table


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
    "unknown status": ("batch_size,steps,status\n64,9,reachd\n", "line 2", "status is 'reachd'", "'reached'"),
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
        ("a.csv", b"\x1f\x8brest", "is compressed"),
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


def test_nothing_is_unpickled_or_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(pickle, "loads", never)
    monkeypatch.setattr(pickle, "load", never)
    monkeypatch.setattr(builtins, "eval", never)
    path = tmp_path / "a.csv"
    path.write_text("batch_size,steps\n__import__('os'),9\n")
    assert "__import__" in refused(path).what
