"""The meter on data-parallel ranks: two and three processes that talk over loopback."""

from __future__ import annotations

import multiprocessing
import os
import traceback
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bscrit.meter.noise_meter import NoiseMeter
from bscrit.noise import read_noise

TIMEOUT_SECONDS = 120
SIZES = {2: [[3, 4], [2, 5]], 3: [[3], [4], [7]]}
UNEVEN = {2: [[3, 4, 2], [5]], 3: [[3], [4, 1], [2, 2, 2]]}


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def batches_of(sizes, seed=1):
    """For all ranks, the micro-batches of one step."""
    draw = torch.Generator().manual_seed(seed)
    flat = [
        (torch.randn(n, 5, generator=draw), torch.randn(n, 1, generator=draw)) for rank in sizes for n in rank
    ]
    found = iter(flat)
    return [[next(found) for _ in rank] for rank in sizes]


def by_hand(sizes, weights):
    """n_small, sq_small, n_big, sq_big from all micro-batches of all ranks, in float64."""
    model = mlp()
    rows = []
    for rank in batches_of(sizes):
        for batch in rank:
            grads = torch.autograd.grad(loss(model, batch), list(model.parameters()))
            rows.append(torch.cat([g.double().reshape(-1) for g in grads]).numpy())
    g, m = np.array(rows), np.array([n for rank in sizes for n in rank], float)
    w = np.array([v for rank in weights for v in rank], float)
    w = w / w.sum()
    return 1 / (w / m).sum(), w @ (g**2).sum(1), 1 / (w**2 / m).sum(), ((w @ g) ** 2).sum()


def expected(name, world):
    if name == "uneven":
        return by_hand(UNEVEN[world], [[1 / len(rank)] * len(rank) for rank in UNEVEN[world]])
    if name == "examples":
        return by_hand(UNEVEN[world], UNEVEN[world])
    if name == "examples per rank":
        return by_hand(UNEVEN[world], [[n / sum(rank) for n in rank] for rank in UNEVEN[world]])
    if name == "own passes":
        return by_hand([[3, 3]] * world, [[1, 1]] * world)
    return by_hand(SIZES[world], [[1] * len(rank) for rank in SIZES[world]])


def step(model, meter, sizes, rank, weights="equal"):
    """One step of gradient accumulation, as one does it with DistributedDataParallel."""
    mine = batches_of(sizes)[rank]
    world, total = len(sizes), sum(map(sum, sizes))
    for i, batch in enumerate(mine):
        n = len(batch[0])
        factor = {
            "equal": 1 / len(mine),
            "examples": n * world / total,
            "examples_per_rank": n / sum(sizes[rank]),
        }
        model.require_backward_grad_sync = i == len(mine) - 1
        (loss(model, batch) * factor[weights]).backward()
        meter.micro_batch(n)
    meter.step()


def newest(meter):
    s = meter.samples
    return [float(a[-1]) for a in (s.n_small, s.sq_small, s.n_big, s.sq_big)]


def measure_all(rank, world, group, folder):
    """Samples of every case, as this rank has them; run by each rank."""
    found = {}
    for name in ("plain", "views"):
        model = DistributedDataParallel(mlp(), process_group=group, gradient_as_bucket_view=name == "views")
        meter = NoiseMeter(model, group=group, path=folder / f"{name}{world}.csv", every=1)
        step(model, meter, SIZES[world], rank)
        found[name] = newest(meter)
        update = sum(float(p.grad.double().square().sum()) for p in model.parameters())
        found[f"{name}, update"] = [update]
    for name, weights in (
        ("uneven", "equal"),
        ("examples", "examples"),
        ("examples per rank", "examples_per_rank"),
    ):
        model = DistributedDataParallel(mlp(), process_group=group)
        meter = NoiseMeter(model, group=group, weights=weights, every=1)
        for _ in range(3):
            step(model, meter, UNEVEN[world], rank, weights)
        found[name] = newest(meter)
        found[f"{name}, examples"] = meter.samples.examples.tolist()
    model = DistributedDataParallel(mlp(), process_group=group)
    meter = NoiseMeter(model, group=group, every=1)
    mine = [torch.cat(pair) for pair in zip(*batches_of([[3, 3]] * world)[rank], strict=True)]
    assert meter.measure(loss, mine, parts=2)
    loss(model, mine).backward()
    meter.step()
    found["own passes"] = newest(meter)
    meter = NoiseMeter(model, group=group, every=1, metric="hessian")
    assert meter.measure(loss, [torch.cat([t, t * 0.5]) for t in mine])
    meter.step()
    found["hessian"] = [*meter.samples.signal.tolist(), *meter.samples.noise.tolist()]
    alone = NoiseMeter(mlp(), metric="hessian", group=dist.new_group([rank], use_local_synchronization=True))
    assert alone.measure(loss, [torch.cat([t, t * 0.5]) for t in mine])
    alone.step()
    found["hessian, alone"] = [*alone.samples.signal.tolist(), *alone.samples.noise.tolist()]

    # One rank forgets a call: all ranks drop the step, none waits for another.
    model = DistributedDataParallel(mlp(), process_group=group)
    meter = NoiseMeter(model, group=group, every=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if rank == 1:
            loss(model, batches_of(SIZES[world])[rank][0]).backward()
            meter.step()
        else:
            step(model, meter, [[3]] * world, rank)
    found["forgot"] = [len(caught), meter.result().dropped]
    step(model, meter, SIZES[world], rank)
    found["after"] = newest(meter)
    return found


def mistakes(rank, world, group):
    """How the meter takes ranks that draw the same data, and ranks that hold different parameters."""
    found = {}
    for name, seed, sizes in (("same", 5, SIZES[world][0]), ("others", rank, SIZES[world][rank])):
        model = DistributedDataParallel(mlp(), process_group=group)
        meter = NoiseMeter(model, group=group, every=1)
        for batch in batches_of([sizes], seed)[0]:
            (loss(model, batch) / len(sizes)).backward()
            meter.micro_batch(len(batch[0]))
        meter.step()
        found[name] = [meter.result().samples, meter.result().same]
    model = mlp()
    if rank == 1:
        nn.init.normal_(model[0].weight)
    meter = NoiseMeter(model, group=group, every=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for batch in batches_of(SIZES[world])[rank]:
                loss(model, batch).backward()
                meter.micro_batch(len(batch[0]))
            meter.step()
    told = ["different parameters" in str(warning.message) for warning in caught]
    found["tensor parallel"] = [told, meter.result().samples, meter.measuring]
    return found


def work(rank, folder, queue):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
        world = dist.group.WORLD
        found = {3: measure_all(rank, 3, world, folder) | mistakes(rank, 3, world)}
        pair = dist.new_group([0, 1])
        if rank < 2:
            found[2] = measure_all(rank, 2, pair, folder) | mistakes(rank, 2, pair)
        queue.put((rank, found))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        queue.put((rank, traceback.format_exc()))
        raise


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of three processes, {world: {rank: {case: numbers}}}; and their folder."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=work, args=(rank, folder, queue), daemon=True) for rank in range(3)]
    for rank in ranks:
        rank.start()
    try:
        answers = dict(queue.get(timeout=TIMEOUT_SECONDS) for _ in ranks)
    finally:
        for rank in ranks:
            rank.join(5)
            rank.kill()
    for answer in answers.values():
        assert not isinstance(answer, str), answer
    by_world = {world: {rank: answers[rank][world] for rank in range(world)} for world in (2, 3)}
    return by_world, folder


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    "case", ["plain", "views", "uneven", "examples", "examples per rank", "own passes", "after"]
)
def test_every_rank_has_the_sample_of_all_micro_batches_of_all_ranks(found, world, case):
    for numbers in found[0][world].values():
        assert numbers[case] == pytest.approx(expected(case, world), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_the_signal_is_that_of_the_update(found, world):
    for case in ("plain", "views"):
        for numbers in found[0][world].values():
            assert numbers[case][3] == pytest.approx(numbers[f"{case}, update"][0], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_examples_are_those_of_all_ranks(found, world):
    total = sum(map(sum, UNEVEN[world]))
    for numbers in found[0][world].values():
        assert numbers["uneven, examples"] == [0, total, 2 * total]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_the_hessians_samples_are_averaged(found, world):
    each = np.array([numbers["hessian, alone"] for numbers in found[0][world].values()])
    for numbers in found[0][world].values():
        assert numbers["hessian"] == pytest.approx(each.mean(0), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_a_mistake_on_one_rank_drops_the_step_on_all(found, world):
    by_rank = [numbers["forgot"] for _, numbers in sorted(found[0][world].items())]
    assert by_rank == [[int(rank == 1), 1] for rank in range(world)]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_draw_the_same_data_give_no_sample(found, world):
    for numbers in found[0][world].values():
        assert numbers["same"] == [0, 1]
        assert numbers["others"] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_hold_different_parameters_are_refused_by_all(found, world):
    for numbers in found[0][world].values():
        assert numbers["tensor parallel"] == [[True], 0, False]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_the_first_rank_writes_one_line(found, world):
    read = read_noise(found[1] / f"plain{world}.csv")["identity"]
    assert read.n_big.tolist() == pytest.approx([expected("plain", world)[2]])


def test_ranks_and_micro_batches_are_one_algebra():
    """The same micro-batches in one process give the same sample: the number of ranks does not matter."""
    model = mlp()
    flat = [batch for rank in batches_of(SIZES[3]) for batch in rank]
    meter = NoiseMeter(model)
    for batch in flat:
        (loss(model, batch) / len(flat)).backward()
        meter.micro_batch(len(batch[0]))
    meter.step()
    assert newest(meter) == pytest.approx(expected("plain", 3), rel=1e-5)
