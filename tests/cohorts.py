"""Cohorts on disk that the loop can train, and what they left."""

from dataclasses import replace
from pathlib import Path

from bscrit.noise_settings import NoiseSettings
from bscrit.order import Order
from bscrit.record import begin, read_record
from bscrit.trial import Trial
from bscrit.workloads.quadratic import Quadratic

SETTINGS = {"dimensions": 30}
ORDER = Order("search", 0, lanes=((0.4, 7), (0.1, 7), (0.2, 7), (50.0, 7)), targets=(0.5, 0.1), max_steps=400)
MEASURE = replace(ORDER, role="measure", lanes=((0.2, 0), (0.2, 1), (0.2, 2)), cap_steps=300)
NETWORK = replace(
    MEASURE,
    lanes=((0.05, 0), (0.05, 1), (0.2, 2)),
    targets=(0.5,),
    max_steps=60,
    noise=NoiseSettings(every=7, metrics=("identity", "hessian"), losses=(1.22,), max_examples=128),
)


def workload():
    return Quadratic(**SETTINGS)


def begun(root: Path, order: Order = ORDER, batch_size: int = 4, **trial) -> list[Path]:
    """The folders of a cohort that the sweep has just begun."""
    folders = []
    for lr, seed in order.lanes:
        one = Trial("quadratic", batch_size, lr, seed, **{"settings": SETTINGS, **trial})
        folders.append(root / one.name)
        begin(folders[-1], one, replace(order))
    return folders


def told(folders):
    """What must be the same however a cohort came to its end: all but the time and the replays that it took."""
    found = []
    for folder in folders:
        record = read_record(folder)
        columns = (record.curve.steps, record.curve.examples, record.curve.loss)
        noise = [c for one in record.noise.values() for c in (one.steps, one.sq_small, one.sq_big)]
        noise += [c for one in record.frozen for c in (one.block_examples, one.sq_small, one.dot)]
        facts = {
            key: value
            for key, value in record.facts.items()
            if "seconds" not in key and "replayed" not in key
        }
        curves = [column.tobytes() for column in (*columns, *noise)]
        found.append((record.trial.lr, record.trial.seed, record.status, record.reason, facts, curves))
    return found
