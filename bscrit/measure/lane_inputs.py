"""Inputs and results of passes over examples, and plans of how to pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bscrit.measure.nested import map_tensors, narrowed, tensors_of

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class PassPlan:
    """A way to pass over examples."""

    way: str
    """layers, leaves or single"""
    together: bool = True
    """Whether all lanes go through one pass."""
    leaves: frozenset[str] = frozenset()
    """Parameters with one leaf per example."""
    shared: frozenset[nn.Module] = frozenset()
    """Embeddings that look up the same rows for every example, such as positions."""


@dataclass(frozen=True)
class LaneInputs:
    """Tensors of K lanes, [K, ...], and their batches, [K, n, ...]."""

    parameters: Tensors
    buffers: Tensors
    batch: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Lanes and examples."""
        lanes, examples = tensors_of(self.batch)[0].shape[:2]
        return lanes, examples

    def of_lanes(self, first: int, last: int) -> LaneInputs:
        def cut(tensors: Tensors) -> Tensors:
            return {name: tensor[first:last] for name, tensor in tensors.items()}

        return LaneInputs(cut(self.parameters), cut(self.buffers), narrowed(self.batch, first, last - first))

    def lanes(self) -> Iterator[LaneInputs]:
        """Each lane by itself."""
        return (self.of_lanes(lane, lane + 1) for lane in range(self.shape[0]))

    @property
    def first(self) -> LaneInputs:
        """The first lane, without the axis of lanes."""
        nests = (self.parameters, self.buffers, self.batch)
        return LaneInputs(*(map_tensors(lambda tensor: tensor[0], nest) for nest in nests))

    def of_examples(self, first: int, last: int) -> LaneInputs:
        return LaneInputs(self.parameters, self.buffers, narrowed(self.batch, first, last - first, axis=1))


@dataclass(frozen=True)
class ExampleGradients:
    """Gradients of examples, one tensor per parameter."""

    totals: Sequence[Tensor]
    """Sums of the gradients over examples, [K, ...]."""
    squares: Sequence[Tensor]
    """(K, n) in float64; none where the whole gradients are returned."""
    gradients: Sequence[Tensor]
    """[K, n, ...]; none where their squares are returned."""
    example_bytes: int = 0
    """Memory kept for one example of one lane."""
