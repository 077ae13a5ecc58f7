"""Linear regression on Gaussian features, drawn without end: gradients by autograd, answers by hand."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from bscrit.engine.seeding import generator
from bscrit.engine.workload import Workload
from bscrit.workloads import exact


class LeastSquares(Workload):
    """y = x theta* + e with x_i ~ N(0, i^-power), e ~ N(0, label_noise), theta* = start in each dimension.

    Training starts at theta = 0. The loss of an example is (x theta - y)^2/2; targets refer to its
    expectation in excess of the labels' noise, 1/2 sum lam_i (theta_i - theta*_i)^2.

    Attributes:
        exact: the expected losses under SGD and the noise scales.
    """

    replayable = True

    def __init__(
        self, dimensions: int = 30, power: float = 1.0, label_noise: float = 1.0, start: float = 1.0
    ) -> None:
        if isinstance(dimensions, bool) or not isinstance(dimensions, int) or dimensions < 1:
            raise ValueError(f"dimensions = {dimensions!r} must be a whole number, at least 1")
        for key, value in (("power", power), ("label_noise", label_noise), ("start", start)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{key} = {value!r} must be a finite number")
        if label_noise < 0:
            raise ValueError(f"label_noise = {label_noise} is a variance and can't be negative")
        if start == 0:
            raise ValueError("start = 0 is the minimum already: there would be nothing to train")
        variances = np.arange(1, dimensions + 1, dtype=float) ** -power
        self.exact = exact.LeastSquares(variances, float(label_noise), np.full(dimensions, float(start) ** 2))
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
        noise = torch.randn(size, generator=draw) * math.sqrt(self.exact.label_noise)
        return features, features @ self.optimum + noise

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        features, labels = batch
        predictions: Tensor = model(features).squeeze(-1)
        return (predictions - labels).square() / 2

    def evaluate(self, model: nn.Module) -> Tensor:
        (theta,) = model.parameters()
        delta = theta[0] - self.optimum.to(theta)
        return (self._deviations.to(theta) * delta).square().sum() / 2
