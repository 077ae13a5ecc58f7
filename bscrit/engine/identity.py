"""Identity of what a workload trains: its data, its source, its model and its first batch, in one hash.

Numbers are rounded, and summed without cancellation, so that threads and devices do not change them.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from bscrit.engine.seeding import seeded
from bscrit.engine.workload import Workload
from bscrit.measure.nested import tensors_of
from bscrit.plugins import BUILT_IN_WORKLOADS, find_module

SIZES = (8, 64, 512, 4096)  # of the first batch: the first of them that the workload can draw
_INSTALLED = {"site-packages", "dist-packages"}


def fingerprint(use: str, workload: Workload, untrained: str = "") -> str:
    """Hash of the data; where the class is the user's, of its source, first batch and untrained model, too.

    Args:
        untrained: size and loss of the untrained model, as text.
    """
    digest = hashlib.sha256(workload.fingerprint().encode())
    if use not in BUILT_IN_WORKLOADS:
        for name, file in sources(type(workload).__module__).items():
            digest.update(f"\n{name}\n".encode() + file.read_bytes())
        digest.update(f"\n{untrained}\n{_first_batch(workload)}".encode())
    return digest.hexdigest()[:16]


def sources(module: str) -> dict[str, Path]:
    """The file of a module and of all that it imports from the same folder, by dotted name; found by reading alone.

    Of an installed package: its own modules.
    """
    file = inspect.getsourcefile(sys.modules[module])
    if file is None:
        return {}
    root = Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]
    installed = bool(_INSTALLED & set(root.parts))
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in files or top == "bscrit" or (installed and top != module.partition(".")[0]):
            continue
        place = find_module(name, [str(root)])
        if place is not None and place.suffix == ".py" and place.is_file():
            files[name] = place
            waiting += [*_imported(name, place), *([name.rpartition(".")[0]] if "." in name else [])]
    return dict(sorted(files.items()))


def _imported(name: str, file: Path) -> Iterator[str]:
    """Dotted names that a source file imports, anywhere in it; some may be of no module."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([base] if base else [])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _first_batch(workload: Workload) -> str:
    for size in SIZES:
        size = min(size, workload.examples or size)
        try:
            with seeded(torch.device("cpu"), 0, 0):
                return " ".join(map(_digest, tensors_of(workload.batch(0, 0, size))))
        except Exception:  # a size that it cannot draw
            continue
    return ""


def _digest(tensor: Tensor) -> str:
    """A tensor in a few characters: integers exactly, others by weighted sums of their two signs."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    values = values.detach().cpu().flatten()
    head = f"{tuple(tensor.shape)} {tensor.dtype}"
    if not values.is_floating_point():
        whole = values.contiguous().view(torch.uint8) if values.numel() else values
        return f"{head} {hashlib.sha256(whole.numpy().tobytes()).hexdigest()}"
    values = values.double()
    weights = torch.linspace(1, 2, len(values), dtype=torch.float64)
    sums = [float((part.clamp(min=0) * weights).sum()) for part in (values, -values)]
    return f"{head} {sums[0]:.4g} {sums[1]:.4g}"
