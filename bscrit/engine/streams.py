"""Which examples make up a batch, and batches as nests of tensors.

The example stream of a seed is the concatenation of its epochs, each a random permutation of all examples;
a batch is the next `size` examples of it after the first `start`, across epoch ends. So a batch is a function
of (seed, start, size) alone, every example is drawn equally often, no batch is short, and there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bscrit.engine.seeding import generator
from bscrit.measure.nested import map_tensors, tensors_of

_EPOCHS_KEPT = 2


class ExampleStream:
    """Indices of examples, without replacement within an epoch.

    >>> stream = ExampleStream(6, seed=0)
    >>> sorted(torch.cat([stream.batch(0, 4), stream.batch(4, 4)])[:6].tolist())
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n = n
        self.seed = seed
        self._epochs: dict[int, Tensor] = {}

    def batch(self, start: int, size: int) -> Tensor:
        """Indices of the examples after the first `start` of the stream, shape (size,), int64.

        Raises:
            ValueError: a batch larger than the data set, which would repeat examples.
        """
        if not 1 <= size <= self.n:
            raise ValueError(f"a batch of {size} examples can't be drawn from {self.n} without repeating any")
        epoch, first = divmod(start, self.n)
        order = self._epoch(epoch)
        if first + size <= self.n:
            return order[first : first + size]
        return torch.cat([order[first:], self._epoch(epoch + 1)[: first + size - self.n]])

    def _epoch(self, epoch: int) -> Tensor:
        order = self._epochs.get(epoch)
        if order is None:
            order = torch.randperm(self.n, generator=generator(self.seed, epoch))
            while len(self._epochs) >= _EPOCHS_KEPT:
                self._epochs.pop(next(iter(self._epochs)))
            self._epochs[epoch] = order
        return order


def moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The batch on the device, its floating tensors in `dtype`; itself where it is all that."""

    def there(tensor: Tensor) -> bool:
        return tensor.device == device and tensor.dtype == (
            dtype if tensor.is_floating_point() else tensor.dtype
        )

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype, non_blocking=True)

    return batch if all(map(there, tensors_of(batch))) else map_tensors(move, batch)


def stacked(batches: Sequence[Any], rows: Sequence[int]) -> Any:
    """One batch per lane, leading dimension K: lane k gets `batches[rows[k]]`; a common one is not copied."""
    if len(batches) == 1:
        return map_tensors(lambda tensor: tensor.expand(len(rows), *tensor.shape), batches[0])
    return map_tensors(lambda *tensors: torch.stack([tensors[row] for row in rows]), *batches)
