"""Cohorts of which nothing is heard: a method of the workload may hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bscrit.order import Cohort
from bscrit.paths import ResultsPaths
from bscrit.words import duration

SILENT_SECONDS = 60.0
USUAL = 5.0  # times as long as from the evaluation before the last to the last


@dataclass
class _Heard:
    """The newest state of a cohort's curves, since when it is known, and after how long its silence is told."""

    newest: float
    since: float
    patience: float = SILENT_SECONDS
    told: bool = False


class Silence:
    """Watches the curves of the cohorts that train."""

    def __init__(self, paths: ResultsPaths, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths, self._clock = paths, clock
        self._heard: dict[str, _Heard] = {}
        self._looked = -1.0

    def notes(self, running: Mapping[str, Cohort]) -> Iterator[str]:
        """A sentence for each cohort, by its handle, that has been silent for unusually long; once in each silence."""
        now = self._clock()
        if now - self._looked < 1:
            return
        self._looked = now
        self._heard = {handle: heard for handle, heard in self._heard.items() if handle in running}
        for handle, cohort in running.items():
            newest = self._newest(cohort)
            heard = self._heard.setdefault(handle, _Heard(newest, now))
            if newest != heard.newest:
                patience = max(SILENT_SECONDS, USUAL * (now - heard.since))
                self._heard[handle] = _Heard(newest, now, patience)
            elif now - heard.since > heard.patience and not heard.told:
                heard.told = True
                yield (
                    f"batch size {cohort.batch_size} {cohort.order.role}: no evaluation for "
                    f"{duration(now - heard.since)}; what the worker prints is in {self._paths.workers_log}, and "
                    "Ctrl-C leaves"
                )

    def _newest(self, cohort: Cohort) -> float:
        files = (self._paths.trial(trial.name).curve for trial in cohort.trials)
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
