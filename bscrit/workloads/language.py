"""Next-token prediction by a small transformer, on text that needs no download."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from bscrit.engine.seeding import seeded
from bscrit.engine.streams import ExampleStream
from bscrit.engine.workload import Workload
from bscrit.workloads.settings import check_whole
from bscrit.workloads.text import read_text

VOCABULARY = 256
"""Tokens are bytes."""


class Language(Workload):
    """Cross-entropy per token, in nats; targets refer to its mean over the validation sequences.

    An example is a sequence of `sequence` tokens, each predicted from those before it, and its loss is their
    mean: tokens of one text are not independent examples. A batch size counts sequences, and so does B_crit;
    in tokens both are `sequence` times as large.

    The text is cut into pieces of `sequence` + 1 bytes that don't overlap. Pieces evenly spaced through it
    are held out to validate, the same ones for every seed; the others are trained on, shuffled each epoch.

    Args:
        data: "python", the source of the standard library of the Python that runs (some 8 MB; another version
            of Python is other data), or the path of a text file, or of a folder whose files are read in the
            order of their names, hidden ones left out. A relative path starts at the spec's folder.
        sequence: tokens that are predicted in one example.
        layers: blocks of attention and of two linear layers.
        width: of a token's vector; the heads share it equally.
        heads: attention heads in each block.
        validation_tokens: size of the evaluation set, rounded down to whole sequences.

    Raises:
        ValueError: a value that can't be, or data that can't be read as text; the sentence names the key.
    """

    unit = "sequence"
    replayable = True
    validation_examples = None

    def __init__(
        self,
        data: str = "python",
        sequence: int = 64,
        layers: int = 2,
        width: int = 64,
        heads: int = 4,
        validation_tokens: int = 4096,
    ) -> None:
        check_whole(
            sequence=sequence,
            layers=layers,
            width=width,
            heads=heads,
            validation_tokens=validation_tokens,
        )
        if width % heads:
            raise ValueError(f"heads = {heads} must divide width = {width}: each head has an equal share")
        if validation_tokens < sequence:
            raise ValueError(
                f"validation_tokens = {validation_tokens} must be at least one sequence of {sequence}"
            )
        self._sizes = (sequence, layers, width, heads)
        text = read_text(data)
        self._fingerprint = hashlib.sha256(text).hexdigest()[:16]
        self._training, self._validation = _split(data, text, sequence + 1, validation_tokens // sequence)
        self.examples = len(self._training)
        self._streams: dict[int, ExampleStream] = {}

    def model(self, seed: int) -> nn.Module:
        with seeded(torch.device("cpu"), seed):
            return _Transformer(*self._sizes)

    def batch(self, seed: int, start: int, size: int) -> Tensor:
        """Tokens (size, sequence + 1), of which the last is only predicted."""
        if seed not in self._streams:
            self._streams[seed] = ExampleStream(len(self._training), seed)
        index = self._streams[seed].batch(start, size).to(self._training.device)
        return self._training.index_select(0, index).long()

    def losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        return _token_losses(model, batch).mean(1)

    def evaluate(self, model: nn.Module) -> Tensor:
        held_out, at_once = self._validation[: self.validation_examples], _SEQUENCES_AT_ONCE
        sums = [
            _token_losses(model, held_out[first : first + at_once].long()).sum()
            for first in range(0, len(held_out), at_once)
        ]
        return torch.stack(sums).sum() / held_out[:, 1:].numel()

    def fingerprint(self) -> str:
        return self._fingerprint

    def prepare(self, device: str) -> None:
        self._training, self._validation = self._training.to(device), self._validation.to(device)


def _token_losses(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross-entropy of every token but the first, shape (n, sequence)."""
    scores: Tensor = model(tokens[:, :-1])
    expected = tokens[:, 1:]
    flat = functional.cross_entropy(scores.flatten(0, 1), expected.flatten(), reduction="none")
    return flat.view(expected.shape)


class _Transformer(nn.Module):
    """Tokens (n, t) to scores (n, t, VOCABULARY) of the tokens that follow."""

    def __init__(self, sequence: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.empty(sequence, width))
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for parameter in (self.tokens.weight, self.positions, self.head.weight):
            nn.init.normal_(parameter, std=_DEVIATION)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions[:length]
        mask = torch.full((length, length), -math.inf, dtype=x.dtype, device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        scores: Tensor = self.head(self.norm(x))
        return scores


class _Block(nn.Module):
    """x + attention(norm(x)), and to that + perceptron(norm(.))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.norm_perceptron = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self._attention(self.norm_attention(x), mask)
        hidden: Tensor = self.hidden(self.norm_perceptron(x))
        change: Tensor = self.back(functional.gelu(hidden))
        return x + change

    def _attention(self, x: Tensor, mask: Tensor) -> Tensor:
        """softmax(q k / sqrt(d) + mask) v per head, written out: fused kernels run lanes one by one."""
        together: Tensor = self.queries_keys_values(x)
        split = together.view(*x.shape[:2], 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = queries / math.sqrt(queries.shape[-1]) @ keys.transpose(-1, -2)
        shares = (scores + mask).softmax(-1)
        mixed: Tensor = self.mixed((shares @ values).transpose(1, 2).flatten(2))
        return mixed


def _split(data: str, text: bytes, length: int, held_out: int) -> tuple[Tensor, Tensor]:
    """Training and validation pieces, (n, length) and (held_out, length), a byte per token."""
    count = len(text) // length
    if count <= held_out:
        raise ValueError(
            f"data = {data!r} is too short: {len(text)} bytes are {count} sequences, of which "
            f"validation_tokens takes {held_out}"
        )
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    pieces = tokens[: count * length].view(count, length)
    validates = torch.zeros(count, dtype=torch.bool)
    validates[torch.arange(held_out) * count // held_out] = True
    return pieces[~validates], pieces[validates]


_DEVIATION = 0.02
_SEQUENCES_AT_ONCE = 32
