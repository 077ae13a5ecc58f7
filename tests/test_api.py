"""The public names: functions whatever was imported before, typed, and free until they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bscrit
from bscrit.fit.report import Report

ROOT = Path(__file__).parents[1]
LAZY = ("torch", "pandas", "scipy", "matplotlib", "numpy", "rich", "pydantic", "typer")
USED = """
import torch
from torch import Tensor, nn

import bscrit
from bscrit import fit, plot, sweep

class Mine(bscrit.Workload):
    examples = 60

    def model(self, seed: int) -> nn.Module:
        with bscrit.seeded(torch.device("cpu"), seed):
            return nn.Linear(2, 1)

    def losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        return torch.randn(len(batch), generator=bscrit.generator(1, 2))

    def evaluate(self, model: nn.Module) -> str:  # type: ignore[override]
        return ""

indices: Tensor = bscrit.ExampleStream(60, seed=0).batch(0, 4)
swept = sweep("mine.toml", settings={"sweep.seeds": 5})
report: bscrit.Report = fit(swept, targets=[0.5])
value: float | None = report.fits[0].b_crit.value
wrong: str = report.fits[0].b_crit.value  # type: ignore[assignment]
for path in plot(report, formats=["svg"]):
    print(path.name, swept.missing[0].target + 1, swept.records[0].trial.lr + 1)
plot(swept.folder, format="svg")  # type: ignore[call-arg]
fit(3)  # type: ignore[arg-type]
meter = bscrit.NoiseMeter(nn.Linear(2, 1), every=5)
scale: str = meter.result().scale.value  # type: ignore[assignment]
bscrit.fitt  # type: ignore[attr-defined]
try:
    fit("runs.csv")
except bscrit.UserError as error:
    print(error.remedy + "")
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{2**k},{1000 * (1 + 300 / 2**k) * (1 + 0.02 * (-1) ** k):.2f}" for k in range(4, 14)]
    path.write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import bscrit.fit.core, bscrit.fit.command, bscrit.sweep.plan, bscrit.plot.draw",
        "import bscrit; bscrit.fit; import bscrit.fit.core, bscrit.plot.command, bscrit.sweep.command",
        "from bscrit.fit import core; from bscrit import sweep; from bscrit.sweep import plan; import bscrit.plot",
    ],
)
def test_fit_sweep_and_plot_are_functions_whatever_was_imported_before(before, table):
    code = f"""
{before}
import bscrit
assert bscrit.fit({str(table)!r}).fits[0].verdict == "identified"
import bscrit.fit.likelihood, bscrit.plot.ticks, bscrit.sweep.search
from bscrit import fit, plot, sweep
assert [one.__qualname__ for one in (bscrit.fit, bscrit.plot, bscrit.sweep)] == ["fit", "plot", "sweep"]
assert (fit, plot, sweep) == (bscrit.fit, bscrit.plot, bscrit.sweep)
from bscrit.fit import core
print(core.__name__)
"""
    assert python(code) == "bscrit.fit.core\n"


def test_importing_bscrit_imports_nothing_else():
    code = f"import sys, bscrit; print(sorted(set({LAZY!r}) & set(sys.modules)))"
    assert python(code) == "[]\n"
    assert python(code.replace("bscrit;", "bscrit; bscrit.fit;")) != "[]\n", "the check can fail"


def test_every_public_name_is_there_and_no_other():
    for name in bscrit.__all__:
        assert getattr(bscrit, name) is getattr(bscrit, name)
    with pytest.raises(AttributeError, match="fitt"):
        _ = bscrit.fitt


@pytest.mark.parametrize("name", ["NoiseMeter", "Workload", "seeded", "generator", "ExampleStream"])
def test_without_torch_the_remedy_is_the_extra(name, tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('none', name='torch')")
    code = f"""
import bscrit
assert bscrit.fit
try:
    from bscrit import {name}
except bscrit.UserError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert python(code, PYTHONPATH=path).splitlines() == [
        f"bscrit.{name}: needs torch, which is not installed",
        "  hint: pip install 'bscrit[train]'",
    ]


def test_a_mapping_is_swept_and_its_results_are_fitted_and_drawn(tmp_path, capfd):
    spec = {
        "workload": {"use": "quadratic", "dimensions": 10},
        "sweep": {"batch_sizes": [4, 32], "targets": [0.5], "seeds": 2, "max_examples": 20_000},
        "noise": {"source": "none"},
        "compute": {"lanes": "loop", "workers": 1, "device": "cpu"},
    }
    with pytest.raises(bscrit.UserError, match=r"^settings sweep.seeds=-1: is out of range"):
        bscrit.sweep(spec, out=tmp_path / "mine", settings={"sweep.seeds": -1})
    swept = bscrit.sweep(spec, out=tmp_path / "mine", settings={"sweep.seeds": 1, "optimizer.momentum": 0.5})
    assert swept.folder == tmp_path / "mine"
    assert not swept.missing
    assert not swept.given_up
    assert "trials" in str(swept)
    measured = [record.trial for record in swept.records if record.role == "measure"]
    assert sorted(trial.batch_size for trial in measured) == [4, 32]
    assert {trial.optimizer["momentum"] for trial in measured} == {0.5}
    report = bscrit.fit(swept)
    assert report == bscrit.fit(swept.folder)
    assert isinstance(report, Report)
    assert [point.batch_size for point in report.fits[0].points] == [4, 32]
    for source in (swept, report, swept.folder):
        (path,) = bscrit.plot(source, formats=["svg"], figures=["curves"])
        assert path == tmp_path / "mine" / "figures" / "curves.svg"
        assert path.exists()
        path.unlink()
    with pytest.raises(bscrit.UserError, match=r"bscrit.plot\(unit=\): goes with a source"):
        bscrit.plot(report, unit="image")
    assert capfd.readouterr().out == "", "stdout is the caller's"


def test_a_mapping_needs_a_folder():
    with pytest.raises(bscrit.UserError, match="out="):
        bscrit.sweep({})


def test_a_frame_is_drawn(table, tmp_path, monkeypatch):
    import pandas as pd

    monkeypatch.chdir(tmp_path)
    paths = bscrit.plot(pd.read_csv(table), figures=["frontier"], unit="image")
    assert paths == [Path("figures/frontier.png")]


@pytest.mark.slow
def test_a_user_s_types_are_real(tmp_path):
    """An ignore that is not needed is an error of mypy --strict, and so is a wrong type that is not ignored."""
    script = tmp_path / "script.py"
    script.write_text(USED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", script],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (ROOT / "bscrit" / "py.typed").exists()
