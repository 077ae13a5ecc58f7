"""Logistic regression on scikit-learn's breast cancer data: at small batch single seeds arrive many times too early."""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn import functional

from bscrit import Workload, generator, seeded

TRAINED = 400  # of 569 rows; the others validate


class Cancer(Workload):
    unit = "row"
    replayable = True
    examples = TRAINED

    def __init__(self) -> None:
        features, labels = load_breast_cancer(return_X_y=True)
        inputs = torch.tensor((features - features.mean(0)) / features.std(0), dtype=torch.float32)
        order = torch.randperm(len(inputs), generator=generator(0))
        self.inputs, self.labels = inputs[order], torch.tensor(labels)[order].long()

    def model(self, seed: int) -> nn.Module:
        with seeded(torch.device("cpu"), seed):
            return nn.Linear(self.inputs.shape[1], 2)

    def batch(self, seed: int, start: int, size: int) -> tuple[Tensor, Tensor]:
        """Rows drawn with replacement."""
        rows = torch.randint(TRAINED, (size,), generator=generator(seed, start, size))
        return self.inputs[rows], self.labels[rows]

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def evaluate(self, model: nn.Module) -> Tensor:
        inputs = self.inputs[TRAINED:].to(next(model.parameters()))
        return functional.cross_entropy(model(inputs), self.labels[TRAINED:])
