"""Checks that need more than one table: values at each batch size, budgets, and the facts of the workload."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bscrit.errors import UserError
from bscrit.goal import TRAIN_LOSS
from bscrit.preflight import Preflight
from bscrit.spec.spec import Spec
from bscrit.words import counted, plural


def check(spec: Spec, preflight: Preflight) -> tuple[list[UserError], list[str]]:
    """Errors and warnings that need a worker's facts about the workload."""
    return list(_facts_errors(spec, preflight)), list(_warnings(spec, preflight))


def table_errors(spec: Spec) -> Iterator[UserError]:
    """Errors between tables, each of which is valid by itself."""
    yield from _auto_errors(spec)
    yield from _metric_errors(spec)
    yield from _optimizer_errors(spec)
    yield from _budget_errors(spec)
    yield from _noise_errors(spec)


def _auto_errors(spec: Spec) -> Iterator[UserError]:
    sweep, error = spec.sweep, spec.source.error
    if not sweep.auto:
        for key in {"precision", "max_total_examples"} & sweep.model_fields_set:
            what = "has no meaning where batch sizes are listed"
            yield error("sweep", key, what, 'remove it, or set batch_sizes to "auto"')
        return
    few, total = len(spec.candidates()), sweep.max_total_examples
    if few < FEWEST:
        what = f"leaves {counted(few, 'batch size')} to choose from, fewer than {FEWEST}"
        yield error("sweep", "max_examples", what, "raise it, shorten the warm-up, or list the batch sizes")
    if total is not None and total < sweep.max_examples:
        what = f"is less than max_examples = {sweep.max_examples}, which one run may take"
        yield error("sweep", "max_total_examples", what, "raise it to many times that, or lower max_examples")


def _metric_errors(spec: Spec) -> Iterator[UserError]:
    sweep, error = spec.sweep, spec.source.error
    if sweep.metric != TRAIN_LOSS:
        return
    if sweep.direction == "up":
        yield error("sweep", "direction", "contradicts train_loss, which falls", "remove it")
    if sweep.validation_examples is not None:
        what = "has no meaning for train_loss, for which nothing is evaluated"
        yield error("sweep", "validation_examples", what, "remove it, or choose another metric")


def _optimizer_errors(spec: Spec) -> Iterator[UserError]:
    problems: dict[str, list[tuple[str, str]]] = {}
    for size in spec.candidates():
        for key, what, remedy in spec.optimizer.problems(size):
            problems.setdefault(key, []).append((f"{what} at batch size {size}", remedy))
    for key, listed in problems.items():
        yield spec.source.error("optimizer", key, _some([what for what, _ in listed]), listed[0][1])


def _budget_errors(spec: Spec) -> Iterator[UserError]:
    sweep, schedule, error = spec.sweep, spec.schedule, spec.source.error
    too_large = [str(size) for size in sweep.batch_sizes if size > sweep.max_examples]
    if too_large:
        remedy = f"raise it to many times {sweep.batch_sizes[-1]}, or leave out the batch sizes above it"
        yield error(
            "sweep", "max_examples", f"is less than one batch at batch size {_some(too_large)}", remedy
        )
    trainable = [size for size in sweep.batch_sizes if size <= sweep.max_examples]
    for size in [size for size in trainable if schedule.warmup_at(size) > spec.max_steps_at(size)][:1]:
        steps, budget = (counted(f(size), "step") for f in (schedule.warmup_at, spec.max_steps_at))
        what = f"is {steps} at batch size {size}, where the budget is {budget}"
        also = "" if sweep.max_steps is None else " and max_steps"
        remedy = f"shorten the warm-up, or raise [sweep] max_examples{also}"
        yield error("schedule", _declared(spec, "warmup"), what, remedy)
    for size in [s for s in sweep.batch_sizes if schedule.horizon_at(s) <= schedule.warmup_at(s)][:1]:
        steps, end = (counted(f(size), "step") for f in (schedule.warmup_at, schedule.horizon_at))
        what = f"is {end} at batch size {size}, where the warm-up is {steps}"
        remedy = "the horizon includes the warm-up: make it longer, or the warm-up shorter"
        yield error("schedule", _declared(spec, "horizon"), what, remedy)


def _noise_errors(spec: Spec) -> Iterator[UserError]:
    if "adam" in spec.noise.metric and not spec.optimizer.adaptive:
        what = f"names adam, whose second moments {spec.optimizer.use} does not have"
        remedy = 'name "identity" or "hessian", or train with [optimizer] use = "adam"'
        yield spec.source.error("noise", "metric", what, remedy)


def _facts_errors(spec: Spec, facts: Preflight) -> Iterator[UserError]:
    error, sweep, compute, goal = spec.source.error, spec.sweep, spec.compute, spec.goal
    size = f"{facts.examples} {plural(facts.unit)}"
    for problem in facts.problems:
        yield error("workload", "use", problem)
    beyond = [str(size) for size in sweep.batch_sizes if facts.examples is not None and size > facts.examples]
    if beyond:
        what = f"{_some(beyond)} is more than the data set has: {size}"
        yield error("sweep", "batch_sizes", what, f"leave out the batch sizes above {facts.examples}")
    if not math.isfinite(facts.untrained_value):
        what = f"can't be trained: its evaluation before training is {facts.untrained_value}"
        yield error("workload", "use", what, "correct the model, its data or `evaluate`")
    untrained = f"{facts.untrained_value:.4g}"
    measured = spec.noise.at_losses if spec.noise.source != "none" else ()
    for table, key, values, name in (
        ("sweep", "targets", sweep.targets, "targets"),
        ("noise", "at_losses", measured, "values"),
    ):
        met = [f"{value:g}" for value in values if goal.reached(facts.untrained_value, value)]
        if met:
            what = f"{_some(met)} is met before training: the untrained model's {goal.metric} is {untrained}"
            yield error(table, key, what, f"choose {name} {goal.better} {untrained}")
    candidates = spec.candidates(facts.examples)
    if sweep.auto and len(candidates) < FEWEST:
        what = f"finds fewer than {FEWEST} to choose from: the data set has {size}"
        yield error("sweep", "batch_sizes", what, "use more data")
    largest = max(candidates, default=1)
    if compute.micro_batch is not None and compute.micro_batch < largest and not facts.splits:
        remedy = f"leave micro_batch out, or raise it to {largest}"
        yield error("compute", "micro_batch", f"would split batches of {largest}, but {_NO_SUM}", remedy)


def _warnings(spec: Spec, facts: Preflight) -> Iterator[str]:
    source, sweep, schedule = spec.source, spec.sweep, spec.schedule
    if not sweep.auto and len(sweep.batch_sizes) < FEWEST:
        where = source.where("sweep", "batch_sizes")
        yield f"{where}: fewer than three batch sizes identify no B_crit; name three or more, far apart"
    if sweep.seeds == 1:
        where = source.where("sweep", "seeds")
        yield f"{where}: one seed shows no scatter between runs; two or more give honest intervals"
    if spec.noise.source != "none" and not facts.splits:
        where = source.where("noise")
        yield (
            f'{where}: {_NO_SUM}, so no noise scale is measured (source = "none" says so); with group or layer norm '
            "in place of batch norm, and losses that come per example, it can be"
        )
    dead = [s for s in spec.candidates(facts.examples) if schedule.horizon_at(s) < spec.max_steps_at(s)]
    if dead and getattr(schedule, "final", 1.0) == 0:
        where = source.where("schedule", _declared(spec, "horizon"))
        end = counted(schedule.horizon_at(dead[0]), "step")
        yield f"{where}: the rate is 0 from there on: at batch size {dead[0]} nothing is learnt after {end}"


def _declared(spec: Spec, length: str) -> str:
    """The key in which the warm-up or the horizon is declared; the one in steps where neither is."""
    in_examples = f"{length}_examples"
    return in_examples if getattr(spec.schedule, in_examples, None) is not None else f"{length}_steps"


def _some(items: list[str]) -> str:
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    return f"{items[0]}{more}"


FEWEST = 3  # batch sizes that identify a B_crit
_NO_SUM = "this workload's loss is not a sum over examples"
