"""Requests to workers and their answers: all that crosses the process boundary, as typed records in files.

    requests/3f9a1c2e07b4.json           a request, until a worker takes it
    requests/3f9a1c2e07b4.answer.json    its answer, until the sweep takes it

Files are written beside and renamed, so that a reader sees a whole one or none. A name is never used twice: whatever
an earlier sweep left is of no request of the present one. A request is taken once at most.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.dataclasses import dataclass

from bscrit.errors import UserError
from bscrit.files import write_text
from bscrit.goal import LOSS
from bscrit.preflight import Preflight

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, config=STRICT)
class Setup:
    """A workload, and how it is built and tried before it trains.

    Attributes:
        use, settings: its name and its own keys, as in [workload].
        metric, validation_examples: which of its evaluations is returned, and on how many examples, as in [sweep].
        device, dtype, lanes, execution, micro_batch: as in [compute].
        first_seed: of the model that is looked at.
        optimizers: the resolved optimizer at each batch size, the smallest first.
    """

    use: str
    settings: Mapping[str, Any]
    device: str
    dtype: str
    lanes: str
    execution: str
    micro_batch: int | None
    first_seed: int
    optimizers: tuple[tuple[int, Mapping[str, Any]], ...]
    metric: str = LOSS.metric
    validation_examples: int | None = None


@dataclass(frozen=True, config=STRICT)
class Shard:
    """The lanes of a cohort that one worker trains, where others train the others at the same time.

    Attributes:
        own: their places in the cohort.
        stamps: for each lane of the cohort what identified its curve.csv before any shard began, None where
            there was none: until that changes, the file is of an earlier run.
    """

    own: tuple[int, ...]
    stamps: tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, config=STRICT)
class Inspect:
    """Find out what the plan needs to know of a workload; the answer is `Facts`."""

    setup: Setup
    kind: Literal["inspect"] = "inspect"


@dataclass(frozen=True, config=STRICT)
class Prepare:
    """Load a workload and try it, before there is anything to train on it; the answer is `Done` in any case."""

    setup: Setup
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True, config=STRICT)
class Train:
    """Train the cohort that lies in these folders, or a shard of it; the answer is `Done`."""

    folders: tuple[Path, ...]
    shard: Shard | None = None
    kind: Literal["train"] = "train"

    @property
    def own(self) -> tuple[int, ...]:
        """Places of the lanes that this request trains."""
        return self.shard.own if self.shard is not None else tuple(range(len(self.folders)))

    @property
    def own_folders(self) -> tuple[Path, ...]:
        return tuple(self.folders[place] for place in self.own)


@dataclass(frozen=True, config=STRICT)
class Stretch:
    """Steps that so many lanes took together, and the seconds of training and evaluating them."""

    lanes: int
    steps: int
    seconds: float


@dataclass(frozen=True, config=STRICT)
class Waits:
    """Evaluations, and the seconds that a shard waited there for the others."""

    evaluations: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, config=STRICT)
class Facts:
    """A workload was looked at."""

    preflight: Annotated[Preflight, PlainSerializer(Preflight.to_dict)]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True, config=STRICT)
class Done:
    """A request was carried out.

    Attributes:
        ended: whether every lane has ended; False where the worker left before, with a checkpoint.
        paces: how fast the lanes trained.
    """

    ended: bool = True
    paces: tuple[Stretch, ...] = ()
    waits: Waits = Waits()
    kind: Literal["done"] = "done"


@dataclass(frozen=True, config=STRICT)
class Failed:
    """A request failed.

    Attributes:
        fault: whose: "user" for a mistake that every trial would meet, "trial" for an exception in training,
            "worker" for a process that died.
        what, where, remedy: as in a `UserError`.
        lanes: places in the cohort of the lanes that failed, none for all of them.
    """

    fault: Literal["user", "trial", "worker"]
    what: str
    where: str = ""
    remedy: str = ""
    lanes: tuple[int, ...] = ()
    kind: Literal["failed"] = "failed"


Request = Inspect | Prepare | Train
Answer = Facts | Done | Failed
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def write_request(folder: Path, request: Request) -> Path:
    """Write a request under a new name, and return its file."""
    file = folder / f"{uuid.uuid4().hex[:12]}.json"
    write_text(file, _REQUEST.dump_json(request).decode(), lasting=False)
    return file


def read_request(file: Path) -> Request:
    """The request of a file; FileNotFoundError where it was taken, UserError where another version wrote it."""
    return _parsed(_REQUEST, file)


def take_request(file: Path) -> Request | None:
    """Read and remove a request; None where it is no longer there: it was taken, or its sweep has gone."""
    try:
        request = read_request(file)
        file.unlink()
    except FileNotFoundError:
        return None
    return request


def write_answer(file: Path, answer: Answer) -> None:
    """Write the answer to the request of this file."""
    write_text(_answer_to(file), _ANSWER.dump_json(answer).decode(), lasting=False)


def is_answered(file: Path) -> bool:
    """Whether there is an answer to the request of this file."""
    return _answer_to(file).exists()


def read_answer(file: Path) -> Answer:
    """The answer to the request of this file; where there is none, its worker failed."""
    try:
        return _parsed(_ANSWER, _answer_to(file))
    except FileNotFoundError:
        return Failed("worker", "the worker left no answer")
    except UserError as error:
        return Failed("worker", f"the answer {error.what}")


def take_answer(file: Path) -> Answer:
    """Read the answer to the request of this file, and remove both."""
    answer = read_answer(file)
    for left in (file, _answer_to(file)):
        left.unlink(missing_ok=True)
    return answer


def _answer_to(file: Path) -> Path:
    return file.with_suffix(".answer.json")


def _parsed(adapter: TypeAdapter[T], file: Path) -> T:
    try:
        return adapter.validate_json(file.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        what = f"is not of the form that this version reads ({type(error).__name__}: {reason})"
        raise UserError(str(file), what, "let the sweep and its workers use one version of bscrit") from error
