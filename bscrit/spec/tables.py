"""The tables of a spec, one class each: their keys, defaults, ranges and meanings.

A table whose keys depend on a choice (`use`, `tune`) is one class for each choice; optimizers and schedules are in
`bscrit.recipe`. Descriptions are shown by editors, by way of the JSON Schema.
"""

from __future__ import annotations

import itertools
import math
import re
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema

from bscrit.curve import curve_header
from bscrit.goal import Goal
from bscrit.plugins import executor_problem, workload_problem
from bscrit.recipe.optimizers import OPTIMIZERS
from bscrit.recipe.schedules import SCHEDULES
from bscrit.spec.noise import NoiseTable
from bscrit.values import Real, Table, Whole, choosing, each_once, kind, refuse

_TUNE = "How the learning rate is found at each batch size."
Rate = Annotated[float, Real(low=0, open_low=True)]


def _plain(value: Any) -> Any:
    """A setting as JSON and a hash hold it without loss: it becomes part of a trial's identity."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict | date | time):
        refuse(f"must not hold {kind(value)}", "settings are numbers, strings, booleans and lists of them")
    if isinstance(value, float) and not math.isfinite(value):
        refuse("must be finite", "settings are numbers, strings, booleans and lists of them")
    if isinstance(value, int) and abs(value) >= 2**63:
        refuse("is too large", "whole numbers have 64 bits at most")
    return value


def _workload(use: str, info: ValidationInfo) -> str:
    if (info.context or {}).get("restored"):
        return use
    if problem := workload_problem(use, _folder(info)):
        refuse(*problem)
    return use


def _folder(info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", ""))


class WorkloadTable(Table):
    """The workload to train; other keys than `use` are its settings."""

    use: Annotated[str, AfterValidator(_workload)] = Field(
        description="The workload: a built-in workload, one that an installed package provides, "
        'or your own class as "my_module:MyWorkload".',
        examples=["classifier", "language", "quadratic", "least_squares", "my_module:MyWorkload"],
    )
    settings: dict[str, Annotated[Any, AfterValidator(_plain)]] = Field(default_factory=dict)
    folder: Path = Path()

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, table: Any, info: ValidationInfo) -> Any:
        """The folder comes from the reader, never from TOML: there it is a setting like any other."""
        if not isinstance(table, dict):
            return table
        settings = {key: value for key, value in table.items() if key != "use"}
        use = {"use": table["use"]} if "use" in table else {}
        return {**use, "settings": settings, "folder": _folder(info)}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["properties"] = {"use": schema["properties"]["use"]}
        plain = ["string", "number", "boolean", "array"]
        schema["additionalProperties"] = {"type": plain, "description": "A setting of the workload."}
        return schema


def _sizes(value: Any, read: ValidatorFunctionWrapHandler) -> tuple[int, ...]:
    """The list in ascending order; for the word "auto" no batch size is listed."""
    if value == "auto":
        return ()
    if isinstance(value, str):
        refuse("must be a list, not a string", 'write it as batch_sizes = [...], or "auto"')
    return tuple(sorted(each_once(read(value), "batch size")))


def _targets(targets: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    if not targets:
        refuse("is empty", "name at least one target")
    goal = Goal(direction=info.data.get("direction", "down"))
    for earlier, later in itertools.pairwise(targets):
        if goal.reached(earlier, later):
            change = "falls" if later < earlier else "rises"
            what = f"holds {later:g} twice" if later == earlier else f"{change} from {earlier:g} to {later:g}"
            ordered = ", ".join(
                f"{target:g}" for target in sorted(set(targets), key=goal.falls, reverse=True)
            )
            other = "" if goal.direction == "up" else '; for a metric that rises, [sweep] direction = "up"'
            refuse(what, f"each target once, the hardest ({goal.best}) last: [{ordered}]{other}")
    return targets


def _metric(metric: str) -> str:
    if not metric.strip() or "," in metric or not metric.isprintable():
        refuse("is no name of a metric", "name a key of what `evaluate` returns, without commas")
    if metric in curve_header(Goal("")).split(","):
        refuse("is the name of another column of curve.csv", "give the metric another name in `evaluate`")
    return metric


class SweepTable(Table):
    """At which batch sizes to train, to which targets, and how long at most."""

    batch_sizes: Annotated[
        tuple[Annotated[int, Whole(low=1)], ...],
        WrapValidator(_sizes),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "minItems": 1, "items": Whole(low=1).json_schema()},
                    {"const": "auto"},
                ]
            }
        ),
    ] = Field(
        description="Batch sizes to train at, in the workload's unit; powers of two or four reach far. auto begins "
        "with three and adds those that narrow the interval of B_crit most for what they cost.",
    )
    metric: Annotated[str, AfterValidator(_metric)] = Field(
        default="loss",
        description="What the targets refer to, where the workload's `evaluate` returns a mapping of several; one that "
        "returns a single number calls it loss. train_loss is the mean of the batch losses, for which nothing is "
        "evaluated. A change makes every trial anew.",
    )
    validation_examples: Annotated[int | None, Whole(low=1)] = Field(
        default=None,
        description="Most examples of the validation set that one evaluation takes, the same ones each time; all when "
        "left out. A change makes every trial anew.",
    )
    direction: Literal["down", "up"] = Field(
        default="down",
        description="Whether the metric gets better downwards, or upwards as accuracies and returns.",
    )
    targets: Annotated[tuple[Annotated[float, Real()], ...], AfterValidator(_targets)] = Field(
        description="Values of the metric to reach, the hardest last: the lowest, or the highest where direction is "
        "up. All come from the same runs.",
        json_schema_extra={"minItems": 1},
    )
    seeds: Annotated[int, Whole(low=1, high=1000)] = Field(
        default=3, description="Runs of the best learning rate at each batch size, each from another seed."
    )
    first_seed: Annotated[int, Whole(low=0, high=2**31)] = Field(
        default=0, description="Number from which seeds are counted; another one gives an independent sweep."
    )
    max_examples: Annotated[int, Whole(low=1)] = Field(
        description="Most examples that one run may train on, in the workload's unit."
    )
    max_steps: Annotated[int | None, Whole(low=1)] = Field(
        default=None, description="Most steps that one run may take, besides max_examples."
    )
    precision: Annotated[float, Real(low=0.01, high=1)] = Field(
        default=0.1,
        description='With batch_sizes = "auto": half-width of the 95 % interval of ln(B_crit) at the hardest target, '
        "0.1 for about 10 %, at which the sweep ends.",
    )
    max_total_examples: Annotated[int | None, Whole(low=1)] = Field(
        default=None,
        description='With batch_sizes = "auto": examples of all runs together beyond which no further batch size is '
        "added; when left out, precision alone ends the sweep, or a limit of 20 batch sizes.",
    )

    @property
    def auto(self) -> bool:
        """Whether the sweep chooses its batch sizes; then none is listed."""
        return not self.batch_sizes


class Race(Table):
    """Tune at each batch size by racing: rates start together and those that cannot win are stopped."""

    tune: Literal["race"] = Field(default="race", description=_TUNE)
    guess: Annotated[float | None, Real(low=0, open_low=True)] = Field(
        default=None,
        description="Rate from which the search starts at the smallest batch size; "
        "0.1 (1 - momentum) for sgd and 0.001 for adaptive optimizers when left out.",
    )


class Grid(Table):
    """Tune at each batch size by trying the same list of rates."""

    tune: Literal["grid"] = Field(description=_TUNE)
    rates: Annotated[
        tuple[Rate, ...], AfterValidator(lambda rates: tuple(sorted(each_once(rates, "rate"))))
    ] = Field(
        description="Rates to try at each batch size; neighbours at most a factor sqrt(2) apart tune well.",
        json_schema_extra={"minItems": 1},
    )


class Rule(Table):
    """Scale one rate with the batch size, untuned; the fit then measures the rule and not the model."""

    tune: Literal["rule"] = Field(description=_TUNE)
    base: Rate = Field(description="Learning rate at the base batch size.")
    base_batch_size: Annotated[int, Whole(low=1)] = Field(
        description="Batch size at which `base` is right, in the workload's unit."
    )
    scaling: Literal["linear", "sqrt"] = Field(
        description="Whether the rate grows with the batch size or with its square root."
    )


def _device(device: str) -> str:
    if not re.fullmatch(_DEVICE, device):
        refuse("is not a device that is known", 'allowed: "auto", "cpu", "cuda", "cuda:0" (and so on), "mps"')
    return device


def _executor(name: str, info: ValidationInfo) -> str:
    problem = None if (info.context or {}).get("restored") else executor_problem(name)
    return refuse(*problem) if problem else name


class ComputeTable(Table):
    """Where and how the runs train; but for `dtype` it changes their cost, never their curves."""

    executor: Annotated[str, AfterValidator(_executor)] = Field(
        default="local",
        description="What starts the workers: local for processes of this machine, or the name of an executor that an "
        "installed package provides.",
        examples=["local"],
    )
    workers: Annotated[int | Literal["auto"], Whole(low=1, high=1024, word="auto")] = Field(
        default="auto", description="Processes that train at the same time; auto chooses by device and cores."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        default="auto",
        description="Where to train; auto takes a GPU where there is one.",
        json_schema_extra={"pattern": "^(auto|cpu|cuda(:[0-9]+)?|mps)$"},
    )
    micro_batch: Annotated[int | None, Whole(low=1)] = Field(
        default=None,
        description="Most examples that fit into memory at once; larger batches are accumulated.",
    )
    dtype: Literal["float32", "float64", "tf32", "bfloat16"] = Field(
        default="float32",
        description="What is computed in, part of a run's identity: tf32 rounds products of float32 matrices where the "
        "device can, bfloat16 runs the forward pass in it (autocast), parameters and updates stay in float32.",
    )
    lanes: Literal["auto", "vmap", "loop"] = Field(
        default="auto", description="Runs as one vectorised model, one after the other, or what is faster."
    )
    execution: Literal["replay", "eager", "compile"] = Field(
        default="replay",
        description="replay: steps of a workload that says that it is replayable are recorded, and the operations run "
        "again, with the same results to the last bit. eager: as the code says. compile: kernels that torch.compile "
        "makes, on a GPU as CUDA graphs; they round otherwise, and take seconds for every shape of a cohort.",
    )
    threads: Annotated[int, Whole(low=1, high=1024)] = Field(
        default=1, description="CPU threads of each worker."
    )


LearningRateTable = Annotated[
    Race | Grid | Rule, Field(discriminator="tune"), BeforeValidator(choosing("tune", "race"))
]
TABLES: dict[str, tuple[type[Table], ...]] = {
    "workload": (WorkloadTable,),
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "sweep": (SweepTable,),
    "learning_rate": (Race, Grid, Rule),
    "noise": (NoiseTable,),
    "compute": (ComputeTable,),
}
"""Each table and what it may be; where there are several, the first key of each says which."""


_DEVICE = r"auto|cpu|mps|cuda(:\d{1,3})?"
