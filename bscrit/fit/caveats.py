"""Reasons for caution: a closed list, each with its numbers and the next step.

A serious caveat is one under which the answer may well be wrong although it looks right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bscrit.fit import curve_caveats, noise_caveats, run_caveats
from bscrit.fit.findings import Findings
from bscrit.fit.noise_caveats import Compared
from bscrit.fit.result import Caveat, Fit

OF_THE_FIT: Mapping[str, Callable[[Findings], Iterator[Caveat]]] = {
    "few-batch-sizes": curve_caveats.few_batch_sizes,
    "needs-larger": curve_caveats.needs_larger,
    "needs-smaller": curve_caveats.needs_smaller,
    "undecided": curve_caveats.undecided,
    "wide-interval": curve_caveats.wide_interval,
    "no-replicates": curve_caveats.no_replicates,
    "outlier": run_caveats.outlier,
    "hangs-on-one": curve_caveats.hangs_on_one,
    "lack-of-fit": curve_caveats.lack_of_fit,
    "knee-shape": curve_caveats.knee_shape,
    "power-law": curve_caveats.power_law,
    "rate-at-edge": run_caveats.rate_at_edge,
    "rate-beside-diverged": run_caveats.rate_beside_diverged,
    "no-feasible-rate": run_caveats.no_feasible_rate,
    "never-reached": run_caveats.never_reached,
    "chosen-by-speed": run_caveats.chosen_by_speed,
    "one-rate": run_caveats.one_rate,
    "coarse-rates": run_caveats.coarse_rates,
    "horizon": run_caveats.horizon,
    "in-warmup": run_caveats.in_warmup,
    "few-steps": run_caveats.few_steps,
    "examples-rise": curve_caveats.examples_rise,
    "wide-gaps": curve_caveats.wide_gaps,
}
OF_THE_NOISE: Mapping[str, Callable[[Compared], Iterator[Caveat]]] = {
    "euclidean-noise": noise_caveats.euclidean_noise,
    "noise-disagrees": noise_caveats.noise_disagrees,
    "noise-unresolved": noise_caveats.noise_unresolved,
}
CODES = (*OF_THE_FIT, *OF_THE_NOISE)
"""Every code that a caveat may have."""


def caveats(findings: Findings) -> tuple[Caveat, ...]:
    """All that apply to a fit, serious ones first, otherwise in the order of the list."""
    return _sorted(caveat for write in OF_THE_FIT.values() for caveat in write(findings))


def with_noise_caveats(fit: Fit, adaptive: Sequence[str] = ()) -> Fit:
    """The fit with those of its noise comparisons in place of any that it had."""
    compared = Compared(fit.noise, adaptive)
    found = [caveat for write in OF_THE_NOISE.values() for caveat in write(compared)]
    kept = [caveat for caveat in fit.caveats if caveat.code not in OF_THE_NOISE]
    return replace(fit, caveats=_sorted([*kept, *found]))


def _sorted(found: Iterable[Caveat]) -> tuple[Caveat, ...]:
    return tuple(sorted(found, key=lambda caveat: not caveat.serious))
