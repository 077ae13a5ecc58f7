from __future__ import annotations

import logging
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from plotted import make_fit, make_noise, make_record, report_on, sweep, sweep_records

from bscrit.errors import UserError
from bscrit.fit.report import Report
from bscrit.plot.draw import FIGURES, draw, unsupported

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
TABLE = Report("zhang.csv", "sequence", (make_fit(),))


def test_a_sweep_gives_every_figure(tmp_path: Path) -> None:
    report = sweep()
    assert unsupported(report) == {}
    paths = draw(report, tmp_path / "new" / "figures")
    assert paths == [tmp_path / "new" / "figures" / f"{name}.png" for name in FIGURES]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


@pytest.mark.parametrize("ending", STARTS)
def test_formats_are_what_they_say_and_the_same_each_time(tmp_path: Path, ending: str) -> None:
    (first,) = draw(TABLE, tmp_path / "a", [ending], ["frontier"])
    (second,) = draw(TABLE, tmp_path / "b", [ending], ["frontier"])
    assert first.name == f"frontier.{ending}"
    assert first.read_bytes().startswith(STARTS[ending])
    assert first.read_bytes() == second.read_bytes()


def test_a_drawing_does_not_depend_on_the_users_settings(tmp_path: Path) -> None:
    (first,) = draw(TABLE, tmp_path / "a", which=["steps"])
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "lines.linewidth": 9}):
        (second,) = draw(TABLE, tmp_path / "b", which=["steps"])
        assert matplotlib.rcParams["font.size"] == 20
    assert first.read_bytes() == second.read_bytes()


def test_an_svg_is_whole_and_has_no_date(tmp_path: Path) -> None:
    (path,) = draw(TABLE, tmp_path, [".SVG"], ["steps"])
    ET.parse(path)
    assert "<dc:date>" not in path.read_text()


def test_a_table_gives_frontier_and_steps_and_reasons_for_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        paths = draw(TABLE, tmp_path)
    assert [path.name for path in paths] == ["frontier.png", "steps.png"]
    assert unsupported(TABLE).keys() == {"rates", "best_rate", "curves", "noise", "noise_loss"}
    assert "no noise figure: no noise scale was measured" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_figure_asked_for_by_name_is_missed_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert draw(TABLE, tmp_path, which=["curves"]) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no curves figure: the source has no runs with curves" in caplog.text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("frontier", "no batch size has a run that counts"),
        ("rates", "only one learning rate was tried"),
        ("best_rate", "it needs the tuned learning rate of two batch sizes or more"),
        ("curves", "every run failed or diverged"),
        ("noise", "no noise scale was measured"),
        ("noise_loss", "no noise scale was measured"),
    ],
)
def test_reasons(name: str, reason: str) -> None:
    failed = make_record(8, 0.1, status="failed")
    assert unsupported(report_on([failed]))[name] == reason


def test_unknown_names_name_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown figure 'fronteir'") as error:
        draw(TABLE, tmp_path / "out", which=["fronteir"])
    assert "did you mean 'frontier'?" in error.value.remedy
    with pytest.raises(UserError, match="unknown format 'jpg'") as error:
        draw(TABLE, tmp_path / "out", formats=["jpg"])
    assert "pdf, png, svg" in error.value.remedy
    assert not (tmp_path / "out").exists()


def test_several_targets_give_a_panel_of_rates_each(tmp_path: Path) -> None:
    easier = make_fit([4, 16, 64], [60, 60, 60], None, None, target=0.6, verdict="not identified")
    (path,) = draw(report_on(sweep_records(), [easier, *sweep().fits]), tmp_path, ["svg"], ["rates"])
    assert path.read_text().count("<!-- Learning rate -->") == 2
    assert "<!-- target 0.6 -->" in path.read_text()


def test_more_targets_than_panels_are_said(tmp_path: Path) -> None:
    fits = tuple(make_fit([4, 16], [60, 60], None, None, target=0.5 + 0.01 * i) for i in range(8))
    (path,) = draw(report_on(sweep_records((4, 16)), fits), tmp_path, ["svg"], ["rates"])
    assert path.read_text().count("<!-- Learning rate -->") == 6
    assert "<!-- 2 more targets are not drawn -->" in path.read_text()


def test_each_metric_of_the_noise_has_a_panel(tmp_path: Path) -> None:
    both = [make_noise(50), make_noise(20, metric="hessian")]
    records = [make_record(size, 0.1, role="measure", noise=both) for size in (4, 16)]
    paths = draw(report_on(records), tmp_path, ["svg"], ["noise", "noise_loss"])
    for path in paths:
        drawn = path.read_text()
        assert drawn.count("<!-- Noise scale $B_{simple}$ (images) -->") == 1
        assert drawn.count("<!-- Noise scale $B_{noise}$ (images) -->") == 1


def test_the_size_of_the_training_set_is_used(tmp_path: Path) -> None:
    records = [make_record(4, 0.1, role="measure", noise=make_noise(50))]
    found = [
        draw(report_on(records, data=data), tmp_path / str(data), ["svg"], ["noise"])[0]
        for data in (None, 10.0)
    ]
    assert found[0].read_bytes() != found[1].read_bytes()


def test_without_a_loss_above_0_there_is_no_axis_of_losses() -> None:
    record = make_record(4, 0.1, role="measure", noise=make_noise(50))
    below = replace(record, curve=replace(record.curve, loss=-record.curve.loss))
    assert unsupported(report_on([below]))["noise_loss"] == "no run has a loss above 0"
    assert "noise" not in unsupported(report_on([below]))


def test_neither_pyplot_nor_torch_nor_a_display_is_needed(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from plotted import sweep\n"
        "from bscrit.plot.draw import draw\n"
        "report = sweep((4, 16))\n"
        "draw(report, Path(sys.argv[2]), ('svg', 'pdf'), ['curves'])\n"
        "print({'matplotlib.pyplot', 'torch', 'pandas', 'tkinter'} & set(sys.modules) or 'none')\n"
    )
    arguments = [sys.executable, "-c", program, str(Path(__file__).parents[1]), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, env={"MPLBACKEND": "tkagg"}, check=True)
    assert done.stdout.strip() == "none"
