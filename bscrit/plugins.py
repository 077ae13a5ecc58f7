"""Names of what can be plugged in: workloads and executors; a name is checked without importing what it names."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bscrit.errors import UserError, in_short, nearest

BUILT_IN_WORKLOADS = {
    "classifier": "bscrit.workloads.classifier:Classifier",
    "language": "bscrit.workloads.language:Language",
    "least_squares": "bscrit.workloads.least_squares:LeastSquares",
    "quadratic": "bscrit.workloads.quadratic:Quadratic",
}
"""Module and class of each."""
BUILT_IN_EXECUTORS = {"local": "bscrit.sweep.executors.local:Local"}
WORKLOADS = "bscrit.workloads"
"""Group of entry points under which an installed package offers its workloads."""
EXECUTORS = "bscrit.executors"
"""Group of entry points under which an installed package offers its executors, made from a `Compute`."""
_BUILT_IN = {WORKLOADS: BUILT_IN_WORKLOADS, EXECUTORS: BUILT_IN_EXECUTORS}


def offered(group: str) -> dict[str, str]:
    """Module and attribute by name: the built-in ones, then those that installed packages provide."""
    entries = importlib.metadata.entry_points(group=group)
    theirs = {entry.name: entry.value for entry in sorted(entries, key=lambda entry: entry.name)}
    return {**_BUILT_IN[group], **{name: theirs[name] for name in theirs if name not in _BUILT_IN[group]}}


def load(group: str, use: str, where: str) -> Any:
    """The class or function to which a name leads, imported.

    Raises:
        UserError: it cannot be imported, at this place in the spec.
    """
    module, _, name = offered(group).get(use, use).partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        what = f"cannot be imported: {in_short(error)}"
        raise UserError(f"{where} = {use!r}", what, f"try `python -c 'import {module}'`") from error


def executor_problem(name: str) -> tuple[str, str] | None:
    """The mistake in the name of an executor, and the remedy; None when there is one."""
    names = offered(EXECUTORS)
    return None if name in names else ("is not an executor that is known", nearest(name, names))


def workload_problem(use: str, folder: Path) -> tuple[str, str] | None:
    """The mistake in the name of a workload, and the remedy; None when it leads somewhere.

    Args:
        use: a built-in name, an entry point's, or "my_module:MyWorkload".
        folder: where a module's file is looked for before the import path.
    """
    names = offered(WORKLOADS)
    if use in names:
        return None
    if ":" not in use:
        yours = 'or your own class as "my_module:MyWorkload"'
        return "is not a workload that is known", f"{nearest(use, names)}; {yours}"
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", use):
        return (
            "is not of the form module:Class",
            'for example "my_module:MyWorkload", without .py and folders',
        )
    module, name = use.split(":")
    own = find_module(module, [str(folder)])
    file = own or find_module(module, None)
    if file is None:
        beside = sorted(path.stem for path in folder.glob("*.py"))
        remedy = nearest(module, beside) if beside else f"put {module.split('.')[-1]}.py beside the spec"
        return f"names a module {module!r} that is neither beside the spec nor installed", remedy
    bound, whole = _names_in(file)
    classes = [item for item, is_class in bound.items() if is_class]
    if own is None and name not in classes:
        what = f"names {name!r} of {module!r}, which is not beside the spec and defines no such class"
        return what, "put a module with the workload's class beside the spec"
    if whole and bound and name not in bound:
        return f"names a class {name!r} that {file.name} does not define", nearest(name, classes or bound)
    return None


def find_module(module: str, path: Sequence[str] | None) -> Path | None:
    """The file of a module by its dotted name; parents are searched by path, so nothing is imported."""
    spec = None
    for part in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec is not None and spec.origin else None


def _names_in(file: Path) -> tuple[dict[str, bool], bool]:
    """Names that a source file binds, True for classes, and whether reading alone can tell them all."""
    try:
        body = ast.parse(file.read_bytes()).body if file.suffix == ".py" else []
    except (OSError, SyntaxError, ValueError):
        return {}, False
    names, whole = dict[str, bool](), True
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                names[name] = True
            case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                names[name] = False
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names |= {alias.asname or alias.name: False for alias in aliases}
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                whole = False
    return names, whole and "*" not in names
