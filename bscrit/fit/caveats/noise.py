"""Caveats about the noise scale beside B_crit; they are written once it is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bscrit.fit.result import Caveat, NoiseComparison
from bscrit.words import number, scale_name, shown


@dataclass(frozen=True)
class Compared:
    """The facts from which they are written.

    Attributes:
        comparisons: one per metric.
        adaptive: names of the runs' optimizers that scale their updates; none where they are not known.
    """

    comparisons: Sequence[NoiseComparison]
    adaptive: Sequence[str] = ()


def euclidean_noise(f: Compared) -> Iterator[Caveat]:
    """By what was measured with Adam on the built-in tasks, where B_adam was no nearer to B_crit (docs/adam.md)."""
    if f.adaptive and [comparison.metric for comparison in f.comparisons] == ["identity"]:
        scaled = (
            f"updates are scaled by {' and '.join(f.adaptive)}, and B_simple squares gradients as they are"
        )
        evidence = "with Adam it was 0.6 of B_crit on the built-in digits and 2 to 3 times B_crit on the built-in text"
        hint = (
            "take batch sizes from B_crit, and the noise scale for an order of magnitude; in Adam's geometry it was no "
            'nearer there: [noise] metric = ["identity", "adam"] shows whether the two differ here'
        )
        yield Caveat("euclidean-noise", f"{scaled}: {evidence}", hint)


def noise_disagrees(f: Compared) -> Iterator[Caveat]:
    for comparison in f.comparisons:
        if comparison.verdict == "differs" and comparison.ratio.value is not None:
            text = f"{scale_name(comparison.metric)} is {shown(comparison.ratio, 2)} of B_crit"
            hint = "take batch sizes from B_crit; the noise scale alone would mislead here"
            yield Caveat("noise-disagrees", text, hint)


def noise_unresolved(f: Compared) -> Iterator[Caveat]:
    """Of the scale; where it is resolved and its ratio to B_crit is not, the verdict says so."""
    for comparison in f.comparisons:
        if comparison.pooled.mean.value is None and comparison.by_batch_size:
            least = comparison.pooled.mean.low
            bound = f": at least {number(least)}" if least is not None else ""
            text = f"{scale_name(comparison.metric)} is not resolved at any batch size{bound}"
            hint = "sample it more often, in more and smaller parts, or with more seeds"
            yield Caveat("noise-unresolved", text, hint)
