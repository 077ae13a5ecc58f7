"""The noise source "examples": gradients of single examples, the smallest groups that a batch can be split into.

Three ways, of which the first that is right for the model is taken:

layers    one pass over the batch; squares from what goes into layers and what comes back
leaves    one pass vectorised over examples; parameters used outside of layers get one leaf per example
single    one pass per example

A model may do anything in its forward, so a way is trusted only after it gave the gradients of single passes, for
every parameter, on the first examples that it sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from bscrit.errors import UserError
from bscrit.measure.lane_inputs import ExampleGradients, LaneInputs, PassPlan
from bscrit.measure.layer_hooks import UnrecordedUse
from bscrit.measure.layers import BUDGET_BYTES
from bscrit.measure.metrics import identity
from bscrit.measure.passes import Passes
from bscrit.measure.random_states import random_states_kept
from bscrit.measure.sums import Sums

Tensors = Mapping[str, Tensor]


class Examples:
    """Squared gradients of single examples.

    Args:
        model: an ordinary module in the mode in which it is trained. Nothing of it is changed.
        losses: of the model on a batch of n examples, shape (n,).

    >>> model = nn.Linear(2, 1, bias=False)
    >>> source = Examples(model, lambda model, x: model(x).squeeze(1))
    >>> sums = Sums(lanes=1)
    >>> source.add(sums, {"weight": torch.zeros(1, 1, 2)}, {}, torch.tensor([[[3.0, 4.0], [1.0, 0.0]]]))
    >>> sums.samples()["identity"], source.way
    ([(1.0, 13.0, 2.0, 8.0)], 'layers')
    """

    def __init__(self, model: nn.Module, losses: Callable[[nn.Module, Any], Tensor]) -> None:
        self._passes = Passes(model, losses)
        self._plan = PassPlan("layers")
        self._plans: dict[bool, PassPlan] = {}
        self._example_bytes = 0

    @property
    def way(self) -> str:
        """The way that was taken last: layers, leaves or single."""
        return self._plan.way

    def add(
        self, sums: Sums, parameters: Tensors, buffers: Tensors, batch: Any, chunk: int | None = None
    ) -> None:
        """Add every example of K lanes as a group of one, with the weight of one.

        Args:
            sums: of K lanes, with stacks in the order of `parameters`.
            parameters: those that are trained, [K, ...] each, by their names in the model.
            buffers: all other tensors of the model, also frozen parameters, [K, ...] each.
            batch: nest of tensors [K, n, ...].
            chunk: examples per pass; by default as many as fit into 256 MB. The sums don't depend on it.

        Raises:
            UserError: the model draws random numbers, or the loss of an example depends on other examples.
        """
        inputs = LaneInputs(parameters, buffers, batch)
        lanes, count = inputs.shape
        whole = any(metric is not identity for metric in sums.metrics.values())
        with torch.enable_grad(), _drawing_nothing(parameters):
            self._plan = self._plans.get(lanes > 1) or self._chosen(inputs)
            size = chunk or self._chunk(inputs, whole)
            for first in range(0, count, size):
                part = inputs.of_examples(first, min(first + size, count))
                _put(sums, self._run(part, whole), whole)

    def _run(self, inputs: LaneInputs, whole: bool) -> ExampleGradients:
        try:
            gradients = self._passes.run(self._plan, inputs, whole)
        except UnrecordedUse:
            # The model took a turn that it did not take in the check.
            self._plan = self._plans[inputs.shape[0] > 1] = PassPlan("single")
            gradients = self._passes.run(self._plan, inputs, whole)
        self._example_bytes = max(self._example_bytes, gradients.example_bytes)
        return gradients

    def _chunk(self, inputs: LaneInputs, whole: bool) -> int:
        """Examples per pass that fit into the budget, in passes of nearly one size."""
        lanes, count = inputs.shape
        numbers = sum(tensor[0].numel() for tensor in inputs.parameters.values())
        # What autograd keeps besides is about as much; gradients themselves are made in float64, too.
        size = 2 * self._example_bytes + (24 * numbers if whole else 0)
        most = max(1, BUDGET_BYTES // max(1, size * lanes))
        return ceil(count / ceil(count / most))

    def _chosen(self, inputs: LaneInputs) -> PassPlan:
        lanes, count = inputs.shape
        some = inputs.of_lanes(0, min(lanes, _CHECKED_LANES)).of_examples(0, min(count, _CHECKED_EXAMPLES))
        truth = self._truth(some)
        if not truth.is_finite:
            return PassPlan("single")
        plan = self._fitting(truth)
        if count > 1:
            self._plans[lanes > 1] = plan
        return plan

    def _truth(self, inputs: LaneInputs) -> _Truth:
        """Gradients of single passes, at parameters beside the present ones.

        Parameters that start at zero hide others, whose gradients would then agree whatever they are.
        """
        generator = torch.Generator().manual_seed(0)
        moved = {
            name: tensor.detach() + 0.01 * torch.randn(tensor.shape, generator=generator).to(tensor)
            for name, tensor in inputs.parameters.items()
        }
        truth = self._truth_at(replace(inputs, parameters=moved))
        return truth if truth.is_finite else self._truth_at(inputs)

    def _truth_at(self, inputs: LaneInputs) -> _Truth:
        totals = self._passes.totals(inputs)
        try:
            gradients = self._passes.run(PassPlan("single"), inputs, whole=True).gradients
        except Exception as error:
            text = [*str(error).strip().splitlines(), ""][0]
            what = f"the model takes batches, but no batch of one example: {type(error).__name__}: {text}"
            raise UserError(_SOURCE, what, _REMEDY) from error
        truth = _Truth(inputs, [gradient.double() for gradient in gradients])
        if truth.is_finite and truth.wrong_totals(totals):
            what = (
                "the gradients of single examples don't add up to that of the batch: the loss of an example "
                "depends on the other examples, as with batch normalisation, or on chance"
            )
            raise UserError(_SOURCE, what, _REMEDY)
        return truth

    def _fitting(self, truth: _Truth) -> PassPlan:
        """The first plan that gives the truth; of those with leaves the one with the fewest."""
        everything = frozenset(truth.inputs.parameters)
        shared = self._passes.shared(truth.inputs)
        for together in (True, False) if truth.inputs.shape[0] > 1 else (True,):
            plan = PassPlan("layers", together, shared=shared)
            while wrong := self._wrong(plan, truth):
                if plan.leaves == everything:
                    break
                leaves = plan.leaves | wrong.names
                if plan.way == "layers" and not wrong.unseen:
                    leaves = frozenset()  # examples one by one may be right already
                elif leaves == plan.leaves:
                    leaves = everything
                plan = PassPlan("leaves", together, leaves)
            else:
                return plan
        return PassPlan("single")

    def _wrong(self, plan: PassPlan, truth: _Truth) -> _Wrong | None:
        """The parameters whose gradients the plan does not give."""
        try:
            gradients = self._passes.run(plan, truth.inputs)
        except UnrecordedUse as unseen:
            return _Wrong(unseen.names, unseen=True)
        except Exception:
            # Whatever a model does that this way can't do, another one may.
            return _Wrong(frozenset(truth.inputs.parameters))
        names = truth.wrong_squares(gradients.squares) | truth.wrong_totals(gradients.totals)
        self._example_bytes = max(self._example_bytes, gradients.example_bytes)
        return _Wrong(names) if names else None


@dataclass(frozen=True)
class _Wrong:
    names: frozenset[str]
    unseen: bool = False


@dataclass(frozen=True, eq=False)
class _Truth:
    """Gradients of single passes, [K, n, ...] in float64 per parameter."""

    inputs: LaneInputs
    gradients: Sequence[Tensor]

    @property
    def is_finite(self) -> bool:
        return all(bool(gradient.isfinite().all()) for gradient in self.gradients)

    @cached_property
    def squares(self) -> Tensor:
        """(parameters, K, n)"""
        flat = [gradient.reshape(*gradient.shape[:2], -1) for gradient in self.gradients]
        return torch.stack([gradient.square().sum(2) for gradient in flat])

    def wrong_squares(self, squares: Sequence[Tensor]) -> frozenset[str]:
        """Parameters whose squares, (K, n), are others."""
        return self._beyond((torch.stack(list(squares)) - self.squares).abs(), self.squares)

    def wrong_totals(self, totals: Sequence[Tensor]) -> frozenset[str]:
        """Parameters whose sums over examples, [K, ...], are others."""
        errors = [total - true.sum(1) for total, true in zip(totals, self.gradients, strict=True)]
        distances = [error.reshape(len(error), -1).square().sum(1) for error in errors]
        return self._beyond(torch.stack(distances), self.squares.sum(2))

    def _beyond(self, distances: Tensor, squares: Tensor) -> frozenset[str]:
        """Parameters with a distance beyond what rounding makes of such squares."""
        # Where gradients cancel, such as those of a bias before a norm, only the rounding of others is left.
        of_all = squares.sum(0)
        wrong = set()
        for (name, tensor), distance, square in zip(
            self.inputs.parameters.items(), distances, squares, strict=True
        ):
            eps = torch.finfo(tensor.dtype).eps
            tolerance = _TOLERANCE if eps < 1e-4 else 0.1
            if not bool((distance <= tolerance * square + max(1e-10, eps**2) * of_all).all()):
                wrong.add(name)
        return frozenset(wrong)


def _put(sums: Sums, gradients: ExampleGradients, whole: bool) -> None:
    if whole:
        sums.add(gradients.gradients, [1] * gradients.gradients[0].shape[1])
        return
    squares = torch.stack(list(gradients.squares)).sum(0)
    sums.put(dict.fromkeys(sums.metrics, squares), gradients.totals, [1] * squares.shape[1])


@contextlib.contextmanager
def _drawing_nothing(parameters: Tensors) -> Iterator[None]:
    """Refuse random numbers drawn within, and put the generators back.

    Raises:
        UserError: numbers were drawn.
    """
    with random_states_kept([next(iter(parameters.values())).device]) as drawn:
        try:
            yield
        finally:
            if drawn():
                what = "can't be used with a model that draws random numbers in training, as for dropout"
                raise UserError(_SOURCE, what, _REMEDY)


_CHECKED_LANES = 2
_CHECKED_EXAMPLES = 3
_TOLERANCE = 1e-3  # of squares: what is wrong is off by far more, what is right by rounding
_SOURCE = 'source "examples"'
_REMEDY = 'use source = "micro_batches"'
