"""Overheads, advice and laws as the command line asks for them."""

from __future__ import annotations

import json
from math import sqrt

import pytest

from bscrit.crossing import Crossing
from bscrit.errors import UserError
from bscrit.fit.answers import Questions, answer, parse_questions
from bscrit.fit.core import fit_crossings
from bscrit.fit.result import Estimate, Fit, Report


def fit(b_crit: float | None, target: float = 0.1, s_min: float = 100.0, **group: str) -> Fit:
    scale = Estimate(b_crit, b_crit and b_crit / 1.1, b_crit and b_crit * 1.1)
    verdict = "identified" if b_crit else "not identified"
    steps = Estimate(s_min if b_crit else None)
    return Fit(group, target, verdict, steps, Estimate(None), scale, Estimate(None), Estimate(None), ())


def ask(*fits: Fit, source: str = "x.csv", **options: str):
    questions = {name: options.get(name) for name in ("at", "step_times", "devices", "law")}
    return answer(Report(source, "image", fits), parse_questions(**questions))


class TestOverheads:
    def test_at_b_crit_both_are_doubled(self):
        (found,) = ask(fit(256.0), at="256").data["overheads"]
        (one,) = found["at"]
        assert (one["step_overhead"]["value"], one["example_overhead"]["value"]) == pytest.approx((1.0, 1.0))
        assert one["step_overhead"]["low"] == pytest.approx(1 / 1.1)

    def test_lines_name_batch_size_and_unit(self):
        lines = ask(fit(256.0), at="64,512").lines
        (steps,) = [line for line in lines if "batch size 64" in line]
        images = lines[lines.index(steps) + 1]
        assert "+400 %" in steps
        assert "+25.0 %" in images
        assert "images" in images

    def test_steps_and_examples_at_any_batch_size(self):
        rows = [Crossing(float(2**k), 1000 * (1 + 300 / 2**k) * (1 + 0.01 * (-1) ** k)) for k in range(4, 14)]
        (found,) = answer(fit_crossings(rows), parse_questions("300", None, None, None)).data["overheads"]
        (one,) = found["at"]
        assert one["steps"]["value"] == pytest.approx(2000, rel=0.01)
        assert one["examples"]["low"] < 600_000 < one["examples"]["high"]

    def test_without_b_crit_they_are_unknown(self):
        assert "unknown" in ask(fit(None), at="64").lines[1]


class TestAdvice:
    def test_the_fastest_batch_size(self):
        """sqrt(B_crit t0/t1), McCandlish et al. 2018 with a step of t0 + t1 B seconds."""
        answers = ask(fit(1024.0), step_times="100=0.2,300=0.4")
        cost = answers.data["step_cost"]
        assert (cost["fixed"], cost["per_example"]) == pytest.approx((0.1, 0.001))
        (advice,) = answers.data["advice"]
        assert advice["fastest_batch_size"]["value"] == pytest.approx(sqrt(1024 * 100))
        assert advice["fastest"]["batch_size"] == 256

    def test_devices_buy_time_and_cost_device_seconds(self):
        (advice,) = ask(fit(1024.0), step_times="100=0.2,300=0.4", devices="1,8").data["advice"]
        assert advice["fastest"]["devices"] == 8
        assert advice["cheapest"]["devices"] == 1
        seconds = [option["seconds"] for option in advice["trade_off"]]
        cost = [option["device_seconds"] for option in advice["trade_off"]]
        assert seconds == sorted(seconds)
        assert cost == sorted(cost, reverse=True)

    def test_no_advice_without_b_crit(self):
        answers = ask(fit(None), step_times="100=0.2,300=0.4")
        assert answers.data["advice"] == [None]
        assert "no advice" in answers.lines[0]


class TestLaws:
    def test_loss(self):
        """B_crit = B*/L^(1/alpha_B) with Kaplan's alpha_B = 0.21 comes back."""
        fits = [fit(2e8 * loss ** (-1 / 0.21), loss) for loss in (4.0, 3.5, 3.0, 2.5)]
        law = ask(*fits, law="loss").data["law"]
        assert law["alpha"]["value"] == pytest.approx(0.21, rel=1e-6)
        assert law["scale"]["value"] == pytest.approx(2e8, rel=1e-6)

    def test_parameters_from_the_group(self):
        """93.20 N^0.47, N in millions (Zhang et al. 2024)."""
        fits = [fit(93.20 * n**0.47, model_size=f"{n}M") for n in (85, 151, 302, 604)]
        law = ask(*fits, law="parameters").data["law"]
        assert law["exponent"]["value"] == pytest.approx(0.47, rel=1e-6)

    def test_parameters_from_results_folders(self, tmp_path):
        fits = []
        for n in (1000, 4000, 16000):
            folder = tmp_path / f"n{n}"
            folder.mkdir()
            (folder / "preflight.json").write_text(json.dumps({"parameters": n, "examples": n * 20}))
            fits.append(fit(n**0.5, source=str(folder)))
        assert ask(*fits, law="parameters").data["law"]["exponent"]["value"] == pytest.approx(0.5)
        assert ask(*fits, law="data").data["law"]["points"][0][0] == 20_000

    def test_too_few_fits_are_refused(self):
        with pytest.raises(UserError, match="law"):
            ask(fit(10.0, 0.3), fit(20.0, 0.2), law="loss")


class TestQuestions:
    def test_read(self):
        found = parse_questions("64, 256", "64=0.11,256x4=7e-2", "1,8", "loss")
        assert found.at == (64, 256)
        assert [(t.batch_size, t.seconds, t.devices) for t in found.step_times] == [
            (64, 0.11, 1),
            (256, 0.07, 4),
        ]
        assert (found.devices, found.law) == ((1, 8), "loss")
        assert parse_questions(None, None, None, None) == Questions()

    @pytest.mark.parametrize(
        "options",
        [
            {"at": "sixty"},
            {"at": "0"},
            {"step_times": "64"},
            {"step_times": "64=-1"},
            {"step_times": "64x0=1"},
            {"devices": "2"},
            {"devices": "1.5", "step_times": "64=1,128=2"},
            {"law": "lots"},
        ],
    )
    def test_mistakes_name_the_option(self, options):
        option = next(iter(options))
        with pytest.raises(UserError, match=f"--{option.replace('_', '-')}"):
            ask(fit(10.0), **options)
