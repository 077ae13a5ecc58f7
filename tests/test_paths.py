"""File names stand in one module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bscrit
from bscrit.paths import ResultsPaths, TrialPaths

PACKAGE = Path(bscrit.__file__).parent
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "paths.py")
NAMES = {
    path.name
    for paths in (ResultsPaths(Path("results")), TrialPaths(Path("trial")))
    for name, path in vars(paths).items()
    if name not in ("root", "folder")
}


def names_in(source: str) -> Iterator[str]:
    """Names of files that stand in a string on their own or at the end of a path, and of folders that are joined."""
    tree = ast.parse(source)
    joined = {id(node.right) for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.rpartition("/")[2]
            if name in NAMES and (Path(name).suffix or name != node.value or id(node) in joined):
                yield name


def test_every_name_is_known():
    assert {
        "spec.toml", "preflight.json", "workers.log", ".lock", "trials", "requests", "fit.json", "frontier.csv",
        "crossings.csv", "figures", "trial.json", "order.json", "status.json", "curve.csv",
        "noise.csv", "frozen.csv", "log.txt", "checkpoint.pt",
    } == NAMES  # fmt: skip


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_no_other_module_names_a_file(file):
    assert not set(names_in(file.read_text("utf-8")))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("folder / 'curve.csv'", "curve.csv"),
        ("out / 'trials'", "trials"),
        ("f'{folder}/log.txt'", "log.txt"),
        ("Path('results/trials/x/status.json')", "status.json"),
    ],
)
def test_the_check_can_fail(source, name):
    assert list(names_in(source)) == [name]


@pytest.mark.parametrize("source", ["'trials'", "'''Reads curve.csv and noise.csv.'''", "'f.csv'"])
def test_what_names_no_file_passes(source):
    assert not list(names_in(source))
