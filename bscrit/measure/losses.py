"""The shape of losses: one per example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bscrit.errors import UserError


def check_losses(
    losses: Any, expected: Sequence[int | None], where: str = "losses", *, leading: int = 0
) -> Tensor:
    """The losses; refused where they are not one per example.

    Args:
        expected: their shape; None for any number but 0.
        leading: axes before it that vmap has added.

    Raises:
        UserError: naming the shape and the one expected.
    """
    shape = tuple(losses.shape[leading:]) if isinstance(losses, Tensor) else ()
    fits = isinstance(losses, Tensor) and len(shape) == len(expected)
    if fits and all(
        size == wanted or (wanted is None and size) for size, wanted in zip(shape, expected, strict=True)
    ):
        return losses  # type: ignore[no-any-return]
    returned = f"shape {shape}" if isinstance(losses, Tensor) else type(losses).__name__
    wanted = str(tuple(expected)).replace("None", "n")
    raise UserError(
        where, f"returned {returned}, expected {wanted}: one loss per example",
        'return the losses before averaging, such as cross_entropy(..., reduction="none")',
    )  # fmt: skip
