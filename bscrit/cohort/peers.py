"""Peers: the lanes of a cohort that other workers train, each of which trains a shard of them.

Every shard judges all lanes, so that each lane ends where it would have ended on one worker: the judge is a
pure function of their curves up to the present evaluation, and all lanes share their evaluation steps. What a
shard lacks are the curves of its peers, the lanes of the other shards. It reads them from their folders, and
at every evaluation waits until each peer has been evaluated there, too, or has ended before.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from bscrit.cohort.evaluations import Evaluations
from bscrit.cohort.judge import Ending
from bscrit.cohort.trial_writer import TrialWriter
from bscrit.files import stamp, whole_json
from bscrit.paths import TrialPaths
from bscrit.request import Shard

SHORTEST_SECONDS = 0.0002
LONGEST_SECONDS = 0.005
SHARE = 0.1  # of the time waited so far: a long wait is not made much longer by sleeping through its end


class Peers:
    """The lanes of other shards that have not ended; their curves and endings are kept up to date here."""

    def __init__(self, lanes: Sequence[TrialWriter], shard: Shard, files: contextlib.ExitStack) -> None:
        pairs = zip(lanes, shard.stamps, strict=True)
        self._all = [
            _Peer(lane, before, files)
            for place, (lane, before) in enumerate(pairs)
            if place not in shard.own and lane.ending is None
        ]

    @property
    def live(self) -> bool:
        return any(peer.lane.ending is None for peer in self._all)

    def wait(self, step: int, leave: Callable[[], bool]) -> bool:
        """Wait until every peer has been evaluated here, or has ended before; False when asked to leave."""
        began = time.monotonic()
        for peer in self._all:
            while not peer.settled(step):
                if leave():
                    return False
                waited = time.monotonic() - began
                time.sleep(min(max(SHARE * waited, SHORTEST_SECONDS), LONGEST_SECONDS))
        return True


class _Peer:
    """A lane that another worker trains."""

    def __init__(
        self, lane: TrialWriter, before: tuple[int, ...] | None, files: contextlib.ExitStack
    ) -> None:
        self.lane = lane
        self._path = TrialPaths(lane.folder).curve
        self._status = str(TrialPaths(lane.folder).status)
        self._before = before
        self._files = files
        self._curve: IO[bytes] | None = None
        self._torn = b""
        lane.evaluations = Evaluations(lane.evaluations.until(-1))

    def settled(self, step: int) -> bool:
        """Whether its row at this evaluation is here, or it has ended before."""
        if self.lane.ending is not None or self._read(step):
            return True
        ended = whole_json(Path(self._status)) if os.path.exists(self._status) else None  # noqa: PTH110 (quick)
        # What it wrote before it ended counts: a lane that fails after this evaluation was alive at it.
        if ended is None or self._read(step):
            return ended is not None
        # Mostly an exception of its own, which no curve tells.
        self.lane.ending = Ending(ended["status"], str(ended["reason"]))
        return True

    def _read(self, step: int) -> bool:
        """Take in what was appended, and say whether it goes as far as `step`."""
        if self.lane.evaluations.last >= step:
            return True
        if self._curve is None:
            if stamp(self._path) in (None, self._before):
                return False  # its worker has not begun
            self._curve = self._files.enter_context(self._path.open("rb"))
        *lines, self._torn = (self._torn + self._curve.read()).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, IndexError):  # the header, or a line that is torn
                cells = line.split(b",")
                at, examples, value, seconds = (float(cells[place]) for place in (0, 1, 2, 5))
                self.lane.evaluations.add(at, examples, value, seconds)
        return self.lane.evaluations.last >= step
