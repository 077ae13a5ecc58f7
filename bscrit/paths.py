"""Names of files and folders on disk; no other module knows them.

results/NAME/
  spec.toml  preflight.json  workers.log
  trials/b00256-lr0.05-s0-3f9a1c2e/
    trial.json  order.json               identity; what the sweep asks of the run
    curve.csv  noise.csv  frozen.csv     streams: evaluations, noise samples, noise at frozen parameters
    status.json  log.txt                 how it ended; what went wrong
    checkpoint.pt                        while it trains
  requests/                              of executors, removed when they are taken
  fit.json  frontier.csv  crossings.csv  figures/  report.html      derived: may be deleted and made again
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ResultsPaths:
    """Paths in one results folder.

    >>> ResultsPaths(Path("results/x")).trial("b00004").curve.as_posix()
    'results/x/trials/b00004/curve.csv'
    """

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.toml"

    @property
    def preflight(self) -> Path:
        return self.root / "preflight.json"

    @property
    def workers_log(self) -> Path:
        return self.root / "workers.log"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    def trial(self, name: str) -> TrialPaths:
        return TrialPaths(self.trials / name)

    @property
    def requests(self) -> Path:
        return self.root / "requests"

    @property
    def fit(self) -> Path:
        return self.root / "fit.json"

    @property
    def frontier(self) -> Path:
        return self.root / "frontier.csv"

    @property
    def crossings(self) -> Path:
        return self.root / "crossings.csv"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def report(self) -> Path:
        return self.root / "report.html"


@dataclass(frozen=True, slots=True)
class TrialPaths:
    """Paths in one trial's folder."""

    folder: Path

    @property
    def trial(self) -> Path:
        return self.folder / "trial.json"

    @property
    def order(self) -> Path:
        return self.folder / "order.json"

    @property
    def status(self) -> Path:
        return self.folder / "status.json"

    @property
    def curve(self) -> Path:
        return self.folder / "curve.csv"

    @property
    def noise(self) -> Path:
        return self.folder / "noise.csv"

    @property
    def frozen(self) -> Path:
        return self.folder / "frozen.csv"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"
