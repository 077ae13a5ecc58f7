"""`bscrit plot`: paths on stdout, what a table cannot give on stderr, formats."""

from __future__ import annotations

import pytest

from bscrit.errors import UserError
from bscrit.fit.command import Options
from bscrit.plot.command import run


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{2**k},{1000 * (1 + 300 / 2**k) * (1 + 0.02 * (-1) ** k):.2f}" for k in range(4, 14)]
    path.write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    return str(path)


def test_a_table_gives_two_figures_in_every_format(table, tmp_path, capsys):
    assert run(table, tmp_path / "figures", ["png", "svg", "pdf"], [], Options(unit="image")) == 0
    said = capsys.readouterr()
    names = sorted(line.rpartition("/")[2] for line in said.out.splitlines())
    assert names == sorted(
        f"{name}.{ending}" for name in ("frontier", "steps") for ending in ("png", "svg", "pdf")
    )
    assert "others need a sweep's results" in said.err
    head = {name: (tmp_path / "figures" / name).read_bytes()[:5] for name in names}
    assert head["frontier.pdf"] == b"%PDF-"
    assert head["steps.png"][1:4] == b"PNG"
    assert b"images" in (tmp_path / "figures" / "steps.svg").read_bytes()


def test_a_figure_that_a_table_cannot_give_is_an_error_with_the_reason(table, tmp_path, caplog):
    with pytest.raises(UserError, match="none of these figures"):
        run(table, tmp_path / "figures", ["png"], ["curves"], Options())
    assert "no curves figure" in caplog.text


def test_unknown_names_are_refused(table, tmp_path):
    with pytest.raises(UserError, match="png"):
        run(table, tmp_path, ["pgn"], [], Options())
    with pytest.raises(UserError, match="frontier"):
        run(table, tmp_path, ["png"], ["fronteir"], Options())
