"""Other tensors in the place of a model's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class Places:
    """Where a model holds its parameters and buffers, those that several modules share included."""

    def __init__(self, model: nn.Module) -> None:
        names = {id(tensor): name for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
        self._places: dict[str, list[tuple[dict[str, Any], str]]] = {name: [] for name in names.values()}
        for module in model.modules():
            for owned in (module._parameters, module._buffers):
                for key, tensor in owned.items():
                    if tensor is not None:
                        self._places[names[id(tensor)]].append((owned, key))

    @contextmanager
    def holding(self, *tensors: Mapping[str, Tensor], keeps: bool = False) -> Iterator[None]:
        """The model with these tensors by name; afterwards with those that it had.

        Args:
            keeps: whether what the model puts into the place of a tensor is copied into that tensor in the end.
        """
        before = [(owned, key, owned[key]) for places in self._places.values() for owned, key in places]
        try:
            for nest in tensors:
                for name, tensor in nest.items():
                    for owned, key in self._places[name]:
                        owned[key] = tensor
            yield
            for nest in tensors if keeps else ():
                for name, tensor in nest.items():
                    for owned, key in self._places[name]:
                        if owned[key] is not tensor:
                            tensor.copy_(owned[key].detach())
        finally:
            for owned, key, tensor in before:
                owned[key] = tensor
