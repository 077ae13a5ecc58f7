"""What the documents say is so: commands run, TOML parses, files exist."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bscrit.noise import HEADER
from bscrit.spec import parse_spec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
GUIDES = [README, *((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("sweep", "fit", "noise"))]


def commands(text: str) -> list[list[str]]:
    """Command lines of bscrit, in code blocks and in running text, without comments."""
    blocks = re.findall(r"^ {4}(?:\.venv/bin/)?(bscrit .*)$", text, re.MULTILINE)
    inline = re.findall(r"`(bscrit [^`]+)`", text)
    lines = [line.partition("  #")[0].partition(" > ")[0].strip() for line in blocks + inline]
    return [shlex.split(line) for line in dict.fromkeys(lines)]


def toml_blocks(text: str) -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_commands_are_found():
    lines = [" ".join(command) for guide in GUIDES for command in commands(guide)]
    assert "bscrit sweep sweeps/digits.toml" in lines
    assert "bscrit sweep sweeps/own/own.toml --dry-run" in lines
    assert "bscrit fit runs.csv" in lines
    assert "bscrit fit results/x --at 64,256,1024" in lines
    assert len(lines) >= 12


@pytest.mark.slow
@pytest.mark.timeout(1500)  # whole sweeps, on a machine that may be busy
def test_every_command_of_the_guides_runs(tmp_path: Path):
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    (tmp_path / "bscrit").symlink_to(ROOT / "bscrit")
    (tmp_path / "runs.csv").write_text("batch_size,steps\n64,4000\n256,1250\n1024,570\n4096,400\n16384,360\n")
    (tmp_path / "noise.csv").write_text(
        HEADER + "\n" + "".join(f"{20 * k},0,identity,4,9,16,6\n" for k in range(30))
    )
    stand_ins = {"results/x": "results/digits", "old.json": "results/digits/fit.json"}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for command in commands("\n".join(GUIDES)):
        arguments = [stand_ins.get(word, word) for word in command[1:]]
        if len(arguments) == 1 or "SPEC" in arguments:  # a name in running text
            continue
        arguments = [word for word in arguments if word != "--strict"]
        if {"A", "B", "C"} <= set(arguments):
            three_models(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "bscrit", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{' '.join(command)} says nothing"


def three_models(folder: Path) -> None:
    """Results of three models A, B, C, that differ in their number of parameters."""
    for name, parameters in (("A", 1000), ("B", 4000), ("C", 16000)):
        shutil.copytree(folder / "results" / "digits", folder / name)
        facts = json.loads((folder / name / "preflight.json").read_text())
        (folder / name / "preflight.json").write_text(json.dumps({**facts, "parameters": parameters}))


def test_every_toml_block_is_a_spec(tmp_path: Path):
    (tmp_path / "my_module.py").write_text("class MyWorkload: pass\n")
    blocks = [block for guide in GUIDES for block in toml_blocks(guide)]
    assert blocks
    whole = tomllib.loads(blocks[0])
    for block in blocks:
        spec = parse_spec({**whole, **tomllib.loads(block)}, folder=tmp_path)  # others show one table
        assert spec.optimizer.at(64)["beta2"] == pytest.approx(0.99)
        assert spec.optimizer.at(4096)["beta2"] == 0.9


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for document in DOCUMENTS:
        for target in re.findall(r"(?:`|^ {4})make (\w+)", document.read_text("utf-8"), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name}: make {target}"


def test_files_of_the_tour_exist():
    tour = README[README.index("## A tour of the code") :]
    for path in re.findall(r"`((?:train|sweep|fit|plot)/\w+\.py|\w+\.py)`", tour):
        assert (ROOT / "bscrit" / path).exists(), path


def test_the_changelog_names_the_version():
    import bscrit

    assert f"## {bscrit.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def printed_commands(source: str) -> list[str]:
    """Commands and options with a value in the strings that a module may print; its docstrings are none."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    shown = "\n".join(ast.unparse(node) for node in texts if id(node) not in said)
    return re.findall(r"`bscrit [^`]*`|--set \S+", shown)


def pastes(command: str) -> bool:
    """Without a placeholder, and without brackets that a shell expands."""
    return not re.search(r"\b[A-Z]{4,}\b|\.\.\.", command) and not re.search(r"=\[", command)


def test_printed_commands_work_when_pasted():
    modules = [path for path in (ROOT / "bscrit").rglob("*.py") if path.name != "cli.py"]
    listed = {text: path.name for path in modules for text in printed_commands(path.read_text("utf-8"))}
    assert len(listed) > 5
    assert {text: name for text, name in listed.items() if not pastes(text)} == {}


@pytest.mark.parametrize(
    "text", ["`bscrit sweep SPEC`", "`bscrit fit ... --json`", "--set sweep.batch_sizes=[4,8]"]
)
def test_the_check_of_printed_commands_can_fail(text: str):
    assert set(printed_commands(f'x = f"add it: {text} now"')) == {text}
    assert not pastes(text)
