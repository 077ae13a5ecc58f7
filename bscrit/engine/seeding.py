"""Random numbers as functions of integers, so that nothing random has to be saved or kept in order.

>>> mix(0, 1) == mix(0, 1), mix(0, 1) == mix(1, 0)
(True, False)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from bscrit.measure.random_states import torch_states_kept


def mix(*numbers: int) -> int:
    """One 63-bit seed from several integers, unrelated for near inputs (splitmix64, Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


def generator(*numbers: int) -> torch.Generator:
    """A CPU generator that depends on these numbers alone."""
    return torch.Generator().manual_seed(mix(*numbers))


@contextlib.contextmanager
def seeded(device: torch.device, *numbers: int) -> Iterator[None]:
    """The global random state as a function of these numbers inside the block, and as it was after it.

    For code that draws from the global state: initialisers, dropout, a user's data augmentation.
    """
    with seeding(device) as seed:
        seed(*numbers)
        yield


@contextlib.contextmanager
def seeding(device: torch.device) -> Iterator[Callable[..., None]]:
    """A function that makes the global random state one of numbers; after the block that state is as before."""
    with torch_states_kept([device]) as sources:

        def seed(*numbers: int) -> None:
            mixed = mix(*numbers)
            for source in sources:
                source.manual_seed(mixed)

        yield seed


_MASK = 2**64 - 1
