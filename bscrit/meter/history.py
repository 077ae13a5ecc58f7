"""The samples of a meter: kept, read, written and logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.files import explaining, whole_lines, write_text
from bscrit.measure.sums import Sample
from bscrit.noise import HEADER, MIN_SAMPLES, NoiseSamples, noise_line, noise_scale
from bscrit.words import counted, number, scale_name

Log = Callable[[dict[str, float], int], object]
Row = tuple[int, int, float, float, float, float]
"""step, examples, then a noise sample: a line of noise.csv without its metric."""

TRACKED_SAMPLES = 20


@dataclass(frozen=True)
class NoiseReading:
    """The noise scale over a stretch of training.

    Attributes:
        scale: tr(Sigma)/|G|^2 with its 95 % interval [examples]; without a value where it is not resolved.
        signal: mean of the unbiased |G|^2 of the samples; nan without samples.
        noise: mean of their tr(Sigma).
        metric: geometry in which gradients were squared.
        samples: how many the numbers rest on, at steps `first_step` to `last_step`.
        dropped: measured steps without a sample, as it was not finite or the loop lost count.
        alone: measured steps that consisted of a single micro-batch, with nothing to compare.
    """

    scale: Estimate
    signal: float
    noise: float
    metric: str
    samples: int
    first_step: int | None
    last_step: int | None
    dropped: int
    alone: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; None where the noise scale is not resolved."""
        if self.scale.low is None or self.scale.high is None:
            return None
        return self.scale.low, self.scale.high

    def __str__(self) -> str:
        lines = [f"noise scale ({scale_name(self.metric)}): {self._scale()}"]
        if self.samples:
            lines.append(f"  {counted(self.samples, 'sample')}, steps {self.first_step} to {self.last_step}")
        if self.scale.value is not None:
            lines[-1] += f"; |G|^2 = {self.signal:.3g}, tr(Sigma) = {self.noise:.3g}"
        if self.dropped:
            lines.append(f"  {self.dropped} measured steps gave no sample: not finite, or miscounted")
        if self.alone:
            remedy = "call meter.measure(loss, batch) in each step"
            if self.metric == "hessian":
                lines.append(
                    f"  {self.alone} measured steps gave no sample, as this metric needs it: {remedy}"
                )
            else:
                lines.append(
                    f"  {self.alone} measured steps had a single micro-batch, and nothing to compare it with: "
                    f"accumulate two or more, or {remedy}"
                )
        return "\n".join(lines)

    def _scale(self) -> str:
        if self.scale.value is not None and self.interval is not None:
            low, high = self.interval
            return f"{number(self.scale.value)} examples (95 % interval {number(low)} to {number(high)})"
        if self.samples < MIN_SAMPLES:
            return f"none yet, as {MIN_SAMPLES} samples at least are needed"
        more = "longer, or with more examples a step"
        if self.scale.low is None:
            return f"unresolved: neither |G|^2 nor tr(Sigma) can be told from 0; measure {more}"
        at_least = f"at least {number(self.scale.low)} examples"
        return f"unresolved, {at_least}: |G|^2 can't be told from 0; measure {more}"


class History:
    """The samples of a run, and where they go."""

    def __init__(self, metric: str, log: Log | None) -> None:
        self.metric, self.log = metric, log
        self.rows: list[Row] = []
        self.dropped = self.alone = 0
        self.file: NoiseFile | None = None

    def write_to(self, path: Path, step: int | None) -> None:
        self.file = NoiseFile(path, self.metric, step)

    def keep(self, step: int, examples: int, sample: Sample, log: bool) -> str:
        """Take a sample, write it, and and log it; what went wrong with the file, or nothing."""
        self.rows.append((step, examples, *sample))
        trouble = ""
        if self.file is not None:
            try:
                self.file.write(step, examples, sample)
            except OSError as error:
                trouble = f"{self.file.path} can't be written any more: {error.strerror or error}"
                self.file = None
        if log and self.log is not None:
            try:
                self.log(self._tracked(), step)
            except Exception as error:  # whatever a tracker does, training goes on
                trouble = trouble or f"log raised {type(error).__name__}: {error}; nothing is logged any more"
                self.log = None
        return trouble

    def reading(self, last: int | None = None, since: int | None = None) -> NoiseReading:
        if last is not None and last < 1:
            raise UserError("NoiseMeter.result", f"last = {last}", "a positive number of samples")
        rows = [row for row in self.rows if since is None or row[0] >= since]
        rows = rows[-last:] if last else rows
        samples = _samples(rows, self.metric, self.dropped)
        return NoiseReading(
            scale=noise_scale([samples]),
            signal=float(samples.signal.mean()) if rows else float("nan"),
            noise=float(samples.noise.mean()) if rows else float("nan"),
            metric=self.metric,
            samples=len(rows),
            first_step=rows[0][0] if rows else None,
            last_step=rows[-1][0] if rows else None,
            dropped=self.dropped,
            alone=self.alone,
        )

    def samples(self) -> NoiseSamples:
        return _samples(self.rows, self.metric, self.dropped)

    def state(self) -> dict[str, Any]:
        rows = [list(row) for row in self.rows]
        return {"metric": self.metric, "dropped": self.dropped, "alone": self.alone, "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> tuple[int, int, int, int]:
        """Go on from a state; the meter's step, examples, calls, and the call that is due."""
        try:
            step, examples = int(state["step"]), int(state["examples"])
            calls = int(state.get("calls", step))
            due = int(state.get("due", calls))
            metric = state.get("metric", self.metric)
            self.dropped, self.alone = int(state.get("dropped", 0)), int(state.get("alone", 0))
            for at, seen, *sample in state.get("rows", ()):
                n_small, sq_small, n_big, sq_big = map(float, sample)
                self.rows.append((int(at), int(seen), n_small, sq_small, n_big, sq_big))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            remedy = 'pass what state_dict() gave, or {"step": ..., "examples": ...}'
            raise UserError("NoiseMeter", f"state is none of a meter ({error!r})", remedy) from None
        if metric != self.metric:
            raise UserError("NoiseMeter", f"state is of the metric {metric!r}", f"pass metric={metric!r}")
        return step, examples, calls, due

    def _tracked(self) -> dict[str, float]:
        """Signal and noise of the newest sample, and the scale over the last ones, where they resolve it."""
        newest, recent = self.reading(last=1), self.reading(last=TRACKED_SAMPLES)
        values = {"noise/signal": newest.signal, "noise/noise": newest.noise}
        return values if recent.scale.value is None else {**values, "noise/scale": recent.scale.value}


class NoiseFile:
    """noise.csv, appended line by line.

    Raises:
        UserError: the file holds another run's samples, or something else; or cannot be written.
    """

    def __init__(self, path: Path, metric: str, step: int | None) -> None:
        """Begin or go on.

        Args:
            step: at which a run goes on: lines from there on are of a branch that is lost. None for a new run.
        """
        path = path.resolve()  # what a link leads to, and not the link, is written
        self.path, self.metric = path, metric
        if path.exists() and not path.is_file():
            raise UserError(str(path), "is no file to write samples into", "choose another path")
        lines = whole_lines(path) if path.exists() else []
        if lines and lines[0] != HEADER:
            raise UserError(
                str(path),
                "is there already, and holds something else than noise samples",
                "choose another path",
            )
        if len(lines) > 1 and step is None:
            raise UserError(
                str(path),
                "holds the noise samples of another run",
                "choose another path or remove it; to go on with that run, pass state=",
            )
        kept = [line for line in lines[1:] if step is not None and _before(line, step)]
        with explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(f"{line}\n" for line in (HEADER, *kept)))

    def write(self, step: int, examples: int, sample: Sample) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(noise_line(step, examples, self.metric, *sample))


def _samples(rows: Sequence[Row], metric: str, dropped: int) -> NoiseSamples:
    samples = NoiseSamples(*np.array(rows, float).reshape(-1, 6).T)
    return replace(samples, metric=metric, dropped=dropped)


def _before(line: str, step: int) -> bool:
    try:
        return float(line.split(",")[0]) < step
    except ValueError:
        return False
