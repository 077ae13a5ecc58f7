"""What B_adam is made of along a run with Adam: where its noise lies, and what each choice in its metric does.

    python benchmarks/adam.py              # digits and text at batch sizes 16 and 64
    python benchmarks/adam.py text 64      # one task, one batch size

The gradients of single examples give tr(P Sigma) and G'PG, unbiased, at points along a run; P is 1/(sqrt(v) + eps) in
the metric "adam". "Too small a v" is one below a tenth of E g^2 of a batch, of which v is to be the average. The runs
have constant rates near the best ones of a sweep.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from bscrit.engine.workload import Workload
from bscrit.workloads.classifier import Classifier
from bscrit.workloads.language import Language

TASKS: dict[str, tuple[Callable[[], Workload], dict[int, float]]] = {
    "digits": (Classifier, {16: 0.019, 64: 0.033}),
    "text": (lambda: Language(sequence=32, width=32, validation_tokens=2048), {16: 0.004, 64: 0.006}),
}
BETA2, EPS = 0.999, 1e-8
STEPS = (4, 12, 40, 120)
EXAMPLES, PART = 1280, 64
FRESH = 1_000_003  # a seed whose data the run does not see
Sums = dict[str, tuple[Tensor, Tensor]]
"""Per parameter tr(Sigma) and |G|^2 of every number in it."""


def main(names: list[str], sizes: list[int]) -> None:
    torch.set_num_threads(1)
    for name, size in ((name, size) for name in names for size in sizes):
        make, rates = TASKS[name]
        workload = make()
        workload.prepare("cpu")
        model = workload.model(0)
        optimizer = torch.optim.Adam(model.parameters(), lr=rates[size], betas=(0.9, BETA2), eps=EPS)
        print(f"\n{name}: batch size {size}, rate {rates[size]}")
        for step in range(max(STEPS) + 1):
            if step in STEPS:
                loss = float(workload.evaluate(model).detach())
                report(step, loss, model, optimizer, moments(workload, model), size)
            optimizer.zero_grad()
            workload.losses(model, workload.batch(0, step * size, size)).mean().backward()
            optimizer.step()


def moments(workload: Workload, model: nn.Module) -> Sums:
    """tr(Sigma) and |G|^2 of each number of each parameter, from the gradients of EXAMPLES fresh examples."""
    parameters = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def loss(parameters: Mapping[str, Tensor], example: Tensor) -> Tensor:
        class Called(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return functional_call(model, dict(parameters), (x,))

        batch = tuple(part[None] for part in example) if isinstance(example, tuple) else example[None]
        return workload.losses(Called(), batch)[0]

    of_each = vmap(grad(loss), in_dims=(None, 0))
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in parameters.items()}
    squares = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in parameters.items()}
    for start in range(0, EXAMPLES, PART):
        for name, g in of_each(parameters, workload.batch(FRESH, start, PART)).items():
            total[name] += g.double().sum(0)
            squares[name] += g.double().square().sum(0)
    n = EXAMPLES
    sums = {}
    for name in parameters:
        signal = (total[name].square() - squares[name]) / (n * (n - 1))
        sums[name] = squares[name] / n - signal, signal
    return sums


def report(
    step: int, loss: float, model: nn.Module, optimizer: torch.optim.Adam, sums: Sums, size: int
) -> None:
    """The noise scale in each metric, and where its noise lies."""
    names = list(sums)
    noise, signal = (torch.cat([sums[name][i].flatten() for name in names]) for i in (0, 1))
    raw = torch.cat([optimizer.state[one]["exp_avg_sq"].flatten() for one in model.parameters()]).double()
    v = raw / (1 - BETA2**step)
    now = signal.clamp(min=0) + noise / size
    late = v < now / 10
    metrics = {
        "B_simple": torch.ones_like(v),
        "B_adam": 1 / (v.sqrt() + EPS),
        "B_adam, v not corrected": 1 / (raw.sqrt() + EPS),
        "B_adam, without numbers of v = 0": (v > 0) / (v.sqrt() + EPS),
        "B_adam, eps 1e-6": 1 / (v.sqrt() + 1e-6),
        "B_adam, eps 1e-4": 1 / (v.sqrt() + 1e-4),
        "B_adam, v = E g^2 of a batch now": 1 / (now.sqrt() + EPS),
        "B_adam, without numbers of too small a v": ~late / (v.sqrt() + EPS),
    }
    print(
        f"step {step}, loss {loss:.3f}; v is 0 in {100 * float((v == 0).double().mean()):.0f} % of the numbers"
    )
    for label, weights in metrics.items():
        total = weights * noise
        parts = dict(zip(names, total.split([sums[name][0].numel() for name in names]), strict=True))
        largest = sorted(
            ((float(part.sum() / total.sum()), name) for name, part in parts.items()), reverse=True
        )
        said = ", ".join(f"{100 * share:.0f} % in {name}" for share, name in largest[:2])
        small = 100 * float(total[late].sum() / total.sum())
        scale = float(total.sum() / (weights * signal).sum())
        print(f"  {label:<42}{scale:>9.1f}   noise: {small:3.0f} % where v is below a tenth of E g^2; {said}")


if __name__ == "__main__":
    chosen = [word for word in sys.argv[1:] if word in TASKS] or list(TASKS)
    main(chosen, [int(word) for word in sys.argv[1:] if word.isdigit()] or [16, 64])
