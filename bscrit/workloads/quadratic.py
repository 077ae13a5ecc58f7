"""Noisy quadratic model: real SGD with exactly known answers, the touchstone of a whole sweep.

L = 1/2 sum h_i theta_i^2, and the gradient of an example is h theta + xi, xi ~ N(0, diag c). The mean xi of a
batch of B examples is N(0, diag c/B), which is drawn as such: a batch costs the same at every size.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from bscrit.engine.seeding import generator
from bscrit.engine.workload import Workload
from bscrit.workloads.settings import check_problem, check_whole

_STEPS_AT_ONCE = 64


class Quadratic(Workload):
    """h_i = i^-power, c_i = noise * i^-noise_power and theta_i = start, i = 1, ..., dimensions.

    With the defaults and plain SGD to the loss 0.1: S_min 27.4 steps, B_crit 59.3 examples.
    """

    # A batch is drawn as one mean, so there is nothing to split into micro-batches.
    sums_over_examples = False
    replayable = True

    def __init__(
        self,
        dimensions: int = 100,
        power: float = 1.0,
        noise: float = 1.0,
        noise_power: float = 1.0,
        start: float = 1.0,
    ) -> None:
        check_whole(dimensions=dimensions)
        check_problem("noise", power=power, noise=noise, noise_power=noise_power, start=start)
        index = np.arange(1, dimensions + 1, dtype=float)
        self._start = float(start)
        self._curvature = torch.from_numpy(index**-power)
        self._deviation = torch.from_numpy(noise * index**-noise_power).sqrt()
        self._half_curvature: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._drawn: dict[tuple[int, int, int, int], Tensor] = {}

    def model(self, seed: int) -> nn.Module:  # noqa: ARG002 (every seed starts from the same loss)
        return _Point(torch.full(self._deviation.shape, self._start))

    def batch(self, seed: int, start: int, size: int) -> Tensor:
        """The mean noise of a batch, shape (1, dimensions), in place of its `size` examples."""
        number, offset = divmod(start, size)  # an offset only where batch sizes change along a run
        chunk, row = divmod(number, _STEPS_AT_ONCE)
        key = (seed, chunk, size, offset)
        if key not in self._drawn:
            # Lanes walk in step through their seeds: only chunks of the present are ever asked for again.
            for past in [k for k in self._drawn if k[1] != chunk]:
                del self._drawn[past]
            shape = (_STEPS_AT_ONCE, len(self._deviation))
            normal = torch.randn(shape, generator=generator(*key if offset else key[:3]), dtype=torch.float64)
            self._drawn[key] = (normal * (self._deviation / math.sqrt(size))).float()
        return self._drawn[key][row : row + 1]

    def losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        """1/2 sum h theta^2 + theta.xi of the mean noise, shape (1,)."""
        theta = model.theta
        assert isinstance(theta, Tensor)
        return torch.addcmul(batch, theta, self._half_curvature_for(theta)) @ theta

    def evaluate(self, model: nn.Module) -> Tensor:
        """The exact loss 1/2 sum h theta^2."""
        theta = model.theta
        assert isinstance(theta, Tensor)
        return (self._half_curvature_for(theta) * theta * theta).sum()

    def _half_curvature_for(self, theta: Tensor) -> Tensor:
        key = (theta.dtype, theta.device)
        if key not in self._half_curvature:
            self._half_curvature[key] = (self._curvature / 2).to(theta)
        return self._half_curvature[key]


class _Point(nn.Module):
    """A bare vector of parameters."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta)
