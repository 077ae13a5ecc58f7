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
from bscrit.meter.count import Count
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
        same: measured steps whose micro-batches, or ranks, hold the same data, between which there is no noise.
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
    same: int

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
        if self.same:
            lines.append(
                f"  {self.same} measured steps gave no sample: their micro-batches (or ranks) hold the same data; "
                "use a DistributedSampler, and draw each micro-batch anew"
            )
        if self.alone:
            remedy = "call meter.measure(loss, batch) in each step"
            reason = "had a single micro-batch, and nothing to compare it with: accumulate two or more, or"
            if self.metric == "hessian":
                reason = "gave no sample, as this metric needs it:"
            lines.append(f"  {self.alone} measured steps {reason} {remedy}")
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
        self.dropped = self.alone = self.same = 0
        self.path: Path | None = None

    def write_to(self, path: Path, step: int | None) -> None:
        """Begin noise.csv, or go on with it.

        Args:
            step: at which a run goes on: lines from there on are of a branch that is lost. None for a new run.

        Raises:
            UserError: the file holds another run's samples, or something else; or cannot be written.
        """
        path = path.resolve()  # what a link leads to, and not the link, is written
        other = "choose another path"
        if path.exists() and not path.is_file():
            raise UserError(str(path), "is no file to write samples into", other)
        lines = whole_lines(path) if path.exists() else []
        if lines and lines[0] != HEADER:
            raise UserError(str(path), "is there already, and holds something else than noise samples", other)
        if len(lines) > 1 and step is None:
            remedy = f"{other} or remove it; to go on with that run, pass state="
            raise UserError(str(path), "holds the noise samples of another run", remedy)
        kept = [line for line in lines[1:] if step is not None and _before(line, step)]
        with explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(f"{line}\n" for line in (HEADER, *kept)))
        self.path = path

    def keep(self, step: int, examples: int, sample: Sample, log: bool) -> str:
        """Take a sample, write it and log it; what went wrong with the file or the log, or nothing."""
        self.rows.append((step, examples, *sample))
        trouble = ""
        if self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as stream:
                    stream.write(noise_line(step, examples, self.metric, *sample))
            except OSError as error:
                trouble = f"{self.path} can't be written any more: {error.strerror or error}"
                self.path = None
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
        samples = self._samples(rows)
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
            same=self.same,
        )

    def samples(self) -> NoiseSamples:
        return self._samples(self.rows)

    def state(self) -> dict[str, Any]:
        counts = {"dropped": self.dropped, "alone": self.alone, "same": self.same}
        return {"metric": self.metric, **counts, "rows": [list(row) for row in self.rows]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.dropped, self.alone, self.same = (
            int(state.get(name, 0)) for name in ("dropped", "alone", "same")
        )
        for step, examples, *sample in state.get("rows", ()):
            n_small, sq_small, n_big, sq_big = map(float, sample)
            self.rows.append((int(step), int(examples), n_small, sq_small, n_big, sq_big))

    def _samples(self, rows: Sequence[Row]) -> NoiseSamples:
        samples = NoiseSamples(*np.array(rows, float).reshape(-1, 6).T)
        return replace(samples, metric=self.metric, dropped=self.dropped)

    def _tracked(self) -> dict[str, float]:
        """Signal and noise of the newest sample, and the scale over the last ones, where they resolve it."""
        newest, recent = self.reading(last=1), self.reading(last=TRACKED_SAMPLES)
        values = {"noise/signal": newest.signal, "noise/noise": newest.noise}
        return values if recent.scale.value is None else {**values, "noise/scale": recent.scale.value}


def restore(state: Mapping[str, Any], history: History, count: Count) -> None:
    """Go on from `NoiseMeter.state_dict()`.

    Raises:
        UserError: it is none, or of another metric.
    """
    try:
        metric = state.get("metric", history.metric)
        count.restore(state)
        history.restore(state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = 'pass what state_dict() gave, or {"step": ..., "examples": ...}'
        raise UserError("NoiseMeter", f"state is none of a meter ({error!r})", remedy) from None
    if metric != history.metric:
        raise UserError("NoiseMeter", f"state is of the metric {metric!r}", f"pass metric={metric!r}")


def _before(line: str, step: int) -> bool:
    try:
        return float(line.split(",")[0]) < step
    except ValueError:
        return False
