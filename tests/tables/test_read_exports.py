"""Exports of experiment trackers, as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from bscrit.crossing import CrossingTable
from bscrit.errors import UserError
from bscrit.tables.table import read_table
from bscrit.tables.tracker_exports import settings_in


def read(folder: Path, content: str, name: str = "export.csv", **options: object) -> CrossingTable:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return read_table(path, **options)  # type: ignore[arg-type]


def brackets(table: CrossingTable) -> list[tuple[float, float | None, str, float, float]]:
    return [(c.batch_size, c.lr, c.seed, c.low, c.high) for c in table.crossings]


WIDE = (
    '"Step","bs64-lr0.1-s0 - val/loss","bs64-lr0.1-s0 - val/loss__MIN","bs64-lr0.1-s0 - val/loss__MAX",'
    '"bs128-lr3e-1-s1 - _step","bs128-lr3e-1-s1 - val/loss","bs128-lr3e-1-s1 - val/loss__MIN"\n'
    '"10","4","3.9","4.1","10","",""\n"20","","","","","3.5","1"\n"30","3","2.9","3.1","","",""\n"40","","","","40","2","1"\n'
)


def test_a_wide_chart_with_companion_columns(tmp_path: Path) -> None:
    table = read(tmp_path, WIDE, targets=[3.2])
    assert brackets(table) == [(64, 0.1, "0", 10, 30), (128, 0.3, "1", 20, 40)]
    assert table.crossings[0].where.endswith("line 4")


def test_a_grouped_chart(tmp_path: Path) -> None:
    header = '"Step","Group: batch_size: 64 - eval/acc","Group: batch_size: 128 - eval/acc"'
    content = f"{header}\n1,0.1,0.2\n9,0.5,0.7\n"
    assert brackets(read(tmp_path, content, targets=[0.4])) == [(64, None, "", 1, 9), (128, None, "", 1, 9)]


def test_several_metrics_in_a_wide_chart(tmp_path: Path) -> None:
    content = '"Step","b64 - train/loss","b64 - val/loss"\n1,4,5\n9,1,2\n'
    assert read(tmp_path, content, targets=[4.5]).crossings[0].low == 1


@pytest.mark.parametrize("header", ["step,bs=64,bs=128", "step,64,128", "iteration,B64_lr0.1,B128_lr0.1"])
def test_a_plain_wide_table(header: str, tmp_path: Path) -> None:
    table = read(tmp_path, f"{header}\n10,4,3\n20,3,2\n30,2,\n", targets=[2.5], direction="down")
    assert [(c.batch_size, c.low, c.high) for c in table.crossings] == [(64, 20, 30), (128, 10, 20)]


def test_a_wide_chart_whose_names_tell_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run tells its batch size: fancy-fox, silly-sun") as caught:
        read(tmp_path, '"Step","fancy-fox - loss","silly-sun - loss"\n1,2,3\n', targets=[1])
    assert "bs64-lr0.003-s1" in caught.value.remedy
    with pytest.raises(UserError, match="'silly-sun' does not tell its batch size"):
        read(tmp_path, '"Step","bs64 - loss","silly-sun - loss"\n1,2,3\n', targets=[1])


def test_two_models_in_the_names_of_runs(tmp_path: Path) -> None:
    columns = [f'"{model}-bs{size} - loss"' for model in ("cnn", "mlp") for size in (64, 128)]
    content = f'"Step",{",".join(columns)}\n1,4,4,4,4\n9,2,2,2,2\n'
    with pytest.raises(UserError, match=r"'series' has 2 values \(cnn, mlp\)") as caught:
        read(tmp_path, content, targets=[3])
    assert caught.value.remedy == "--by series"
    assert (
        len({crossing.group for crossing in read(tmp_path, content, targets=[3], by=["series"]).crossings})
        == 2
    )


def test_tensorboard_downloads(tmp_path: Path) -> None:
    rows = "Wall time,Step,Value\n1700000000.1,10,4\n1700000001.2,100,{}\n"
    paths = []
    for size, last in ((64, 3), (128, 2)):
        path = tmp_path / f"run-bs{size}_lr0.1_seed2-tag-val_loss.csv"
        path.write_text(rows.format(last))
        paths.append(path)
    assert brackets(read_table(paths, targets=[3.5])) == [(64, 0.1, "2", 10, 100), (128, 0.1, "2", 10, 100)]


def test_folders_name_runs_too(tmp_path: Path) -> None:
    table = read(tmp_path, "step,loss\n10,4\n100,3\n", "bs64_lr0.1/log.csv", targets=[3.5])
    assert brackets(table) == [(64, 0.1, "", 10, 100)]


def test_long_logs_of_keys_and_values(tmp_path: Path) -> None:
    content = (
        "run_uuid,key,value,step,timestamp\n"
        "a,batch_size,64,0,1\na,lr,0.1,0,1\na,val_loss,4,10,2\na,train_loss,9,10,2\na,val_loss,3,100,3\n"
        "b,val_loss,4,10,5\nb,batch_size,128,0,4\nb,lr,0.2,0,4\nb,val_loss,2,100,6\n"
    )
    assert brackets(read(tmp_path, content, targets=[3.5])) == [
        (64, 0.1, "", 10, 100),
        (128, 0.2, "", 10, 100),
    ]


def test_long_logs_whose_names_tell_the_settings(tmp_path: Path) -> None:
    content = "run,tag,step,value\nbs64,loss,10,4\nbs64,loss,100,3\nbs128,loss,10,4\nbs128,loss,100,NaN\n"
    table = read(tmp_path, content, targets=[3.5])
    assert brackets(table) == [(64, None, "", 10, 100)]
    assert table.diverged == ((128.0, None, ()),)


def test_names_complete_a_table_that_has_batch_sizes(tmp_path: Path) -> None:
    table = read(tmp_path, "run,batch_size,steps\nbs64-lr0.1-s3,64,900\nbs128-lr0.2-s4,128,500\n")
    assert [(c.lr, c.seed) for c in table.crossings] == [(0.1, "3"), (0.2, "4")]


def test_a_list_of_runs_says_where_they_ended(tmp_path: Path) -> None:
    content = "Name,State,batch_size,_step,val/loss\na,finished,64,1000,3.2\nb,finished,128,1000,2.6\n"
    with pytest.raises(UserError, match="says where runs ended") as caught:
        read(tmp_path, content)
    assert caught.value.remedy.endswith("--columns steps=_step")
    assert len(read(tmp_path, content, columns={"steps": "_step"}).crossings) == 2
    alike = content.replace("2.6", "3.19")
    assert len(read(tmp_path, alike).crossings) == 2


@pytest.mark.parametrize(
    ("name", "size", "lr", "seed"),
    [
        ("bs64", 64, None, None),
        ("batch_size=64,lr=0.1,seed=3", 64, 0.1, 3),
        ("B64_LR1e-3_s0", 64, 1e-3, 0),
        ("b00256-lr0.05-s0-3f9a1c2e", 256, 0.05, 0),
        ("bs2048-adamw_0.95-lr0.00316-ewa0.99", 2048, 0.00316, None),
        ("resnet50_batch-size-128_learning_rate-3e-4_seed-1", 128, 3e-4, 1),
        ("gbs1024.lr.5", 1024, 0.5, None),
        ("batch_size: 64", 64, None, None),
        ("jobs64-colr3", None, None, None),
        ("n0wjhnb6", None, None, None),
        ("bs4k", None, None, None),
    ],
)
def test_settings_in_names(name: str, size: float | None, lr: float | None, seed: float | None) -> None:
    found = settings_in(name)
    assert (found.get("batch_size"), found.get("lr"), found.get("seed")) == (size, lr, seed)
