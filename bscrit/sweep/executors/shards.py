"""Which cohorts train on several workers at once, each on its shard of the lanes.

A lane is the same run whatever trains beside it, and every shard judges all lanes, so this changes what a sweep
takes in time and nothing that it finds: it may rest on timings. Every planned cohort gets a worker first. What is
left of them goes to the cohort that would take longest, if splitting it pays: with few lanes, a step that is bound
by its overhead takes hardly less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bscrit.order import Cohort
from bscrit.paths import TrialPaths
from bscrit.request import Stretch, Waits

Shards = list[tuple[int, ...]]  # places in the cohort, one tuple for each worker
BARRIER_SECONDS = 0.001  # what an evaluation costs shards, beyond the slower one's steps, at the least
GAIN = 0.25  # share of the time that has to be saved: two processes share caches, and each warms up
FORGETS = 0.9  # each time something begins, so that it is tried again once a busy machine may be free


@dataclass
class Paces:
    """How fast workers were so far.

    Attributes:
        seen: by batch size and engine, then by the number of lanes: steps and seconds.
        barrier: seconds that all shards of a cohort wait at an evaluation: where other programs keep the processors
            busy, they take turns instead of training at the same time.
    """

    seen: dict[tuple[int, str], dict[int, tuple[float, float]]] = field(default_factory=dict)
    barrier: float = BARRIER_SECONDS

    def add(self, cohort: Cohort, paces: Iterable[Stretch]) -> None:
        """Take in those of a cohort or of a shard."""
        for stretch in paces:
            if stretch.steps > 0:
                here = self.seen.setdefault((cohort.batch_size, cohort.order.engine), {})
                steps, seconds = here.get(stretch.lanes, (0.0, 0.0))
                here[stretch.lanes] = steps + stretch.steps, seconds + stretch.seconds

    def waited(self, waits: Iterable[Waits]) -> None:
        """Take in those of all shards of a cohort; what one waits for is another's to do."""
        each = [wait.seconds / wait.evaluations for wait in waits if wait.evaluations]
        if len(each) > 1:
            self.barrier = max(min(each), BARRIER_SECONDS)

    def seconds(self, cohort: Cohort, lanes: int) -> float | None:
        """A step of so many lanes, None where nothing tells: by a line through what was seen at the nearest size."""
        engine = cohort.order.engine
        sizes = sorted(size for size, other in self.seen if other == engine)
        if not sizes:
            return None
        nearest = min(sizes, key=lambda size: abs(math.log(size / cohort.batch_size)))
        count, steps, total = np.array([(n, *pace) for n, pace in self.seen[nearest, engine].items()]).T
        if len(count) == 1:
            # One after the other, lanes add up; how far they do in one stack is not known yet.
            return float(total[0] / steps[0] * lanes / count[0]) if engine == "loop" else None
        slope, level = np.maximum(np.polyfit(count, total / steps, 1, w=np.sqrt(steps)), 0.0)
        return float(level + slope * lanes)


def share_out(
    planned: Sequence[Cohort],
    live: Sequence[Sequence[bool]],
    workers: int,
    trials: Path,
    paces: Paces,
    former: Mapping[tuple[str, ...], Shards],
) -> list[Shards]:
    """The shards of each cohort that begins now, of the first ones for which there are workers that are free.

    Args:
        live: which lanes of each cohort train.
        trials: their folders: a cohort that was split and interrupted goes on as it was split, since each shard
            left its own checkpoint.
        former: how cohorts were split in this sweep, by the names of their trials: if one worker dies again, it is
            for its own lanes alone.
    """
    chosen: list[_Split] = []
    for cohort, trains in zip(planned, live, strict=True):
        split = _Split.begun(cohort, trains, trials, former.get(names(cohort), []), workers)
        if len(split.shards) > workers:
            break
        chosen.append(split)
        workers -= len(split.shards)
    paces.barrier = max(FORGETS * paces.barrier, BARRIER_SECONDS)
    open_ones = [split for split in chosen if split.fresh]
    while workers > 0 and open_ones:
        split = max(open_ones, key=lambda split: split.seconds(paces))
        more = split.more()
        if more - len(split.shards) > workers or not split.pays(more, paces):
            open_ones.remove(split)
            continue
        workers -= more - len(split.shards)
        split.shards = _even(split.live, more)
    return [split.shards for split in chosen]


def names(cohort: Cohort) -> tuple[str, ...]:
    return tuple(trial.name for trial in cohort.trials)


@dataclass(eq=False)
class _Split:
    """A cohort, which of its lanes train, and how they are split; `fresh` where no checkpoint binds them."""

    cohort: Cohort
    live: Sequence[bool]
    shards: Shards
    fresh: bool

    @classmethod
    def begun(
        cls, cohort: Cohort, live: Sequence[bool], trials: Path, former: Shards, workers: int
    ) -> _Split:
        """As it was split before; whole where it was not, or where that would take too many workers."""
        saved = [TrialPaths(trials / name).checkpoint.exists() for name in names(cohort)]
        starts = [own[0] for own in former] or [place for place, there in enumerate(saved) if there]
        shards = _cut(live, starts)
        return cls(cohort, live, shards if len(shards) <= workers else _cut(live, []), not starts)

    def lanes(self, shards: int) -> int:
        """Lanes of the largest of so many shards."""
        return math.ceil(sum(self.live) / shards)

    def more(self) -> int:
        """The next larger number of shards with smaller ones; the same where each has one lane."""
        lanes = self.lanes(len(self.shards))
        return math.ceil(sum(self.live) / (lanes - 1)) if lanes > 1 else len(self.shards)

    def pays(self, shards: int, paces: Paces) -> bool:
        """Whether so many shards save time, the time that they wait for each other included."""
        before = paces.seconds(self.cohort, self.lanes(len(self.shards)))
        after = paces.seconds(self.cohort, self.lanes(shards))
        if before is None or after is None or shards == len(self.shards):
            return False
        steps = _steps(self.cohort)
        return after + paces.barrier * _evaluations(steps) / steps < (1 - GAIN) * before

    def seconds(self, paces: Paces) -> float:
        """How long it takes, roughly; 0 where nothing tells."""
        return _steps(self.cohort) * (paces.seconds(self.cohort, self.lanes(len(self.shards))) or 0.0)


def _steps(cohort: Cohort) -> float:
    """Steps that a lane takes, roughly: a cap is about twice what is expected."""
    order = cohort.order
    return max(order.cap_steps / 2 if order.cap_steps else min(order.max_steps, 1000), 1.0)


def _evaluations(steps: float) -> float:
    """About as many as there are on a grid of every step up to 50, and of every 2 % beyond."""
    return min(steps, 50.0) + 50.0 * math.log(max(steps / 50.0, 1.0))


def _even(live: Sequence[bool], shards: int) -> Shards:
    """Shards of about as many lanes that train, one after the other."""
    places = [place for place, trains in enumerate(live) if trains]
    return _cut(live, [places[len(places) * shard // shards] for shard in range(shards)])


def _cut(live: Sequence[bool], starts: Sequence[int]) -> Shards:
    """All places, cut where a shard starts; none without a lane that trains."""
    shards: list[list[int]] = [[]]
    for place in range(len(live)):
        if place in starts and any(live[before] for before in shards[-1]):
            shards.append([])
        shards[-1].append(place)
    if len(shards) > 1 and not any(live[place] for place in shards[-1]):
        last = shards.pop()
        shards[-1] += last
    return [tuple(shard) for shard in shards]
