"""How the gradient noise scale is measured along a run: sources, metrics and when samples fall."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoiseSettings:
    """How the noise scale is measured while a cohort trains; it changes what a run costs, never its curve.

    Attributes:
        source: where in a batch the noise is seen: between "micro_batches" or single "examples".
        metrics: norms in which gradients are measured, of "identity", "hessian", "adam".
        parts: micro-batches into which a batch is cut.
        every: fewest steps from one sample to the next.
        spacing: steps from one sample to the next as a share of the steps so far.
        losses: values of the goal's metric at which parameters are frozen to measure on fresh data.
        precision: half-width in ln(noise scale) at which a measurement at frozen parameters ends.
        max_examples: examples at which it ends in any case.
    """

    source: str = "micro_batches"
    metrics: tuple[str, ...] = ("identity",)
    parts: int = 4
    every: int = 10
    spacing: float = 0.05
    losses: tuple[float, ...] = ()
    precision: float = 0.1
    max_examples: int = 0

    def after(self, step: int) -> int:
        """The step of the sample that follows the one at `step`."""
        return step + max(self.every, int(self.spacing * step))
