"""Image classification by a small network, on real data that need no download."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn
from torch.nn import functional

from bscrit.engine.seeding import generator, seeded
from bscrit.engine.streams import ExampleStream
from bscrit.engine.workload import Workload
from bscrit.errors import UserError, nearest
from bscrit.workloads.settings import check_whole

MODELS = ("mlp", "cnn")


class Classifier(Workload):
    """Cross-entropy on images; targets refer to the mean validation loss.

    Args:
        data: "digits", the 1,797 handwritten digits of 8 x 8 pixels that scikit-learn ships: 1,437 to train
            on, 360 to validate, the same ones for every seed.
        model: "mlp", one hidden layer, or "cnn", two convolutions of 8 and 16 channels before it.
        hidden: width of the hidden layer.

    Raises:
        ValueError: a value that can't be; the sentence names the key.
    """

    unit = "image"
    replayable = True
    validation_examples = None

    def __init__(self, data: str = "digits", model: str = "mlp", hidden: int = 64) -> None:
        if data != "digits":
            raise ValueError(f"data = {data!r} is no data set; {nearest(str(data), ['digits'])}")
        if model not in MODELS:
            raise ValueError(f"model = {model!r} is no model; {nearest(str(model), MODELS)}")
        check_whole(hidden=hidden)
        self.examples = _TRAINING
        self._kind = model
        self._hidden = hidden
        self._tensors: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._streams: dict[int, ExampleStream] = {}
        self._validation_inputs: dict[torch.dtype, Tensor] = {}

    def model(self, seed: int) -> nn.Module:
        with seeded(torch.device("cpu"), seed):
            return _mlp(self._hidden) if self._kind == "mlp" else _cnn(self._hidden)

    def batch(self, seed: int, start: int, size: int) -> tuple[Tensor, Tensor]:
        """Images (size, 1, 8, 8) and labels (size,)."""
        inputs, labels, _, _ = self._data()
        if seed not in self._streams:
            self._streams[seed] = ExampleStream(len(inputs), seed)
        index = self._streams[seed].batch(start, size).to(inputs.device)
        return inputs.index_select(0, index), labels.index_select(0, index)

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels, reduction="none")

    def evaluate(self, model: nn.Module) -> Tensor:
        _, _, inputs, labels = self._data()
        dtype = next(model.parameters()).dtype
        if dtype not in self._validation_inputs:
            self._validation_inputs[dtype] = inputs[: self.validation_examples].to(dtype)
        return functional.cross_entropy(
            model(self._validation_inputs[dtype]), labels[: self.validation_examples]
        )

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for tensor in self._data():
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def prepare(self, device: str) -> None:
        inputs, labels, validation_inputs, validation_labels = (tensor.to(device) for tensor in self._data())
        self._tensors = inputs, labels, validation_inputs, validation_labels
        self._validation_inputs = {}

    def _data(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._tensors is None:
            self._tensors = _digits()
        return self._tensors


def _mlp(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def _cnn(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _mlp(hidden),
    )


def _digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, validation images and labels; pixels between 0 and 1."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        raise UserError(
            '[workload] data = "digits"', "needs scikit-learn", "pip install 'bscrit[digits]'"
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    # One split for all seeds: losses of different seeds are then losses on the same images.
    order = torch.randperm(len(labels), generator=generator(0))
    inputs = torch.from_numpy(pixels).float().div(16).view(-1, 1, 8, 8)[order]
    targets = torch.from_numpy(labels).long()[order]
    return inputs[:_TRAINING], targets[:_TRAINING], inputs[_TRAINING:], targets[_TRAINING:]


_TRAINING = 1437
