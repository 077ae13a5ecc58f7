"""Noise scales as lines for people, as plain data for JSON, and as columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bscrit.estimate import Estimate
from bscrit.fit.result import Fit, NoiseComparison, NoiseWindows
from bscrit.words import counted, number, plural, scale_name, shown, size, sizes

UNRESOLVED = "not resolved"
NO_FIT = (
    "there is no B_crit to compare with: a fit of runs takes this file by --noise, and sets both side by side"
)


def block(fit: Fit, unit: str) -> list[str]:
    """The lines of a fit's block."""
    return [line for compared in fit.noise for line in _comparison(compared, unit)]


def alone(comparisons: Sequence[NoiseComparison], unit: str) -> list[str]:
    """Lines where there is no fit: the windows at each batch size."""
    lines = []
    for compared in comparisons:
        for batch_size, windows in compared.by_batch_size.items():
            lines += [
                f"{scale_name(compared.metric)} at batch size {size(batch_size)}: {_counted(windows)}",
                f"  {'start':<9} {_said(windows.start, unit)}",
                f"  {'mean':<9} {_said(windows.mean_steps, unit)}, over the steps",
                f"  {'':<9} {_said(windows.mean, unit)}, over the progress that each step makes",
                f"  {'end':<9} {_said(windows.at_target, unit)}",
                "",
            ]
    return lines


def to_data(compared: NoiseComparison) -> dict[str, Any]:
    """As JSON holds it: batch sizes are numbers in a list, not keys."""
    each = [{"batch_size": key, **asdict(windows)} for key, windows in compared.by_batch_size.items()]
    lists = {
        "pooled_over": list(compared.pooled_over),
        "frozen": [asdict(frozen) for frozen in compared.frozen],
    }
    return {**asdict(compared), **lists, "by_batch_size": each}


def columns(fit: Fit) -> dict[str, float | None]:
    """For a table with a row for each fit: b_simple, b_noise, b_adam and their ratios to B_crit, with intervals."""
    row: dict[str, float | None] = {}
    for compared in fit.noise:
        name = scale_name(compared.metric).lower()
        for label, estimate in ((name, compared.pooled.mean), (f"{name}_ratio", compared.ratio)):
            row |= {label: estimate.value, f"{label}_low": estimate.low, f"{label}_high": estimate.high}
    return row


def cells(fit: Fit, batch_size: float) -> list[str]:
    """The mean in each metric at a batch size; ">" before a bound, nothing where nothing is known."""
    means = [c.by_batch_size[batch_size].mean if batch_size in c.by_batch_size else None for c in fit.noise]
    return ["" if mean is None else _short(mean) for mean in means]


def ratios(fit: Fit) -> str:
    """Every ratio to B_crit with its verdict, in one cell."""
    parts = [
        (scale_name(c.metric), shown(c.ratio) if c.ratio.value is not None else "", f"({c.verdict})")
        for c in fit.noise
    ]
    return "; ".join(" ".join(filter(None, part)) for part in parts) or "not measured"


def _comparison(compared: NoiseComparison, unit: str) -> list[str]:
    name, pooled, lines = scale_name(compared.metric), compared.pooled, list[tuple[str, str]]()
    if compared.by_batch_size:
        where = f"over the progress of the runs at batch size {sizes(compared.pooled_over)}"
        lines.append((name, f"{_said(pooled.mean, unit)}, {where}"))
        ends = [("at the start", pooled.start), ("at the target", pooled.at_target)]
        resolved = [f"{_said(end, unit)} {when}" for when, end in ends if end != Estimate(None)]
        lines += [("", "; ".join(resolved))] if resolved else []
        if compared.ratio.value is not None:
            lines.append(("", f"{shown(compared.ratio)} of B_crit: {compared.verdict}"))
        if compared.verdict not in ("agrees", "same order"):
            lines.append(("", compared.text))
    if (forecast := compared.forecast) is not None:
        measured = forecast.error.value is not None
        error = f", {shown(forecast.error, 2)} of the measured one" if measured else ""
        whence = f"from {name} at batch size {size(forecast.batch_size)} alone"
        lines.append(("forecast", f"B_crit {_said(forecast.b_crit, unit)}{error}: {whence}"))
        lines.append(("", f"S_min {shown(forecast.s_min)} steps, E_min {_said(forecast.e_min, unit)}"))
    if (law := compared.growth) is not None:
        losses = f"loss {number(law.high_loss)} to {number(law.low_loss)}"
        lines.append(("growth", f"{name} ~ loss^-a, a = {shown(law.exponent)}, {losses}"))
    for frozen in compared.frozen:
        data = f"on fresh data ({number(frozen.examples)} {plural(unit)})"
        lines.append(("frozen", f"{name} {_said(frozen.scale, unit)} at loss {number(frozen.loss)}, {data}"))
    return [f"  {label:<9} {text}" for label, text in lines]


def _counted(windows: NoiseWindows) -> str:
    dropped = f", {windows.dropped} more were not finite" if windows.dropped else ""
    return f"{counted(windows.samples, 'sample')}{dropped}"


def _said(estimate: Estimate, unit: str) -> str:
    """A scale with its unit; "not resolved" is no number."""
    if estimate.value is not None:
        return f"{shown(estimate)} {plural(unit)}"
    if estimate.low is not None:
        return f"{UNRESOLVED}, at least {number(estimate.low)} {plural(unit)}"
    return UNRESOLVED


def _short(estimate: Estimate) -> str:
    if estimate.value is not None:
        return number(estimate.value)
    return "" if estimate.low is None else f">{number(estimate.low)}"
