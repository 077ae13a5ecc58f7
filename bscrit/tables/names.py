"""Names of columns: the words that people use for roles, metrics, units and settings.

>>> tidy("trainer/global_step"), tidy("config.batchSize"), direction_of("val/top1_acc")
('trainer_global_step', 'batch_size', 'up')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from bscrit.goal import Direction


def words(text: str) -> frozenset[str]:
    """The words of a text, for sets of names.

    >>> sorted(words("model data"))
    ['data', 'model']
    """
    return frozenset(text.split())


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
        " consumed_samples samples_count",
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
ALIASES = {alias: role for role, tiers in ROLES.items() for tier in tiers for alias in tier.split()}
UNITS = {
    alias: unit
    for unit, aliases in {
        "token": "tokens tok",
        "image": "images",
        "sequence": "sequences seqs",
        "frame": "frames",
        "second": "seconds secs sec",
        "hour": "hours hrs",
    }.items()
    for alias in aliases.split()
}
UP = words(
    "acc accuracy top1 top5 auc auroc bleu rouge f1 reward return score map miou iou dice precision recall"
)
DOWN = words("loss nll perplexity ppl error err wer cer mse mae rmse xent bpc bpb cost regret fid")
UNSAID = words("metric value")
APART = words("std stderr sem var min max scale weight time grad norm best")
HELD_OUT = words("val valid validation eval evaluation test dev heldout")
CONFOUNDERS = words(
    "model model_name model_size params parameters n_params num_params n_parameters size arch architecture"
    " dataset dataset_name data series"
)
_BATCHES = words("batch batchsize bs bsz mbs microbatch")
_SHARED = words("micro microbatch mbs local device gpu rank worker replica core chip node host")
_RATE = re.compile(
    r"(?:^|_)(?:lr|learning_rate)$|^lr_(?:adam|sgd|lamb|lars|lion|muon|rmsprop|adagrad|adafactor|shampoo|soap)"
)
_NO_RATE = words("min final end last decay decayed weight warmup")


@lru_cache(maxsize=10_000)  # a log has a few names in every line
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
    return bool(said & _BATCHES and said & _SHARED)


def direction_of(name: str) -> Direction | None:
    """Whether a metric of this name gets better downwards or upwards; None where the name doesn't say."""
    for word in reversed(tidy(name).split("_")):
        if word in UP or word in DOWN:
            return "up" if word in UP else "down"
    return None


def unit_of(column: str) -> str:
    """The unit that a column's name carries: batch_size_tokens, tokens_per_batch, tokens_seen."""
    parts = tidy(column).split("_")
    return next((UNITS[part] for part in (parts[-1], parts[0]) if part in UNITS), "")


def also_says(column: str, role: str) -> bool:
    """Whether a name that is none of ROLES says a role nevertheless.

    >>> also_says("optimizer.lr", "lr"), also_says("min_lr", "lr"), also_says("steps to 3.28", "steps")
    (True, False, True)
    """
    name = tidy(column)
    match role:
        case "batch_size":
            return "batch" in name.split("_") and bool(unit_of(column)) and not is_part(column)
        case "lr":
            return _RATE.search(name) is not None and not set(name.split("_")) & _NO_RATE
        case "steps":
            return name.startswith("steps_to_")
        case "target":
            return re.match(r"target_|.*_target$", name) is not None
    return False


@lru_cache(maxsize=10_000)
def may_be_metric(column: str) -> bool:
    """Whether a name says a loss or another metric, and not its spread or a weight."""
    said = set(tidy(column).split("_"))
    return bool(said & (UP | DOWN | UNSAID)) and not said & APART


def is_held_out(column: str) -> bool:
    """Whether a name says that a metric is of data that are not trained on."""
    return bool(HELD_OUT & set(tidy(column).split("_")))
