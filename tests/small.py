"""Small workloads for tests of training."""

import torch
from torch import nn
from torch.nn import functional

from bscrit.engine.seeding import generator, seeded
from bscrit.engine.workload import Workload


class Regression(Workload):
    """Any network on random images (n, 2, 6, 6); evaluation on a fixed set."""

    def __init__(self, build, outputs=3):
        self.build = build
        self.outputs = outputs
        draw = generator(99)
        self.held_out = torch.randn(20, 2, 6, 6, generator=draw), torch.randn(20, outputs, generator=draw)

    def model(self, seed):
        with seeded(torch.device("cpu"), seed):
            return self.build()

    def batch(self, seed, start, size):
        draw = generator(seed, start, size)
        return {
            "x": torch.randn(size, 2, 6, 6, generator=draw),
            "y": torch.randn(size, self.outputs, generator=draw),
        }

    def losses(self, model, batch):
        return (model(batch["x"]) - batch["y"]).square().mean(1)

    def evaluate(self, model):
        x, y = (tensor.to(next(model.parameters()).dtype) for tensor in self.held_out)
        return (model(x) - y).square().mean()


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.Tanh(), nn.Linear(16, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


class Transformer(nn.Module):
    """Six tokens of twelve numbers, one layer, tied input and output of the inner block."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.layer(x.reshape(len(x), 6, 12)).mean(1))


def batch_norm():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(72, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )


class Counting(nn.Module):
    """Replaces a buffer in forward, and the output depends on it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.count = self.count + 1
        return self.layer(x.flatten(1)) * (1 + 0.1 * self.count)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(12, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x.reshape(len(x), 6, 12))[0][:, -1])


class Padded(nn.Module):
    """A padding row, whose gradient is zero in ordinary training."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4, 3, padding_idx=0)

    def forward(self, x):
        return self.embedding((x[:, 0, 0, :2] > 0).long()).sum(1)


def dropout():
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.Dropout(0.5), nn.Linear(16, 3))


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(72, 72, bias=False)
        self.second = nn.Linear(72, 72)
        self.second.weight = self.first.weight
        self.head = nn.Linear(72, 3)

    def forward(self, x):
        return self.head(functional.gelu(self.second(self.first(x.flatten(1)))))


NETWORKS = {
    "mlp": mlp, "cnn": cnn, "transformer": Transformer, "tied": Tied, "batch norm": batch_norm,
}  # fmt: skip


def regression(name):
    workload = Regression(NETWORKS[name])
    workload.sums_over_examples = name != "batch norm"
    return workload
