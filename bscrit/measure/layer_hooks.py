"""Hooks on layers that note what goes in, and where the gradient of what comes out can be had.

Inside vmap a layer sees one lane, or one example; what is noted are the tensors of all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from bscrit.measure.layers import ParameterUse

Keys = Mapping[str, str]
"""From a parameter's name in its layer to its name in the model."""


class UnrecordedUse(Exception):
    """Parameters are used in a way that hooks on layers can't see."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.names = frozenset(names)


@dataclass
class RecordedCall:
    """One call of a layer."""

    module: nn.Module
    keys: Keys
    inputs: Tensor | None = None
    common: int = 0
    """Number of vmaps whose lane, or example, the inputs don't depend on."""
    output: GradientEdge | None = None


class LayerRecorder:
    """Notes calls of layers while a model runs.

    Args:
        levels: how many vmaps the model runs in.
        rows: examples that one run of the model sees.
        shared: embeddings that see no examples; their outputs are repeated for each.
        copies: whether outputs are copied, so that the model may overwrite them.
    """

    def __init__(self, levels: int, rows: int, shared: frozenset[nn.Module], copies: bool) -> None:
        self.calls: list[RecordedCall] = []
        self._levels = levels
        self._rows = rows
        self._shared = shared
        self._copies = copies
        self._outputs: list[tuple[Tensor, int]] = []

    @contextlib.contextmanager
    def hooks(self, layers: Iterable[tuple[nn.Module, Keys]]) -> Iterator[None]:
        """Record these layers; first in line, so that hooks of others can't come between."""
        with contextlib.ExitStack() as handles:
            for module, keys in layers:
                handles.enter_context(module.register_forward_hook(self._hook(keys), prepend=True))
            yield

    def overwritten(self) -> bool:
        """Whether an output was changed in place inside vmap, where its gradient is lost with that."""
        return any(output._version != version for output, version in self._outputs)

    def uses(self, gradients: Iterable[Tensor | None], examples: int) -> dict[str, list[ParameterUse]]:
        """Uses of each parameter in the calls, whose outputs have these gradients.

        Raises:
            UnrecordedUse: a layer was not called with examples as the first dimension.
        """
        uses: dict[str, list[ParameterUse]] = {}
        for call, gradient in zip(self.calls, gradients, strict=True):
            for name in call.keys.values():
                uses.setdefault(name, [])
            if gradient is None:
                continue
            inputs, outputs = self._inputs(call, examples), self._by_example(gradient, examples)
            if inputs is None or outputs is None:
                raise UnrecordedUse(call.keys.values())
            for key, name in call.keys.items():
                uses[name].append(ParameterUse(call.module, key, inputs, outputs))
        return uses

    def _hook(self, keys: Keys) -> Callable[[nn.Module, Any, Any], Tensor | None]:
        def note(module: nn.Module, args: Any, output: Any) -> Tensor | None:
            if not (args and isinstance(output, Tensor) and (self._levels or output.requires_grad)):
                return None
            if module in self._shared:
                whole = output[0] if args[0].dim() > 1 else output
                output = whole.expand(self._rows, *whole.shape)
            call = RecordedCall(module, keys)
            self.calls.append(call)
            if self._levels:
                tap: Any = _Tap.apply
                tap(partial(_note_inputs, call), self._levels, args[0].detach())
                output = tap(partial(self._note_output, call), self._levels, output)
            else:
                call.inputs, call.output = args[0].detach(), get_gradient_edge(output)
            recorded: Tensor = output
            return recorded

        return note

    def _note_output(self, call: RecordedCall, output: Tensor, common: int) -> Tensor:
        if common or not output.requires_grad:
            self.calls.remove(call)
            return output
        output = output.clone() if self._copies else output
        call.output = get_gradient_edge(output)
        self._outputs.append((output, output._version))
        return output

    def _inputs(self, call: RecordedCall, examples: int) -> Tensor | None:
        inputs = call.inputs
        if inputs is None or call.module not in self._shared:
            return None if inputs is None or call.common else self._by_example(inputs, examples)
        lanes = examples // self._rows
        inputs = inputs if self._levels and not call.common else inputs[None]
        return inputs.reshape(len(inputs), 1, -1).expand(lanes, self._rows, -1).reshape(examples, 1, -1)

    def _by_example(self, tensor: Tensor, examples: int) -> Tensor | None:
        """(examples, f, ...), exact also for half precision."""
        lead = prod(tensor.shape[: self._levels + 1])
        if tensor.dim() <= self._levels or lead % examples:
            return None
        tensor = tensor.reshape(examples, lead // examples, *tensor.shape[self._levels + 1 :])
        return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _note_inputs(call: RecordedCall, inputs: Tensor, common: int) -> Tensor:
    call.inputs, call.common = inputs, common
    return inputs


class _Tap(torch.autograd.Function):
    """The identity, which shows the tensor of all lanes and examples from inside of vmap."""

    @staticmethod
    def forward(note: Callable[[Tensor, int], Tensor], levels: int, tensor: Tensor) -> Tensor:
        """Reached where the tensor does not depend on all vmaps."""
        note(tensor, levels)
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:  # noqa: ARG004
        return None, None, gradient

    @staticmethod
    def vmap(info: Any, in_dims: Any, note: Any, levels: int, tensor: Tensor) -> tuple[Tensor, int]:  # noqa: ARG004
        tensor = tensor.movedim(in_dims[2], 0)
        if levels > 1:
            return _Tap.apply(note, levels - 1, tensor), 0  # type: ignore[no-untyped-call]
        return note(tensor, 0), 0
