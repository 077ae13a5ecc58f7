"""What is installed: lower bounds that were tried, the same version everywhere, and a wheel that holds all it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bscrit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LINTERS = {"ruff", "mypy", "pandas-stubs", "scipy-stubs"}


def lower_bounds() -> dict[str, str]:
    """Lowest version of each requirement, also of the extras."""
    extras = PROJECT["optional-dependencies"].values()
    requirements = [one for several in (PROJECT["dependencies"], *extras) for one in several]
    matches = [re.match(r"([\w-]+)(?:\[.*\])?(?:>=([\d.]+))?", one) for one in requirements]
    return {match[1]: match[2] for match in matches if match and match[1] not in {"bscrit", *LINTERS}}


def test_every_lower_bound_is_one_that_is_installed_and_tested():
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned == lower_bounds()
    assert None not in pinned.values()


def test_the_version_stands_alike_everywhere():
    assert PROJECT["version"] == bscrit.__version__
    assert f"version: {bscrit.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


@pytest.mark.slow
def test_the_wheel_is_typed_and_holds_the_schemas(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("bscrit-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry,) = (name for name in names if name.endswith("METADATA"))
        metadata = archive.read(entry).decode()
    assert {"bscrit/py.typed", "bscrit/fit/fit.schema.json"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"bscrit", entry.split("/")[0]}
    assert "Classifier: Typing :: Typed" in metadata
