"""Squared gradients of single examples in every way, against loops of single backward passes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bscrit.errors import UserError
from bscrit.measure import examples, layers, metrics
from bscrit.measure.examples import Examples
from bscrit.measure.sums import Sums

# Said once by torch of operations that it vectorises by a loop.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")

N = 5
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def images(draw):
    return torch.randn(3, N, 4, 8, 8, generator=draw)


def vectors(draw):
    return torch.randn(3, N, 6, generator=draw)


def sequences(draw):
    return torch.randn(3, N, 7, 8, generator=draw)


def tokens(draw):
    return torch.randint(9, (3, N, 7), generator=draw)


class Model(nn.Module):
    """A model from its parts and a forward function of them."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3, bias=False))


def in_place():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=(1, 2), groups=2), nn.ReLU(inplace=True),
        nn.Conv2d(8, 6, (2, 3), dilation=(2, 1), padding="same", padding_mode="circular"), nn.GELU(),
        nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2), nn.MaxPool2d(2),
        nn.Flatten(2), nn.Conv1d(4, 3, 5, stride=3), nn.Unflatten(2, (3, 3, 1)), nn.Tanh(),
        nn.Conv3d(3, 2, (2, 3, 1), padding=(1, 0, 0)),
    )  # fmt: skip


def norms():
    return nn.Sequential(
        nn.Linear(8, 12), nn.LayerNorm(12), nn.GELU(), nn.LayerNorm((7, 12)), nn.GroupNorm(7, 7), nn.RMSNorm(12),
        nn.Linear(12, 2),
    )  # fmt: skip


def twice():
    return Model(
        lambda m, x: m.last(torch.tanh(m.layer(torch.tanh(m.layer(x))))),
        layer=nn.Linear(8, 8),
        last=nn.Linear(8, 3),
    )


def tied():
    model = Model(
        lambda m, x: m.head(m.layer(m.embedding(x) + m.positions(torch.arange(x.shape[1])))),
        embedding=nn.Embedding(9, 8), positions=nn.Embedding(10, 8), layer=nn.Linear(8, 8), head=nn.Linear(8, 9),
    )  # fmt: skip
    model.head.weight = model.embedding.weight
    return model


def flat_rows():
    return Model(lambda m, x: m.layer(x.reshape(-1, 8)).view(len(x), -1), layer=nn.Linear(8, 3))


def lstm():
    return Model(
        lambda m, x: m.head(m.lstm(x)[0][:, -1]), lstm=nn.LSTM(8, 5, batch_first=True), head=nn.Linear(5, 3)
    )


def attention():
    return Model(
        lambda m, x: m.head(m.attention(x, x, x, need_weights=False)[0]),
        attention=nn.MultiheadAttention(8, 2, batch_first=True), head=nn.Linear(8, 3),
    )  # fmt: skip


def encoder():
    return nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(8, 3))


def sequence_first():
    return Model(lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1), layer=nn.Linear(8, 3))


def free():
    return Model(
        lambda m, x: m.scale * m.layer(x + m.shift),
        layer=nn.Linear(8, 3), shift=nn.Parameter(torch.randn(7, 8)), scale=nn.Parameter(torch.tensor(0.5)),
    )  # fmt: skip


def scaled():
    """Layers of every kind in a model that needs leaves."""
    return Model(
        lambda m, x: m.norms(torch.tanh(m.cnn(m.scale * x).flatten(1)[:, :1, None] * torch.arange(56).view(7, 8))),
        cnn=cnn(), norms=norms(), scale=nn.Parameter(torch.tensor(0.5)),
    )  # fmt: skip


def functional_too():
    return Model(lambda m, x: m.layer(functional.linear(x, m.layer.weight)), layer=nn.Linear(8, 8))


def padded():
    return Model(
        lambda m, x: m.head(m.embedding(x)), embedding=nn.Embedding(9, 4, padding_idx=2), head=nn.Linear(4, 3)
    )


def unused():
    return Model(
        lambda m, x: m.layer(x),
        layer=nn.Linear(6, 3),
        other=nn.Linear(6, 3),
        free=nn.Parameter(torch.ones(2)),
    )


def weight_norm():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Linear(4, 2))


def starts_at_zero():
    model = functional_too()
    model.last = nn.Linear(8, 3)
    nn.init.zeros_(model.last.weight)
    model.function = lambda m, x: m.last(m.layer(functional.linear(x, m.layer.weight)))
    return model


class Counting(nn.Module):
    """Replaces a buffer in forward, and the output depends on it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count = self.count + 1
        return self.layer(x) * self.count


def branching():
    """What can't be vectorised over lanes: a decision by a value."""
    return Model(
        lambda m, x: m.layer(x) if float(m.layer.weight.detach().sum()) < 1e9 else x, layer=nn.Linear(6, 3)
    )


def by_value():
    """What can't be vectorised at all."""
    return Model(
        lambda m, x: torch.stack([m.free * row if float(row.sum()) > 0 else m.free.square() * row for row in x]),
        free=nn.Parameter(torch.ones(6)),
    )  # fmt: skip


def greatest_norm():
    return Model(
        lambda m, x: m.head(m.embedding(x)), embedding=nn.Embedding(9, 4, max_norm=0.5), head=nn.Linear(4, 3)
    )


def checkpointed():
    return Model(
        lambda m, x: m.last(checkpoint(lambda x: torch.tanh(m.layer(x)), x, use_reentrant=False)),
        layer=nn.Linear(6, 8), last=nn.Linear(8, 3),
    )  # fmt: skip


# What is right lane by lane only.
APART = (padded, branching, checkpointed)

# model, inputs, the way with one lane and with three
MODELS = [
    (mlp, vectors, "layers", "layers"),
    (in_place, vectors, "layers", "layers"),
    (cnn, images, "layers", "layers"),
    (norms, sequences, "layers", "layers"),
    (twice, sequences, "layers", "layers"),
    (tied, tokens, "layers", "layers"),
    (flat_rows, sequences, "layers", "layers"),
    (padded, tokens, "layers", "layers"),
    (unused, vectors, "layers", "layers"),
    (Counting, vectors, "layers", "layers"),
    (branching, vectors, "layers", "layers"),
    (greatest_norm, tokens, "layers", "layers"),
    (checkpointed, vectors, "layers", "layers"),
    (lstm, sequences, "single", "single"),
    (attention, sequences, "leaves", "leaves"),
    (encoder, sequences, "leaves", "leaves"),
    (sequence_first, sequences, "leaves", "leaves"),
    (free, sequences, "leaves", "leaves"),
    (scaled, images, "leaves", "leaves"),
    (functional_too, sequences, "leaves", "leaves"),
    (starts_at_zero, sequences, "leaves", "leaves"),
    (weight_norm, vectors, "leaves", "leaves"),
    (by_value, vectors, "single", "single"),
]


def losses(model, batch):
    return model(batch["x"]).flatten(1).square().mean(1) * batch["weight"][0]


class Case:
    """A model, three lanes of parameters, and their batches."""

    def __init__(self, build, inputs, lanes, dtype):
        draw = torch.Generator().manual_seed(1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = build().to(dtype)
        stack = lambda tensor: torch.stack([tensor.detach() * (1 + 0.2 * lane) for lane in range(lanes)])  # noqa: E731
        self.parameters = {name: stack(tensor) for name, tensor in self.model.named_parameters()}
        self.buffers = {name: stack(tensor) for name, tensor in self.model.named_buffers()}
        x = inputs(draw)[:lanes]
        x = x.to(dtype) if x.is_floating_point() else x
        self.batch = {"x": x, "weight": [torch.rand(3, N, generator=draw).to(dtype)[:lanes]]}
        self.source = Examples(self.model, losses)

    def add(self, sums=None, **options):
        sums = Sums(len(self.batch["x"])) if sums is None else sums
        self.source.add(sums, self.parameters, self.buffers, self.batch, **options)
        return sums

    def gradients(self):
        """[K, n, ...] in float64, by ordinary passes of an ordinary model."""
        return [
            torch.stack(tensors)
            for tensors in zip(*map(self.of_lane, range(len(self.batch["x"]))), strict=True)
        ]

    def of_lane(self, lane):
        examples = []
        for i in range(N):
            model = copy.deepcopy(self.model).double()
            tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            for name, stack in {**self.parameters, **self.buffers}.items():
                tensors[name].data = stack[lane].double().clone()
            x, weight = self.batch["x"][lane, i : i + 1], self.batch["weight"][0][lane, i : i + 1]
            batch = {"x": x.double() if x.is_floating_point() else x, "weight": [weight.double()]}
            trained = [tensors[name] for name in self.parameters]
            loss = losses(model, batch).sum()
            examples.append(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
        return [torch.stack(gradients) for gradients in zip(*examples, strict=True)]


def assert_right(sums, gradients, tolerance):
    squares = sum(g.reshape(len(g), -1).square().sum(1) for g in gradients)
    torch.testing.assert_close(sums.squares["identity"], squares, rtol=tolerance, atol=0)
    scale = float(squares.max()) ** 0.5
    for total, gradient in zip(sums.total, gradients, strict=True):
        torch.testing.assert_close(total.double(), gradient.sum(1), rtol=tolerance, atol=tolerance * scale)
    assert sums.weights.tolist() == [N, N, N]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("build", "inputs", "alone", "together"), MODELS, ids=[row[0].__name__ for row in MODELS]
)
def test_squares_and_totals_are_those_of_single_passes(build, inputs, alone, together, dtype):
    for lanes, way in ((1, alone), (3, together)):
        case = Case(build, inputs, lanes, dtype)
        state = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
        before = {name: tensor.clone() for name, tensor in {**case.parameters, **case.buffers}.items()}
        random = torch.get_rng_state()
        sums = case.add()
        assert_right(sums, case.gradients(), TOLERANCE[dtype])
        assert case.source.way == way
        assert way != "layers" or case.source._plan.together == (build not in APART or lanes == 1)
        assert torch.equal(torch.get_rng_state(), random)
        for name, tensor in {**case.parameters, **case.buffers}.items():
            assert torch.equal(tensor, before[name])
            assert not tensor.requires_grad
        for name, tensor in case.model.state_dict().items():
            assert torch.equal(tensor, state[name])
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in case.model.modules())


@pytest.mark.parametrize("build", [tied, attention, by_value], ids=lambda build: build.__name__)
def test_chunks_change_nothing(build):
    inputs = {tied: tokens, attention: sequences, by_value: vectors}[build]
    case = Case(build, inputs, 3, torch.float64)
    whole = case.add()
    for chunk in (1, 2, N):
        sums = case.add(chunk=chunk)
        torch.testing.assert_close(sums.squares["identity"], whole.squares["identity"], rtol=1e-12, atol=0)
        for one, other in zip(sums.total, whole.total, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("budget", [1, 5_000])
def test_little_memory_changes_nothing(monkeypatch, budget):
    """Also not through blocks of examples within a pass."""
    for build, inputs in ((tied, tokens), (cnn, images), (norms, sequences), (free, sequences)):
        case = Case(build, inputs, 3, torch.float64)
        whole = case.add()
        monkeypatch.setattr(layers, "BUDGET_BYTES", budget)
        torch.testing.assert_close(case.add().squares, whole.squares, rtol=1e-12, atol=0)
        monkeypatch.setattr(examples, "BUDGET_BYTES", budget)
        torch.testing.assert_close(case.add().squares, whole.squares, rtol=1e-12, atol=0)
        monkeypatch.undo()


def test_passes_are_as_large_as_memory_allows(monkeypatch):
    """Sequences of 64 tokens through a linear layer keep 64 (8 + 3) numbers of 4 bytes, and as much again."""
    counts = []

    def counted(model, batch):
        counts.append(len(batch))
        return model(batch).square().mean((1, 2))

    parameters = {name: tensor[None] for name, tensor in nn.Linear(8, 3).named_parameters()}
    source = Examples(nn.Linear(8, 3), counted)
    batch = torch.randn(1, 100, 64, 8)
    source.add(Sums(1), parameters, {}, batch[:, :3])
    monkeypatch.setattr(examples, "BUDGET_BYTES", 2 * 64 * (8 + 3) * 4 * 30)
    counts.clear()
    source.add(Sums(1), parameters, {}, batch)
    assert counts == [25, 25, 25, 25]


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("build", [cnn, norms, tied, free, by_value], ids=lambda build: build.__name__)
def test_other_metrics(build, lanes):
    """A diagonal metric weighs each number of each gradient, so it needs them all."""
    inputs = {cnn: images, tied: tokens, by_value: vectors}.get(build, sequences)
    case = Case(build, inputs, lanes, torch.float64)
    weights = [torch.rand(tensor.shape, dtype=torch.float64) for tensor in case.parameters.values()]
    sums = case.add(Sums(lanes, {**metrics.IDENTITY, "weighed": metrics.diagonal(weights)}), chunk=2)
    gradients = case.gradients()
    assert_right(sums, gradients, 1e-10)
    expected = [
        (weight[:, None] * g**2).reshape(lanes, -1).sum(1)
        for weight, g in zip(weights, gradients, strict=True)
    ]
    torch.testing.assert_close(sums.squares["weighed"], sum(expected), rtol=1e-10, atol=0)


def test_squares_are_summed_in_float64():
    """1 and 4,095 squares of 2^-26, whose sum needs more digits than float32 has."""
    model = nn.Linear(4096, 1, bias=False)
    source = Examples(model, lambda model, x: model(x).squeeze(1))
    x = torch.full((1, 2, 4096), 1.0)
    x[:, :, 1:] = 2.0**-13
    sums = Sums(1)
    source.add(sums, {"weight": torch.zeros(1, 1, 4096)}, {}, x)
    assert sums.squares["identity"].item() == 2 * (1 + 4095 * 2.0**-26)


def test_frozen_parameters_are_buffers():
    case = Case(mlp, vectors, 3, torch.float64)
    case.buffers["0.weight"] = case.parameters.pop("0.weight")
    assert_right(case.add(), case.gradients(), 1e-10)
    assert case.source.way == "layers"


def test_one_lane_after_three():
    """Each has its own check: what a model does inside vmap, it need not do outside."""
    case = Case(padded, tokens, 3, torch.float64)
    case.add()
    case.parameters, case.buffers = (
        {n: t[2:] for n, t in nest.items()} for nest in (case.parameters, case.buffers)
    )
    case.batch = {"x": case.batch["x"][2:], "weight": [case.batch["weight"][0][2:]]}
    assert_right(case.add(), case.gradients(), 1e-10)
    assert case.source._plan.together


@pytest.mark.parametrize(
    ("build", "inputs", "leaves"),
    [
        (attention, sequences, {"attention.in_proj_weight", "attention.in_proj_bias"}),
        (functional_too, sequences, {"layer.weight"}),
        (free, sequences, {"shift", "scale"}),
        (padded, tokens, set()),
    ],
)
def test_as_few_parameters_as_possible_have_leaves(build, inputs, leaves):
    case = Case(build, inputs, 1, torch.float32)
    case.add()
    assert case.source._plan.leaves >= leaves
    assert len(case.source._plan.leaves) <= 2 * len(leaves)


def test_a_turn_not_taken_in_the_check():
    """A way that fits the first examples is left when parameters appear that it does not see."""
    model = Model(
        lambda m, x: m.layer(x) * (m.free if m.turned else 1),
        layer=nn.Linear(6, 3),
        free=nn.Parameter(torch.ones(3)),
    )
    model.turned = False
    source = Examples(model, lambda model, x: model(x).square().sum(1))
    parameters = {name: tensor[None] for name, tensor in model.named_parameters()}
    x = torch.randn(1, N, 6)
    source.add(Sums(1), parameters, {}, x)
    assert source.way == "layers"
    model.turned = True
    sums = Sums(1)
    source.add(sums, parameters, {}, x)
    assert source.way == "single"
    expected = torch.zeros(())
    for row in x[0]:
        gradients = torch.autograd.grad(model(row[None]).square().sum(), list(model.parameters()))
        expected = expected + sum(gradient.square().sum() for gradient in gradients)
    torch.testing.assert_close(sums.squares["identity"][0].float(), expected, rtol=1e-5, atol=0)


def refusals():
    dropout = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3))
    batch_norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))
    mixing = Model(lambda m, x: m.layer(x) - m.layer(x).mean(0), layer=nn.Linear(6, 3))
    return [(dropout, "random numbers"), (batch_norm, "no batch of one example"), (mixing, "don't add up")]


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(("model", "message"), refusals(), ids=["dropout", "batch norm", "mixing"])
def test_what_has_no_single_examples_is_refused(model, message, lanes):
    case = Case(lambda: model, vectors, lanes, torch.float32)
    random = torch.get_rng_state()
    buffers = {
        name: tensor.clone() for name, tensor in {**case.buffers, **dict(model.named_buffers())}.items()
    }
    with pytest.raises(UserError, match=message) as refused:
        case.add()
    assert "micro_batches" in refused.value.remedy
    assert torch.equal(torch.get_rng_state(), random)
    for name, tensor in {**case.buffers, **dict(model.named_buffers())}.items():
        assert torch.equal(tensor, buffers[name])


def test_losses_must_be_one_per_example():
    source = Examples(nn.Linear(6, 3), lambda model, x: model(x).square().mean())
    with pytest.raises(UserError, match="one loss per example"):
        source.add(
            Sums(1), {"weight": torch.ones(1, 3, 6), "bias": torch.ones(1, 3)}, {}, torch.ones(1, N, 6)
        )


@pytest.mark.parametrize("build", [mlp, by_value], ids=lambda build: build.__name__)
def test_an_error_leaves_the_model_as_it_was(build):
    case = Case(build, vectors, 3, torch.float32)
    own = dict(case.model.named_parameters())
    case.add()
    function = case.model.forward

    def broken(x):
        function(x)
        raise RuntimeError("broken")

    case.model.forward = broken
    with pytest.raises(RuntimeError, match="broken"):
        case.add()
    assert all(parameter is own[name] for name, parameter in case.model.named_parameters())
    assert not any(module._forward_hooks for module in case.model.modules())


def test_gradients_that_are_not_finite_settle_nothing():
    """A diverged model is measured as it is, and the way is chosen when gradients are numbers again."""
    case = Case(mlp, vectors, 1, torch.float32)
    good = case.parameters["0.weight"].clone()
    case.parameters["0.weight"] = good * float("nan")
    assert case.add().squares["identity"].isnan().all()
    case.parameters["0.weight"] = good
    assert_right(case.add(), case.gradients(), 1e-5)
    assert case.source.way == "layers"


@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.parametrize("build", [twice, tied, cnn, norms], ids=lambda build: build.__name__)
def test_products_and_gradients_agree(monkeypatch, build, gram):
    """Both ways to a layer's squares, also where uses of one weight multiply each other."""
    monkeypatch.setattr(layers, "_gram_is_cheaper", lambda _: gram)
    case = Case(build, {tied: tokens, cnn: images}.get(build, sequences), 3, torch.float64)
    assert_right(case.add(), case.gradients(), 1e-10)
    assert case.source.way == "layers"
