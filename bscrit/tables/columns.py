"""Recognising columns: which one is the batch size, the steps, the metric, under the names that people use.

>>> tidy("trainer/global_step"), tidy("config.batchSize"), direction_of("val/top1_acc")
('trainer_global_step', 'batch_size', 'up')
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from bscrit.errors import UserError, nearest
from bscrit.goal import Direction
from bscrit.tables.sheet import Sheet

# Names in one tier mean the same; a name in an earlier tier wins over one in a later tier.
ROLES: Mapping[str, tuple[str, ...]] = {
    "batch_size": (
        "batch_size batchsize bs bsz gbs global_batch global_batch_size total_batch_size"
        " effective_batch_size train_batch_size training_batch_size",
        "batch b",
    ),
    "steps": (
        "steps_to_target steps_to_goal steps_to_reach steps_to_loss",
        "steps optimizer_steps num_steps n_steps train_steps updates num_updates",
        "global_step trainer_global_step train_global_step optimizer_step",
        "step update iteration iterations iter iters",
        "_step",
    ),
    "examples": (
        "examples_to_target samples_to_target",
        "examples n_examples num_examples examples_seen samples n_samples num_samples samples_seen"
        " consumed_samples",
        "tokens n_tokens num_tokens tokens_seen consumed_tokens images images_seen frames frames_seen",
    ),
    "epochs": ("epochs_to_target", "epochs epoch"),
    "lr": (
        "lr learning_rate",
        "lr_selected base_lr peak_lr max_lr init_lr initial_lr eta",
        "learning_rate_init initial_learning_rate",
        "step_size alpha",
    ),
    "seed": ("seed random_seed rng_seed", "seed_index replicate repeat"),
    "run": ("run run_id run_name run_uuid", "name id trial trial_id experiment"),
    "censored": (
        "censored is_censored",
        "timed_out timedout timeout truncated dnf did_not_converge did_not_finish not_reached unreached",
    ),
    "reached": (
        "reached converged reached_target target_reached reached_goal",
        "success succeeded successful solved is_reached is_converged is_solved goal_reached crossed"
        " hit_target target_hit hit_goal goal_hit met_target target_met",
    ),
    "status": (
        "status",
        "state outcome",
        "exit_reason stop_reason stopping_reason end_reason termination_reason result",
    ),
    "workload": ("workload", "benchmark task problem"),
    "unit": ("unit", "units batch_unit batch_size_unit"),
    "low": ("low",),
    "high": ("high",),
    "role": ("role",),
    "target": ("target", "target_loss loss_target goal threshold"),
}
ALIKE = 0.6
ONE_MEANING = ("batch_size", "steps", "lr", "target")
UNITS = {
    "tokens": "token",
    "tok": "token",
    "images": "image",
    "sequences": "sequence",
    "seqs": "sequence",
    "frames": "frame",
    "seconds": "second",
    "secs": "second",
    "sec": "second",
    "hours": "hour",
    "hrs": "hour",
}


def words(text: str) -> frozenset[str]:
    """The words of a text, for sets of names.

    >>> sorted(words("model data"))
    ['data', 'model']
    """
    return frozenset(text.split())


COMMON = words("to n num number is id total train training global loss seen goal reach target")
UP = words(
    "acc accuracy top1 top5 auc auroc bleu rouge f1 reward return score map miou iou dice precision recall"
)
DOWN = words("loss nll perplexity ppl error err wer cer mse mae rmse xent bpc bpb cost regret fid")
NO_RATE = words("min final end last decay decayed weight warmup")
MOST_TRUTHS = 8
TRUTHS = (
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
    ("t", "f"),
    ("1", "0", "1.0", "0.0"),
)
UNSAID = words("metric value")
APART = words("std stderr sem var min max scale weight time grad norm best")
HELD_OUT = words("val valid validation eval evaluation test dev heldout")
BATCHES = words("batch batchsize bs bsz mbs microbatch")
SHARED = words("micro microbatch mbs local device gpu rank worker replica core chip node host")


@dataclass(frozen=True)
class Columns:
    """Which column plays which role.

    Attributes:
        of: role -> column.
        by: columns that separate fits, in order, the workload first.
        metrics: columns that may hold the loss or another metric, when none was named.
        metric_name: what says the direction of a metric that was named.
        notes: roles that a reader would not guess from the names.
    """

    of: Mapping[str, str]
    by: tuple[str, ...]
    metrics: tuple[str, ...]
    metric_name: str
    notes: tuple[str, ...]

    @property
    def unit(self) -> str:
        """What the names say that a batch size counts, "" where they don't."""
        units = (unit_of(self.of.get(role, "")) for role in ("batch_size", "examples"))
        return next(filter(None, units), "")

    def without(self, role: str) -> Columns:
        """The same columns, none of which plays the role."""
        return replace(self, of={other: column for other, column in self.of.items() if other != role})


def tidy(name: str) -> str:
    """A column's name in lower case with underscores, without the prefix of a tracker."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    name = re.sub(r"^(?:config|params?|summary|metrics|hparams|args)[./]", "", name)
    name = re.sub(r"^(?:params|user_attrs|system_attrs)_", "", name)
    name = re.sub(r"[^a-z0-9%]+", "_", name.lower())
    return name if name in ("_step",) else name.strip("_")


def is_part(name: str) -> bool:
    """Whether a name says the share of a batch that one device takes at a time.

    >>> is_part("per_device_train_batch_size"), is_part("images_per_batch")
    (True, False)
    """
    said = set(tidy(name).split("_"))
    return bool(said & BATCHES and said & SHARED)


def direction_of(name: str) -> Direction | None:
    """Whether a metric of this name gets better downwards or upwards; None where the name doesn't say."""
    for word in reversed(tidy(name).split("_")):
        if word in UP or word in DOWN:
            return "up" if word in UP else "down"
    return None


def option(role: str, column: str) -> str:
    """The option that gives a column its role, as a shell takes it.

    >>> option("steps", "steps to 3.28")
    "--columns 'steps=steps to 3.28'"
    """
    return f"--columns {shlex.quote(f'{role}={column}')}"


def recognise(sheet: Sheet, given: Mapping[str, str], by: Sequence[str]) -> Columns:
    """The roles of a sheet's columns.

    Args:
        given: role, or name of a metric -> column, as the user says.
        by: columns that separate fits.

    Raises:
        UserError: a role or column that doesn't exist, or two columns that could play one role.
    """
    names = list(sheet.frame.columns)
    of, metric_name = _asked(sheet, given)
    separate = tuple(dict.fromkeys(_column(sheet, name, "--by") for name in by))
    free = [column for column in names if column not in of.values() and column not in separate]
    for role, tiers in ROLES.items():
        if role not in of and (column := _pick(sheet, role, tiers, free)) is not None:
            of[role] = column
            free.remove(column)
    metrics = tuple(column for column in free if _may_be_metric(column))
    if "workload" in of:
        separate = (of["workload"], *(column for column in separate if column != of["workload"]))
    notes = tuple(
        f"{role} is {column!r}"
        for role, column in of.items()
        if role != "metric" and tidy(column).rstrip("s") != role.rstrip("s")
    )
    return Columns(of, separate, metrics, metric_name, notes)


def find(sheet: Sheet, role: str, given: Mapping[str, str]) -> str | None:
    """The column of one role, for a sheet whose shape is not settled yet."""
    if given.get(role) in sheet.frame.columns:
        return given[role]
    return _pick(sheet, role, ROLES[role], [c for c in sheet.frame.columns if c not in given.values()])


def choose_metric(sheet: Sheet, columns: Columns) -> tuple[str, str, tuple[str, ...]]:
    """(column, name that says the direction, notes) of the metric; UserError where several may be meant."""
    if "metric" in columns.of:
        return columns.of["metric"], columns.metric_name, ()
    candidates = columns.metrics
    quantities = {_quantity(column) for column in candidates}
    if len(quantities) > 1:
        what = f"has several metrics: {', '.join(candidates)}"
        raise UserError(sheet.name, what, f"choose one: {option('metric', candidates[0])}")
    held_out = [column for column in candidates if HELD_OUT & set(tidy(column).split("_"))]
    chosen = (held_out or [c for c in candidates if "train" not in tidy(c).split("_")] or list(candidates))[0]
    rest = [column for column in candidates if column != chosen]
    notes = (f"the metric is {chosen!r}, not {', '.join(map(repr, rest))}",) if rest else ()
    return chosen, chosen, notes


def require(sheet: Sheet, columns: Columns) -> None:
    """Raise UserError where no column holds the batch size, or none counts steps."""
    if "batch_size" not in columns.of:
        raise _missing(sheet, columns, "batch_size")
    if not {"steps", "examples", "epochs"} & set(columns.of):
        raise _missing(sheet, columns, "steps", "examples")


def _missing(sheet: Sheet, columns: Columns, *roles: str) -> UserError:
    """The error for a table in which no column plays any of some roles; names the most similar column."""
    names = [str(column) for column in sheet.frame.columns]
    known = {alias: role for role in roles for tier in ROLES.get(role, (role,)) for alias in tier.split()}
    for column in (column for column in columns.by if tidy(column) in known):
        what = f"{column!r} holds the {known[tidy(column)].replace('_', ' ')}: a role, not a group"
        raise UserError(f"--by {column}", what, "name a column that separates fits, such as a model's size")
    for role, column in columns.of.items():
        if tidy(column) in known:
            what = f"takes {column!r}, and no other column holds the {known[tidy(column)].replace('_', ' ')}"
            raise UserError(f"--columns {role}={column}", what, f"give {role} another column")
    likeness, column, role = max(
        (
            (SequenceMatcher(None, tidy(column), alias).ratio(), column, role)
            for column in names[:200]
            for alias, role in known.items()
            if _akin(tidy(column), alias)
        ),
        default=(0.0, "", ""),
    )
    expected = " or ".join(role.replace("_", " ") for role in roles)
    what = f"has no column for {expected}; found: {_listed(names)}"
    if "batch_size" in roles and (parts := [name for name in names if is_part(name)]):
        remedy = (
            f"{parts[0]!r} is a part: multiply it by devices and accumulation into a new column batch_size"
        )
        return UserError(sheet.name, what, remedy)
    if likeness > ALIKE:
        return UserError(sheet.name, what, f"is it {column!r}? {option(role, column)}")
    named = ", or name the runs like bs64-lr0.003-s1" if "batch_size" in roles else ""
    return UserError(sheet.name, what, f"say which one it is: --columns {roles[0]}=NAME{named}")


def _akin(name: str, alias: str) -> bool:
    """Whether a name shares a word that means something with an alias, or may be one word misspelled."""
    return "_" not in name or bool((set(name.split("_")) & set(alias.split("_"))) - COMMON)


def _asked(sheet: Sheet, given: Mapping[str, str]) -> tuple[dict[str, str], str]:
    of: dict[str, str] = {}
    metric_name = ""
    for asked, name in given.items():
        role = {"step": "steps", "epoch": "epochs", "example": "examples"}.get(asked, asked)
        if role not in ROLES and role not in UNSAID and direction_of(role) is None:
            if asked in sheet.frame.columns and name in ROLES:
                what = f"{asked}={name} is the wrong way round"
                raise UserError("--columns", what, option(name, asked))
            raise UserError("--columns", f"{asked!r} is no role", nearest(asked, [*ROLES, "metric"]))
        column = _column(sheet, name, f"--columns {asked}={name}")
        if role not in ROLES:
            role, metric_name = "metric", role if direction_of(role) else column
        if role in of or column in of.values():
            raise UserError("--columns", f"names {role!r} or {column!r} twice", "give each role one column")
        of[role] = column
    return of, metric_name


def _column(sheet: Sheet, name: str, where: str) -> str:
    """The column that a user means by a name."""
    names = [str(column) for column in sheet.frame.columns]
    same = [column for column in names if column == name] or [c for c in names if tidy(c) == tidy(name)]
    if len(same) != 1:
        raise UserError(where, f"{sheet.name} has no column {name!r}", nearest(name, names[:200]))
    return same[0]


def _pick(sheet: Sheet, role: str, tiers: Iterable[str], free: Sequence[str]) -> str | None:
    names = {column: tidy(column) for column in free}
    for tier in tiers:
        same = [column for column in free if names[column] in tier.split()]
        if not same and role == "batch_size":
            said = [column for column in free if "batch" in names[column].split("_")]
            same = [column for column in said if unit_of(column) and not is_part(column)]
        if not same and role == "lr":
            same = [column for column in free if _is_rate(names[column])]
        if not same and role == "steps":
            same = [column for column in free if names[column].startswith("steps_to_")]
        if not same and role == "target":
            same = [column for column in free if re.match(r"target_|.*_target$", names[column])]
        if tier != next(iter(tiers)) and role in ("censored", "reached"):
            same = [column for column in same if is_truth(sheet, column)]
        if role == "status":
            same = [column for column in same if sheet.frame[column].dtype.kind not in "iufb"]
        if role == "target":
            same = [column for column in same if not is_truth(sheet, column)]
        if len(same) > 1 and role in ONE_MEANING:
            first, second = (sheet.frame[column] for column in same[:2])
            if not first.reset_index(drop=True).equals(second.reset_index(drop=True)):
                what = f"columns {same[0]!r} and {same[1]!r} may both be {role.replace('_', ' ')}"
                raise UserError(sheet.name, what, f"choose one: {option(role, same[0])}")
        if same:
            return same[0]
    return None


def _is_rate(name: str) -> bool:
    """Whether a name ends in lr or learning_rate, or is lr of an optimizer, as "lr-AdamW" in its tidy form."""
    of_optimizer = re.match(
        r"lr_(?:adam|sgd|lamb|lars|lion|muon|rmsprop|adagrad|adafactor|shampoo|soap)", name
    )
    ends = re.search(r"(?:^|_)(?:lr|learning_rate)$", name)
    return bool(of_optimizer or ends) and not set(name.split("_")) & NO_RATE


def is_truth(sheet: Sheet, column: str) -> bool:
    """Whether a column holds both truth values and nothing else."""
    texts = {text.strip().lower() for text in sheet.frame[column].dropna().astype(str).unique()[:MOST_TRUTHS]}
    return any(texts and texts <= set(pair) for pair in TRUTHS) and not texts <= {"1", "1.0"}


def unit_of(column: str) -> str:
    """The unit that a column's name carries: batch_size_tokens, tokens_per_batch, tokens_seen."""
    parts = tidy(column).split("_")
    return next((UNITS[part] for part in (parts[-1], parts[0]) if part in UNITS), "")


def _may_be_metric(column: str) -> bool:
    said = set(tidy(column).split("_"))
    return bool(said & (UP | DOWN | UNSAID)) and not said & APART


def _quantity(column: str) -> str:
    return "_".join(word for word in tidy(column).split("_") if word not in HELD_OUT | {"train", "training"})


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
