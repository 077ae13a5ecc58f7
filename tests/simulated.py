"""A sweep without workers: the real plan and the real judge over noisy quadratics simulated with numpy.

L = 1/2 sum h_i theta_i^2, gradient h theta + xi, Var xi_i = c_i / B, exactly as the built-in workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bscrit.curve import Curve
from bscrit.preflight import Preflight
from bscrit.record import Record
from bscrit.spec import Spec, parse_spec
from bscrit.sweep.plan import Cohort, plan
from bscrit.train.judge import Ending, evaluation_after, judge


def make_spec(optimizer: dict | None = None, learning_rate: dict | None = None, **sweep: object) -> Spec:
    """A spec of the fixture's batch sizes and target; keys of [sweep] override."""
    table = {
        "batch_sizes": [1, 4, 16, 64, 256, 1024, 4096],
        "targets": [0.1],
        "max_examples": 100_000_000,
        "max_steps": 20_000,
        **sweep,
    }
    tables = {"workload": {"use": "quadratic"}, "sweep": table, "noise": {"source": "none"}}
    return parse_spec(
        {**tables, "optimizer": optimizer or {"use": "sgd"}, "learning_rate": learning_rate or {"tune": "race"}}
    )


@dataclass(frozen=True)
class Quadratic:
    """A noisy quadratic; the default is the fixture with B_crit 59.295 at target 0.1."""

    h: np.ndarray = field(default_factory=lambda: 1 / np.arange(1, 101))
    c: np.ndarray = field(default_factory=lambda: 1 / np.arange(1, 101))
    momentum: float = 0.0


def train(problem: Quadratic, cohort: Cohort, until: int | None = None) -> list[Record]:
    """Train a cohort in lockstep; lanes of one seed share their noise. `until` interrupts it at a step."""
    order, size = cohort.order, cohort.batch_size
    lrs = np.array([trial.lr for trial in cohort.trials])[:, None]
    seeds = [trial.seed for trial in cohort.trials]
    streams = {seed: np.random.default_rng([seed, size]) for seed in seeds}
    theta = np.ones((len(lrs), len(problem.h)))
    velocity = np.zeros_like(theta)
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
            endings = judge(order, [_curve(row, size) for row in rows], endings)
            upcoming = evaluation_after(step)
        if all(endings) or step == until:
            break
        noise = {seed: stream.standard_normal(len(problem.h)) for seed, stream in streams.items()}
        xi = np.stack([noise[seed] for seed in seeds]) * np.sqrt(problem.c / size)
        with np.errstate(over="ignore", invalid="ignore"):
            velocity = problem.momentum * velocity + problem.h * theta + xi
            theta = theta - lrs * velocity
        step += 1
    return [
        Record(trial, order, *((e.status, e.reason) if e else ("running", "")), curve=_curve(row, size))
        for trial, e, row in zip(cohort.trials, endings, rows, strict=True)
    ]


def sweep(
    problem: Quadratic,
    spec: Spec,
    preflight: Preflight = Preflight(),
    records: Sequence[Record] = (),
    on_round: Callable[[list[Cohort]], None] = lambda cohorts: None,
) -> list[Record]:
    """Plan and train until nothing is planned."""
    done = {record.trial.name: record for record in records}
    while cohorts := plan(spec, preflight, done.values()):
        on_round(cohorts)
        for cohort in cohorts:
            for record in train(problem, cohort):
                done.setdefault(record.trial.name, record)
                done[record.trial.name] = record
    return list(done.values())


def _curve(row: list[tuple[float, float]], size: int) -> Curve:
    steps, loss = np.array(row, dtype=float).reshape(-1, 2).T
    return Curve(steps, steps * size, loss, np.zeros(len(steps)))
