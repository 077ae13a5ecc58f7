"""Where cohorts run: an executor takes files of requests, and says which of them are answered.

Requests and answers are files (`bscrit.request`), and the truth lies in the trials' folders, so that an executor need
not be trusted with either: whatever it loses or repeats, the sweep asks again for what is missing.

    [project.entry-points."bscrit.executors"]        # of a package that offers one more, as executor = "theirs"
    theirs = "their_module:Theirs"                   # called with a Compute
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

from bscrit.errors import UserError
from bscrit.files import explaining
from bscrit.paths import ResultsPaths
from bscrit.plugins import EXECUTORS, load
from bscrit.spec import Spec

METHODS = ("submit", "poll", "cancel", "close")


@dataclass(frozen=True)
class Compute:
    """All that an executor is made from.

    Attributes:
        workers, device, threads: as in [compute]: at the same time, where they train, CPU threads of each.
        folder: of the spec, where a user's own workload is found.
        log: file that collects what workers and workloads print.
        keep_open: file descriptors for processes of this machine to inherit: a lock on the results, which holds as
            long as one of them may write.
    """

    workers: int | Literal["auto"]
    device: str
    threads: int
    folder: Path
    log: Path
    keep_open: tuple[int, ...] = ()


class Executor(Protocol):
    """Runs requests somewhere, each in a process that is not this one.

    A worker is a `bscrit.train.worker`: it takes one file after the other and leaves an answer beside each.
    """

    @property
    def slots(self) -> int:
        """Requests that it holds at the same time; 0 where it has to wait for workers, and it may change."""

    def submit(self, request: Path) -> str:
        """Begin the request of a file, and return a handle of it."""

    def poll(self, seconds: float) -> Sequence[str]:
        """Handles of requests that ended within this time: their answers lie in files, or will never come."""

    def cancel(self, handle: str) -> None:
        """Have the worker of a request leave; it keeps what it has, and its answer comes as ever."""

    def close(self) -> None:
        """Have every worker leave and wait for it; each keeps what it has, for another day."""


@contextlib.contextmanager
def executor_of(
    spec: Spec, out: Path, keep_open: Sequence[int] = (), workers: int | None = None
) -> Iterator[Executor]:
    """The executor that a spec names, with an empty folder for its requests; both are gone after the block.

    Args:
        out: the results folder.
        workers: instead of those that the spec asks for.
    """
    asked, paths = spec.compute, ResultsPaths(out)
    compute = Compute(
        workers=asked.workers if workers is None else workers,
        device=asked.device,
        threads=asked.threads,
        folder=spec.workload.folder,
        log=paths.workers_log,
        keep_open=tuple(keep_open),
    )
    shutil.rmtree(paths.requests, ignore_errors=True)
    with explaining(paths.requests):
        paths.requests.mkdir(exist_ok=True)
    with contextlib.ExitStack() as ends:
        ends.callback(shutil.rmtree, paths.requests, ignore_errors=True)
        executor = _made(asked.executor, compute)
        ends.callback(executor.close)
        yield executor


def _made(name: str, compute: Compute) -> Executor:
    """
    Raises:
        UserError: it cannot be made, or lacks a method.
    """
    where, remedy = f"[compute] executor = {name!r}", "mend or update the package that offers it"
    kind = load(EXECUTORS, name, "[compute] executor")
    try:
        executor = kind(compute)
    except UserError:
        raise
    except Exception as error:
        raise UserError(where, f"cannot be made: {type(error).__name__}: {error}", remedy) from error
    lacking = [method for method in METHODS if not callable(getattr(executor, method, None))]
    if lacking:
        raise UserError(where, f"has no {', '.join(lacking)}", remedy)
    return cast(Executor, executor)
