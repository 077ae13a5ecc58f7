"""Reasons for caution: a closed list, each with its numbers and the next step.

A serious caveat (a "warning") is one under which the answer may well be wrong although it looks right; any other
(a "caution") is one under which it is less sure or less useful than it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bscrit.fit.caveats import curve, noise, runs
from bscrit.fit.caveats.draft import Draft
from bscrit.fit.caveats.noise import Compared
from bscrit.fit.result import Caveat, Fit

OF_THE_FIT: Mapping[str, Callable[[Draft], Iterator[Caveat]]] = {
    "few-batch-sizes": curve.few_batch_sizes,
    "needs-larger": curve.needs_larger,
    "needs-smaller": curve.needs_smaller,
    "undecided": curve.undecided,
    "wide": curve.wide,
    "no-replicates": curve.no_replicates,
    "outlier": runs.outlier,
    "heavy-tails": runs.heavy_tails,
    "steps-rise": curve.steps_rise,
    "hangs-on-one": curve.hangs_on_one,
    "lack-of-fit": curve.lack_of_fit,
    "knee-shape": curve.knee_shape,
    "power-law": curve.power_law,
    "rate-at-edge": runs.rate_at_edge,
    "rate-beside-diverged": runs.rate_beside_diverged,
    "no-feasible-rate": runs.no_feasible_rate,
    "never-reached": runs.never_reached,
    "chosen-by-speed": runs.chosen_by_speed,
    "one-rate": runs.one_rate,
    "coarse-rates": runs.coarse_rates,
    "horizon": runs.horizon,
    "in-warmup": runs.in_warmup,
    "few-steps": runs.few_steps,
    "examples-rise": curve.examples_rise,
    "wide-gaps": curve.wide_gaps,
    "noisy-metric": curve.noisy_metric,
    "averaged-metric": curve.averaged_metric,
}
OF_THE_NOISE: Mapping[str, Callable[[Compared], Iterator[Caveat]]] = {
    "euclidean-noise": noise.euclidean_noise,
    "noise-disagrees": noise.noise_disagrees,
    "noise-unresolved": noise.noise_unresolved,
}
CODES = (*OF_THE_FIT, *OF_THE_NOISE)
"""Every code that a caveat may have."""


def caveats(draft: Draft) -> tuple[Caveat, ...]:
    """All that apply to a fit, serious ones first, otherwise in the order of the list."""
    return _sorted(caveat for write in OF_THE_FIT.values() for caveat in write(draft))


def with_noise_caveats(fit: Fit, adaptive: Sequence[str] = ()) -> Fit:
    """The fit with those of its noise comparisons in place of any that it had."""
    compared = Compared(fit.noise, adaptive)
    of_noise = [caveat for write in OF_THE_NOISE.values() for caveat in write(compared)]
    kept = [caveat for caveat in fit.caveats if caveat.code not in OF_THE_NOISE]
    return replace(fit, caveats=_sorted([*kept, *of_noise]))


def _sorted(unsorted: Iterable[Caveat]) -> tuple[Caveat, ...]:
    return tuple(sorted(unsorted, key=lambda caveat: not caveat.serious))
