"""A workload of one's own: tell two spirals apart. Copy this file and change what is inside the methods."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from bscrit import Workload, generator, seeded


class Spirals(Workload):
    unit = "point"  # what a batch size counts; it stands beside every number of the result
    replayable = True  # losses and evaluate depend on their arguments alone: steps may be recorded, and run much faster
    examples = None  # size of the data set; None, because these points are drawn without end

    def __init__(self, turns: float = 1.0, hidden: int = 32) -> None:
        """The keys of [workload], besides `use`."""
        self.turns, self.hidden = turns, hidden
        self.test_points = self.draw(generator(2024), 2048)

    def model(self, seed: int) -> nn.Module:
        """A new model on the CPU; the same one for the same seed."""
        with seeded(torch.device("cpu"), seed):
            layers = [nn.Linear(2, self.hidden), nn.Tanh(), nn.Linear(self.hidden, self.hidden), nn.Tanh()]
            return nn.Sequential(*layers, nn.Linear(self.hidden, 1), nn.Flatten(0))

    def batch(self, seed: int, start: int, size: int) -> tuple[Tensor, Tensor]:
        """The `size` examples after the first `start` of a run: always the same for the same three numbers."""
        return self.draw(generator(seed, start, size), size)

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """One loss per example, shape (size,): bscrit itself takes the mean, over the whole batch."""
        points, labels = batch
        return functional.binary_cross_entropy_with_logits(model(points), labels, reduction="none")

    def evaluate(self, model: nn.Module) -> Tensor:
        """The loss to which targets refer, always on the same points."""
        weight = next(model.parameters())
        return self.losses(model, tuple(tensor.to(weight) for tensor in self.test_points)).mean()

    def fingerprint(self) -> str:
        """An identity of the data, a hash of a file for example: where it changes, old trials are not reused."""
        return ""

    def draw(self, source: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Points with noise on two arms, and the arm of each (0 or 1)."""
        labels = torch.randint(2, (size,), generator=source).float()
        radius = torch.rand(size, generator=source).sqrt()
        angle = 2 * math.pi * (self.turns * radius) + math.pi * labels
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        return 3 * points + 0.1 * torch.randn(size, 2, generator=source), labels
