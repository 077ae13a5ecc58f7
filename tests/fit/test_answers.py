"""Overheads, advice and laws as the command line asks for them."""

from __future__ import annotations

import json
from math import sqrt

import pytest

from bscrit.crossing import Crossing, CrossingTable
from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.fit.answers import Questions, answer, parse_questions
from bscrit.fit.core import fit_table
from bscrit.fit.report import Report
from bscrit.fit.result import Fit
from bscrit.preflight import Preflight


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
        (found,) = answer(
            fit_table(CrossingTable(tuple(rows))), parse_questions("300", None, None, None)
        ).data["overheads"]
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

    def test_a_fit_without_a_choice_does_not_silence_the_others(self):
        answers = ask(fit(16.0), fit(4096.0), step_times="100=0.2,300=0.4", devices="2048")
        without, found = answers.data["advice"]
        assert without is None
        assert found["fastest"]["devices"] == 2048
        assert "size compared, 1024, has no example for each of 2048 devices" in answers.lines[0]

    @pytest.mark.parametrize("b_crit", [1e-3, 0.7, 3e13])
    def test_batch_sizes_about_any_b_crit_are_compared(self, b_crit):
        (advice,) = ask(fit(b_crit), step_times="100=0.2,300=0.4").data["advice"]
        assert 1 <= advice["fastest"]["batch_size"] <= max(64 * b_crit, 1)


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
            (folder / "preflight.json").write_text(
                json.dumps(Preflight(parameters=n, examples=n * 20, untrained_value=2.3).to_dict())
            )
            fits.append(fit(n**0.5, source=str(folder)))
        assert ask(*fits, law="parameters").data["law"]["exponent"]["value"] == pytest.approx(0.5)
        assert ask(*fits, law="data").data["law"]["points"][0][0] == 20_000

    def test_too_few_fits_are_an_answer(self):
        answers = ask(fit(10.0, 0.3), fit(20.0, 0.2), law="loss", at="64")
        assert answers.data["law"] is None
        assert "no law: 2 of 2 fits" in answers.lines[-1]
        assert len(answers.data["overheads"]) == 2

    @pytest.mark.parametrize("name", ["1.2.3", "...", ".", "1e999", "Llama 3", "1e300T"])
    def test_a_model_whose_name_is_no_count_is_left_out(self, name):
        fits = [fit(93.20 * n**0.47, model=f"{n}M") for n in (85, 151, 302)]
        assert ask(*fits, fit(100.0, model=name), law="parameters").data["law"]["left_out"] == 1


class TestQuestions:
    def test_read(self):
        found = parse_questions("64, 256", "100=0.2,1200x4=4e-1", "1,8", "loss")
        assert found.at == (64, 256)
        assert found.cost is not None
        assert (found.cost.fixed, found.cost.per_example) == pytest.approx((0.1, 0.001))
        assert (found.devices, found.law) == ((1, 8), "loss")
        assert parse_questions(None, None, None, None) == Questions()

    @pytest.mark.parametrize(
        "options",
        [
            {"at": "sixty"},
            {"at": "0"},
            {"at": ","},
            {"at": ""},
            {"at": "1e-320"},
            {"at": "nan"},
            {"step_times": "64"},
            {"step_times": ""},
            {"step_times": "64=1"},
            {"step_times": "64=1,256x4=1"},
            {"step_times": "64=1e308,256=1e308"},
            {"step_times": "64=1e-320,256=1e-320"},
            {"step_times": "1e308=1,256=1"},
            {"step_times": "64x99999999999999999999=1,256=1"},
            {"step_times": "64=-1"},
            {"step_times": "64x0=1"},
            {"devices": "2"},
            {"devices": ",", "step_times": "64=1,128=2"},
            {"devices": "1e300", "step_times": "64=1,128=2"},
            {"devices": "1.5", "step_times": "64=1,128=2"},
            {"law": "lots"},
        ],
    )
    def test_mistakes_name_the_option(self, options):
        option = next(iter(options))
        with pytest.raises(UserError, match=f"--{option.replace('_', '-')}"):
            ask(fit(10.0), **options)

    def test_the_numbers_that_are_let_in_give_finite_answers(self):
        for times in ("0.01=1e12,1e12=1e-12", "0.01=1e-12,1e12=1e12", "1=1e12,1e12=1e12"):
            answers = ask(fit(1e3), at="1e-12,1e12", step_times=times, devices="1,1e12")
            assert json.dumps(answers.data, allow_nan=False)
