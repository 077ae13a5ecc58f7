"""A sweep without workers: the real plan and the real judge over noisy quadratics simulated with numpy.

L = 1/2 sum h_i theta_i^2, gradient h theta + xi, Var xi_i = c_i / B, exactly as the built-in workload.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from bscrit.cohort.evaluations import evaluation_after
from bscrit.cohort.judge import Ending, judge
from bscrit.curve import Curve
from bscrit.order import Cohort
from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.spec import Spec, parse_spec
from bscrit.sweep.plan import plan

FACTS = Preflight()
MOST_ROUNDS = 1000


def make_spec(optimizer: dict | None = None, learning_rate: dict | None = None, **sweep: object) -> Spec:
    """A spec of the fixture's batch sizes and target; keys of [sweep] override."""
    table = {
        "batch_sizes": [1, 4, 16, 64, 256, 1024, 4096],
        "targets": [0.1],
        "max_examples": 100_000_000,
        "max_steps": 20_000,
        **sweep,
    }
    return parse_spec(
        {
            "workload": {"use": "quadratic"},
            "optimizer": optimizer or {"use": "sgd"},
            "sweep": table,
            "learning_rate": learning_rate or {"tune": "race"},
            "noise": {"source": "none"},
        }
    )


@dataclass(frozen=True)
class Quadratic:
    """A noisy quadratic; the default is the fixture with B_crit 59.295 at target 0.1.

    Attributes:
        brittle: at rates above it, seeds 1, 6, 11, ... are lost after five steps.
        luck: standard deviation of ln(loss) before training, from seed to seed; its mean stays as it is.
        tails: degrees of freedom of Student's t, of which gradients are then drawn; 0 for normal ones.
        turn: (d, d) rotation between the parameters and the axes of the quadratic.
        adam: whether updates are Adam's instead of SGD's.
    """

    h: np.ndarray = field(default_factory=lambda: 1 / np.arange(1, 101))
    c: np.ndarray = field(default_factory=lambda: 1 / np.arange(1, 101))
    momentum: float = 0.0
    brittle: float = np.inf
    luck: float = 0.0
    tails: float = 0.0
    turn: np.ndarray | None = None
    adam: bool = False

    def start(self, seeds: Sequence[int], size: int) -> np.ndarray:
        """Parameters before training, in the axes of the quadratic, shape (lanes, d)."""
        draws = np.array([np.random.default_rng([seed, size, 1]).standard_normal() for seed in seeds])
        return np.exp((self.luck * draws - self.luck**2 / 2) / 2)[:, None] * np.ones(len(self.h))

    def draw(self, stream: np.random.Generator) -> np.ndarray:
        """Noise of unit variance, shape (d,)."""
        if not self.tails:
            return stream.standard_normal(len(self.h))
        return stream.standard_t(self.tails, len(self.h)) * np.sqrt(1 - 2 / self.tails)


def train(problem: Quadratic, cohort: Cohort, until: int | None = None) -> list[Record]:
    """Train a cohort in lockstep; lanes of one seed share their noise. `until` interrupts it at a step."""
    order, size = cohort.order, cohort.batch_size
    lrs = np.array([trial.lr for trial in cohort.trials])[:, None]
    seeds = [trial.seed for trial in cohort.trials]
    streams = {seed: np.random.default_rng([seed, size]) for seed in seeds}
    theta = problem.start(seeds, size)
    velocity, squares = np.zeros_like(theta), np.zeros_like(theta)
    endings: list[Ending | None] = [None] * len(lrs)
    rows: list[list[tuple[float, float]]] = [[] for _ in lrs]
    step = upcoming = 0
    while True:
        if step == upcoming:
            with np.errstate(over="ignore", invalid="ignore"):
                losses = 0.5 * (problem.h * theta**2).sum(1)
            for row, loss in enumerate(losses):
                if endings[row] is None:
                    rows[row].append((step, loss))
            endings = judge(order, [_curve(row, size) for row in rows], endings, lrs[:, 0].tolist())
            upcoming = evaluation_after(step)
        if all(endings) or step == until:
            break
        noise = {seed: problem.draw(stream) for seed, stream in streams.items()}
        xi = np.stack([noise[seed] for seed in seeds]) * np.sqrt(problem.c / size)
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = problem.h * theta + xi
            step += 1
            if problem.adam:
                own = gradient if problem.turn is None else gradient @ problem.turn
                velocity, squares = 0.9 * velocity + 0.1 * own, 0.999 * squares + 0.001 * own**2
                update = velocity / (1 - 0.9**step) / (np.sqrt(squares / (1 - 0.999**step)) + 1e-8)
                theta = theta - lrs * (update if problem.turn is None else update @ problem.turn.T)
            else:
                velocity = problem.momentum * velocity + gradient
                theta = theta - lrs * velocity
        if step == 5:
            theta[(lrs[:, 0] > problem.brittle) & (np.array(seeds) % 5 == 1)] = np.nan
    return [
        Record(trial, order, *((e.status, e.reason) if e else ("running", "")), curve=_curve(row, size))
        for trial, e, row in zip(cohort.trials, endings, rows, strict=True)
    ]


def sweep(
    problem: Quadratic,
    spec: Spec,
    records: Sequence[Record] = (),
    given_up: Collection[str] = (),
) -> dict[str, Record]:
    """Plan and train until nothing is planned; the records by name."""
    done = {record.trial.name: record for record in records}
    for _ in range(MOST_ROUNDS):
        cohorts = plan(spec, FACTS, done.values(), given_up)
        if not cohorts:
            return done
        for cohort in cohorts:
            done |= {record.trial.name: record for record in train(problem, cohort)}
    raise AssertionError("the plan never ends")


def disturbed(problem: Quadratic, spec: Spec, rng: np.random.Generator, trouble: float) -> dict[str, Record]:
    """The same sweep with several workers that end in any order, and kills at random moments.

    Args:
        trouble: share of cohorts that are killed with their worker, and of rounds in which everything is.
    """
    done: dict[str, Record] = {}
    running: list[Cohort] = []
    slots = int(rng.integers(1, 5))
    for _ in range(MOST_ROUNDS):
        shuffled = [list(done.values())[row] for row in rng.permutation(len(done))]
        busy = {trial.name for cohort in running for trial in cohort.trials}
        killed = rng.random() < trouble
        upcoming = [
            cohort for cohort in plan(spec, FACTS, shuffled) if not busy & {t.name for t in cohort.trials}
        ]
        for cohort in upcoming[: slots - len(running)]:
            if killed:  # before its worker heard of it
                _begin(cohort, done, int(rng.integers(len(cohort.trials))))
                break
            _begin(cohort, done, len(cohort.trials))
            running.append(cohort)
        if not running and not upcoming:
            return done
        ended = running if killed else [running.pop(int(rng.integers(len(running))))]
        for cohort in ended:
            hit = killed or rng.random() < trouble
            _end(train(problem, cohort, until=int(rng.integers(60)) if hit else None), done)
        running = [] if killed else running
    raise AssertionError("the plan never ends")


def _begin(cohort: Cohort, done: dict[str, Record], first: int) -> None:
    """The driver's part: a folder for each trial; a kill may leave the first ones only."""
    for trial in cohort.trials[:first]:
        known = done.get(trial.name)
        if known is None or not known.finished or known.order != cohort.order:
            done[trial.name] = Record(trial, cohort.order)


def _end(records: Sequence[Record], done: dict[str, Record]) -> None:
    """The worker's part: what had ended stays as it is."""
    for record in records:
        known = done.get(record.trial.name)
        if known is not None and not known.finished:
            done[record.trial.name] = record


def _curve(row: list[tuple[float, float]], size: int) -> Curve:
    steps, loss = np.array(row, dtype=float).reshape(-1, 2).T
    return Curve(steps, steps * size, loss, np.zeros(len(steps)))
