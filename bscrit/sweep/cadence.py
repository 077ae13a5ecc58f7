"""How the noise scale is measured along the measured runs of a batch size, and whether finished ones were measured so.

The cadence follows the expected length: about SAMPLES in a run of up to SAMPLES * FARTHEST steps, in a longer one as
many as the spacing leaves. A sample costs as much as one to four steps, so they lie no closer than CLOSEST steps,
unless the run would have fewer than FEWEST.
"""

from __future__ import annotations

from math import ceil, isfinite

from bscrit.noise_settings import NoiseSettings
from bscrit.record import Record
from bscrit.results import Results
from bscrit.spec import Spec
from bscrit.sweep.batch_size import BatchSize
from bscrit.words import counted

SAMPLES, FEWEST = 20, 7
CLOSEST, FARTHEST = 3, 15


def noise_settings(here: BatchSize, steps: float) -> NoiseSettings | None:
    """The settings of runs that are expected to take so many steps; None where a batch has no parts."""
    noise = here.spec.noise
    if noise.source == "none" or not here.preflight.splits or here.batch_size < 2:
        return None
    return NoiseSettings(
        source=noise.source,
        metrics=noise.metric,
        parts=noise.parts,
        every=cadence(steps) if noise.every == "auto" else noise.every,
        spacing=noise.spacing,
        losses=tuple(sorted(noise.at_losses, reverse=True)),
        precision=noise.precision,
        max_examples=noise.max_examples,
    )


def cadence(steps: float) -> int:
    """Fewest steps from one sample to the next in a run that is expected to take so many.

    >>> [cadence(steps) for steps in (14, 50, 100, 200, 1000)]
    [2, 3, 5, 10, 15]
    """
    if not isfinite(steps):
        return FARTHEST
    closest = min(CLOSEST, max(ceil(steps / FEWEST), 1))
    return min(max(ceil(steps / SAMPLES), closest), FARTHEST)


def measured_otherwise(results: Results) -> list[str]:
    """A sentence where [noise] asks for what finished runs were not measured for, and what to do."""
    spec, preflight = results.spec, results.preflight
    if spec is None or spec.noise.source == "none" or not preflight.splits:
        return []
    runs = [
        record
        for record in results.asked_for
        if record.role == "measure" and record.finished and record.trial.batch_size > 1
    ]
    others = [record for record in runs if not _as_asked(spec, record)]
    if not others:
        return []
    changed = f"[noise] has changed since {counted(len(others), 'measured run')} of {len(runs)} trained"
    remedy = f"to measure all of them anew, train into another folder, --out {results.folder}-noise"
    return [f"{changed}: a finished run keeps the noise scale that it has; {remedy}"]


def _as_asked(spec: Spec, record: Record) -> bool:
    noise, settings = spec.noise, record.order.noise
    if settings is None:
        return False
    frozen = (settings.precision, settings.max_examples) == (noise.precision, noise.max_examples)
    return (
        (settings.source, settings.parts, settings.spacing) == (noise.source, noise.parts, noise.spacing)
        and noise.every in ("auto", settings.every)
        and set(noise.metric) <= set(settings.metrics)
        and set(noise.at_losses) <= set(settings.losses)
        and (frozen or not noise.at_losses)
    )
