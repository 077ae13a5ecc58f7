"""Names of files and folders on disk; no other module knows them.

results/NAME/
  spec.toml  preflight.json  workers.log
  trials/b00256-lr0.05-s0-3f9a1c2e/
    trial.json  order.json               identity; what the sweep asks of the run
    curve.csv  noise.csv  frozen.csv     streams: evaluations, noise samples, noise at frozen parameters
    status.json  log.txt                 how it ended; what went wrong
    checkpoint.pt                        while it trains
  requests/                              of executors, removed when they are taken
  fit.json  frontier.csv  crossings.csv  figures/      derived: may be deleted and made again
"""

from __future__ import annotations

from pathlib import Path


class ResultsPaths:
    """Paths in one results folder.

    >>> ResultsPaths(Path("results/x")).trial("b00004").curve.as_posix()
    'results/x/trials/b00004/curve.csv'
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spec = root / "spec.toml"
        self.preflight = root / "preflight.json"
        self.workers_log = root / "workers.log"
        self.lock = root / ".lock"
        self.trials = root / "trials"
        self.requests = root / "requests"
        self.fit = root / "fit.json"
        self.frontier = root / "frontier.csv"
        self.crossings = root / "crossings.csv"
        self.figures = root / "figures"

    def trial(self, name: str) -> TrialPaths:
        return TrialPaths(self.trials / name)


class TrialPaths:
    """Paths in one trial's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trial = folder / "trial.json"
        self.order = folder / "order.json"
        self.status = folder / "status.json"
        self.curve = folder / "curve.csv"
        self.noise = folder / "noise.csv"
        self.frozen = folder / "frozen.csv"
        self.log = folder / "log.txt"
        self.checkpoint = folder / "checkpoint.pt"
