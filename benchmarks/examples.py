"""How long squared gradients of single examples take, as multiples of forward and backward of the mean loss.

    python benchmarks/examples.py [batch_size]

Beside Opacus (fast gradient clipping, which has the norms after its first backward) and BackPACK (`batch_l2`,
squares per parameter) where they are installed. All in one process and one thread, in turns, the fastest of several
rounds. Nothing here is a test: timings depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bscrit.measure.examples import Examples
from bscrit.measure.sums import Sums

ROUNDS = 7
SECONDS = 0.3
Batch = tuple[Tensor, Tensor]
NOT_INSTALLED = "not installed"
CANNOT = "can't"
"""Such a model is refused, or raises an error."""


class Attention(nn.Module):
    """Causal, with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.into(x).chunk(3, 2))
        return self.out(
            functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(width), Attention(width, 4)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Transformer(nn.Module):
    """Next tokens of sequences of 32, 64 kinds of them."""

    def __init__(self, width: int = 64, layers: int = 2, kinds: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(kinds, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kinds)

    def forward(self, x: Tensor) -> Tensor:
        # A row of positions for each example, as Opacus wants them.
        places = torch.arange(x.shape[1]).repeat(len(x), 1)
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions(places))))


class TorchTransformer(nn.Module):
    """As many parameters in torch's own layers, whose attention uses weights without calling a layer."""

    def __init__(self, width: int = 64, layers: int = 2, kinds: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(kinds, width), nn.Embedding(32, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, kinds)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(x) + self.positions(torch.arange(x.shape[1]))))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def mlp(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def cases(size: int) -> dict[str, tuple[nn.Module, Batch]]:
    torch.manual_seed(0)
    labels, texts = torch.randint(10, (size,)), torch.randint(64, (size, 33))
    text = texts[:, :-1].contiguous(), texts[:, 1:].contiguous()
    return {
        "MLP 64-64-10": (mlp(64, 64), (torch.randn(size, 64), labels)),
        "MLP 784-256-10": (mlp(784, 256), (torch.randn(size, 784), labels)),
        "CNN 8-16-64": (cnn(), (torch.randn(size, 1, 8, 8), labels)),
        "transformer": (Transformer(), text),
        "torch's transformer": (TorchTransformer(), text),
    }


def losses(model: nn.Module, batch: Batch) -> Tensor:
    """One per example: cross-entropy, the mean over positions where there are several."""
    inputs, targets = batch
    each = functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), reduction="none")
    return each.view(len(inputs), -1).mean(1)


def plain(model: nn.Module, batch: Batch) -> Callable[[], object]:
    model, parameters = copy.deepcopy(model), []
    parameters = list(model.parameters())
    return lambda: torch.autograd.grad(losses(model, batch).mean(), parameters)


def ours(model: nn.Module, batch: Batch, lanes: int = 1) -> tuple[Callable[[], Tensor], Examples]:
    parameters = {name: torch.stack([tensor.detach()] * lanes) for name, tensor in model.named_parameters()}
    source = Examples(model, losses)
    stacks = tuple(tensor.expand(lanes, *tensor.shape) for tensor in batch)

    def run() -> Tensor:
        sums = Sums(lanes)
        source.add(sums, parameters, {}, stacks)
        return sums.squares["identity"][0]

    run()
    return run, source


def opacus(model: nn.Module, batch: Batch) -> Callable[[], Tensor] | str:
    try:
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
    except ImportError:
        return NOT_INSTALLED
    try:
        wrapped = GradSampleModuleFastGradientClipping(
            copy.deepcopy(model), max_grad_norm=1.0, loss_reduction="mean", use_ghost_clipping=True
        )
    except Exception:
        return CANNOT

    def run() -> Tensor:
        wrapped.zero_grad(set_to_none=True)
        losses(wrapped, batch).mean().backward()
        return wrapped.get_norm_sample().square().sum()

    return run


def backpack(model: nn.Module, batch: Batch) -> Callable[[], Tensor] | str:
    try:
        from backpack import backpack as extended
        from backpack import extend
        from backpack.extensions import BatchL2Grad
    except ImportError:
        return NOT_INSTALLED
    model = extend(copy.deepcopy(model))
    parameters = list(model.parameters())

    def run() -> Tensor:
        model.zero_grad(set_to_none=True)
        with extended(BatchL2Grad()):
            losses(model, batch).sum().backward()
        return torch.stack([parameter.batch_l2 for parameter in parameters]).sum()

    return run


def right(run: Callable[[], Tensor] | str, expected: Tensor) -> Callable[[], Tensor] | str:
    """The run if it gives the same sum of squares, else what it does."""
    if isinstance(run, str):
        return run
    try:
        found = run()
    except Exception:
        return CANNOT
    return run if torch.allclose(found.double(), expected, rtol=1e-3) else "other squares"


def fastest(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of a run, in turns, so that a busy moment does not hit one alone."""
    counts, found = {}, {name: float("inf") for name in runs}
    for name, run in runs.items():
        start = time.perf_counter()
        run(), run()
        counts[name] = max(1, int(SECONDS / ROUNDS / ((time.perf_counter() - start) / 2)))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            found[name] = min(found[name], (time.perf_counter() - start) / counts[name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("size", nargs="?", type=int, metavar="BATCH_SIZE", default=64, help="64 by default")
    size = parser.parse_args().size
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    columns = ("bscrit", "Opacus", "BackPACK")
    print(f"batch size {size}, one thread, multiples of forward and backward of the mean loss")
    print(f"{'':<22}{'plain':>10}" + "".join(f"{name:>15}" for name in columns) + f"{'way':>10}")
    for label, (model, batch) in cases(size).items():
        run, source = ours(model, batch)
        expected = run()
        others = {"bscrit": run, "Opacus": opacus(model, batch), "BackPACK": backpack(model, batch)}
        others = {name: right(other, expected) for name, other in others.items()}
        runs = {name: other for name, other in others.items() if not isinstance(other, str)}
        times = fastest({"plain": plain(model, batch), **runs})
        cells = [
            f"{times[name] / times['plain']:.2f}" if name in times else str(others[name]) for name in columns
        ]
        print(
            f"{label:<22}{times['plain'] * 1e3:>7.2f} ms"
            + "".join(f"{cell:>15}" for cell in cells)
            + f"{source.way:>10}"
        )


if __name__ == "__main__":
    main()
