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
    if f.adaptive and [one.metric for one in f.comparisons] == ["identity"]:
        text = (
            f"updates are scaled by {' and '.join(f.adaptive)}, and the noise scale was measured in plain |g|^2:"
            " B_simple is not what these updates see"
        )
        yield Caveat(
            "euclidean-noise",
            text,
            'measure it in the metric of the optimizer too: [noise] metric = ["identity", "adam"]',
        )


def noise_disagrees(f: Compared) -> Iterator[Caveat]:
    for one in f.comparisons:
        if one.verdict == "differs" and one.ratio.value is not None:
            text = f"{scale_name(one.metric)} is {shown(one.ratio, 2)} of B_crit"
            hint = "take batch sizes from B_crit; the noise scale alone would mislead here"
            yield Caveat("noise-disagrees", text, hint)


def noise_unresolved(f: Compared) -> Iterator[Caveat]:
    """Of the scale; where it is resolved and its ratio to B_crit is not, the verdict says so."""
    for one in f.comparisons:
        if one.pooled.mean.value is None and one.by_batch_size:
            least = one.pooled.mean.low
            bound = f": at least {number(least)}" if least is not None else ""
            text = f"{scale_name(one.metric)} is not resolved at any batch size{bound}"
            hint = "sample it more often, in more and smaller parts, or with more seeds"
            yield Caveat("noise-unresolved", text, hint)
