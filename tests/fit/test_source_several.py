"""Several sources: the command line and a notebook see the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import Quadratic, make_spec, sweep
from test_source import write

import bscrit
from bscrit.errors import UserError
from bscrit.files import whole_json, write_json

SPEC = make_spec(batch_sizes=[4, 16, 64, 256], targets=[0.2], seeds=2, max_steps=3000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    records = list(sweep(Quadratic(), SPEC).values())
    return [write(tmp_path_factory.mktemp("results") / name, records, SPEC) for name in ("a", "b")]


def test_results_folders_stand_side_by_side(folders):
    report = bscrit.fit(folders)
    assert [found.group for found in report.fits] == [{"source": str(folder)} for folder in folders]
    assert report.fits[0].b_crit == bscrit.fit(folders[0]).fits[0].b_crit


def test_a_table_stands_beside_a_folder_and_its_columns_may_be_named(folders, tmp_path):
    (tmp_path / "runs.csv").write_text("batch_size,n\n64,4000\n256,1250\n1024,570\n")
    report = bscrit.fit([folders[0], tmp_path / "runs.csv"], columns={"steps": "n"}, unit="image")
    assert len(report.fits) == 2


@pytest.mark.parametrize("again", ["", "/", "/../a"])
def test_a_folder_that_is_named_twice_is_refused(folders, again):
    with pytest.raises(UserError, match="is named twice"):
        bscrit.fit([folders[0], f"{folders[0]}{again}"])


def test_so_is_a_table(tmp_path):
    (tmp_path / "runs.csv").write_text("batch_size,steps\n64,4000\n256,1250\n1024,570\n")
    with pytest.raises(UserError, match="is named twice"):
        bscrit.fit([tmp_path / "runs.csv", f"{tmp_path}/./../{tmp_path.name}/runs.csv"])


def test_units_must_agree(folders):
    facts = whole_json(folders[1] / "preflight.json")
    write_json(folders[1] / "preflight.json", {**facts, "unit": "token"})
    with pytest.raises(UserError, match="different units: image, token"):
        bscrit.fit(folders)
    write_json(folders[1] / "preflight.json", facts)


@pytest.mark.parametrize("options", [{"by": ["x"]}, {"columns": {"steps": "n"}}, {"direction": "up"}])
def test_options_for_columns_are_refused_where_there_are_none(folders, options):
    (name,) = options
    for source in (folders[0], folders):
        with pytest.raises(UserError, match=f"--{name} says nothing"):
            bscrit.fit(source, **options)
