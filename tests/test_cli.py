"""The command line: instant help, exit codes, and a user's mistakes in two lines."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from own import write_spec

from bscrit import cli

HEAVY = ("torch", "pandas", "scipy", "matplotlib", "numpy", "rich")
QUADRATIC = """
[workload]
use = "quadratic"
dimensions = 10
[sweep]
batch_sizes = [4, 32]
targets = [0.5, 0.2]
seeds = 2
max_examples = 20_000
[noise]
source = "none"
[compute]
lanes = "loop"
workers = 1
device = "cpu"
"""


@pytest.fixture
def spec(tmp_path):
    folder = tmp_path / "my sweeps"
    folder.mkdir()
    (folder / "tiny.toml").write_text(QUADRATIC)
    return folder / "tiny.toml"


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run a command in this process; exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bscrit", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code or 0, *capfd.readouterr()

    return run


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["sweep", "--help"], ["fit", "--help"], ["plot", "--help"], ["--version"]]
)
def test_help_imports_nothing_heavy(arguments):
    code = f"""
import sys
sys.argv = ["bscrit", *{arguments!r}]
from bscrit.cli import main
try:
    main()
finally:
    sys.stdout.write("\\nIMPORTED" + repr(sorted(set({HEAVY!r}) & set(sys.modules))))
"""
    out = python(code)
    assert out.endswith("IMPORTED[]")
    assert "bscrit" in out


def test_the_check_of_imports_can_fail():
    code = f"import sys, bscrit.crossing; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    assert python(code) == "['numpy']\n"


def test_a_sweep_command_never_imports_torch(spec):
    code = f"""
import sys
sys.argv = ["bscrit", "sweep", {str(spec)!r}, "--out", {str(spec.parent / "out")!r}]
from bscrit.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""
    assert python(code).splitlines()[-1] in ("0 False", "None False")


def test_a_sweep_prints_its_summary_on_stdout_and_talks_on_stderr(run, spec, tmp_path):
    code, out, err = run("sweep", spec, "--out", tmp_path / "my results")
    assert code == 0
    assert out.splitlines()[0].split()[:2] == ["batch", "size"]
    assert "batch size 4 search" in err
    assert err.splitlines()[-1] == f"next: bscrit fit '{tmp_path / 'my results'}'"
    code, out, err = run("sweep", spec, "--out", tmp_path / "my results")
    assert code == 0
    assert " 0 new" in out
    assert "search" not in err


def test_results_go_to_the_name_of_the_spec(run, spec, tmp_path):
    assert run("sweep", spec)[0] == 0
    assert (tmp_path / "results" / "tiny" / "trials").is_dir()


def test_a_dry_run_prints_the_plan_and_its_largest_cost_and_leaves_nothing(run, spec, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = run("sweep", spec, "--dry-run")
    assert code == 0
    assert sorted(tmp_path.rglob("*")) == before
    lines = out.splitlines()
    assert lines[0] == "tiny: quadratic, 10 parameters, data: drawn without end"
    assert "untrained loss 1.464; targets 0.5, 0.2" in lines
    assert "batch sizes 4, 32 [examples]" in lines
    assert any(line.startswith("evaluation: at most ") for line in lines)
    assert (
        "  batch size 4: search, rates 0.00156, 0.00625, 0.025, 0.1, 0.4, 1.6, 6.4; 1 seed, "
        "at most 5000 steps each" in lines
    )
    assert lines[-1].startswith("at most ")


def test_a_dry_run_of_a_finished_sweep_says_so(run, spec):
    run("sweep", spec)
    code, out, _ = run("sweep", spec, "--dry-run")
    assert code == 0
    assert "nothing is left to train" in out
    code, out, _ = run("sweep", spec, "--dry-run", "--set", "sweep.seeds=3")
    assert "batch size 4: measure" in out
    assert "not reused" not in out


def test_a_dry_run_says_which_trials_another_recipe_leaves_aside(run, spec, tmp_path):
    run("sweep", spec)
    trials = len(list((tmp_path / "results" / "tiny" / "trials").iterdir()))
    _, out, _ = run("sweep", spec, "--dry-run", "--set", "optimizer.momentum=0.5")
    assert "0 trials of this sweep in results/tiny already" in out
    assert f"{trials} other trials in this folder, not reused" in out


def test_a_dry_run_shows_the_schedule_in_steps_at_every_batch_size(run, spec):
    code, out, _ = run(
        "sweep", spec, "--dry-run", "--set", "schedule.use=cosine", "--set", "schedule.warmup_examples=64",
        "--set", "schedule.horizon_steps=2000",
    )  # fmt: skip
    assert code == 0
    assert "  batch size 4: warm-up 16 steps, horizon 2000 steps" in out
    assert "  batch size 32: warm-up 2 steps, horizon 2000 steps" in out


def test_another_optimizer_drops_keys_of_the_file_that_it_lacks_and_says_so(run, spec):
    with spec.open("a") as file:
        file.write("[optimizer]\nmomentum = 0.5\n")
    code, _, err = run("sweep", spec, "--dry-run", "--set", "optimizer.use=adam")
    assert code == 0
    assert f'{spec} [optimizer] momentum = 0.5 is left out: use = "adam" has none' in err.splitlines()


def test_set_overrides_keys(run, spec, tmp_path):
    code, _, _ = run(
        "sweep",
        spec,
        "--set",
        "sweep.batch_sizes=[8]",
        "--set",
        "sweep.seeds = 1",
        "--set",
        "sweep.targets=[0.4]",
    )
    assert code == 0
    names = [path.name for path in (tmp_path / "results" / "tiny" / "trials").iterdir()]
    assert {name[:6] for name in names} == {"b00008"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.toml"], "missing.toml: there is no such file"),
        (["SPEC", "--set", "sweep.seeds=zero"], "sweep.seeds"),
        (["SPEC", "--set", "sweep.sedes=3"], "did you mean 'seeds'?"),
        (["SPEC", "--set", "seeds=3"], "is not of the form table.key=value"),
        (["SPEC", "--set", "sweep.targets=[9.0]"], "is met before training"),
        (["SPEC", "--set", "workload.dimensions=0"], "dimensions = 0 must be a whole number, at least 1"),
        (["SPEC", "--set", "workload.dimension=3"], "is not a setting of 'quadratic'"),
        (["SPEC", "--set", "compute.device=cuda:99"], "is not there"),
        (["SPEC", "--out", "SPEC"], "choose another folder, with --out"),
        (["SPEC", "--out", "SPEC/deeper"], "choose another folder, with --out"),
        (["SPEC", "--dry-run", "--set", "sweep.seeds=0"], "sweep.seeds"),
        (["SPEC", "--dry-run", "--set", "sweep.targets=[9.0]"], "is met before training"),
        (["SPEC", "--dry-run", "--set", "workload.dimension=3"], "is not a setting of 'quadratic'"),
    ],
)
def test_a_mistake_is_two_lines_without_a_traceback_and_exit_code_2(run, spec, arguments, expected):
    given = [argument.replace("SPEC", str(spec)) for argument in arguments]
    code, out, err = run("sweep", *given)
    lines = [line for line in err.splitlines() if not line.startswith("[")]
    assert code == 2
    assert out == ""
    assert expected in err
    assert "Traceback" not in err
    assert len(lines) == 2
    assert lines[1].startswith("  hint: ")


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"top": "def broken(:"}, "cannot be imported: SyntaxError"),
        ({"evaluate": "loss = loss.repeat(2)"}, "returned shape (2,), expected a scalar"),
        ({"model": "return nn.Flatten()"}, "has no parameters that require a gradient"),
        ({"evaluate": "loss = loss * float('nan')"}, "its evaluation before training is nan"),
        ({"batch": "raise RuntimeError('no data')"}, "fails on its first batch: RuntimeError: no data"),
    ],
)
def test_mistakes_in_a_user_s_own_workload(run, tmp_path, inside, expected):
    own = write_spec(tmp_path / "elsewhere", **inside)
    code, _, err = run("sweep", own, "--dry-run")
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    for line in err.splitlines():
        named = line.rpartition("see ")[2]
        assert not named.endswith(".log") or Path(named).exists(), "a log that is named exists"


def test_a_sweep_that_left_points_missing_is_exit_code_1(run, spec):
    code, out, err = run("sweep", spec, "--set", "sweep.max_steps=2", "--set", "sweep.targets=[0.01]")
    assert code == 1
    (point,) = (line for line in err.splitlines() if line.startswith("missing: "))
    assert "0.01 at batch size 4, 32" in point
    assert "hint: raise sweep.max_steps" in err
    assert "trials:" in out


def test_usage_errors_are_exit_code_2(run):
    assert run("swep")[0] == 2
    assert run("sweep")[0] == 2


def test_the_version(run):
    code, out, _ = run("--version")
    assert (code, out.split()[0]) == (0, "bscrit")


def test_schemas_are_json(run):
    for of in ("spec", "fit"):
        code, out, _ = run("schema", of)
        assert code == 0
        assert json.loads(out)["$schema"]
    code, _, err = run("schema", "spek")
    assert code == 2
    assert "did you mean 'spec'?" in err


def test_a_reader_that_leaves_early_is_no_error_of_ours():
    command = [sys.executable, "-m", "bscrit", "schema", "spec"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) in (0, 1, 141), "typer says 1"


def test_a_sweep_without_torch_says_how_to_get_it(run, spec, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, _, err = run("sweep", spec)
    assert code == 2
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if not line.startswith("[")]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_under_our_output_is_one_line(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("batch_size,steps\n64,4000\n256,1250\n1024,570\n4096,400\n")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-m", "bscrit", "fit", str(table)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: No space left on device"]


def test_letters_that_the_terminal_lacks_are_no_error(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text(
        "workload,batch_size,steps\n" + "".join(f"größe,{b},{1000 + 9e4 / b}\n" for b in (16, 64, 256, 1024))
    )
    command = [sys.executable, "-m", "bscrit", "fit", str(table)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe" in done.stdout
