"""A sweep to accuracies is the sweep to error rates that are one minus them, in everything but what it shows."""

import re

import numpy as np
import pytest
from inprocess import InProcess, Silent, offer, on

from bscrit import fit
from bscrit.crossing import steps_to
from bscrit.errors import UserError, UserErrors
from bscrit.spec import parse_spec
from bscrit.sweep.drive import drive
from bscrit.sweep.summary import summary

MODULE = '''
import torch
from torch import nn
from torch.nn import functional
from bscrit.engine.seeding import generator, seeded

class Points:
    """Two clouds of points, told apart by a small network; 1,024 of them validate, so that shares are exact."""

    unit = "point"

    def __init__(self):
        self.held_out = self.draw(generator(5), 1024)

    def draw(self, source, size):
        labels = torch.randint(2, (size,), generator=source)
        return torch.randn(size, 6, generator=source) + 0.8 * (2 * labels[:, None] - 1), labels

    def model(self, seed):
        with seeded(torch.device("cpu"), seed):
            return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def batch(self, seed, start, size):
        return self.draw(generator(seed, start, size), size)

    def losses(self, model, batch):
        points, labels = batch
        return functional.cross_entropy(model(points), labels, reduction="none")

    def evaluate(self, model):
        points, labels = self.held_out
        right = (model(points).argmax(-1) == labels).double().mean()
        return {"accuracy": right, "error": 1 - right}
'''


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Results and view of the sweep to a metric, by its name."""
    folder = tmp_path_factory.mktemp("points")
    (folder / "points_module.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        offer(patch, folder, mock=lambda _: InProcess())

        def sweep(metric, **keys):
            tables = {
                "workload": {"use": "points_module:Points"},
                "sweep": {
                    "batch_sizes": [4, 16, 64], "seeds": 2, "max_examples": 20_000, "max_steps": 500,
                    "metric": metric, **keys,
                },
                "noise": {"parts": 2},
                "compute": {"device": "cpu", "lanes": "loop"},
            }  # fmt: skip
            return drive(on(parse_spec(tables, metric, folder), "mock"), folder / metric, Silent())

        up = sweep("accuracy", direction="up", targets=[0.75, 0.9375])
        yield {"accuracy": up, "error": sweep("error", targets=[0.25, 0.0625]), "sweep": sweep}


def by_run(outcome):
    return {
        (r.role, r.trial.batch_size, r.trial.lr, r.trial.seed, len(r.order.targets)): r
        for r in outcome.results.records
    }


def test_it_trains_the_same_runs_to_the_same_crossings(swept):
    up, down = by_run(swept["accuracy"]), by_run(swept["error"])
    assert up.keys() == down.keys()
    assert {"measure", "search"} == {role for role, *_ in up}
    for run, record in up.items():
        other = down[run]
        assert (record.status, record.curve.steps.tobytes()) == (other.status, other.curve.steps.tobytes())
        assert (1 + record.curve.loss).tolist() == other.curve.loss.tolist()
        for target, error in ((0.75, 0.25), (0.9375, 0.0625)):
            assert steps_to([record.curve], target) == steps_to([other.curve], error)
        for one, same in zip(record.noise.values(), other.noise.values(), strict=True):
            assert one.sq_small.tobytes() == same.sq_small.tobytes()
        assert record.trial.key != other.trial.key


def test_what_is_stored_and_shown_is_the_accuracy(swept):
    outcome = swept["accuracy"]
    record = next(r for r in outcome.results.records if r.status == "reached")
    assert re.match(r"(mean )?accuracy 0\.\d+ ", record.reason)
    stored = np.genfromtxt(record.folder / "curve.csv", delimiter=",", names=True)
    assert stored["accuracy"].tolist() == (-record.curve.loss).tolist()
    assert "steps to 0.75  " in summary(outcome)
    report = fit(outcome.results.folder)
    assert [one.target for one in report.fits] == [0.75, 0.9375]
    assert "target 0.9375" in str(report)
    same = fit(swept["error"].results.folder)
    assert [one.points for one in report.fits] == [one.points for one in same.fits]
    assert [one.b_crit for one in report.fits] == [one.b_crit for one in same.fits]


def test_a_metric_that_is_not_evaluated_is_refused(swept):
    with pytest.raises(UserError, match="'acuracy'") as error:
        swept["sweep"]("acuracy", targets=[0.5])
    assert "accuracy" in error.value.remedy
    with pytest.raises(UserError, match="'loss'"):
        swept["sweep"]("loss", targets=[0.5])


def test_an_accuracy_that_the_untrained_model_has_is_refused(swept):
    with pytest.raises(UserErrors, match="untrained model's accuracy is") as errors:
        swept["sweep"]("accuracy", direction="up", targets=[0.01, 0.9])
    assert "choose targets above" in errors.value.errors[0].remedy
