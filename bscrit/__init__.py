"""Critical batch size of a training run: measure it, fit it, plot it.

>>> import bscrit
>>> report = bscrit.fit("runs.csv")  # doctest: +SKIP
>>> class Mine(bscrit.Workload): ...  # doctest: +SKIP
>>> meter = bscrit.NoiseMeter(model)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["NoiseMeter", "Workload", "__version__", "fit"]


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: `import bscrit` costs nothing."""
    if name == "fit":
        return import_module("bscrit.fit")
    if name == "NoiseMeter":
        return import_module("bscrit.meter.noise_meter").NoiseMeter
    if name == "Workload":
        return import_module("bscrit.engine.workload").Workload
    raise AttributeError(f"module 'bscrit' has no attribute {name!r}")
