"""Notes on a table that may mean something else than it says: parts of a batch, and budgets taken for arrivals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bscrit.crossing import Crossing
from bscrit.tables.columns import Columns, is_part, tidy, words
from bscrit.tables.keys import labels
from bscrit.tables.numerals import parse_number
from bscrit.tables.sheet import Sheet
from bscrit.words import sizes

WHOLE = words("global total effective gbs")
MULTIPLIERS = words(
    "gradient_accumulation_steps gradient_accumulation grad_accumulation_steps grad_accumulation"
    " grad_accum_steps grad_accum grad_acc_steps accumulation_steps accumulation accum_steps accum"
    " accumulate_grad_batches num_gpus n_gpus n_gpu ngpus gpus num_devices n_devices devices world_size"
    " num_replicas replicas num_nodes nodes dp dp_size data_parallel_size"
)
COARSE = 100  # counts below it are equal by chance


def parts_of_batches(sheet: Sheet, columns: Columns) -> list[str]:
    """Notes where the batch size may be that of one device or of one pass."""
    size = columns.of["batch_size"]
    if WHOLE & set(tidy(size).split("_")):
        return []
    notes = []
    for column in sheet.frame.columns:
        if tidy(column) not in MULTIPLIERS or column in columns.of.values():
            continue
        counts = {parse_number(word) for word in set(labels(sheet, column))}
        most = max((count for count in counts if count is not None and count > 1), default=None)
        if most is not None:
            notes.append(
                f"{size!r} is taken as the whole batch; {column!r} is {'up to ' * (len(counts) > 1)}{most:g}:"
                f" multiply if {size!r} counts one part"
            )
    if is_part(size) and not notes:
        notes.append(f"{size!r} is taken as the whole batch; its name says a part, to be multiplied first")
    return notes


def budgets(columns: Columns, crossings: Sequence[Crossing]) -> list[str]:
    """A note where the largest count is the same at several batch sizes, and nothing says which runs arrived."""
    if {"censored", "reached", "status"} & set(columns.of):
        return []
    fits: dict[object, list[Crossing]] = {}
    for crossing in crossings:
        fits.setdefault((crossing.group, crossing.target), []).append(crossing)
    for members in fits.values():
        for noun in ("steps", "examples"):
            counts = np.array([getattr(crossing, noun) for crossing in members])
            most = counts.max()
            at = [members[i].batch_size for i in np.flatnonzero(np.isclose(counts, most, rtol=1e-9, atol=0))]
            if len(set(at)) > 1 and most >= COARSE:
                return [
                    f"{noun} are exactly {most:.10g} at batch size {sizes(sorted(set(at)))}: if that is a"
                    " budget, mark these rows in a column censored"
                ]
    return []
