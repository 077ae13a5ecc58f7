"""Random tables come back equal from every dialect, and damaged ones end in a sentence or in a table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bscrit.errors import UserError
from bscrit.tables.table import read_table

quickly = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
Row = tuple[int, int, float, str, bool]
ROW = st.tuples(
    st.integers(1, 10**6),
    st.integers(1, 10**9),
    st.floats(1e-6, 10, allow_nan=False),
    st.sampled_from(["plain", "with, comma", 'with "quotes"', "with; semicolon", "über", "two words"]),
    st.booleans(),
)
HEADER = ["batch_size", "steps", "lr", "workload", "censored"]


def cells(rows: list[Row], separator: str, number: Callable[[float], str], flag: tuple[str, str]) -> str:
    """The rows as separated cells, each in quotes where it has to be."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(c in text for c in separator + '"') else text

    lines = [separator.join(HEADER)]
    for size, steps, lr, name, censored in rows:
        row = [number(size), number(steps), number(lr), name, flag[not censored]]
        lines.append(separator.join(quoted(cell) for cell in row))
    return "\n".join(lines) + "\n"


def thousands(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.17f}"


def swapped(value: float) -> str:
    return thousands(value).translate(str.maketrans(",.", ".,"))


DIALECTS: dict[str, Callable[[list[Row]], bytes]] = {
    "commas": lambda rows: cells(rows, ",", str, ("true", "false")).encode(),
    "semicolons": lambda rows: cells(rows, ";", str, ("yes", "no")).encode("utf-8-sig"),
    "tabs in utf-16": lambda rows: cells(rows, "\t", str, ("TRUE", "FALSE")).encode("utf-16"),
    "bars in latin-1": lambda rows: cells(rows, "|", str, ("1", "0")).encode("latin-1"),
    "thousands": lambda rows: cells(rows, ",", thousands, ("y", "")).encode(),
    "decimal commas": lambda rows: cells(rows, ";", swapped, ("x", "")).encode(),
    "comments and blank lines": lambda rows: (
        "# a comment\n\n" + cells(rows, ",", str, ("t", "f")).replace("\n", "\n\n# another, one\n")
    ).encode(),
    "json lines": lambda rows: "".join(
        json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in rows
    ).encode(),
    "json": lambda rows: json.dumps([dict(zip(HEADER, row, strict=True)) for row in rows]).encode("utf-16"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@quickly
@given(rows=st.lists(ROW, min_size=1, max_size=8, unique=True))
def test_random_tables_come_back_equal(dialect: str, rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(DIALECTS[dialect](rows))
    found = [
        (c.batch_size, c.steps, c.lr, dict(c.group)["workload"], c.censored)
        for c in read_table(path).crossings
    ]
    assert [row[:2] + row[3:] for row in found] == [row[:2] + row[3:] for row in rows]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in rows], rel=1e-10)


@quickly
@given(rows=st.lists(ROW, min_size=1, max_size=8, unique=True))
def test_random_data_frames_come_back_equal(rows: list[Row]) -> None:
    found = read_table(pd.DataFrame(rows, columns=HEADER)).crossings
    assert [(c.batch_size, c.steps, c.lr) for c in found] == [row[:3] for row in rows]


VICTIMS = {
    "rows": (
        b"batch_size,steps,lr,seed,target,censored,status,workload\n"
        b'64,46000,0.003,0,3.42,false,reached,"a, b"\n64,47000,0.003,1,3.42,,exhausted,c\n'
        b"128,23000,0.004,0,3.42,true,diverged,c\n1024,3840,0.01,0,3.42,no,reached,c\n"
    ),
    "curves": b"batch_size,step,examples,loss,lr\n"
    + b"".join(b"%d,%d,%d,%.3f,0.1\n" % (b, s, b * s, 9 / s**0.3) for b in (8, 64) for s in range(1, 40, 3)),
    "decimal commas": "\ufeffbatch_size;steps;lr\n64;46.000;0,3\n128;23.000;0,4\n1.024;840;1,1\n".encode(),
    "wide": b'"Step","bs64 - loss","bs64 - loss__MIN","bs8-lr1 - loss"\n1,4,4,5\n2,3,3,NaN\n3,2,,4\n',
    "long": b"run,key,value,step\na,batch_size,8,0\na,loss,4,1\na,loss,3,2\nb,batch_size,9,0\nb,loss,4,1\n",
    "json lines": b'{"batch_size": 64, "steps": 9, "lr": 0.1}\n{"batch_size": 8, "steps": 99, "lr": null}\n',
    "json": b'[{"config": {"batch_size": 64}, "steps": 9, "tags": [1]}, {"batch_size": "8", "steps": NaN}]',
    "log": b"".join(
        b"iteration %d/900 | consumed samples: %d | global batch size: 64 | lm loss: %.3f |\n"
        % (s, 64 * s, 9 / s**0.3)
        for s in range(1, 60, 3)
    ),
    "utf-16": "batch_size\tsteps\n64\t9\n128\t7\n".encode("utf-16"),
}


def damages(victim: bytes, chance: random.Random) -> bytes:
    """The bytes of a file after one of the accidents that files have."""
    kind = chance.randrange(5)
    at = chance.randrange(len(victim))
    if kind == 0:
        return victim[:at]
    if kind == 1:
        damaged = bytearray(victim)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        return bytes(damaged)
    if kind == 2:
        return victim[:at] + victim[chance.randrange(len(victim)) :]
    separator = chance.choice([b",", b"\n", b'"', b":", b";", b"\t", b"64"])
    pieces = victim.split(separator)
    if kind == 3:
        chance.shuffle(pieces)
        return separator.join(pieces)
    odd = [
        b"",
        b"-1",
        b"nan",
        b"inf",
        b"1e400",
        b"0",
        b"abc",
        b"1,5",
        b"{}",
        b"[]",
        b"\xff",
        b"\0",
        b'"',
        b"9" * 400,
    ]
    pieces[chance.randrange(len(pieces))] = chance.choice(odd)
    return separator.join(pieces)


@pytest.mark.parametrize("name", VICTIMS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_damaged_files_end_in_a_sentence_or_in_a_table(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    path = tmp_path / "damaged.csv"
    options = {"targets": [3.2]} if name in ("curves", "wide", "long", "log") else {}
    refused = read = 0
    for _ in range(300):
        content = damages(VICTIMS[name], chance)
        path.write_bytes(content)
        try:
            table = read_table(path, **options)  # type: ignore[arg-type]
        except UserError as error:
            refused += bool(error.what and error.remedy)
        except Exception as error:
            raise AssertionError(f"{content!r}") from error
        else:
            read += 1
            for crossing in table.crossings:
                assert 0 < crossing.low <= crossing.steps <= crossing.high, content
                assert 0 < crossing.batch_size < float("inf"), content
    assert refused
    assert read
    assert refused + read == 300
