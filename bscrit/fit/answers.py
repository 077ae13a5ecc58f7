"""Answers beside the fits themselves: overheads, the best batch size by time and cost, laws.

Each answer is plain data for JSON and lines for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor, isfinite, log2
from pathlib import Path
from typing import Any, get_args

from bscrit.errors import UserError, nearest
from bscrit.estimate import Estimate
from bscrit.fit.advice import (
    Option,
    StepCost,
    StepTime,
    advise,
    fastest_batch_size,
    overheads,
    step_cost,
)
from bscrit.fit.law import Against, Law, fit_law
from bscrit.fit.report import Report, title
from bscrit.fit.result import Fit
from bscrit.paths import ResultsPaths
from bscrit.preflight import read_preflight
from bscrit.words import number, plural, shown, size

POWERS: Mapping[str, float] = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
MOST_OPTIONS = 12
SMALLEST, LARGEST = 1e-12, 1e12
RANGE = f"numbers lie between {SMALLEST:g} and {LARGEST:g}"


@dataclass(frozen=True)
class Questions:
    """Questions to the fits.

    Attributes:
        at: batch sizes whose overheads are wanted.
        cost: of a step, from measured seconds.
        devices: numbers of devices to compare.
        law: what B_crit is to be followed along.
    """

    at: tuple[float, ...] = ()
    cost: StepCost | None = None
    devices: tuple[int, ...] = (1,)
    law: Against | None = None


@dataclass(frozen=True)
class Answers:
    """As JSON holds them, and as lines."""

    data: Mapping[str, Any]
    lines: tuple[str, ...]


def answer(report: Report, questions: Questions) -> Answers:
    """Answer every question; where the fits hold no answer, that is a line, and null in the data."""
    data: dict[str, Any] = {}
    lines: list[str] = []
    if questions.at:
        data["overheads"] = [_overheads(fit, questions.at) for fit in report.fits]
        lines += [line for fit in report.fits for line in _overhead_lines(fit, questions.at, report.unit)]
    if cost := questions.cost:
        advice = [_advice(fit, cost, questions.devices, report.unit) for fit in report.fits]
        data |= {"step_cost": asdict(cost), "advice": [each for each, _ in advice]}
        lines += [line for _, said in advice for line in said]
    if questions.law:
        data["law"], said = _law(report, questions.law)
        lines += said
    return Answers(data, tuple(lines))


def parse_questions(
    at: str | None, step_times: str | None, devices: str | None, law: str | None
) -> Questions:
    """The questions of the command line.

    Raises:
        UserError: names the option and the form that it wants.
    """
    against: Against | None = next((each for each in get_args(Against) if each == law), None)
    if law is not None and against is None:
        raise UserError(f"--law {law}", "is not a law that is known", nearest(law, get_args(Against)))
    if devices is not None and step_times is None:
        raise UserError(f"--devices {devices}", "says nothing without --step-times", "give both")
    return Questions(
        at=_numbers("--at", at),
        cost=_step_cost(step_times),
        devices=_devices(devices),
        law=against,
    )


def _step_cost(text: str | None) -> StepCost | None:
    """From seconds per step, "64=0.11,256=0.19"; "512x4=0.15" was measured on 4 devices."""
    if text is None:
        return None
    times = []
    for part in filter(str.strip, text.split(",")):
        match = re.fullmatch(r"\s*([\d.e+]+)(?:x(\d{1,6}))?\s*=\s*([\d.e+-]+)\s*", part)
        try:
            time = StepTime(float(match[1]), float(match[3]), int(match[2] or 1)) if match else None
        except ValueError:
            time = None
        if time is None or not time.devices or not _sensible(time.batch_size) or not _sensible(time.seconds):
            remedy = (
                "write BATCH_SIZE=SECONDS, or BATCH_SIZExDEVICES=SECONDS: --step-times 64=0.11,512x4=0.15; "
                + RANGE
            )
            raise UserError(f"--step-times {part.strip()}", "is not a step time", remedy)
        times.append(time)
    return step_cost(times)


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Positive numbers from "64,256"."""
    if text is None:
        return ()
    try:
        numbers = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or not all(map(_sensible, numbers)):
        raise UserError(
            f"{option} {text}", "is not a list of positive numbers", f"write {option} 64,256; {RANGE}"
        )
    return numbers


def _devices(text: str | None) -> tuple[int, ...]:
    counts = _numbers("--devices", text) or (1.0,)
    if any(count % 1 for count in counts):
        raise UserError(f"--devices {text}", "is not a list of whole numbers", "write --devices 1,2,8")
    return tuple(map(int, counts))


def _sensible(value: float) -> bool:
    """Far from where floating-point numbers end, so that no product of a few of them overflows."""
    return SMALLEST <= value <= LARGEST


def _overheads(fit: Fit, sizes: Sequence[float]) -> dict[str, Any]:
    return {
        "group": dict(fit.group),
        "target": fit.target,
        "at": [
            {
                "batch_size": overhead.batch_size,
                "steps": asdict(_at(fit, overhead.batch_size)),
                "examples": asdict(_at(fit, overhead.batch_size).scaled(overhead.batch_size)),
                "step_overhead": asdict(overhead.steps),
                "example_overhead": asdict(overhead.examples),
            }
            for overhead in overheads(fit, sizes)
        ],
    }


def _overhead_lines(fit: Fit, sizes: Sequence[float], unit: str) -> list[str]:
    lines = [f"{title(fit) or 'fit'}: steps and {plural(unit)}, and how far they lie above S_min and E_min"]
    for overhead in overheads(fit, sizes):
        steps = _at(fit, overhead.batch_size)
        lines += [
            f"  batch size {size(overhead.batch_size)}: {shown(steps)} steps, {_share(overhead.steps)}",
            f"    {shown(steps.scaled(overhead.batch_size))} {plural(unit)}, {_share(overhead.examples)}",
        ]
    return lines


def _at(fit: Fit, batch_size: float) -> Estimate:
    """Steps to the target at any batch size; none where the fit holds no B_crit and does not reach as far."""
    tried = [point.batch_size for point in fit.points if point.robust_weight]
    if fit.curve is None or (fit.b_crit.value is None and not min(tried) <= batch_size <= max(tried)):
        return Estimate(None)
    return fit.curve.steps(batch_size)


def _share(estimate: Estimate) -> str:
    """As per cent above the least: "+20 % [+15 %, +26 %]"."""
    if estimate.value is None and estimate.low is None and estimate.high is None:
        return "unknown"
    ends = [
        None if end is None else f"+{number(100 * end)} %"
        for end in (estimate.value, estimate.low, estimate.high)
    ]
    if ends[0] is None:
        return f"at least {ends[1]}" if ends[1] else f"at most {ends[2]}"
    return f"{ends[0]} [{ends[1] or '...'}, {ends[2] or '...'}]"


def _advice(
    fit: Fit, cost: StepCost, devices: Sequence[int], unit: str
) -> tuple[dict[str, Any] | None, list[str]]:
    name = title(fit) or "fit"
    try:
        advice = advise(fit, cost, _options(fit), devices)
    except UserError as error:
        return None, [f"{name}: no advice, {error.what}"]
    data = {
        "group": dict(fit.group),
        "target": fit.target,
        **asdict(advice),
        "fastest_batch_size": asdict(fastest_batch_size(fit.b_crit, cost, max(devices))),
    }
    return data, [
        f"{name}: a step takes {number(cost.fixed)} s + {number(cost.per_example)} s per {unit} and device",
        f"  least time: {_option(advice.fastest)}",
        f"  least cost: {_option(advice.cheapest)}",
        "  no other choice is better in both time and cost:",
        *(f"    {_option(option)}" for option in advice.trade_off[:MOST_OPTIONS]),
    ]


def _options(fit: Fit) -> list[float]:
    """Batch sizes to compare: powers of two, 1 or more, from far below to far above B_crit."""
    center = log2(fit.b_crit.value or 1.0)
    return [2.0**k for k in range(max(ceil(center - 6), 0), max(floor(center + 6), 0) + 1)]


def _option(option: Option) -> str:
    devices = f" on {option.devices} devices" if option.devices > 1 else ""
    return (
        f"batch size {size(option.batch_size)}{devices}: {number(option.seconds)} s, "
        f"{number(option.device_seconds)} device-seconds"
    )


def _law(report: Report, against: Against) -> tuple[dict[str, Any] | None, list[str]]:
    try:
        law = fit_law(report.fits, against, _sizes(report, against))
    except UserError as error:
        return None, [f"no law: {error.what}; {error.remedy}"]
    return {**asdict(law), "alpha": asdict(law.alpha)}, _law_lines(law, report.unit)


def _law_lines(law: Law, unit: str) -> list[str]:
    lines = [
        f"B_crit against {law.against}: {len(law.points)} fits"
        + (f", {law.left_out} left out" if law.left_out else ""),
        f"  B_crit = {number(law.scale.value or 0.0)} {plural(unit)}"
        f" x {law.against}^{number(law.exponent.value or 0.0)}",
        f"  exponent {shown(law.exponent)}, scatter {100 * law.scatter:.2g} % beyond the intervals of the fits",
    ]
    if law.against == "loss":
        lines.append(f"  alpha_B {shown(law.alpha)} (B_crit = B*/L^(1/alpha_B), Kaplan et al. 2020)")
    return lines


def _sizes(report: Report, against: Against) -> dict[int, float]:
    """Position of each fit -> its parameters or its data, from its results folder or its group."""
    if against == "loss":
        return {}
    sizes = {}
    for index, fit in enumerate(report.fits):
        value = _from_folder(fit.group.get("source", report.source), against) or _from_group(fit, against)
        if value is not None:
            sizes[index] = value
    return sizes


def _from_folder(source: str, against: Against) -> float | None:
    facts = read_preflight(ResultsPaths(Path(source)).preflight)
    if facts is None:
        return None
    value = facts.parameters if against == "parameters" else facts.examples
    return float(value) if value else None


def _from_group(fit: Fit, against: Against) -> float | None:
    """A count in the group, "85M" or 85000000, under a name that speaks of it."""
    words = {"parameters": ("param", "model_size", "model"), "data": ("data", "token", "examples")}[against]
    for name, value in fit.group.items():
        match = re.fullmatch(r"\s*(\d+\.?\d*(?:e[+-]?\d+)?)\s*([kKmMbBgGtT]?)\s*", value)
        if match and any(word in name.lower() for word in words):
            count = float(match[1]) * POWERS[match[2].lower()]
            return count if isfinite(count) else None
    return None
