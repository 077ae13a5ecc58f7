"""Random states that are as before after a block of code."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


@contextmanager
def random_states_kept(devices: Iterable[torch.device]) -> Iterator[Callable[[], bool]]:
    """Put back the random states of torch, on the CPU and on CUDA devices, of numpy and of Python.

    Yields a function that tells whether a state of torch has changed so far.
    """
    kept, kept_numpy = random.getstate(), np.random.get_state()
    current = torch.cuda.current_device
    cuda = sorted({current() if d.index is None else d.index for d in devices if d.type == "cuda"})

    def states() -> list[Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, cuda)]

    try:
        with torch.random.fork_rng(devices=cuda):
            before = states()
            yield lambda: not all(map(torch.equal, before, states()))
    finally:
        random.setstate(kept)
        np.random.set_state(kept_numpy)
