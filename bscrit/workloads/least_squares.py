"""Linear regression on Gaussian features, drawn without end: gradients by autograd, answers by hand."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from bscrit.engine.seeding import generator
from bscrit.engine.workload import Workload
from bscrit.workloads.settings import check_problem, check_whole


class LeastSquares(Workload):
    """y = x theta* + e with x_i ~ N(0, i^-power), e ~ N(0, label_noise), theta* = start in each dimension.

    Training starts at theta = 0. The loss of an example is (x theta - y)^2/2; targets refer to its
    expectation in excess of the labels' noise, 1/2 sum lam_i (theta_i - theta*_i)^2.
    """

    replayable = True

    def __init__(
        self, dimensions: int = 30, power: float = 1.0, label_noise: float = 1.0, start: float = 1.0
    ) -> None:
        check_whole(dimensions=dimensions)
        check_problem("label_noise", power=power, label_noise=label_noise, start=start)
        variances = np.arange(1, dimensions + 1, dtype=float) ** -power
        self.label_noise = label_noise
        self.optimum = torch.full((dimensions,), float(start))
        self._deviations = torch.from_numpy(variances).sqrt().float()

    def model(self, seed: int) -> nn.Module:  # noqa: ARG002 (every seed starts from the same loss)
        layer = nn.Linear(len(self.optimum), 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    def batch(self, seed: int, start: int, size: int) -> tuple[Tensor, Tensor]:
        """Features (size, dimensions) and labels (size,)."""
        draw = generator(seed, start, size)
        features = torch.randn(size, len(self.optimum), generator=draw) * self._deviations
        noise = torch.randn(size, generator=draw) * math.sqrt(self.label_noise)
        return features, features @ self.optimum + noise

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        features, labels = batch
        predictions: Tensor = model(features).squeeze(-1)
        return (predictions - labels).square() / 2

    def evaluate(self, model: nn.Module) -> Tensor:
        (theta,) = model.parameters()
        delta = theta[0] - self.optimum.to(theta)
        return (self._deviations.to(theta) * delta).square().sum() / 2
