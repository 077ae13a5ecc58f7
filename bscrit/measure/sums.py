"""One algebra for every source of noise samples: what groups of examples add to, and what follows.

Groups of m_i examples have mean gradients g_i, and count with weights w_i, which are m_i unless the loss of the
update weighs them otherwise (data-parallel ranks count alike whatever their share). With W = sum w,

    sq_small = sum w |g|^2 / W      over  n_small = W / sum (w/m)     examples,
    sq_big   = |sum w g / W|^2      over  n_big = W^2 / sum (w^2/m)   examples,

each with the mean |G|^2 + tr(Sigma)/n, for any split, also an uneven one (McCandlish et al. 2018, appendix A.1,
is the case of two sizes; with n equal parts it is the U-statistic of their gradients). Everything is a sum until
the end, so parts, chunks and ranks can be added in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from bscrit.measure.metrics import IDENTITY, Metric

Sample = tuple[float, float, float, float]
"""n_small [examples], mean squared norm there, n_big [examples], squared norm there."""


class Sums:
    """Sums over the groups of one noise sample, for K lanes in several metrics.

    Attributes:
        metrics: by name.
        squares: per metric sum w |g|^2, (lanes,) float64.
        total: sum w g, one float64 tensor per parameter, [lanes, ...].
        weights: sums of w, w/m and w^2/m, (3,) float64.
        examples: of all groups together.

    >>> sums = Sums(lanes=1)
    >>> for gradient in (torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[1.0, 0.0]]])):
    ...     sums.add([gradient], [3])
    >>> sums.samples()["identity"]
    [(3.0, 13.0, 6.0, 8.0)]
    """

    def __init__(self, lanes: int, metrics: Mapping[str, Metric] = IDENTITY) -> None:
        self.metrics = metrics
        self.squares = {name: torch.zeros(lanes, dtype=torch.float64) for name in metrics}
        self.total: list[Tensor] = []
        self.weights = torch.zeros(3, dtype=torch.float64)
        self.examples = 0.0

    def add(
        self, stacks: Sequence[Tensor], sizes: Sequence[float], weights: Sequence[float] | None = None
    ) -> None:
        """Add groups of mean gradients.

        Args:
            stacks: one tensor per parameter, [lanes, groups, ...].
            sizes: (groups,) examples of each group.
            weights: (groups,) of each group in the update; its size by default.
        """
        exact = [stack.double() for stack in stacks]
        squares = {name: metric(exact) for name, metric in self.metrics.items()}
        weight = torch.tensor(list(sizes if weights is None else weights), dtype=torch.float64)
        total = [
            (stack * weight.to(stack.device).view(-1, *(1,) * (stack.dim() - 2))).sum(1) for stack in exact
        ]
        self.put(squares, total, sizes, weights)

    def put(
        self,
        squares: Mapping[str, Tensor],
        total: Sequence[Tensor],
        sizes: Sequence[float],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add groups whose squared norms are known.

        Args:
            squares: per metric, (lanes, groups).
            total: sum w g over these groups, one tensor per parameter, [lanes, ...].
            sizes, weights: as in `add`.
        """
        m = torch.tensor(list(sizes), dtype=torch.float64)
        w = m if weights is None else torch.tensor(list(weights), dtype=torch.float64)
        summed = {name: (values.double().cpu() * w).sum(1) for name, values in squares.items()}
        sums_of_weights = torch.stack([w.sum(), (w / m).sum(), (w * w / m).sum()])
        self._increase(summed, total, sums_of_weights, float(m.sum()))

    def merge(self, other: Sums) -> None:
        """Add all groups of another sum in the same metrics."""
        self._increase(other.squares, other.total, other.weights, other.examples)

    def _increase(
        self, squares: Mapping[str, Tensor], total: Sequence[Tensor], weights: Tensor, examples: float
    ) -> None:
        for name, summed in squares.items():
            self.squares[name] += summed
        self.weights += weights
        self.examples += examples
        exact = [tensor.double() for tensor in total]
        self.total = [a + b for a, b in zip(self.total, exact, strict=True)] if self.total else exact

    def mean(self) -> list[Tensor]:
        """The mean gradient, one float64 tensor per parameter, [lanes, ...]."""
        return [tensor / float(self.weights[0]) for tensor in self.total]

    def samples(self, metrics: Iterable[str] | None = None) -> dict[str, list[Sample]]:
        """One sample per lane in each metric, or in these alone.

        Raises:
            ValueError: fewer than two groups, between which no noise can be seen.
        """
        w, w_m, ww_m = self.weights.tolist()
        n_small, n_big = (w / w_m, w * w / ww_m) if w_m else (0.0, 0.0)
        if not n_big > n_small * (1 + 1e-9):
            raise ValueError("a noise sample needs two groups of examples at least")
        mean = [tensor.unsqueeze(1) for tensor in self.mean()]
        samples = {}
        for name in self.metrics if metrics is None else metrics:
            big = self.metrics[name](mean).reshape(-1).tolist()
            small = (self.squares[name] / w).tolist()
            samples[name] = [(n_small, a, n_big, b) for a, b in zip(small, big, strict=True)]
        return samples
