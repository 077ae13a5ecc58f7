"""The language model: its text, what its losses depend on, and that it learns."""

import math

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from bscrit.engine.lanes import Lanes
from bscrit.engine.self_test import accumulation_test, self_test
from bscrit.workloads.language import Language

ADAM = {"use": "adam"}
SMALL = {"sequence": 8, "layers": 2, "width": 16, "heads": 2, "validation_tokens": 40}


@pytest.fixture(scope="module")
def python():
    return Language()


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A file of 900 bytes, 100 pieces of 9, in the folder where a worker would find it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "text.txt").write_bytes(bytes(i * i % 251 + 1 for i in range(900)))
    return "text.txt"


def test_training_and_validation_are_the_text_once(tmp_path, text):
    workload = Language(data=text, **SMALL)
    training, held_out = workload._training, workload._validation
    assert (training.shape, held_out.shape, workload.examples) == ((95, 9), (5, 9), 95)
    content = (tmp_path / text).read_bytes()
    pieces = [content[i : i + 9] for i in range(0, 900, 9)]
    assert [bytes(piece.tolist()) for piece in held_out] == pieces[::20]
    assert [bytes(piece.tolist()) for piece in training] == [p for i, p in enumerate(pieces) if i % 20]


def test_an_epoch_of_batches_is_the_training_set_once(text):
    workload = Language(data=text, **SMALL)
    epoch = torch.cat([workload.batch(3, start, 19) for start in range(0, 95, 19)])
    assert (epoch.shape, epoch.dtype) == ((95, 9), torch.int64)
    assert sorted(epoch.tolist()) == sorted(workload._training.tolist())
    assert torch.equal(workload.batch(3, 19, 19), epoch[19:38])
    assert not torch.equal(workload.batch(4, 19, 19), epoch[19:38])
    with pytest.raises(ValueError, match="95"):
        workload.batch(0, 0, 96)


def test_parameters_are_a_function_of_the_seed_alone(python):
    before = torch.get_rng_state()
    first, again, other = (python.model(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    drawn = [name for name in first if "norm" not in name]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    layer = 4 * 64 + 3 * (64 * 64 + 64) + (64 * 64 + 64) + 2 * 4 * 64 * 64 + 5 * 64
    assert sum(tensor.numel() for tensor in first.values()) == 2 * 256 * 64 + 64 * 64 + 2 * layer + 2 * 64


def test_the_default_model_is_that_of_its_definition(python):
    """The same function by torch's own attention, in float64."""
    model = python.model(0).double()
    tokens = python.batch(0, 0, 3)
    x = model.tokens.weight[tokens[:, :-1]] + model.positions
    for block in model.blocks:
        attention = torch.nn.MultiheadAttention(64, 4, batch_first=True).double()
        attention.in_proj_weight.data = block.queries_keys_values.weight
        attention.in_proj_bias.data = block.queries_keys_values.bias
        attention.out_proj = block.mixed
        later = torch.ones(64, 64, dtype=torch.bool).triu(1)
        y = block.norm_attention(x)
        x = x + attention(y, y, y, attn_mask=later, need_weights=False)[0]
        x = x + block.back(torch.nn.functional.gelu(block.hidden(block.norm_perceptron(x))))
    logits = model.head(model.norm(x)).log_softmax(-1)
    expected = [[-logits[i, j, tokens[i, j + 1]] for j in range(64)] for i in range(3)]
    expected = torch.stack([torch.stack(row).mean() for row in expected])
    torch.testing.assert_close(python.losses(model, tokens), expected, rtol=1e-10, atol=0)


def test_a_later_token_changes_no_earlier_prediction(text):
    workload = Language(data=text, **SMALL)
    model = workload.model(0)
    tokens = workload.batch(0, 0, 4)[:, :-1]
    scores = model(tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 100) % 256
        differs = (model(changed) != scores).any(-1)
        assert not differs[:, :place].any()
        assert differs[:, place:].all()


def test_losses_are_per_example(python):
    model = python.model(0)
    batch = python.batch(0, 0, 6)
    alone = torch.cat([python.losses(model, batch[i : i + 1]) for i in range(6)])
    assert alone.shape == (6,)
    torch.testing.assert_close(python.losses(model, batch), alone)
    changed = batch.clone()
    changed[2] = changed[3]
    moved = python.losses(model, changed) - python.losses(model, batch)
    assert (moved.abs() > 1e-4).tolist() == [False, False, True, False, False, False]


def test_evaluation_is_the_mean_loss_of_the_validation_sequences(text):
    workload = Language(data=text, **{**SMALL, "validation_tokens": 8 * 70})
    model = workload.model(0)
    alone = [workload.losses(model, piece[None].long())[0] for piece in workload._validation]
    assert len(alone) == 70
    torch.testing.assert_close(workload.evaluate(model), torch.stack(alone).mean())
    workload.batch(0, 0, 7)
    torch.testing.assert_close(workload.evaluate(model), torch.stack(alone).mean(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lanes_of_it_can_be_trusted(text, dtype):
    workload = Language(data=text, **SMALL)
    assert self_test(workload, 12, ADAM, dtype=dtype) == ""
    assert accumulation_test(workload, 12, ADAM, dtype=dtype) == ""


class Evaluation(torch.nn.Module):
    """The evaluation of a model as a module's forward."""

    def __init__(self, workload, seed):
        super().__init__()
        self.workload, self.model = workload, workload.model(seed)

    def forward(self):
        return self.workload.evaluate(self.model)


def test_its_evaluation_can_be_vectorised(text):
    workload = Language(data=text, **{**SMALL, "validation_tokens": 8 * 70})
    modules = [Evaluation(workload, seed) for seed in range(3)]
    parameters, buffers = stack_module_state(modules)
    assert not buffers
    together = vmap(lambda tensors: functional_call(modules[0], tensors, ()))(parameters)
    torch.testing.assert_close(together, torch.stack([module() for module in modules]))


def test_it_learns(python):
    workload = Language(sequence=16, width=32)
    lanes = Lanes(workload, seeds=[0, 1], lrs=[0.003, 0.003], batch_size=16, optimizer=ADAM)
    assert lanes.evaluate() == pytest.approx([math.log(256)] * 2, abs=0.1)
    for step in range(150):
        lanes.step(16 * step, 1.0)
    counts = torch.bincount(python._training.flatten().long(), minlength=256).double()
    shares = counts / counts.sum()
    unigram = -(shares * shares.clamp(min=1e-300).log()).sum().item()
    assert (lanes.evaluate() < unigram - 0.2).all()


def test_the_fingerprint_is_that_of_the_text(tmp_path, text):
    first = Language(data=text, **SMALL).fingerprint()
    assert Language(data=text, **{**SMALL, "width": 8}).fingerprint() == first
    assert Language(data=str(tmp_path / text), **SMALL).fingerprint() == first
    content = bytearray((tmp_path / text).read_bytes())
    content[500] ^= 1
    (tmp_path / text).write_bytes(content)
    assert Language(data=text, **SMALL).fingerprint() != first


def test_a_text_too_short_to_validate_on_is_explained(text):
    with pytest.raises(ValueError, match="data = 7"):
        Language(data=7, **SMALL)
    with pytest.raises(ValueError, match=r"900 bytes are 100 sequences.*takes 100"):
        Language(data=text, **{**SMALL, "validation_tokens": 800})
    Language(data=text, **{**SMALL, "validation_tokens": 799})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sequence": 0}, "sequence = 0"),
        ({"layers": True}, "layers = True"),
        ({"width": "64"}, "width = '64'"),
        ({"heads": 3}, "heads = 3 must divide width = 64"),
        ({"validation_tokens": 1.5}, "validation_tokens = 1.5"),
        ({"validation_tokens": 63}, "validation_tokens = 63 must be at least one sequence of 64"),
    ],
)
def test_a_wrong_setting_is_named(settings, words):
    with pytest.raises(ValueError, match=words):
        Language(**settings)
