"""Imports point one way, and nothing above the process boundary knows torch."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import bscrit

PACKAGE = Path(bscrit.__file__).parent
WORKER = {"engine", "train", "measure", "meter", "workloads"}
ALLOWED = {
    "__main__": {"cli"},
    "cli": {"sweep", "fit", "plot", "nouns"},
    "sweep": {"cohort", "fit", "nouns"},
    "plot": {"fit", "nouns"},
    "fit": {"tables", "nouns"},
    "tables": {"nouns"},
    "cohort": {"nouns"},
    "train": {"cohort", "engine", "measure", "nouns"},
    "engine": {"measure", "nouns"},
    "meter": {"measure", "nouns"},
    "measure": {"nouns"},
    "workloads": {"engine.workload", "engine.seeding", "engine.streams", "nouns"},
    "nouns": {"nouns"},
}
"""What each floor may import, besides itself; the nouns are the top-level modules, the recipe and the spec."""


def floor(module: str) -> str:
    """The floor of a module of the package, such as "sweep" for bscrit.sweep.plan."""
    parts = module.split(".")[1:]
    return parts[0] if parts and parts[0] in ALLOWED else "nouns"


def imports(source: str, module: str, for_types: bool = False) -> Iterator[str]:
    """Dotted names of every import in a file, also those inside of functions; those for types only on request."""
    tree = ast.parse(source)
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def violations(source: str, module: str) -> set[str]:
    """Imports that point the wrong way."""
    here = floor(module)
    wrong = set()
    for name in imports(source, module):
        if name.split(".")[0] == "torch" and here not in WORKER:
            wrong.add(name)
        if name.split(".")[0] != "bscrit" or name == "bscrit":
            continue
        there = floor(name)
        allowed = ALLOWED[here] | {here}
        is_floor = name in {f"bscrit.{known}" for known in ALLOWED}
        if (
            there not in allowed
            and not is_floor
            and not any(f"{name}.".startswith(f"bscrit.{a}.") for a in allowed)
        ):
            wrong.add(name)
        if is_floor and there not in allowed and not any(a.startswith(f"{there}.") for a in allowed):
            wrong.add(name)
    return wrong


def circles(sources: Mapping[str, str]) -> set[frozenset[str]]:
    """Modules that import each other, however late and whatever for: strongly connected parts of the import graph.

    `from package import name` is an import of the module of that name where there is one, else of the package.
    """
    direct = {
        module: _imported(source, module, set(sources)) - {module} for module, source in sources.items()
    }
    reached = {module: _reached(module, direct) for module in sources}
    return {
        frozenset({other for other in reached[module] if module in reached[other]})
        for module in sources
        if module in reached[module]
    }


def _imported(source: str, module: str, known: set[str]) -> set[str]:
    """The modules of the package that a file imports; a package only where a name is its own."""
    names = set(imports(source, module, for_types=True))
    inside = {name.rpartition(".")[0] for name in names if name.rpartition(".")[0] in names}
    own = {name.rpartition(".")[0] for name in names - known}
    return {name for name in names & known if name not in inside or name in own}


def _reached(start: str, direct: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = direct[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def modules() -> list[tuple[str, Path]]:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found.append((".".join(parts), file))
    return found


@pytest.mark.parametrize(("module", "file"), modules(), ids=[module for module, _ in modules()])
def test_imports_point_one_way(module, file):
    assert violations(file.read_text("utf-8"), module) == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bscrit.sweep.plan", "from bscrit.train.loop import train"),
        ("bscrit.sweep.plan", "def f():\n    from bscrit.engine.lanes import Lanes"),
        ("bscrit.sweep.plan", "import torch"),
        ("bscrit.sweep.plan", "from torch import nn"),
        ("bscrit.sweep.plan", "import bscrit.train.loop"),
        ("bscrit.sweep.plan", "from bscrit import train"),
        ("bscrit.sweep.plan", "from bscrit.plot.draw import draw"),
        ("bscrit.sweep.plan", "from ..train import loop"),
        ("bscrit.fit.core", "from bscrit.sweep.plan import plan"),
        ("bscrit.fit.core", "from bscrit.plot.words import ratio"),
        ("bscrit.plot.draw", "from bscrit.sweep.progress import short"),
        ("bscrit.train.loop", "from bscrit.sweep.plan import plan"),
        ("bscrit.train.loop", "from bscrit.workloads.quadratic import Quadratic"),
        ("bscrit.measure.sources", "from bscrit.engine.lanes import Lanes"),
        ("bscrit.workloads.quadratic", "from bscrit.engine.lanes import Lanes"),
        ("bscrit.crossing", "from bscrit.fit.core import fit_table"),
        ("bscrit.spec.checks", "from bscrit.engine.lanes import Lanes"),
        ("bscrit.cli", "from bscrit.train.worker import run"),
    ],
)
def test_the_check_can_fail(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bscrit.sweep.plan", "from bscrit.fit.core import fit_table"),
        ("bscrit.sweep.plan", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("bscrit.train.loop", "import torch\nfrom bscrit.measure.sources import Sample"),
        ("bscrit.workloads.quadratic", "from bscrit.engine.workload import Workload"),
        ("bscrit.cli", "from bscrit.sweep import command"),
        ("bscrit.fit.core", "from bscrit.crossing import crossing_of\nimport bscrit"),
    ],
)
def test_the_check_lets_pass_what_is_allowed(module, source):
    assert not violations(source, module)


def test_every_folder_has_its_floor():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders - {"recipe", "spec"} <= set(ALLOWED), (
        "a new folder needs its arrows in ALLOWED and in DESIGN"
    )
    assert "torch" not in sys.stdlib_module_names


def test_no_modules_import_each_other():
    sources = {module.removesuffix(".__init__"): file.read_text("utf-8") for module, file in modules()}
    assert len(sources) > 50
    assert not circles(sources)


@pytest.mark.parametrize(
    "back",
    [
        "from bscrit.fit.report import Report",
        "from bscrit.fit import report",
        "import bscrit.fit.report",
        "def f():\n    from bscrit.fit.report import Report",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bscrit.fit.report import Report",
        "import typing\nif typing.TYPE_CHECKING:\n    from bscrit.fit.report import Report",
    ],
)
def test_a_circle_is_seen_however_it_is_hidden(back):
    sources = {
        "bscrit.fit": "",
        "bscrit.fit.report": "from bscrit.fit.words import name",
        "bscrit.fit.words": "from bscrit.fit.result import Fit",
        "bscrit.fit.result": "",
    }
    assert not circles(sources)
    three = frozenset(sources) - {"bscrit.fit"}
    assert circles({**sources, "bscrit.fit.result": back}) == {three}


DRAWN = {"bscrit.fit.report", "bscrit.fit.result"}
"""All that figures know of the fit: a frozen report and its nouns, nothing that fits."""


def fitting(source: str, module: str) -> set[str]:
    """What a file of plot/ imports besides the report and nouns; its command reads the source too."""
    allowed = (
        DRAWN | {"bscrit.fit.command", "bscrit.fit.source"} if module == "bscrit.plot.command" else DRAWN
    )
    known = {module.removesuffix(".__init__") for module, _ in modules()}
    ours = {name for name in _imported(source, module, known) if floor(name) != "plot"}
    return {name for name in ours - allowed if floor(name) != "nouns"} | (
        ours & {"bscrit.rate_law", "bscrit.record"}
    )


@pytest.mark.parametrize(("module", "file"), [one for one in modules() if floor(one[0]) == "plot"])
def test_plot_fits_nothing(module, file):
    assert fitting(file.read_text("utf-8"), module) == set()


@pytest.mark.parametrize(
    "source",
    [
        "from bscrit.fit.noise.windows import windows",
        "from bscrit.fit import law",
        "from bscrit.fit.command import read",
        "from bscrit.rate_law import law",
        "def f():\n    from bscrit.record import Record",
    ],
)
def test_a_figure_that_fits_is_seen(source):
    assert fitting(source, "bscrit.plot.rates")
