"""What is said of cohorts of which nothing is heard."""

import os

from bscrit.order import Cohort, Order
from bscrit.paths import ResultsPaths
from bscrit.sweep.silence import SILENT_SECONDS, USUAL, Silence
from bscrit.trial import Trial

TRIALS = (Trial("quadratic", 4, 0.1, 0), Trial("quadratic", 4, 0.2, 0))
RUNNING = {"a": Cohort(TRIALS, Order("search", 0, ((0.1, 0), (0.2, 0)), (1.0,), 100))}


def test_a_silence_is_told_once_and_is_measured_by_the_evaluations_before(tmp_path):
    paths, now = ResultsPaths(tmp_path), [0.0]
    silence = Silence(paths, lambda: now[0])

    def heard(second, evaluated=False):
        now[0] = second
        if evaluated:
            curve = paths.trial(TRIALS[1].name).curve
            curve.parent.mkdir(parents=True, exist_ok=True)
            curve.touch()
            os.utime(curve, (second, second))
        return list(silence.notes(RUNNING))

    assert heard(0) == heard(SILENT_SECONDS) == []
    (sentence,) = heard(SILENT_SECONDS + 1)
    assert sentence.startswith("batch size 4 search: no evaluation for 1")
    assert str(paths.workers_log) in sentence
    assert heard(SILENT_SECONDS + 100) == []
    assert heard(200, evaluated=True) == []
    assert heard(200 + USUAL * 200) == [], "evaluations are far apart here"
    assert len(heard(202 + USUAL * 200)) == 1
    assert heard(5000, evaluated=True) == heard(5005, evaluated=True) == heard(5005 + SILENT_SECONDS) == []
    assert len(heard(5007 + SILENT_SECONDS)) == 1
