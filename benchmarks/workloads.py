"""The workloads that benchmarks sweep, and the stored references of their critical batch sizes."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bscrit.spec import Spec, read_spec

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "references"
NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "digits": ("sweeps/digits.toml", ()),
    "digits-cnn": ("sweeps/digits.toml", ("workload.model=cnn",)),
    "text": ("sweeps/text.toml", ()),
    "quadratic": ("sweeps/quadratic.toml", ()),
    "cancer": ("benchmarks/specs/cancer.toml", ()),
    "digits-adam": ("sweeps/digits.toml", ("optimizer.use=adam",)),
    "digits-momentum": ("sweeps/digits.toml", ("optimizer.momentum=0.9",)),
}


def named(name: str) -> Spec:
    """The spec of a benchmark, whose workload may be a class beside it."""
    path, overrides = NAMES[name]
    file = HERE.parent / path
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    return read_spec(file, overrides)


def identity(spec: Spec) -> dict[str, Any]:
    """What of a spec a reference belongs to: what is trained, at which batch sizes, and how far."""
    optimizers = {str(size): spec.optimizer.at(size) for size in spec.sweep.batch_sizes}
    distinct = list(map(dict, {tuple(one.items()) for one in optimizers.values()}))
    return {
        "workload": {"use": spec.workload.use, **spec.workload.settings},
        "optimizer": distinct[0] if len(distinct) == 1 else optimizers,
        "batch_sizes": list(spec.sweep.batch_sizes),
        "schedule": spec.schedule.declared(),
        "targets": list(spec.sweep.targets),
        "dtype": spec.compute.dtype,
    }


def workload_of(spec: Spec) -> tuple[Any, str]:
    """The workload of a spec, and the hash of its data and source."""
    from bscrit.engine.identity import fingerprint
    from bscrit.engine.loading import load_workload

    workload = load_workload(spec.workload.use, spec.workload.settings)
    workload.prepare("cpu")
    return workload, fingerprint(spec.workload.use, workload)


def stored(name: str, fingerprint: str = "") -> dict[str, Any] | None:
    """The stored reference, None where there is none of the spec as it is today, or of data with this fingerprint."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    same = found["spec"] == identity(named(name)) and fingerprint in ("", found["fingerprint"])
    return found if same else None


def store(path: Path, told: Mapping[str, Any]) -> None:
    """Write a reference as JSON, each list of numbers on one line."""
    text = json.dumps(told, indent=1, allow_nan=False)
    path.write_text(
        re.sub(r"\[[^][{}]*\]", lambda row: " ".join(row[0].split()), text) + "\n", encoding="utf-8"
    )


def machine() -> str:
    """The processor's name and the cores that this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name or platform.processor() or platform.machine()}, {cores} cores, {platform.system()}"
