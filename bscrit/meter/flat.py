"""Parameters and gradients as flat real numbers: their squares, and chunks of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

CHUNK = 2**24
"""Numbers that ranks send each other, and that are squared, at a time: 64 MB in float32."""
PIECE = 2**18
"""Numbers that are squared at a time on a CPU: what its cache holds."""


def real(values: Tensor) -> Tensor:
    """The same numbers, real and dense."""
    dense = values if values.layout == torch.strided else values.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def wide(parameter: Tensor) -> torch.dtype:
    """The real type in which gradients of a parameter are added."""
    return torch.promote_types(parameter.dtype.to_real(), torch.float32)


def flat(values: Tensor | None, parameter: Tensor) -> Tensor:
    """In one dimension; zeros instead of nothing."""
    if values is not None:
        return values.reshape(-1)
    numbers = parameter.numel() * (2 if parameter.is_complex() else 1)
    return torch.zeros(numbers, dtype=wide(parameter), device=parameter.device)


def squared_norm(values: Tensor, weight: Tensor | None = None) -> Tensor:
    """sum weight values^2, in float64 where the device has it, without waiting for the device."""
    exact = torch.float32 if values.device.type == "mps" else torch.float64
    piece = PIECE if values.device.type == "cpu" else CHUNK
    square = torch.zeros((), dtype=exact, device=values.device)
    flat_values, flat_weight = values.reshape(-1), None if weight is None else weight.reshape(-1)
    for start in range(0, flat_values.numel(), piece):
        part = slice(start, start + piece)
        numbers = flat_values[part].to(exact)
        square += torch.dot(numbers, numbers if flat_weight is None else numbers * flat_weight[part])
    return square


def chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[int]]:
    """Indices of neighbours of one device and type, up to CHUNK numbers together."""
    for _, alike in groupby(enumerate(parameters), lambda pair: (pair[1].device, wide(pair[1]))):
        chunk, numbers = list[int](), 0
        for index, parameter in alike:
            if chunk and numbers + parameter.numel() > CHUNK:
                yield chunk
                chunk, numbers = [], 0
            chunk.append(index)
            numbers += parameter.numel()
        yield chunk


def read(scalars: Sequence[Tensor]) -> list[float]:
    """Scalars on any devices, with one wait for each of these."""
    values = dict.fromkeys(range(len(scalars)), 0.0)
    for device in {scalar.device for scalar in scalars}:
        places = [place for place, scalar in enumerate(scalars) if scalar.device == device]
        numbers = torch.stack([scalars[place] for place in places]).tolist()
        values.update(zip(places, numbers, strict=True))
    return list(values.values())
