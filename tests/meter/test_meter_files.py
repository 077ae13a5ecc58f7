"""What the meter writes, keeps, logs and says."""

from __future__ import annotations

import json
import re

import pytest
from metered import accumulate, cut, data, mlp, run, shifted

from bscrit.errors import UserError
from bscrit.estimate import Estimate
from bscrit.meter.history import NoiseReading
from bscrit.meter.noise_meter import NoiseMeter
from bscrit.noise import HEADER, noise_scale, read_noise


def test_the_file_is_what_fit_reads(tmp_path):
    model = mlp()
    meter = NoiseMeter(model, every=2, path=tmp_path / "new" / "noise.csv")
    run(model, meter, 12)
    read = read_noise(tmp_path / "new" / "noise.csv")["identity"]
    assert read.steps.tolist() == [0, 2, 4, 6, 8, 10]
    for name in ("examples", "n_small", "sq_small", "n_big", "sq_big"):
        assert getattr(read, name) == pytest.approx(getattr(meter.samples, name), rel=1e-8)
    assert noise_scale([read]).low == pytest.approx(meter.result().scale.low, rel=1e-6)


def test_an_interrupted_run_goes_on_where_it_was_saved(tmp_path):
    def start(path, state=None):
        return NoiseMeter(mlp(), every=2, path=path, state=state)

    whole = start(tmp_path / "whole.csv")
    run(whole.model, whole, 21)
    broken = start(tmp_path / "noise.csv")
    run(broken.model, broken, 9)
    state = json.loads(json.dumps(broken.state_dict()))
    run(broken.model, broken, 6, first=9)  # lost with the crash, and with it half a line
    with (tmp_path / "noise.csv").open("a") as stream:
        stream.write("15,120,iden")
    again = start(tmp_path / "noise.csv", state)
    run(again.model, again, 12, first=9)
    assert (tmp_path / "noise.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert again.samples.steps.tolist() == whole.samples.steps.tolist()
    assert str(again.result()) == str(whole.result())
    little = start(None, {"step": 300, "examples": 2400})
    run(little.model, little, 1)
    assert little.samples.steps.tolist() == [300]
    assert little.samples.examples.tolist() == [2400]


def test_another_runs_file_is_left_alone(tmp_path):
    path = tmp_path / "noise.csv"
    meter = NoiseMeter(mlp(), path=path)
    run(meter.model, meter, 1)
    before = path.read_text()
    with pytest.raises(UserError, match="another run"):
        NoiseMeter(mlp(), path=path)
    assert path.read_text() == before
    path.write_text("step,loss\n1,2\n")
    with pytest.raises(UserError, match="something else"):
        NoiseMeter(mlp(), path=path, state={"step": 1, "examples": 8})
    path.write_text(HEADER + "\n")
    NoiseMeter(mlp(), path=path)
    with pytest.raises(UserError):
        NoiseMeter(mlp(), path=path / "below" / "noise.csv")


def test_a_file_that_can_not_be_written_any_more_does_not_end_the_training(tmp_path):
    meter = NoiseMeter(mlp(), every=1, path=tmp_path / "noise.csv")
    run(meter.model, meter, 1)
    (tmp_path / "noise.csv").unlink()
    (tmp_path / "noise.csv").mkdir()
    with pytest.warns(UserWarning, match="can't be written"):
        run(meter.model, meter, 3)
    assert len(meter.samples) == 4


def test_a_tracker_gets_the_newest_sample_and_the_scale_where_it_is_resolved():
    model, logged = mlp(), []
    meter = NoiseMeter(model, every=1, log=lambda values, step: logged.append((step, values)))
    for seed in range(30):
        accumulate(model, meter, cut(shifted(64, seed), [8] * 8))
    assert [step for step, _ in logged] == meter.samples.steps.tolist()
    for (_, values), signal, noise in zip(logged, meter.samples.signal, meter.samples.noise, strict=True):
        assert values["noise/signal"] == pytest.approx(signal)
        assert values["noise/noise"] == pytest.approx(noise)
    assert [("noise/scale" in values) for _, values in logged[:3]] == [False] * 3
    assert logged[-1][1]["noise/scale"] == pytest.approx(meter.result(last=20).scale.value)


# what it says


def test_a_reading_in_words():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    assert str(meter.result()) == "noise scale (B_simple): none yet, as 4 samples at least are needed"
    for seed in range(24):
        accumulate(model, meter, cut(shifted(64, seed), [8] * 8))
    reading = meter.result()
    low, high = reading.interval
    assert low < reading.scale.value < high
    number = r"[\d.,]+"
    text = (
        rf"noise scale \(B_simple\): {number} examples \(95 % interval {number} to {number}\)\n"
        r"  24 samples, steps 0 to 23; \|G\|\^2 = [\d.e-]+, tr\(Sigma\) = [\d.e-]+"
    )
    assert re.fullmatch(text, str(reading)), str(reading)
    assert reading.signal == pytest.approx(meter.samples.signal.mean())
    assert reading.scale.value == pytest.approx(reading.noise / reading.signal)
    last = meter.result(last=5)
    assert (last.samples, last.last_step) == (5, reading.last_step)
    since = meter.result(since=reading.last_step - 3)
    assert since.first_step >= reading.last_step - 3
    assert since.noise == pytest.approx(meter.samples.noise[-since.samples :].mean())
    with pytest.raises(UserError, match="last = 0"):
        meter.result(last=0)


def test_what_is_not_resolved_is_no_number():
    reading = NoiseReading(Estimate(None, low=1234.4), 1e-9, 2.0, "adam", 7, 0, 60, 2, 0, 0)
    assert "unresolved, at least 1,230 examples" in str(reading)
    assert "1e-09" not in str(reading)
    assert "2 measured steps gave no sample" in str(reading)
    assert reading.interval is None
    assert "neither" in str(NoiseReading(Estimate(None), -1, -1, "hessian", 9, 0, 80, 0, 0, 0))


def test_a_loop_with_one_backward_a_step_hears_what_to_do():
    model = mlp()
    meter = NoiseMeter(model, every=1)
    for _ in range(3):
        accumulate(model, meter, [data(8)])
    reading = meter.result()
    assert (reading.samples, reading.alone, reading.dropped) == (0, 3, 0)
    assert "single micro-batch" in str(reading)
    assert "meter.measure(loss, batch)" in str(reading)
