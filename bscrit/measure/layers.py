"""Squared gradients of single examples from what goes into a layer and what comes back.

The gradient of a layer's weight for one example is a sum over positions t (tokens, pixels) of outer products of the
gradient b of the layer's output with its input a, so its square needs no gradient:

    |sum_t b_t a_t'|^2 = sum_{t,s} (b_t'b_s)(a_t'a_s)

(Goodfellow 2015 for one position, Li et al. 2022 for sequences). Where there are many positions, the gradient itself
is cheaper. Uses of one parameter in several places are one longer sequence, so they need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BUDGET_BYTES = 256 * 2**20
"""Memory for what is made on the way: more examples than fit into it are worked on in blocks."""


@dataclass(frozen=True, eq=False)
class ParameterUse:
    """One use of a parameter, by a call of a layer by N examples, of each of which it saw f rows."""

    module: nn.Module
    key: str
    """The parameter's name in the layer."""
    inputs: Tensor
    """(N, f, ...)"""
    gradients: Tensor
    """(N, f, ...), of the losses with respect to the layer's output."""

    def piece(self, block: slice = slice(None)) -> Piece:
        """The part of the use in the gradients of a block of examples."""
        return rules_of(self.module)[self.key](self.module, self.inputs[block], self.gradients[block])

    def is_product(self) -> bool:
        """Whether it is by a linear layer at one position, where a weight's gradient is a single product."""
        b = self.gradients
        return isinstance(self.module, nn.Linear) and b.numel() == len(b) * self.module.out_features


@dataclass(frozen=True)
class Outer:
    """Gradients that are sums of outer products over T positions, in G groups of rows and columns."""

    left: Tensor
    """(N, G, p, T); or the numbers of the rows, (N, T), which stand for unit vectors."""
    right: Tensor
    """(N, G, q, T)"""
    rows: int
    """p"""

    def dense(self) -> Tensor:
        """The gradients, (N, G p q)."""
        if self.left.dim() == 4:
            return (self.left @ self.right.mT).flatten(1)
        count, _, columns, positions = self.right.shape
        first = torch.arange(0, count * self.rows, self.rows, device=self.left.device)
        dense = self.right.new_zeros(count * self.rows, columns)
        values = self.right.squeeze(1).mT.reshape(count * positions, columns)
        return dense.index_add_(0, (self.left + first[:, None]).flatten(), values).view(count, -1)


Piece = Tensor | Outer
"""Gradients of N examples, (N, numbers of the parameter), or what they are products of."""

Rule = Callable[[Any, Tensor, Tensor], Piece]
"""From layer, inputs (N, f, ...) and gradients of its outputs (N, f, ...)."""


def rules_of(module: nn.Module) -> Mapping[str, Rule]:
    """The rules of a layer's parameters, by their names in it; none where its forward is not a known one."""
    return _RULES.get(type(module).forward, {})


def squares(uses: Sequence[ParameterUse], examples: int) -> Tensor:
    """Squared gradients of one parameter, (examples,) in float64, from all of its uses."""
    if len(uses) == 1 and uses[0].is_product():
        return square(uses[0].gradients) * (square(uses[0].inputs) if uses[0].key == "weight" else 1)
    return torch.cat([_squares([use.piece(block) for use in uses]) for block in _blocks(uses, examples)])


def gradients(uses: Sequence[ParameterUse]) -> Tensor:
    """Gradients of one parameter, (examples, its numbers), from all of its uses."""
    return _sum_of([use.piece() for use in uses])


def square(dense: Tensor) -> Tensor:
    """Sums of squares over all but the first dimension, in float64."""
    return dense.reshape(len(dense), -1).square().sum(1, dtype=torch.float64)


def _squares(pieces: Sequence[Piece]) -> Tensor:
    outers = [piece for piece in pieces if isinstance(piece, Outer)]
    if len(outers) == len(pieces) and _gram_is_cheaper(outers):
        return _gram(outers)
    return square(_sum_of(pieces))


def _gram_is_cheaper(pieces: Sequence[Outer]) -> bool:
    """Compares multiplications; a number that is only written and read counts as 8 of them."""
    positions = sum(piece.right.shape[-1] for piece in pieces)
    rows, columns = pieces[0].rows, pieces[0].right.shape[2]
    if all(piece.left.dim() == 2 for piece in pieces):
        return positions * positions * (columns + 8) < 8 * rows * columns
    return positions * positions * (rows + columns + 8) < rows * columns * (positions + 8)


def _gram(pieces: Sequence[Outer]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=pieces[0].right.device)
    for i, piece in enumerate(pieces):
        for other in pieces[: i + 1]:
            products = (piece.right.mT @ other.right).mul_(_left_products(piece.left, other.left))
            total = total + (1 if other is piece else 2) * products.flatten(1).sum(1, dtype=torch.float64)
    return total


def _left_products(piece: Tensor, other: Tensor) -> Tensor:
    """(N, G, T, T')"""
    if piece.dim() == other.dim() == 4:
        return piece.mT @ other
    if piece.dim() == other.dim() == 2:
        return (piece[:, :, None] == other[:, None, :]).unsqueeze(1)
    if piece.dim() == 4:
        return _left_products(other, piece).mT
    return other.gather(2, piece[:, None, :, None].expand(-1, -1, -1, other.shape[-1]))


def _sum_of(pieces: Sequence[Piece]) -> Tensor:
    return reduce(add, (piece.dense() if isinstance(piece, Outer) else piece for piece in pieces))


def _blocks(uses: Sequence[ParameterUse], examples: int) -> Iterator[slice]:
    """Blocks of examples whose pieces and products fit into the budget."""
    numbers = sum(map(_most_numbers, uses))
    size = examples * BUDGET_BYTES // (4 * numbers) if 4 * numbers > BUDGET_BYTES else examples
    return (slice(first, first + max(size, 1)) for first in range(0, examples, max(size, 1)))


def _most_numbers(use: ParameterUse) -> int:
    """Numbers in the piece of a use, and in what it is made from; the products of two pieces are no more."""
    window: int = prod(getattr(use.module, "kernel_size", ()))
    parameter: int = getattr(use.module, use.key).numel()
    return window * (use.inputs.numel() + use.gradients.numel()) + len(use.gradients) * parameter


def _linear_weight(module: nn.Linear, x: Tensor, b: Tensor) -> Piece:
    count, rows = len(x), module.out_features
    left, right = b.reshape(count, 1, -1, rows).mT, x.reshape(count, 1, -1, module.in_features).mT
    return Outer(left, right, rows)


def _linear_bias(module: nn.Linear, x: Tensor, b: Tensor) -> Piece:  # noqa: ARG001 (a Rule)
    return b.reshape(len(b), -1, module.out_features).sum(1)


def _embedding_weight(module: nn.Embedding, x: Tensor, b: Tensor) -> Piece:
    count, rows = len(x), x.reshape(len(x), -1)
    values = b.reshape(count, 1, -1, module.embedding_dim)
    if module.padding_idx is not None:
        values = values * (rows != module.padding_idx)[:, None, :, None]
    return Outer(rows, values.mT, module.num_embeddings)


def _conv_weight(module: Any, x: Tensor, b: Tensor) -> Piece:
    spatial = len(module.kernel_size)
    left = _positions_last(b, spatial, module.groups)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = functional.pad(x.flatten(0, 1), module._reversed_padding_repeated_twice, mode)
    right = _windows(padded, module, x.shape[:2], b.shape[3:])
    return Outer(left, right, left.shape[2])


def _conv_transpose_weight(module: Any, x: Tensor, b: Tensor) -> Piece:
    """The layer is a convolution read backwards: windows of the output's gradient meet the input."""
    left = _positions_last(x, len(module.kernel_size), module.groups)
    padded = functional.pad(b.flatten(0, 1), module._reversed_padding_repeated_twice)
    right = _windows(padded, module, x.shape[:2], x.shape[3:])
    return Outer(left, right, left.shape[2])


def _conv_bias(module: Any, x: Tensor, b: Tensor) -> Piece:  # noqa: ARG001 (a Rule)
    return b.flatten(3).sum((1, 3))


def _positions_last(tensor: Tensor, spatial: int, groups: int) -> Tensor:
    """(N, G, channels of a group, f positions) of (N, f, channels, ...)."""
    if tensor.dim() != 3 + spatial:
        raise ValueError("a convolution without a dimension of examples")
    merged = tensor.flatten(3).transpose(1, 2).flatten(2)
    return merged.view(len(merged), groups, -1, merged.shape[2])


def _windows(padded: Tensor, module: Any, rows: Sequence[int], places: Sequence[int]) -> Tensor:
    """(N, G, channels of a group times window, f positions): what each place of a convolution sees."""
    kernel = module.kernel_size
    padded = padded.reshape(*rows, *padded.shape[1:]).contiguous()
    count, row, channel, *steps = padded.stride()
    window = [step * dilation for step, dilation in zip(steps, module.dilation, strict=True)]
    along = [step * stride for step, stride in zip(steps, module.stride, strict=True)]
    views = padded.as_strided(
        (rows[0], padded.shape[2], *kernel, rows[1], *places), (count, channel, *window, row, *along)
    )
    return views.reshape(rows[0], module.groups, -1, rows[1] * prod(places))


def _norm_weight(module: Any, x: Tensor, b: Tensor) -> Piece:
    norm = functional.layer_norm if isinstance(module, nn.LayerNorm) else functional.rms_norm
    return _norm_bias(module, x, b * norm(x, module.normalized_shape, eps=module.eps))


def _norm_bias(module: Any, x: Tensor, b: Tensor) -> Piece:  # noqa: ARG001 (a Rule)
    return b.reshape(len(b), -1, prod(module.normalized_shape)).sum(1)


def _group_norm_weight(module: nn.GroupNorm, x: Tensor, b: Tensor) -> Piece:
    normalized = functional.group_norm(x.flatten(0, 1), module.num_groups, eps=module.eps)
    return _group_norm_bias(module, x, b * normalized.view_as(x))


def _group_norm_bias(module: nn.GroupNorm, x: Tensor, b: Tensor) -> Piece:  # noqa: ARG001 (a Rule)
    return b.reshape(*b.shape[:3], -1).sum((1, 3))


# By the forward function, so that a subclass with its own is not taken for the layer that it comes from.
_RULES: dict[Any, dict[str, Rule]] = {
    nn.Linear.forward: {"weight": _linear_weight, "bias": _linear_bias},
    nn.Embedding.forward: {"weight": _embedding_weight},
    nn.LayerNorm.forward: {"weight": _norm_weight, "bias": _norm_bias},
    nn.RMSNorm.forward: {"weight": _norm_weight},
    nn.GroupNorm.forward: {"weight": _group_norm_weight, "bias": _group_norm_bias},
}
for _layer in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
    _RULES[_layer.forward] = {"weight": _conv_weight, "bias": _conv_bias}
for _transpose in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
    _RULES[_transpose.forward] = {"weight": _conv_transpose_weight, "bias": _conv_bias}
