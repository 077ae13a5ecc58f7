"""A user's own workload as source text, with room for whatever users do in it."""

from pathlib import Path
from textwrap import indent

SOURCE = '''
import os, subprocess, sys, threading, time
import torch
from torch import nn
from bscrit.engine.seeding import generator, seeded
{top}

class Mine:
    """Linear regression with noise of variance 0.09 in the labels: the loss falls from about 1.1 to 0.09."""

    unit = "point"

    def __init__(self, dimensions: int = 5):
        self.dimensions = dimensions
        self.held_out = self.draw(generator(99), 256)
{init}

    def draw(self, source, size):
        x = torch.randn(size, self.dimensions, generator=source)
        return x, x.sum(1) / self.dimensions**0.5 + 0.3 * torch.randn(size, generator=source)

    def model(self, seed):
{model}
        with seeded(torch.device("cpu"), seed):
            model = nn.Linear(self.dimensions, 1)
            nn.init.zeros_(model.weight)
            return model

    def batch(self, seed, start, size):
{batch}
        return self.draw(generator(seed, start, size), size)

    def losses(self, model, batch):
        x, y = batch
        losses = (model(x)[:, 0] - y).square()
{losses}
        return losses

    def evaluate(self, model):
        x, y = self.held_out
        loss = (model(x)[:, 0] - y).square().mean()
{evaluate}
        return loss
'''

SPEC = """
[workload]
use = "{name}:Mine"
[sweep]
batch_sizes = [2, 8, 32]
targets = [0.3, 0.15]
seeds = 2
max_examples = 20_000
max_steps = 600
[learning_rate]
guess = 0.05
[noise]
source = "none"
[compute]
workers = 2
device = "cpu"
lanes = "loop"
"""


def write_module(folder: Path, name: str, top: str = "", **inside: str) -> Path:
    """name.py with the class Mine; `inside` is code in its methods, where SOURCE has room for it."""
    blanks = dict.fromkeys(("init", "model", "batch", "losses", "evaluate"), "pass")
    code = {method: indent(text, " " * 8) for method, text in {**blanks, **inside}.items()}
    file = folder / f"{name}.py"
    file.write_text(SOURCE.format(top=top, **code))
    return file


def write_spec(folder: Path, name: str = "mine", **inside: str) -> Path:
    """A spec beside the module of its workload."""
    folder.mkdir(parents=True, exist_ok=True)
    write_module(folder, name, **inside)
    file = folder / f"{name}.toml"
    file.write_text(SPEC.format(name=name))
    return file
