"""The training loop: one cohort of lanes in lockstep, from its folders to its endings.

An interrupted cohort goes on bit for bit: batches are functions of the step, a checkpoint holds the rest,
and the judge sees at each step exactly what it would have seen without the interruption.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from bscrit.cohort.judge import evaluation_after, judge
from bscrit.cohort.pace import Pace
from bscrit.cohort.peers import Peers
from bscrit.cohort.trial_writer import OpenTrial, sync, write
from bscrit.curve import curve_line
from bscrit.engine.lanes import Lanes
from bscrit.engine.replay import replay_of
from bscrit.engine.workload import Workload
from bscrit.errors import UserError
from bscrit.noise import FrozenNoise, frozen_lines, noise_line
from bscrit.paths import TrialPaths
from bscrit.position import Position
from bscrit.record import end
from bscrit.request import Shard
from bscrit.train import checkpoint
from bscrit.train.noise import FROZEN_STEPS, Gauge

T = TypeVar("T")
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
        facts: what the records shall say besides what the loop knows.
        interrupted: asked after every step, and once true always true; the cohort then leaves a checkpoint
            and returns.
        shard: the lanes that are trained here, where other workers train the others at the same time.
        pace: is told how fast the lanes were.

    Returns:
        Whether the lanes ended; False when interrupted.
    """
    cohort = _Cohort(folders, workload, facts, interrupted, shard, pace or Pace())
    with contextlib.ExitStack() as open_files, contextlib.suppress(_AllFailed):
        cohort.start(open_files)
        while cohort.live:
            if interrupted():
                cohort.save()
                return False
            cohort.step()
    for row in cohort.own:
        TrialPaths(folders[row]).checkpoint.unlink(missing_ok=True)
    return True


class _AllFailed(Exception):
    """Every lane of a shard failed, each by itself: its peers go on elsewhere."""


class _Cohort:
    """The lanes of one order, those that still train here and those that have ended or train elsewhere."""

    def __init__(
        self,
        folders: Sequence[Path],
        workload: Workload,
        facts: Mapping[str, Any],
        interrupted: Callable[[], bool],
        shard: Shard | None,
        pace: Pace,
    ) -> None:
        self.lanes = [OpenTrial.read(folder) for folder in folders]
        self.order = self.lanes[0].order
        self.trial = self.lanes[0].trial
        self.workload = workload
        self.facts = facts
        self.interrupted = interrupted
        self.shard = shard or Shard(tuple(range(len(folders))), (None,) * len(folders))
        self.own = self.shard.own
        self.pace = pace
        self.live = [row for row in self.own if self.lanes[row].ending is None]
        self.path = self.lanes[self.own[0]].paths.checkpoint
        self.position = Position()
        self.factor = self.trial.recipe.schedule.factor(
            self.position, self.trial.batch_size
        )  # of the last update
        self.evaluated = self.next_noise = 0
        self.seconds = self.noise_seconds = self.waited_seconds = 0.0
        self.gauge = Gauge(self.order.noise) if self.order.noise is not None else None

    def start(self, files: contextlib.ExitStack) -> None:
        """Build the live lanes, from the checkpoint where there is one, and make the first evaluation."""
        if not self.live:
            return
        self.peers = Peers(self.lanes, self.shard, files)
        if not self.order.splits:
            self.workload.sums_over_examples = False
        saved = self._saved()
        self.stack = self._lanes(self.live)
        if saved is not None:
            self.position = Position(saved["steps"], saved["examples"])
            self.evaluated, self.seconds = saved["evaluated"], saved["seconds"]
            self.next_noise, self.noise_seconds = saved["next_noise"], saved["noise_seconds"]
            self.stack.load_state_dict(saved["lanes"])
            self.stack.keep([saved["names"].index(name) for name in self._names()])
        self.began = self.saved = time.monotonic()
        self.noise_before = self.noise_seconds
        self.timed = self.position.steps, self.seconds
        for row in self.live:
            self.lanes[row].begin(self.position.steps if saved is not None else -1, files)
        if saved is None:
            self._evaluate()
        elif self.position.steps == self.evaluated:
            self._judge()  # it was told to leave while it waited for its peers; else this finds nothing new

    def step(self) -> None:
        """One update of every live lane, and what is due after it."""
        if self.gauge is not None and self.position.steps == self.next_noise:
            self._measure_noise(self.gauge)
        self.factor = self.trial.recipe.schedule.factor(self.position, self.trial.batch_size)
        self._with_all(lambda stack: stack.step(self.position.examples, self.factor))
        self.position = self.position.after(self.trial.batch_size)
        if self.position.steps >= min(evaluation_after(self.evaluated), self.order.max_steps):
            self._evaluate()
        if self.live and time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint beside and rename it: the previous one stays until this one is whole."""
        state = {
            "steps": self.position.steps,
            "examples": self.position.examples,
            "evaluated": self.evaluated,
            "seconds": self._elapsed(),
            "next_noise": self.next_noise,
            "noise_seconds": self.noise_seconds,
            "names": self._names(),
            "lanes": self.stack.state_dict(),
        }
        for row in self.live:
            sync(self.lanes[row].curve_file)
            sync(self.lanes[row].noise_file)
            sync(self.lanes[row].frozen_file)
        checkpoint.save(self.path, state)
        self.saved = time.monotonic()

    def _saved(self) -> dict[str, Any] | None:
        """The checkpoint that goes furthest of those that serve: the cohort may have been split otherwise."""
        states = (checkpoint.load(lane.paths.checkpoint) for lane in self.lanes)
        found = [state for state in states if state is not None and self._serves(state)]
        return max(found, key=lambda state: int(state["steps"]), default=None)

    def _serves(self, saved: Mapping[str, Any]) -> bool:
        """Whether a checkpoint holds every live lane and their curves lead up to it."""
        if not set(self._names()) <= set(saved["names"]):
            return False
        curves = (self.lanes[row].rows.until(saved["evaluated"]) for row in self.live)
        return all(len(curve) and curve.steps[-1] == saved["evaluated"] for curve in curves)

    def _evaluate(self) -> None:
        self.evaluated = self.position.steps
        seconds, examples = self._elapsed(), self.position.examples
        before, then = self.timed
        self.pace.trained(len(self.live), self.position.steps - before, seconds - then)
        self.timed = self.position.steps, seconds
        values = self._with_all(Lanes.evaluate)
        for row, value in zip(self.live, values.tolist(), strict=True):
            lane = self.lanes[row]
            lane.rows.add(self.position.steps, examples, value, seconds)
            line = curve_line(
                self.position.steps, examples, value, self.trial.batch_size, self._lr(lane), seconds
            )
            write(lane.curve_file, line, lane.paths.curve)
        if self.gauge is not None and self.gauge.how.losses:
            self._freeze(self.gauge)
        self._judge()

    def _judge(self) -> None:
        """End lanes of ours as all curves up to now ask for.

        Up to now: a lane may have ended later, before an interruption, and a peer may be ahead.
        """
        began = time.monotonic()
        if not self.peers.wait(self.position.steps, self.interrupted):
            return  # it is judged when it goes on
        waited = time.monotonic() - began
        self.waited_seconds += waited
        self.pace.waited(waited)
        curves = [lane.rows.until(self.position.steps) for lane in self.lanes]
        known = [lane.ending if lane.rows.last <= self.position.steps else None for lane in self.lanes]
        found = judge(self.order, curves, known)
        for row, (lane, ending) in enumerate(zip(self.lanes, found, strict=True)):
            if lane.ending is None and ending is not None:
                lane.ending = ending
                if row in self.live:
                    sync(lane.curve_file)
                    end(lane.folder, ending.status, ending.reason, {**self.facts, **self._facts(row)})
        self._keep([place for place, row in enumerate(self.live) if found[row] is None])

    def _with_all(self, act: Callable[[Lanes], T]) -> T:
        """`act` on the live lanes; where one of them makes it raise, that lane fails and the others go on.

        Code of a user may raise where a high rate makes numbers that are not finite: no reason to lose the
        low rates too. What every lane meets is raised.
        """
        try:
            return act(self.stack)
        except UserError:
            raise
        except Exception:
            errors = [self._alone(place, act) for place in range(len(self.live))]
            kept = [place for place, error in enumerate(errors) if error is None]
            if len(kept) == len(self.live) or not (kept or self.peers.live):
                raise
        for row, error in zip(self.live, errors, strict=True):
            if error is not None:
                self.lanes[row].fail(error)
        self._keep(kept)
        if not kept:
            raise _AllFailed
        return act(self.stack)

    def _alone(self, place: int, act: Callable[[Lanes], Any]) -> Exception | None:
        """What a copy of one live lane raises by itself."""
        try:
            copy = self._lanes(self.live[place : place + 1])
            copy.load_state_dict(self.stack.state_dict([place]))
            act(copy)
        except Exception as error:
            return error
        return None

    def _keep(self, places: Sequence[int]) -> None:
        """Go on with these of the live lanes alone."""
        if len(places) < len(self.live):
            self.live = [self.live[place] for place in places]
            if places:
                self.stack.keep(places)

    def _lanes(self, rows: Sequence[int]) -> Lanes:
        """New lanes for these rows of the cohort."""
        return Lanes(
            self.workload,
            seeds=[self.lanes[row].trial.seed for row in rows],
            lrs=[self.lanes[row].trial.lr for row in rows],
            batch_size=self.trial.batch_size,
            optimizer=self.trial.optimizer,
            backend=self.order.backend,
            device=self.order.device,
            dtype=self.trial.dtype,
            micro_batch=self.order.micro_batch or None,
            replay=replay_of(self.workload, self.trial.dtype, self.order.device, self.order.execution),
        )

    def _measure_noise(self, gauge: Gauge) -> None:
        with self._timed():
            found = self._with_all(lambda stack: gauge.sums(stack, self.position.examples).samples())
        examples = self.position.examples
        for metric, samples in found.items():
            for row, sample in zip(self.live, samples, strict=True):
                lane = self.lanes[row]
                line = noise_line(self.position.steps, examples, metric, *sample)
                write(lane.noise_file, line, lane.paths.noise)
        self.next_noise = gauge.how.after(self.position.steps)

    def _freeze(self, gauge: Gauge) -> None:
        """Measure the lanes that have just passed a loss that was asked for."""
        for place, row in enumerate(self.live):
            lane = self.lanes[row]
            losses = lane.rows.losses
            before = min(losses[:-1], default=inf)
            passed = [
                asked for asked in gauge.how.losses if losses[-1] <= lane.trial.goal.falls(asked) < before
            ]
            if not passed:
                continue
            with self._timed():
                found = self._frozen(gauge, place, row)
            lines = [frozen_lines(replace(one, loss=asked)) for asked in passed for one in found]
            write(lane.frozen_file, "".join(lines), lane.paths.frozen)

    def _frozen(self, gauge: Gauge, place: int, row: int) -> list[FrozenNoise]:
        """Measurements of a copy of one lane at this step and the next few.

        A loss that oscillates is first passed in a trough, where gradients are small: the steps after it make up for
        that.
        """
        copy, found = self._lanes([row]), []
        copy.load_state_dict(self.stack.state_dict([place]))
        at = (self.position.steps, self.position.examples, inf)
        position = self.position
        for ahead in range(FROZEN_STEPS):
            found += [replace(one, ahead=ahead) for one in gauge.frozen(copy, at, ahead)]
            factor = self.trial.recipe.schedule.factor(position, self.trial.batch_size)
            copy.step(position.examples, factor)
            position = position.after(self.trial.batch_size)
        return found

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Time that measuring takes is kept apart from that of training."""
        began = time.monotonic()
        yield
        self.noise_seconds += time.monotonic() - began

    def _names(self) -> list[str]:
        return [self.lanes[row].trial.name for row in self.live]

    def _facts(self, row: int) -> dict[str, Any]:
        shares = self.stack.optimizer.clipped_shares()
        return {
            **({} if shares is None else {"clipped": shares[self.live.index(row)]}),
            "steps": self.position.steps,
            "examples": self.position.examples,
            "seconds": round(self._elapsed(), 3),
            "noise_seconds": round(self.noise_seconds, 3),
            "backend": self.stack.backend,
            **self.stack.replay_facts(),
            "micro_batch": self.stack.micro_batch or self.trial.batch_size,
        }

    def _lr(self, lane: OpenTrial) -> float:
        return lane.trial.lr * self.factor

    def _elapsed(self) -> float:
        """Seconds of training and evaluation, without those of measuring and of waiting."""
        apart = self.noise_seconds - self.noise_before + self.waited_seconds
        return self.seconds + time.monotonic() - self.began - apart
