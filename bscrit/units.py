"""The words for what a batch size counts."""

from __future__ import annotations


def plural(unit: str) -> str:
    """
    >>> plural("image"), plural("sequence of 512 tokens")
    ('images', 'sequences of 512 tokens')
    """
    head, of, rest = unit.partition(" of ")
    return (head if head.endswith("s") else f"{head}s") + of + rest
