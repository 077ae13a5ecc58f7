"""`bscrit fit`: from crossings to S_min, E_min and B_crit, with intervals and caveats.

The package can be called, so that a notebook says what the command line says:

    import bscrit
    report = bscrit.fit("runs.csv")
    report.fits[0].b_crit, report.table()
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bscrit.fit.report import Report


class _Callable(ModuleType):
    def __call__(self, source: Any, **options: Any) -> Report:
        """See `bscrit.fit.source.fit`."""
        from bscrit.fit.source import fit

        return fit(source, **options)


sys.modules[__name__].__class__ = _Callable
