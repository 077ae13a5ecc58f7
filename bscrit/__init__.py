"""Critical batch size of a training run: measure it, fit it, plot it.

>>> import bscrit
>>> swept = bscrit.sweep("sweeps/digits.toml", settings={"sweep.seeds": 5})  # doctest: +SKIP
>>> report = bscrit.fit("results/digits")  # doctest: +SKIP
>>> print(report.fits[0].b_crit.value, report.table())  # doctest: +SKIP
>>> bscrit.plot("results/digits", formats=["svg"])  # doctest: +SKIP
>>> class Mine(bscrit.Workload): ...  # doctest: +SKIP
>>> meter = bscrit.NoiseMeter(model)  # doctest: +SKIP

Each public name is written elsewhere and imported when it is first used, so that `import bscrit` costs nothing.

`fit`, `sweep` and `plot` are functions here and packages in the file system. Importing a submodule binds the name
of its package here, but only when that package is loaded for the first time. So the three packages, which hold
nothing themselves, are loaded at once and their names unbound: no later import binds them again, and `bscrit.fit`
is the function, whatever was imported before. Submodules are written `from bscrit.fit import core`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bscrit.version import VERSION as __version__

__all__ = [
    "ExampleStream",
    "NoiseMeter",
    "Report",
    "UserError",
    "Workload",
    "__version__",
    "fit",
    "generator",
    "plot",
    "seeded",
    "sweep",
]

if TYPE_CHECKING:
    from bscrit.engine.seeding import generator, seeded
    from bscrit.engine.streams import ExampleStream
    from bscrit.engine.workload import Workload
    from bscrit.errors import UserError
    from bscrit.fit.report import Report
    from bscrit.fit.source import fit
    from bscrit.meter.noise_meter import NoiseMeter
    from bscrit.plot.command import plot
    from bscrit.sweep.run import sweep
else:
    _HOMES = {
        "ExampleStream": "engine.streams",
        "NoiseMeter": "meter.noise_meter",
        "Report": "fit.report",
        "UserError": "errors",
        "Workload": "engine.workload",
        "fit": "fit.source",
        "generator": "engine.seeding",
        "plot": "plot.command",
        "seeded": "engine.seeding",
        "sweep": "sweep.run",
    }
    for _package in ("fit", "plot", "sweep"):
        import_module(f"bscrit.{_package}")
        del globals()[_package]

    def __getattr__(name: str) -> Any:
        """A public name, from the module where it is written."""
        if name not in _HOMES:
            raise AttributeError(f"module 'bscrit' has no attribute {name!r}")
        home = _HOMES[name]
        try:
            if home.startswith(("engine.", "meter.")):
                import_module("torch")
            module = import_module(f"bscrit.{home}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            from bscrit.errors import UserError

            remedy = "pip install 'bscrit[train]'"
            raise UserError(f"bscrit.{name}", "needs torch, which is not installed", remedy) from None
        return globals().setdefault(name, getattr(module, name))
