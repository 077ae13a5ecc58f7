"""Memory: an allocator that keeps what it has, and whether an error says that there is none left."""

from __future__ import annotations

import ctypes

import torch


def tune_allocator() -> None:
    """Keep freed memory in the process (glibc only): stacked updates then fault in no new pages each step.

    Call once, when a worker starts.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):
        return


def out_of_memory(error: RuntimeError) -> bool:
    """On the CPU the allocator raises a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
