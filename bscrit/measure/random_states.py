"""Random states that are as before after a block of code."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def random_states_kept(devices: Iterable[torch.device]) -> Iterator[Callable[[], bool]]:
    """Put back the random states of torch, on the CPU and on CUDA devices, of numpy and of Python.

    Yields a function that tells whether a state of torch has changed so far.
    """
    kept, kept_numpy = random.getstate(), np.random.get_state()
    try:
        with torch_states_kept(devices) as generators:
            before = [generator.get_state() for generator in generators]
            yield lambda: not all(map(torch.equal, before, [own.get_state() for own in generators]))
    finally:
        random.setstate(kept)
        np.random.set_state(kept_numpy)


@contextmanager
def torch_states_kept(devices: Iterable[torch.device]) -> Iterator[list[torch.Generator]]:
    """The generators that draw where none is named, on the CPU and on CUDA devices; their states are put back."""
    generators = [torch.default_generator]
    for device in devices:
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            index = torch.cuda.current_device() if device.index is None else device.index
            if torch.cuda.default_generators[index] not in generators:
                generators.append(torch.cuda.default_generators[index])
    before = [generator.get_state() for generator in generators]
    try:
        yield generators
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def other_states() -> list[Any]:
    """The random states of Python and numpy, to be compared."""
    numpy: Any = np.random.get_state()
    return [random.getstate(), numpy[1].tobytes(), *numpy[2:]]
