"""Passes over a batch that give the gradient of each example: one pass for all of them, or one for each.

In a pass for all, layers are recorded (`recorder`), and squares are made of their inputs and the gradients of their
outputs (`layers`). Parameters that are used otherwise get one leaf per example, for which the pass is vectorised
over examples. Lanes are vectorised around it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from bscrit.measure import layers
from bscrit.measure.holding import Places
from bscrit.measure.lane_inputs import ExampleGradients, LaneInputs, PassPlan, Tensors
from bscrit.measure.layer_hooks import LayerRecorder, UnrecordedUse
from bscrit.measure.layers import ParameterUse
from bscrit.measure.losses import check_losses
from bscrit.measure.nested import map_tensors


class Passes:
    """Passes through one model; its own tensors and hooks are as before after each."""

    def __init__(self, model: nn.Module, losses: Callable[[nn.Module, Any], Tensor]) -> None:
        self._model = model
        self._losses = losses
        self._places = Places(model)
        self._layers: list[tuple[nn.Module, dict[str, str]]] = []
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for module in model.modules():
            own = module._parameters
            keys = {key: names[id(own[key])] for key in layers.rules_of(module) if own.get(key) is not None}
            if keys:
                self._layers.append((module, keys))
        # An embedding with a greatest norm keeps it by writing into its weight.
        self._writes = any(getattr(module, "max_norm", None) is not None for module in model.modules())
        self._copies = False

    def run(self, plan: PassPlan, inputs: LaneInputs, whole: bool = False) -> ExampleGradients:
        """Squared gradients of all examples, or the gradients themselves if `whole`.

        Raises:
            UnrecordedUse: the plan does not fit the model.
        """
        if plan.way != "single" and (plan.together or inputs.shape[0] == 1):
            return self._at_once(plan, inputs, whole)
        lanes = [
            self._one_by_one(lane, whole) if plan.way == "single" else self._at_once(plan, lane, whole)
            for lane in inputs.lanes()
        ]
        return ExampleGradients(
            _joined([lane.totals for lane in lanes]),
            _joined([lane.squares for lane in lanes]),
            _joined([lane.gradients for lane in lanes]),
            max(lane.example_bytes for lane in lanes),
        )

    def totals(self, inputs: LaneInputs) -> Sequence[Tensor]:
        """Sums of the gradients over examples, [K, ...], by an ordinary pass per lane."""
        return [torch.stack(lanes) for lanes in zip(*map(self._ordinary, inputs.lanes()), strict=True)]

    def shared(self, inputs: LaneInputs) -> frozenset[nn.Module]:
        """Embeddings whose input is the same however many examples there are, seen on the first lane."""
        count = inputs.shape[1]
        embeddings = [module for module, _ in self._layers if isinstance(module, nn.Embedding)]
        if count < 2 or not embeddings:
            return frozenset()
        shapes: dict[nn.Module, list[torch.Size]] = {module: [] for module in embeddings}

        def note(module: nn.Module, args: Any) -> None:
            shapes[module].extend(argument.shape for argument in args)

        with ExitStack() as handles:
            for module in embeddings:
                handles.enter_context(module.register_forward_pre_hook(note))
            self._ordinary(inputs.of_examples(0, count - 1))
            self._ordinary(inputs)
        halves = {module: (seen[: len(seen) // 2], seen[len(seen) // 2 :]) for module, seen in shapes.items()}
        return frozenset(
            module for module, (fewer, all_of_them) in halves.items() if fewer and fewer == all_of_them
        )

    def _one_by_one(self, inputs: LaneInputs, whole: bool) -> ExampleGradients:
        """One lane, one pass per example."""
        each, squares = [], []
        totals = [torch.zeros_like(tensor, dtype=torch.float64) for tensor in inputs.parameters.values()]
        for example in range(inputs.shape[1]):
            gradients = [g[None] for g in self._ordinary(inputs.of_examples(example, example + 1))]
            totals = [total + gradient for total, gradient in zip(totals, gradients, strict=True)]
            if whole:
                each.append(gradients)
            else:
                squares.append([layers.square(gradient)[None] for gradient in gradients])
        return ExampleGradients(
            totals,
            [torch.cat(values, 1) for values in zip(*squares, strict=True)],
            [torch.stack(tensors, 1) for tensors in zip(*each, strict=True)],
        )

    def _ordinary(self, inputs: LaneInputs) -> list[Tensor]:
        """Gradients of the sum of the first lane's losses."""
        lane = inputs.first
        leaves = self._leaves(lane.parameters)
        # In backward, too: a model with checkpoints runs again there.
        with self._places.holding(leaves, _copied(lane.buffers)):
            losses = self._losses(self._model, lane.batch)
            gradients = _gradients(check_losses(losses, inputs.shape[1:]), list(leaves.values()))
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves.values(), gradients, strict=True)
        ]

    def _at_once(self, plan: PassPlan, inputs: LaneInputs, whole: bool) -> ExampleGradients:
        """All lanes and examples in one pass."""
        (lanes, count), single = inputs.shape, inputs.shape[0] == 1
        by_example = plan.way == "leaves"
        mine = inputs.first if single else inputs
        leaves, buffers = self._leaves(mine.parameters), _copied(mine.buffers)
        each = {name: _repeated(leaves.pop(name), count, single) for name in plan.leaves}
        vmaps = (not single) + by_example
        recorder = LayerRecorder(vmaps, 1 if by_example else count, plan.shared, self._copies)
        plain = vmaps > 0 and next(iter(inputs.parameters.values())).device.type == "cpu"
        forward = self._vectorised(by_example, single)
        # A model with checkpoints runs again in backward, then unrecorded.
        with nullcontext() if vmaps else self._places.holding(leaves, buffers):
            # Attention by plain products, where vmap would take the kernel of the CPU apart into a loop.
            with (
                recorder.hooks(self._recorded(plan)),
                sdpa_kernel(SDPBackend.MATH) if plain else nullcontext(),
            ):
                losses = forward(each, mine.batch, leaves, buffers)
            if recorder.overwritten() and not self._copies:
                self._copies = True
                return self._at_once(plan, inputs, whole)
            check_losses(losses, inputs.shape[1:] if single else inputs.shape)
            edges = [call.output for call in recorder.calls]
            gradients = _gradients(losses, [*edges, *leaves.values(), *each.values()])
        of_all = dict(zip(leaves, gradients[len(edges) :], strict=False))
        of_each = dict(zip(each, gradients[len(edges) + len(leaves) :], strict=True))
        uses = recorder.uses(gradients[: len(edges)], lanes * count)
        unseen = [name for name, total in of_all.items() if total is not None and name not in uses]
        if unseen:
            raise UnrecordedUse(unseen)
        return _collected(inputs, of_all, of_each, uses, whole)

    def _recorded(self, plan: PassPlan) -> Iterator[tuple[nn.Module, dict[str, str]]]:
        for module, keys in self._layers:
            if recorded := {key: name for key, name in keys.items() if name not in plan.leaves}:
                yield module, recorded

    def _vectorised(self, by_example: bool, single: bool) -> Callable[..., Tensor]:
        """Losses from leaves per example, batch, leaves of all, and buffers."""

        def forward(each: Tensors, batch: Any, leaves: Tensors, buffers: Tensors) -> Tensor:
            with self._places.holding({**leaves, **each}, buffers):
                return self._losses(self._model, batch)

        def forward_one(each: Tensors, example: Any, leaves: Tensors, buffers: Tensors) -> Tensor:
            losses = forward(each, map_tensors(lambda tensor: tensor[None], example), leaves, buffers)
            return check_losses(losses, (1,))[0]

        run = vmap(forward_one, in_dims=(0, 0, None, None), randomness="error") if by_example else forward
        return run if single else vmap(run, randomness="error")

    def _leaves(self, parameters: Tensors) -> dict[str, Tensor]:
        leaves = _copied(parameters) if self._writes else {n: t.detach() for n, t in parameters.items()}
        return {name: leaf.requires_grad_() for name, leaf in leaves.items()}


def _collected(
    inputs: LaneInputs,
    of_all: Mapping[str, Tensor | None],
    of_each: Mapping[str, Tensor | None],
    uses: Mapping[str, Sequence[ParameterUse]],
    whole: bool,
) -> ExampleGradients:
    lanes, count = inputs.shape
    totals, squares, gradients = [], [], []
    for name, parameter in inputs.parameters.items():
        shape = parameter.shape[1:]
        gradient = of_each.get(name)
        if gradient is not None:
            gradient = gradient.reshape(lanes, count, *shape)
            total: Tensor | None = gradient.sum(1)
        else:
            total = of_all.get(name)
        totals.append(torch.zeros_like(parameter) if total is None else total.reshape(parameter.shape))
        if whole:
            if gradient is None and uses.get(name):
                gradient = layers.gradients(uses[name])
            zeros = parameter.new_zeros(()).expand(lanes, count, *shape)
            gradients.append(zeros if gradient is None else gradient.reshape(zeros.shape))
        else:
            if gradient is not None:
                square = layers.square(gradient.flatten(0, 1))
            elif uses.get(name):
                square = layers.squares(uses[name], lanes * count)
            else:
                square = torch.zeros(lanes * count, dtype=torch.float64, device=parameter.device)
            squares.append(square.view(lanes, count))
    kept = [tensor for tensor in of_each.values() if tensor is not None]
    kept += [tensor for used in uses.values() for use in used for tensor in (use.inputs, use.gradients)]
    size = sum(
        tensor.numel() * tensor.element_size() for tensor in {id(tensor): tensor for tensor in kept}.values()
    )
    return ExampleGradients(totals, squares, gradients, size // (lanes * count))


def _joined(lanes: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    return [torch.cat(tensors) for tensors in zip(*lanes, strict=True)]


def _gradients(losses: Tensor, inputs: Sequence[Any]) -> list[Tensor | None]:
    if not inputs or not losses.requires_grad:
        return [None] * len(inputs)
    gradients = torch.autograd.grad(losses.sum(), inputs, allow_unused=True)
    return [None if g is None else g.to_dense() if g.is_sparse else g for g in gradients]


def _repeated(leaf: Tensor, count: int, single: bool) -> Tensor:
    """A leaf per example that takes the memory of one."""
    leaf = leaf.detach()
    shape = leaf.shape if single else leaf.shape[1:]
    repeated = leaf.expand(count, *shape) if single else leaf[:, None].expand(len(leaf), count, *shape)
    return repeated.requires_grad_()


def _copied(tensors: Tensors) -> dict[str, Tensor]:
    """Copies, since a forward may write into them."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
