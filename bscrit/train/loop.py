"""The training loop: one cohort of lanes in lockstep, from its folders to its endings.

An interrupted cohort goes on bit for bit: batches are functions of the position, a checkpoint holds the rest,
and the judge sees at each step exactly what it would have seen without the interruption.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bscrit.cohort.evaluations import evaluation_after
from bscrit.cohort.judge import judge
from bscrit.cohort.pace import Pace
from bscrit.cohort.peers import Peers
from bscrit.cohort.trial_writer import TrialWriter
from bscrit.engine.lanes import Lanes
from bscrit.engine.workload import Workload
from bscrit.position import Position
from bscrit.request import Shard
from bscrit.train import checkpoint
from bscrit.train.isolation import AllFailed, IsolatedLanes
from bscrit.train.noise import RunNoise

CHECKPOINT_SECONDS = 20.0


def train(
    folders: Sequence[Path],
    workload: Workload,
    facts: Mapping[str, Any],
    interrupted: Callable[[], bool] = lambda: False,
    shard: Shard | None = None,
    pace: Pace | None = None,
) -> bool:
    """Train the cohort in these folders until every lane has ended.

    Args:
        workload: prepared for the device of the order.
        facts: for the records, besides those that the loop knows.
        interrupted: asked after every step, and once true always true; the cohort then leaves a checkpoint
            and returns.
        shard: the lanes that are trained here, where other workers train the others at the same time.
        pace: is filled with how fast the lanes were.

    Returns:
        Whether the lanes ended; False when interrupted.
    """
    writers = [TrialWriter.read(folder) for folder in folders]
    shard = shard or Shard(tuple(range(len(folders))), (None,) * len(folders))
    own = [writers[place] for place in shard.own]
    if any(writer.ending is None for writer in own):
        with contextlib.ExitStack() as files, contextlib.suppress(AllFailed):
            peers = Peers(writers, shard, files)
            cohort = _Cohort(writers, own, peers, workload, facts, interrupted, pace or Pace())
            cohort.start(files)
            while cohort.live.writers:
                if interrupted():
                    cohort.save()
                    return False
                cohort.step()
    for writer in own:
        writer.paths.checkpoint.unlink(missing_ok=True)
    return True


class _Cohort:
    """The lanes of one order: those that train here, those that have ended, and those that train elsewhere."""

    def __init__(
        self,
        writers: Sequence[TrialWriter],
        own: Sequence[TrialWriter],
        peers: Peers,
        workload: Workload,
        facts: Mapping[str, Any],
        interrupted: Callable[[], bool],
        pace: Pace,
    ) -> None:
        self.writers, self.peers = writers, peers
        self.trial, self.order = writers[0].trial, writers[0].order
        self.workload, self.facts, self.interrupted, self.pace = workload, facts, interrupted, pace
        training = [writer for writer in own if writer.ending is None]
        self.live = IsolatedLanes(training, self._lanes, lambda: peers.live)
        self.path = own[0].paths.checkpoint
        self.position = Position()
        self.evaluated = 0  # step of the last evaluation
        self.factor = self._factor()  # of the last update
        self.noise = RunNoise(self.order.noise)

    def start(self, files: contextlib.ExitStack) -> None:
        """Go on from the checkpoint where there is one, else make the first evaluation."""
        saved = checkpoint.furthest(self.writers, self.live.writers)
        if saved is not None:
            self.position = Position(saved["steps"], saved["examples"])
            self.evaluated, self.noise.next_step = saved["evaluated"], saved["next_noise"]
            self.live.restore(saved["lanes"], saved["names"])
            self.pace.resume(saved["steps"], saved)
        self.saved = time.monotonic()
        for writer in self.live.writers:
            writer.begin(self.position.steps if saved is not None else -1, files)
        if saved is None:
            self._evaluate()
        elif self.position.steps == self.evaluated:
            self._judge()  # it was interrupted while it waited for its peers; else this finds nothing new

    def step(self) -> None:
        """One update of every live lane, and what is due before and after it."""
        with self.pace.measuring():
            self.noise.sample(self.live, self.position)
        self.factor = self._factor()
        self.live.all(lambda lanes: lanes.step(self.position.examples, self.factor))
        self.position = self.position.after(self.trial.batch_size)
        if self.position.steps >= min(evaluation_after(self.evaluated), self.order.max_steps):
            self._evaluate()
        if self.live.writers and time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write a checkpoint; the previous one stays until this one is whole."""
        state = {
            "steps": self.position.steps,
            "examples": self.position.examples,
            "evaluated": self.evaluated,
            **self.pace.times(),
            "next_noise": self.noise.next_step,
            "names": self.live.names,
            "lanes": self.live.lanes.state_dict(),
        }
        for writer in self.live.writers:
            writer.sync()
        checkpoint.save(self.path, state)
        self.saved = time.monotonic()

    def _evaluate(self) -> None:
        self.evaluated = self.position.steps
        seconds = self.pace.note(len(self.live.writers), self.position.steps)
        with self.pace.evaluating():
            values = self.live.all(Lanes.evaluate).tolist()
        for writer, value in zip(self.live.writers, values, strict=True):
            writer.evaluated(self.position, value, writer.trial.lr * self.factor, seconds)
        with self.pace.measuring():
            self.noise.freeze(self.live, self.position)
        self._judge()

    def _judge(self) -> None:
        """End the lanes that train here as all curves up to now ask for.

        Up to now: a lane may have ended later, before an interruption, and a peer may be ahead.
        """
        now = self.position.steps
        with self.pace.waiting():
            arrived = self.peers.wait(now, self.interrupted)
        if not arrived:
            return  # it is judged when it goes on
        curves = [writer.evaluations.until(now) for writer in self.writers]
        standing = [writer.ending if writer.evaluations.last <= now else None for writer in self.writers]
        rates = [writer.trial.lr for writer in self.writers]
        endings = judge(self.order, curves, standing, rates)
        for writer, ending in zip(self.writers, endings, strict=True):
            if ending is not None and writer.ending is None:
                writer.ending = ending
                if writer in self.live.writers:
                    writer.end(ending, self._facts(self.live.writers.index(writer)))
        self.live.keep([place for place, writer in enumerate(self.live.writers) if writer.ending is None])

    def _lanes(self, writers: Sequence[TrialWriter]) -> Lanes:
        """New lanes for these trials."""
        trial, order = self.trial, self.order
        return Lanes(
            self.workload,
            seeds=[writer.trial.seed for writer in writers],
            lrs=[writer.trial.lr for writer in writers],
            batch_size=trial.batch_size,
            optimizer=trial.optimizer,
            engine=order.engine,
            device=order.device,
            dtype=trial.dtype,
            micro_batch=order.micro_batch or None,
            splits=order.splits,
            execution=order.execution,
        )

    def _factor(self) -> float:
        return self.trial.recipe.schedule.factor(self.position, self.trial.batch_size)

    def _facts(self, place: int) -> dict[str, Any]:
        return {
            **self.facts,
            **self.live.lanes.facts(place),
            "steps": self.position.steps,
            "examples": self.position.examples,
            **{name: round(seconds, 3) for name, seconds in self.pace.times().items()},
        }
