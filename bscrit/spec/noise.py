"""The table [noise] of a spec: how the gradient noise scale is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from bscrit.values import Real, Table, Whole, each_once


class NoiseTable(Table):
    """How the gradient noise scale is measured while training; it never changes the training."""

    source: Literal["micro_batches", "examples", "none"] = Field(
        default="micro_batches",
        description="Between what the noise is seen: parts of a batch, or its single examples; none measures nothing.",
    )
    metric: Annotated[
        tuple[Literal["identity", "hessian", "adam"], ...],
        BeforeValidator(lambda metrics: [metrics] if isinstance(metrics, str) else metrics),
        AfterValidator(lambda metrics: each_once(metrics, "metric")),
    ] = Field(
        default=("identity",),
        description="Geometry in which norms are taken, one or several: identity gives B_simple, hessian B_noise "
        "(several times as dear), adam the scale in the metric of Adam's second moments.",
    )
    parts: Annotated[int, Whole(low=2, high=4096)] = Field(
        default=4, description="Parts into which a batch is split for a noise sample."
    )
    every: Annotated[int | Literal["auto"], Whole(low=1, word="auto")] = Field(
        default="auto",
        description="Fewest steps from one noise sample to the next; auto follows the expected length of a run, so "
        "that a short one has enough samples: 3 at 50 steps, 10 at 200, 15 from 300 on.",
    )
    spacing: Annotated[float, Real(low=0, high=10)] = Field(
        default=0.05,
        description="Steps from one noise sample to the next as a share of the steps so far, where that is more.",
    )
    at_losses: tuple[Annotated[float, Real()], ...] = Field(
        default=(),
        description="Losses, or values of another [sweep] metric, at which parameters are frozen and the noise scale "
        "is measured on fresh data until it is known to `precision`.",
    )
    precision: Annotated[float, Real(low=0, high=1, open_low=True)] = Field(
        default=0.1, description="Half-width of the interval, relative, at which a frozen measurement ends."
    )
    max_examples: Annotated[int, Whole(low=128)] = Field(
        default=32_768,
        description="Most examples that one frozen measurement may take, of each run and at each loss.",
    )
