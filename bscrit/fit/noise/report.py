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
    return [line for one in fit.noise for line in _comparison(one, unit)]


def alone(comparisons: Sequence[NoiseComparison], unit: str) -> list[str]:
    """Lines where there is no fit: the windows at each batch size."""
    return [
        line
        for one in comparisons
        for batch_size, windows in one.by_batch_size.items()
        for line in [
            f"{scale_name(one.metric)} at batch size {size(batch_size)}: {_counted(windows)}",
            f"  {'start':<9} {_said(windows.start, unit)}",
            f"  {'mean':<9} {_said(windows.mean_steps, unit)}, over the steps",
            f"  {'':<9} {_said(windows.mean, unit)}, over the progress that each step makes",
            f"  {'end':<9} {_said(windows.at_target, unit)}",
            "",
        ]
    ]


def to_data(one: NoiseComparison) -> dict[str, Any]:
    """As JSON holds it: batch sizes are numbers in a list, not keys."""
    each = [{"batch_size": key, **asdict(windows)} for key, windows in one.by_batch_size.items()]
    plain = asdict(one)
    return {
        **plain,
        "pooled_over": list(one.pooled_over),
        "by_batch_size": each,
        "frozen": list(plain["frozen"]),
    }


def columns(fit: Fit) -> dict[str, float | None]:
    """For a table with a row for each fit: b_simple, b_noise, b_adam and their ratios to B_crit, with intervals."""
    row: dict[str, float | None] = {}
    for one in fit.noise:
        name = scale_name(one.metric).lower()
        for label, estimate in ((name, one.pooled.mean), (f"{name}_ratio", one.ratio)):
            row |= {label: estimate.value, f"{label}_low": estimate.low, f"{label}_high": estimate.high}
    return row


def cells(fit: Fit, batch_size: float) -> list[str]:
    """The mean in each metric at a batch size; ">" before a bound, nothing where nothing is known."""
    each = [one.by_batch_size.get(batch_size) for one in fit.noise]
    return ["" if windows is None else _short(windows.mean) for windows in each]


def ratios(fit: Fit) -> str:
    """Every ratio to B_crit with its verdict, in one cell."""
    parts = [
        f"{scale_name(one.metric)} {f'{shown(one.ratio)} ' if one.ratio.value is not None else ''}({one.verdict})"
        for one in fit.noise
    ]
    return "; ".join(parts) or "not measured"


def _comparison(one: NoiseComparison, unit: str) -> list[str]:
    name = scale_name(one.metric)
    lines = []
    if one.by_batch_size:
        where = sizes(one.pooled_over)
        lines.append(
            f"{name:<9} {_said(one.pooled.mean, unit)}, over the progress of the runs at batch size {where}"
        )
        ends = [("at the start", one.pooled.start), ("at the target", one.pooled.at_target)]
        resolved = [f"{_said(end, unit)} {when}" for when, end in ends if end != Estimate(None)]
        lines += [f"{'':<9} {'; '.join(resolved)}"] if resolved else []
        if one.ratio.value is not None:
            lines.append(f"{'':<9} {shown(one.ratio)} of B_crit: {one.verdict}")
        if one.verdict not in ("agrees", "same order"):
            lines.append(f"{'':<9} {one.text}")
    if one.forecast is not None:
        forecast = one.forecast
        error = (
            f", {shown(forecast.error, 2)} of the measured one" if forecast.error.value is not None else ""
        )
        lines += [
            f"{'forecast':<9} B_crit {_said(forecast.b_crit, unit)}{error}: from {name} at batch size"
            f" {size(forecast.batch_size)} alone",
            f"{'':<9} S_min {shown(forecast.s_min)} steps, E_min {_said(forecast.e_min, unit)}",
        ]
    if one.growth is not None:
        law = one.growth
        lines.append(
            f"{'growth':<9} {name} ~ loss^-a, a = {shown(law.exponent)},"
            f" loss {number(law.high_loss)} to {number(law.low_loss)}"
        )
    lines += [
        f"{'frozen':<9} {name} {_said(frozen.scale, unit)} at loss {number(frozen.loss)}, on fresh data"
        f" ({number(frozen.examples)} {plural(unit)})"
        for frozen in one.frozen
    ]
    return [f"  {line}" for line in lines]


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
