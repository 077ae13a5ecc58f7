"""Names of what can be plugged in, and whether a name can be found, without importing what it names."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path

from bscrit.errors import nearest

BUILT_IN_WORKLOADS = {
    "classifier": "bscrit.workloads.classifier:Classifier",
    "language": "bscrit.workloads.language:Language",
    "least_squares": "bscrit.workloads.least_squares:LeastSquares",
    "quadratic": "bscrit.workloads.quadratic:Quadratic",
}
"""Module and class of each."""
WORKLOADS_GROUP = "bscrit.workloads"
"""Group of entry points under which an installed package offers its workloads."""


def workload_names() -> tuple[str, ...]:
    """Names of the built-in workloads, then of those that installed packages provide."""
    offered = {entry.name for entry in importlib.metadata.entry_points(group=WORKLOADS_GROUP)}
    return (*BUILT_IN_WORKLOADS, *sorted(offered - set(BUILT_IN_WORKLOADS)))


def workload_problem(use: str, folder: Path) -> tuple[str, str] | None:
    """What is wrong with the name of a workload and the remedy; None when it leads somewhere.

    Args:
        use: a built-in name, an entry point's, or "my_module:MyWorkload".
        folder: where a module's file is looked for before the import path.
    """
    if use in BUILT_IN_WORKLOADS or use in workload_names():
        return None
    if ":" not in use:
        own = 'or your own class as "my_module:MyWorkload"'
        return "is not a workload that is known", f"{nearest(use, workload_names())}; {own}"
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", use):
        return (
            "is not of the form module:Class",
            'for example "my_module:MyWorkload", without .py and folders',
        )
    module, name = use.split(":")
    file = _find_module(module, [str(folder)]) or _find_module(module, None)
    if file is None:
        beside = sorted(path.stem for path in folder.glob("*.py"))
        remedy = nearest(module, beside) if beside else f"put {module.split('.')[-1]}.py beside the spec"
        return f"names a module {module!r} that is neither beside the spec nor installed", remedy
    names = _top_level_names(file)
    if names and name not in names:
        classes = [known for known, is_class in names.items() if is_class] or list(names)
        return f"names a class {name!r} that {file.name} does not define", nearest(name, classes)
    return None


def _find_module(module: str, path: Sequence[str] | None) -> Path | None:
    """The file of a module by its dotted name; parents are searched by path, so nothing is imported."""
    spec = None
    for part in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec is not None and spec.origin else None


def _top_level_names(file: Path) -> dict[str, bool]:
    """Names that a source file binds, True for classes; empty where reading alone cannot tell."""
    if file.suffix != ".py":
        return {}
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return {}
    names: dict[str, bool] = {}
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                names[name] = True
            case ast.FunctionDef(name=name):
                names[name] = False
            case ast.Assign(targets=[ast.Name(id=name)]):
                names[name] = False
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names |= {alias.asname or alias.name: False for alias in aliases}
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                return {}
    return {} if "*" in names else names
