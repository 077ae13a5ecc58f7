"""Faults that would make runs of a workload wrong or irreproducible, looked for before anything trains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bscrit.engine.lanes import Lanes
from bscrit.engine.precision import storage
from bscrit.engine.seeding import seeded
from bscrit.engine.workload import Workload
from bscrit.measure.nested import tensors_of

_CPU = torch.device("cpu")
_COMPARED = 64  # examples: so many are not all the same by chance


def cast(workload: Workload, seed: int, dtype: str) -> list[str]:
    """A note where a model has numbers of another type than it is trained in."""
    model = _model(workload, seed)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    others = [(name, t.dtype) for name, t in tensors if t.is_floating_point() and t.dtype != storage(dtype)]
    if not others:
        return []
    name, kind = others[0]
    trained = str(storage(dtype)).removeprefix("torch.")
    return [
        f"{name!r} of the model is {str(kind).removeprefix('torch.')} and is trained in {trained}, as "
        f'[compute] dtype = "{dtype}" says'
    ]


def not_finite(lanes: Lanes) -> list[str]:
    """A problem where a gradient of the untrained model on its first batch is not finite."""
    names = [name for name, gradient in lanes.gradients(0).items() if not gradient.isfinite().all()]
    if not names:
        return []
    return [f"losses or gradients are not finite before training: the gradient of {names[0]!r} is the first"]


def not_repeatable(workload: Workload, seed: int, size: int) -> list[str]:
    """Reasons why a run that is interrupted and resumed would be another run.

    Torch's own random numbers are seeded around these calls; what draws from elsewhere is found here.
    """
    name = type(workload).__name__

    def batch(start: int, seed: int = seed) -> list[Tensor]:
        with seeded(_CPU, seed, start):
            return tensors_of(workload.batch(seed, start, size))

    def same(tensors: list[Tensor], others: list[Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(tensors, others, strict=True))

    problems = []
    first = batch(0)
    starts = range(0, max(4 * size, _COMPARED), size)
    if not same(first, batch(0)):
        problems.append(
            f"{name}.batch draws another batch each time: it must depend on (seed, start, size) alone"
        )
    elif workload.examples != size and all(same(first, batch(start)) for start in starts[1:]):
        problems.append(f"{name}.batch returns the same batch at every step: it must depend on `start`")
    elif workload.examples != size and all(same(batch(start), batch(start, seed + 1)) for start in starts):
        problems.append(f"{name}.batch returns the same batches at every seed: it must depend on `seed`")
    state, again = (_model(workload, seed).state_dict() for _ in range(2))
    if any(not torch.equal(tensor, again[key]) for key, tensor in state.items()):
        problems.append(f"{name}.model differs from call to call: it must depend on the seed alone")
    return problems


def _model(workload: Workload, seed: int) -> nn.Module:
    with seeded(_CPU, seed):
        return workload.model(seed)
