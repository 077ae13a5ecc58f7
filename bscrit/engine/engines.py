"""Two ways to get the gradients of K lanes from one stack of parameters.

vmap    (vectorised.py) one vectorised forward over all lanes and an ordinary backward of the sum of their losses,
        from which each lane gets its own gradient
loop    (sequential.py) ordinary modules one after the other, whose parameters are rows of the stack: it serves every
        model, and with large batches it is as fast
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from bscrit.engine.gradients import Reduce
from bscrit.engine.replay import Replay
from bscrit.engine.sequential import Sequential
from bscrit.engine.stacks import Stack
from bscrit.engine.vectorised import Vectorised
from bscrit.engine.workload import Workload


class Engine(Protocol):
    """The interface of either engine to `Lanes`."""

    name: str

    def bind(self, stack: Stack, rows: Sequence[int]) -> None:
        """Work on this stack from now on; its lanes are those `rows` of the lanes there were before."""

    def gradients(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> list[Tensor]:
        """Gradients of (sum of per-example losses)/divisor, [K, ...] each; lane k has `batches[which[k]]`.

        What the model draws at random depends on the lane's seed and on `draw`, (start, part) of the batch. Where the
        workload averages its batches, this loss follows, (K,).
        """

    def grouped(self, batch: Any, examples: int, reduce: Reduce = list) -> list[Tensor] | None:
        """Gradients of the mean loss of groups of `examples` each, [K, G, ...]; None where it takes a pass a group.

        Args:
            batch: of every lane and group, leading dimensions K, G, examples.
            reduce: what is returned of them.
        """

    def curvature(
        self, batches: Sequence[Any], which: Sequence[int], divisor: int, draw: tuple[int, int]
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        """The Hessian of (sum of losses)/divisor as a function from stacks [K, ...] to stacks."""

    @property
    def model(self) -> nn.Module:
        """One of the modules, its tensors of no meaning."""

    def evaluate(self) -> Tensor:
        """The workload's evaluation of each lane, (K,)."""


def make_engine(
    name: str,
    workload: Workload,
    seeds: Sequence[int],
    build: Callable[[int], nn.Module],
    replay: Replay,
) -> Engine:
    """The engine of this name; `build` makes the model of a seed."""
    if name == "vmap":
        return Vectorised(workload, build(seeds[0]), replay)
    if name == "loop":
        return Sequential(workload, [build(seed) for seed in seeds], replay)
    raise ValueError(f"engine = {name!r} must be vmap or loop")
