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
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch

from bscrit.curve import curve_line
from bscrit.errors import UserError
from bscrit.files import replacing
from bscrit.noise import FrozenNoise, frozen_lines, noise_line
from bscrit.record import end
from bscrit.train.judge import evaluation_after, judge
from bscrit.train.lanes import Lanes
from bscrit.train.noise import FROZEN_STEPS, Gauge
from bscrit.train.open_trial import OpenTrial, sync, write
from bscrit.train.schedule import factor
from bscrit.train.workload import Workload

T = TypeVar("T")
CHECKPOINT_SECONDS = 20.0


def train(
    folders: Sequence[Path],
    workload: Workload,
    facts: Mapping[str, Any],
    interrupted: Callable[[], bool] = lambda: False,
) -> bool:
    """Train the cohort in these folders until every lane has ended.

    Args:
        workload: prepared for the device of the order.
        facts: what the records shall say besides what the loop knows.
        interrupted: asked after every step; the cohort then leaves a checkpoint and returns.

    Returns:
        Whether the cohort ended; False when it was interrupted.
    """
    cohort = _Cohort([OpenTrial.read(folder) for folder in folders], workload, facts)
    with contextlib.ExitStack() as open_files:
        cohort.start(open_files)
        while cohort.live:
            if interrupted():
                cohort.save()
                return False
            cohort.step()
    cohort.checkpoint.unlink(missing_ok=True)
    return True


class _Cohort:
    """The lanes of one order, those that still train and those that have ended."""

    def __init__(self, lanes: Sequence[OpenTrial], workload: Workload, facts: Mapping[str, Any]) -> None:
        self.lanes = list(lanes)
        self.order = lanes[0].order
        self.trial = lanes[0].trial
        self.workload = workload
        self.facts = facts
        self.live = [row for row, lane in enumerate(self.lanes) if lane.ending is None]
        self.checkpoint = self.lanes[0].folder / "checkpoint.pt"
        self.steps = self.evaluated = self.next_noise = 0
        self.seconds = self.noise_seconds = 0.0
        self.gauge = Gauge(self.order.noise) if self.order.noise is not None else None

    def start(self, files: contextlib.ExitStack) -> None:
        """Build the live lanes, from the checkpoint where there is one, and make the first evaluation."""
        if not self.live:
            return
        if not self.order.splits:
            self.workload.sums_over_examples = False
        saved = self._saved()
        self.stack = self._lanes(self.live)
        if saved is not None:
            self.steps, self.evaluated, self.seconds = saved["steps"], saved["evaluated"], saved["seconds"]
            self.next_noise, self.noise_seconds = saved["next_noise"], saved["noise_seconds"]
            self.stack.load_state_dict(saved["lanes"])
            self.stack.keep([saved["names"].index(name) for name in self._names()])
        self.began = self.saved = time.monotonic()
        self.noise_before = self.noise_seconds
        for row in self.live:
            self.lanes[row].begin(self.steps if saved is not None else -1, files)
        if saved is None:
            self._evaluate()

    def step(self) -> None:
        """One update of every live lane, and what is due after it."""
        if self.gauge is not None and self.steps == self.next_noise:
            self._measure_noise(self.gauge)
        rate = factor(self.trial.schedule, self.steps, self.trial.batch_size)
        self._with_all(lambda stack: stack.step(self.steps, rate))
        self.steps += 1
        if self.steps >= min(evaluation_after(self.evaluated), self.order.max_steps):
            self._evaluate()
        if self.live and time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint beside and rename it: the previous one stays until this one is whole."""
        state = {
            "steps": self.steps,
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
        with replacing(self.checkpoint) as stream:
            try:
                torch.save(state, stream)
            except RuntimeError as error:
                # On a full disk it complains about its own format, and keeps the reason to itself.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
        self.saved = time.monotonic()

    def _saved(self) -> dict[str, Any] | None:
        """The checkpoint, None unless it holds every live lane and their curves lead up to it."""
        saved = _load(self.checkpoint)
        if saved is None or not set(self._names()) <= set(saved["names"]):
            return None
        known = ({row[0] for row in self.lanes[row].rows} for row in self.live)
        return saved if all(saved["evaluated"] in steps for steps in known) else None

    def _evaluate(self) -> None:
        self.evaluated = self.steps
        seconds, examples = self._elapsed(), self.steps * self.trial.batch_size
        losses = self._with_all(Lanes.evaluate)
        for row, loss in zip(self.live, losses, strict=True):
            lane = self.lanes[row]
            lane.rows.append((self.steps, examples, float(loss), seconds))
            line = curve_line(
                self.steps, examples, float(loss), self.trial.batch_size, self._lr(lane), seconds
            )
            write(lane.curve_file, line, lane.folder / "curve.csv")
        if self.gauge is not None and self.gauge.how.losses:
            self._freeze(self.gauge)
        self._judge()

    def _judge(self) -> None:
        """What the judge sees are curves up to now, also of lanes that ended later before an interruption."""
        curves = [lane.curve(self.steps) for lane in self.lanes]
        known = [lane.ending if lane.last <= self.steps else None for lane in self.lanes]
        found = judge(self.order, curves, known)
        kept = []
        for place, row in enumerate(self.live):
            ending, lane = found[row], self.lanes[row]
            if ending is None:
                kept.append(place)
                continue
            lane.ending = ending
            sync(lane.curve_file)
            end(lane.folder, ending.status, ending.reason, {**self.facts, **self._facts()})
        self._keep(kept)

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
            if len(kept) in (0, len(self.live)):
                raise
        for row, error in zip(self.live, errors, strict=True):
            if error is not None:
                self.lanes[row].fail(error)
        self._keep(kept)
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
        )

    def _measure_noise(self, gauge: Gauge) -> None:
        with self._timed():
            found = self._with_all(lambda stack: gauge.sums(stack, self.steps).samples())
        examples = self.steps * self.trial.batch_size
        for metric, samples in found.items():
            for row, sample in zip(self.live, samples, strict=True):
                lane = self.lanes[row]
                line = noise_line(self.steps, examples, metric, *sample)
                write(lane.noise_file, line, lane.folder / "noise.csv")
        self.next_noise = gauge.how.after(self.steps)

    def _freeze(self, gauge: Gauge) -> None:
        """Measure the lanes that have just passed a loss that was asked for."""
        for place, row in enumerate(self.live):
            lane = self.lanes[row]
            *before, now = (loss for _, _, loss, _ in lane.rows)
            passed = [asked for asked in gauge.how.losses if now <= asked < min(before, default=inf)]
            if not passed:
                continue
            with self._timed():
                found = self._frozen(gauge, place, row)
            lines = [frozen_lines(replace(one, loss=asked)) for asked in passed for one in found]
            write(lane.frozen_file, "".join(lines), lane.folder / "frozen.csv")

    def _frozen(self, gauge: Gauge, place: int, row: int) -> list[FrozenNoise]:
        """Measurements of a copy of one lane at this step and the next few.

        A loss that oscillates is first passed in a trough, where gradients are small: the steps after it make up for
        that.
        """
        copy, found = self._lanes([row]), []
        copy.load_state_dict(self.stack.state_dict([place]))
        at = (self.steps, self.steps * self.trial.batch_size, inf)
        for ahead in range(FROZEN_STEPS):
            found += [replace(one, ahead=ahead) for one in gauge.frozen(copy, at, ahead)]
            step = self.steps + ahead
            copy.step(step, factor(self.trial.schedule, step, self.trial.batch_size))
        return found

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Time that measuring takes is kept apart from that of training."""
        began = time.monotonic()
        yield
        self.noise_seconds += time.monotonic() - began

    def _names(self) -> list[str]:
        return [self.lanes[row].trial.name for row in self.live]

    def _facts(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "examples": self.steps * self.trial.batch_size,
            "seconds": round(self._elapsed(), 3),
            "noise_seconds": round(self.noise_seconds, 3),
            "backend": self.stack.backend,
            "micro_batch": self.stack.micro_batch or self.trial.batch_size,
        }

    def _lr(self, lane: OpenTrial) -> float:
        return lane.trial.lr * factor(self.trial.schedule, max(self.steps - 1, 0), self.trial.batch_size)

    def _elapsed(self) -> float:
        """Seconds of training and evaluation, without those of measuring."""
        return self.seconds + time.monotonic() - self.began - (self.noise_seconds - self.noise_before)


def _load(path: Path) -> dict[str, Any] | None:
    """The checkpoint, None where there is none that can be read: the cohort then starts anew."""
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, UnpicklingError):
        return None
    whole = isinstance(state, dict) and set(state) >= _SAVED
    return state if whole else None


_SAVED = {"steps", "evaluated", "seconds", "next_noise", "noise_seconds", "names", "lanes"}
