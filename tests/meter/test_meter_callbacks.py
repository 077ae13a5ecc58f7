"""The meter as a callback, in the real Lightning and transformers, against noise samples computed by hand."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler

pl = pytest.importorskip("lightning.pytorch")
transformers = pytest.importorskip("transformers")

from bscrit.errors import UserError  # noqa: E402
from bscrit.meter.lightning import NoiseCallback as LightningNoise  # noqa: E402
from bscrit.meter.transformers import NoiseCallback as TransformersNoise  # noqa: E402
from bscrit.noise import read_noise  # noqa: E402

DOCUMENT = (Path(__file__).parents[2] / "docs" / "meter.md").read_text("utf-8")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning:lightning.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def expected(gradients, sizes, weights=None):
    """n_small, sq_small, n_big, sq_big from the whole set of gradients, in float64."""
    g, m = torch.stack(gradients).numpy(), np.asarray(sizes, float)
    w = np.ones(len(m)) if weights is None else np.asarray(weights, float)
    w = w / w.sum()
    return 1 / (w / m).sum(), w @ (g**2).sum(1), 1 / (w**2 / m).sum(), ((w @ g) ** 2).sum()


def gradient(model, loss):
    grads = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return torch.cat([g.double().reshape(-1) for g in grads])


def rows(samples):
    return list(zip(samples.n_small, samples.sq_small, samples.n_big, samples.sq_big, strict=True))


# Lightning


class Module(pl.LightningModule):
    def __init__(self, lr=0.0, by_hand=False, optimizers=1, norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(5, 6), nn.Tanh(), nn.BatchNorm1d(6) if norm else nn.Identity(), nn.Linear(6, 1)
        )
        self.lr, self.count = lr, optimizers
        self.automatic_optimization = not by_hand

    def loss(self, batch):
        x, y = batch["inputs"]
        return (self.net(x) - y).square().mean()

    def training_step(self, batch, batch_idx):
        del batch_idx
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        del batch_idx
        self.log("loss", self.loss(batch))

    def configure_optimizers(self):
        return [torch.optim.AdamW(self.net.parameters(), lr=self.lr) for _ in range(self.count)]


def examples(n):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(n, 5, generator=draw), torch.randn(n, 1, generator=draw) + 2
    return [{"inputs": (x[i], y[i])} for i in range(n)]


def loader(n=22, size=4):
    return DataLoader(examples(n), batch_size=size)


def lightning_trainer(folder, callback, **settings):
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "default_root_dir": folder,
    }
    return pl.Trainer(callbacks=callback and [callback], **{**quiet, **settings})


def test_lightning_accumulates_clips_and_ends_epochs_in_the_middle(tmp_path):
    """22 examples in batches of 4 are 6 batches an epoch, the last of 2: windows of 4 and of 2 batches."""
    module = Module()
    noise = LightningNoise(every=1, path=tmp_path / "noise.csv")
    trainer = lightning_trainer(
        tmp_path,
        noise,
        max_epochs=3,
        accumulate_grad_batches=4,
        gradient_clip_val=1e-3,
        num_sanity_val_steps=1,
    )
    trainer.fit(module, loader(), loader())
    batches = list(loader())
    grads = [gradient(module, module.loss(batch)) for batch in batches]
    full = expected(grads[:4], [4] * 4)
    n_small, small, n_big, big = expected(grads[4:], [4, 2])
    rest = (n_small, small / 4, n_big, big / 4)  # the loss is divided by 4 however many batches there are
    found = rows(noise.meter.samples)
    assert len(found) == 6
    for i, sample in enumerate(found):
        assert sample == pytest.approx(rest if i % 2 else full, rel=1e-4), i
    assert noise.meter.samples.examples.tolist() == [0, 16, 22, 38, 44, 60]
    assert noise.meter.result().dropped == 0
    assert read_noise(tmp_path / "noise.csv")["identity"].steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert not module.net[0].weight._backward_hooks
    assert {path.name for path in tmp_path.iterdir()} == {"noise.csv"}


def test_lightning_trains_the_same_with_and_without(tmp_path):
    def train(callback):
        module = Module(lr=0.01)
        trainer = lightning_trainer(tmp_path, callback, max_epochs=2, accumulate_grad_batches=2)
        trainer.fit(module, loader())
        return module.state_dict()

    plain, measured = train(None), train(LightningNoise(every=1))
    assert all(torch.equal(a, b) for a, b in zip(plain.values(), measured.values(), strict=True))


def test_lightning_logs_to_the_trainers_loggers_and_goes_on_from_a_checkpoint(tmp_path):
    logger = pl.loggers.CSVLogger(tmp_path, name="logs", version=0)
    whole = LightningNoise(every=1, path=tmp_path / "whole.csv")
    trainer = lightning_trainer(tmp_path, whole, max_epochs=4, accumulate_grad_batches=2, logger=logger)
    trainer.fit(Module(lr=0.01), loader(24))
    text = (tmp_path / "logs" / "version_0" / "metrics.csv").read_text()
    assert "noise/signal" in text.splitlines()[0]
    assert len(text.splitlines()) == 13

    first = LightningNoise(every=1, path=tmp_path / "noise.csv")
    trainer = lightning_trainer(tmp_path, first, max_epochs=2, accumulate_grad_batches=2)
    trainer.fit(Module(lr=0.01), loader(24))
    trainer.save_checkpoint(tmp_path / "middle.ckpt")
    second = LightningNoise(every=1, path=tmp_path / "noise.csv")
    trainer = lightning_trainer(tmp_path, second, max_epochs=4, accumulate_grad_batches=2)
    trainer.fit(Module(), loader(24), ckpt_path=tmp_path / "middle.ckpt", weights_only=False)
    assert (tmp_path / "noise.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert second.meter.samples.steps.tolist() == list(range(12))


def test_lightning_in_adams_metric_and_with_a_size_of_ones_own(tmp_path):
    noise = LightningNoise(every=1, metric="adam", size=lambda batch: len(batch["inputs"][0]) * 10)
    lightning_trainer(tmp_path, noise, max_epochs=1, accumulate_grad_batches=2).fit(
        Module(lr=0.01), loader(24)
    )
    assert noise.meter.samples.n_big.tolist() == [80, 80]
    assert noise.meter.samples.metric == "adam"


@pytest.mark.parametrize(
    ("module", "settings", "says"),
    [
        ({"by_hand": True}, {}, "optimizes by hand"),
        ({"optimizers": 0}, {}, "optimizers: none"),
        ({"norm": True}, {}, "batch norm"),
    ],
)
def test_lightning_refuses_what_it_can_not_measure(tmp_path, module, settings, says):
    trainer = lightning_trainer(tmp_path, LightningNoise(), max_epochs=1, **settings)
    with pytest.raises(UserError, match=says):
        trainer.fit(Module(**module), loader())


def test_lightning_without_a_size_warns_and_trains(tmp_path):
    noise = LightningNoise(size=lambda batch: None)  # noqa: ARG005
    with pytest.warns(UserWarning, match="pass size="):
        lightning_trainer(tmp_path, noise, max_epochs=1).fit(Module(), loader())
    assert noise.meter.result().dropped == 1


# transformers


class InOrder(transformers.Trainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def language_model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=12,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def sentences(n, length=9):
    """Of many lengths, padded: labels of the padding are left out of the loss."""
    draw = torch.Generator().manual_seed(3)
    tokens = torch.randint(1, 12, (n, length), generator=draw)
    found = []
    for i, row in enumerate(tokens):
        labels, used = row.clone(), 3 + (5 * i) % (length - 2)
        labels[used:] = -100
        found.append({"input_ids": row, "labels": labels, "attention_mask": (labels != -100).long()})
    return found


def hf_trainer(folder, callback, model=None, data=None, evaluate=None, **settings):
    quiet = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "learning_rate": 0.0,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "num_train_epochs": 1,
        "max_grad_norm": 1e-3,
        "dataloader_pin_memory": False,
    }
    arguments = transformers.TrainingArguments(**{**quiet, **settings})
    callbacks = [] if callback is None else [callback]
    model = model or language_model()
    data = data or sentences(17)
    return InOrder(model, arguments, train_dataset=data, eval_dataset=evaluate, callbacks=callbacks)


def windows(data, size=2, accumulated=3):
    batches = [
        {key: torch.stack([row[key] for row in data[i : i + size]]) for key in data[0]}
        for i in range(0, len(data), size)
    ]
    return [batches[i : i + accumulated] for i in range(0, len(batches), accumulated)]


def items(batch):
    return int((batch["labels"][:, 1:] != -100).sum())


@pytest.mark.parametrize("unit", ["examples", "items"])
def test_a_loss_over_all_tokens_of_the_update(tmp_path, unit):
    """17 sentences: windows of 3 micro-batches, the last micro-batch of one sentence, all with their own tokens."""
    noise = TransformersNoise(every=1, path=tmp_path / "noise.csv", unit=unit)
    trainer = hf_trainer(tmp_path, noise, num_train_epochs=2)
    trainer.train()
    model = copy.deepcopy(trainer.model).train()
    want = []
    for window in windows(sentences(17)):
        tokens = [items(batch) for batch in window]
        grads = [gradient(model, model(**batch).loss) for batch in window]
        sizes = tokens if unit == "items" else [len(batch["labels"]) for batch in window]
        want.append(expected(grads, sizes, tokens))
        assert len(set(tokens)) > 1
    found = rows(noise.meter.samples)
    assert len(found) == 6
    for i, sample in enumerate(found):
        assert sample == pytest.approx(want[i % 3], rel=1e-4), i
    a_window = [
        sum(items(b) if unit == "items" else len(b["labels"]) for b in w) for w in windows(sentences(17))
    ]
    assert noise.meter.samples.examples.tolist() == [0, *np.cumsum([*a_window, *a_window])[:-1]]
    assert read_noise(tmp_path / "noise.csv")["identity"].steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert {path.name for path in tmp_path.iterdir()} == {"noise.csv"}
    assert not trainer.model._forward_pre_hooks


class Regression(nn.Module):
    """Takes no loss arguments, so that the Trainer averages the means of the micro-batches."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def points(n):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(n, 5, generator=draw), torch.randn(n, 1, generator=draw) + 2
    return [{"x": x[i], "labels": y[i]} for i in range(n)]


def test_losses_that_are_means(tmp_path):
    noise = TransformersNoise(every=1)
    model = Regression()
    trainer = hf_trainer(tmp_path, noise, model, points(15), points(4), eval_strategy="steps", eval_steps=1)
    trainer.train()
    want = []
    for window in windows(points(15)):
        grads = [gradient(model, model(**batch)["loss"]) for batch in window]
        want.append(expected(grads, [len(batch["labels"]) for batch in window]))
    found = rows(noise.meter.samples)
    assert [sample == pytest.approx(one, rel=1e-4) for sample, one in zip(found, want, strict=True)] == [
        True
    ] * 3


def test_transformers_trains_the_same_with_and_without(tmp_path):
    def train(callback):
        trainer = hf_trainer(tmp_path, callback, learning_rate=0.01, max_grad_norm=0.5)
        trainer.train()
        return trainer.model.state_dict()

    plain, measured = train(None), train(TransformersNoise(every=1))
    assert all(torch.equal(a, b) for a, b in zip(plain.values(), measured.values(), strict=True))


def test_transformers_goes_on_from_a_checkpoint(tmp_path):
    settings = {"learning_rate": 0.01, "num_train_epochs": 3, "save_steps": 4, "save_strategy": "steps"}
    whole = TransformersNoise(every=1, path=tmp_path / "noise.csv")
    hf_trainer(tmp_path, whole, **settings).train()
    text = (tmp_path / "noise.csv").read_text()
    again = TransformersNoise(every=1, path=tmp_path / "noise.csv")
    hf_trainer(tmp_path, again, **settings).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert (tmp_path / "noise.csv").read_text() == text
    assert again.meter.samples.steps.tolist() == list(range(9))
    assert str(again.meter.result()) == str(whole.meter.result())

    restored = hf_trainer(
        tmp_path,
        TransformersNoise(every=1, path=tmp_path / "noise.csv"),
        restore_callback_states_from_checkpoint=True,
        **settings,
    )
    restored.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert (tmp_path / "noise.csv").read_text() == text

    before = hf_trainer(tmp_path / "without", None, **settings)
    before.train()
    late = TransformersNoise(every=1)
    hf_trainer(tmp_path / "without", late, **settings).train(
        resume_from_checkpoint=str(tmp_path / "without" / "checkpoint-4")
    )
    assert late.meter.samples.steps.tolist() == list(range(4, 9))
    assert late.meter.samples.examples[0] == 4 * 6


def test_the_trainers_own_log_takes_the_values(tmp_path):
    noise = TransformersNoise(every=1, log=lambda values, step: trainer.log({**values, "at": step}))
    trainer = hf_trainer(tmp_path, noise)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "noise/signal" in entry]
    assert [entry["at"] for entry in logged] == [0, 1, 2]
    assert [entry["noise/noise"] for entry in logged] == pytest.approx(noise.meter.samples.noise.tolist())


def test_a_compiled_model_is_watched_too(tmp_path):
    plain, compiled = TransformersNoise(every=1), TransformersNoise(every=1)
    hf_trainer(tmp_path, plain, Regression(), points(12)).train()
    hf_trainer(
        tmp_path, compiled, Regression(), points(12), torch_compile=True, torch_compile_backend="aot_eager"
    ).train()
    for one, other in zip(rows(compiled.meter.samples), rows(plain.meter.samples), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def smoothed(model, batch):
    labels = batch["labels"]
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    smoother = transformers.trainer_pt_utils.LabelSmoother(epsilon=0.1)
    return smoother(model(**inputs), labels, shift_labels=True)


def test_label_smoothing_takes_the_labels_away_and_tokens_stand_for_them(tmp_path):
    noise = TransformersNoise(every=1)
    trainer = hf_trainer(tmp_path, noise, label_smoothing_factor=0.1)
    trainer.train()
    model = copy.deepcopy(trainer.model).train()
    for window, sample in zip(windows(sentences(17)), rows(noise.meter.samples), strict=True):
        grads = [gradient(model, smoothed(model, batch)) for batch in window]
        tokens, sizes = [items(batch) for batch in window], [len(batch["labels"]) for batch in window]
        assert sample == pytest.approx(expected(grads, sizes, tokens), rel=1e-4)


def mean_over_all(outputs, labels, num_items_in_batch=None):
    logits = outputs["logits"][:, :-1].flatten(0, 1)
    return nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum") / num_items_in_batch


@pytest.mark.parametrize("taken_by", ["label smoothing", "compute_loss_func"])
@pytest.mark.parametrize("unit", ["examples", "items"])
def test_labels_that_can_not_be_counted_drop_the_step_and_say_why(tmp_path, taken_by, unit):
    """Prompts are masked in the labels alone: the tokens do not tell how many labels are left."""
    prompts = [
        {**row, "labels": torch.where(torch.arange(9) < 2, -100, row["labels"])} for row in sentences(17)
    ]
    noise = TransformersNoise(every=1, unit=unit)
    smoothing = {"label_smoothing_factor": 0.1} if taken_by == "label smoothing" else {}
    trainer = hf_trainer(tmp_path, noise, data=prompts, **smoothing)
    if not smoothing:
        trainer.compute_loss_func = mean_over_all
    with pytest.warns(UserWarning, match="take the labels away"):
        trainer.train()
    assert (noise.meter.result().samples, noise.meter.result().dropped) == (0, 3)


class Logits(nn.Module):
    """Takes no loss arguments and no labels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 1)

    def forward(self, x):
        return {"logits": self.net(x)}


def test_a_loss_outside_of_a_model_that_hears_nothing_of_it(tmp_path):
    """15 points in micro-batches of 2, three a step: the last step has one of a single point."""

    def squares(outputs, labels, num_items_in_batch=None):
        return (outputs["logits"] - labels).square().sum() / num_items_in_batch

    noise = TransformersNoise(every=1)
    trainer = hf_trainer(tmp_path, noise, Logits(), points(15), remove_unused_columns=False)
    trainer.compute_loss_func = squares
    with pytest.warns(UserWarning, match="take the labels away"):
        trainer.train()
    model = Logits()
    for window, sample in zip(windows(points(15))[:2], rows(noise.meter.samples), strict=True):
        grads = [gradient(model, squares(model(batch["x"]), batch["labels"], 2)) for batch in window]
        assert sample == pytest.approx(expected(grads, [2] * 3), rel=1e-4)
    assert noise.meter.result().dropped == 1


def test_items_of_losses_that_are_means_weigh_alike(tmp_path):
    noise = TransformersNoise(every=1, unit="items")
    model = Regression()
    hf_trainer(tmp_path, noise, model, points(15)).train()
    window = windows(points(15))[-1]
    grads = [gradient(model, model(**batch)["loss"]) for batch in window]
    assert rows(noise.meter.samples)[-1] == pytest.approx(expected(grads, [2, 1]), rel=1e-4)


def test_transformers_refuses_what_it_can_not_measure(tmp_path):
    with pytest.raises(UserError, match="unit = 'tokens'"):
        TransformersNoise(unit="tokens")
    trainer = hf_trainer(tmp_path, TransformersNoise())
    trainer.args.fsdp = True
    with pytest.raises(UserError, match="sharded"):
        trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.args.fsdp, trainer.args._n_gpu = None, 2
    with pytest.raises(UserError, match="torchrun"):
        trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)


# both


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_the_extra_is_named(name):
    code = f"""
import sys
sys.modules["{name}"] = None
from bscrit.errors import UserError
try:
    import bscrit.meter.{name}
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'bscrit[{name}]'" in done.stdout


BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", [b for b in BLOCKS if "lightning" in b or "transformers" in b])
def test_the_documents_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/meter.md", "exec"), {"__name__": "document"})
