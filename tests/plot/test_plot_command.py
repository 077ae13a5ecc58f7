"""`bscrit plot`: paths on stdout, what a table cannot give on stderr, formats."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from plotted import make_noise, make_record

from bscrit import results as module
from bscrit.curve import curve_header, curve_line
from bscrit.errors import UserError
from bscrit.files import write_json
from bscrit.fit.source import fit
from bscrit.noise import HEADER as NOISE
from bscrit.noise import noise_line
from bscrit.plot.command import run
from bscrit.preflight import Preflight
from bscrit.record import begin, end


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{2**k},{1000 * (1 + 300 / 2**k) * (1 + 0.02 * (-1) ** k):.2f}" for k in range(4, 14)]
    path.write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    return str(path)


def test_a_table_gives_two_figures_in_every_format(table, tmp_path, capsys, caplog):
    caplog.set_level("INFO")
    assert run(table, tmp_path / "figures", ["png", "svg", "pdf"], [], unit="image") == 0
    said = capsys.readouterr()
    names = sorted(line.rpartition("/")[2] for line in said.out.splitlines())
    assert names == sorted(
        f"{name}.{ending}" for name in ("frontier", "steps") for ending in ("png", "svg", "pdf")
    )
    assert "others need a sweep's results" in caplog.text
    head = {name: (tmp_path / "figures" / name).read_bytes()[:5] for name in names}
    assert head["frontier.pdf"] == b"%PDF-"
    assert head["steps.png"][1:4] == b"PNG"
    assert b"images" in (tmp_path / "figures" / "steps.svg").read_bytes()


def test_a_figure_that_a_table_cannot_give_is_an_error_with_the_reason(table, tmp_path, caplog):
    with pytest.raises(UserError, match="none of these figures"):
        run(table, tmp_path / "figures", ["png"], ["curves"])
    assert "no curves figure" in caplog.text


def test_the_figures_of_a_table_lie_beside_it(table, tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run(table, None, ["png", " SVG"], ["frontier"])
    out = tmp_path / "runs-figures"
    assert capsys.readouterr().out.split() == [str(out / "frontier.png"), str(out / "frontier.svg")]


def test_those_of_a_stream_lie_here(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Path(table).open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        run("-", None, ["png"], ["frontier"])
    assert capsys.readouterr().out.split() == [str(Path("figures") / "frontier.png")]


def test_a_unit_that_the_font_lacks_is_drawn_without_warning(table, tmp_path, caplog):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph")
        assert run(table, tmp_path, ["png", "svg", "pdf"], ["frontier"], unit="\N{CAT}") == 0
    assert "glyph" not in caplog.text


def test_figures_do_not_depend_on_the_environment_s_backend(table, tmp_path):
    command = [sys.executable, "-m", "bscrit", "plot", table, "--out", str(tmp_path / "out")]
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def results(tmp_path):
    """Three batch sizes whose runs meet 0.5 after 100 steps, in a training set of 640 images."""
    for size in (4, 16, 64):
        for seed in (1, 2):
            made = make_record(size, 0.1, role="measure", seed=seed, noise=make_noise(50))
            folder = tmp_path / "results" / "trials" / made.trial.name
            begin(folder, made.trial, made.order)
            rows = zip(made.curve.steps, made.curve.examples, made.curve.loss, strict=True)
            lines = [curve_line(int(step), int(seen), loss, size, 0.1, 0.0) for step, seen, loss in rows]
            (folder / "curve.csv").write_text("\n".join([curve_header(), ""]) + "".join(lines))
            (samples,) = made.noise.values()
            columns = (samples.n_small, samples.sq_small, samples.n_big, samples.sq_big)
            table = zip(samples.steps, *columns, strict=True)
            told = [noise_line(int(step), int(step) * size, "identity", *row) for step, *row in table]
            (folder / "noise.csv").write_text("\n".join([NOISE, ""]) + "".join(told))
            end(folder, "reached", "", {"steps": int(made.curve.steps[-1])})
    write_json(
        tmp_path / "results" / "preflight.json",
        Preflight(unit="image", examples=640, untrained_value=2.3).to_dict(),
    )
    return tmp_path / "results"


def test_a_results_folder_gives_the_noise_scale_of_its_training_set(results, capsys):
    assert run(str(results), None, ["svg"], ["noise", "noise_loss"]) == 0
    assert capsys.readouterr().out.split() == [
        str(results / "figures" / f"{name}.svg") for name in ("noise", "noise_loss")
    ]
    (along,) = fit(results).runs.noise
    assert along.windows[4][0].scale.value == pytest.approx(50 / (1 + 50 / 640))
    assert b"(images)" in (results / "figures" / "noise_loss.svg").read_bytes()


def test_a_folder_is_read_once(results, monkeypatch):
    trials = []
    read_record = module.read_record
    monkeypatch.setattr(module, "read_record", lambda folder: trials.append(folder) or read_record(folder))
    assert run(str(results), None, ["svg"], ["frontier", "rates"]) == 0
    assert len(trials) == len(set(trials)) == 6


def test_unknown_names_are_refused(table, tmp_path):
    with pytest.raises(UserError, match="png"):
        run(table, tmp_path, ["pgn"], [])
    with pytest.raises(UserError, match="frontier"):
        run(table, tmp_path, ["png"], ["fronteir"])
