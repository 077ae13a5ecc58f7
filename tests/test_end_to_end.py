"""Whole sweeps with workers: killed at random, crowded, starved of disk, and given any user's code."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own import write_spec

from bscrit.crossing import crossing_of
from bscrit.results import read_records
from bscrit.trial import FINISHED

BSCRIT = [sys.executable, "-m", "bscrit", "sweep"]
QUADRATIC = """
[workload]
use = "quadratic"
dimensions = 40
[schedule]
{schedule}
[sweep]
batch_sizes = [1, 4, 32]
targets = [0.5, 0.12]
seeds = 2
max_examples = 30_000
[learning_rate]
{rate}
[noise]
source = "none"
[compute]
workers = 2
device = "cpu"
lanes = "loop"
"""
PLAIN = {"rate": "guess = 0.02", "schedule": ""}


@pytest.fixture
def spec(tmp_path):
    """Write a small sweep; its file."""

    def spec(name="tiny", **tables):
        file = tmp_path / f"{name}.toml"
        file.write_text(QUADRATIC.format(**{**PLAIN, **tables}))
        return file

    return spec


def start(spec, out, *arguments, **keywords):
    command = [*BSCRIT, str(spec), "--out", str(out), *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, "start_new_session": True, **keywords})


def finish(process, seconds=120):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def run(spec, out, *arguments, **keywords):
    return finish(start(spec, out, *arguments, **keywords))


def told(out):
    """Everything that must be the same however a sweep came to its end."""
    return {r.trial.name: (r.status, r.reason, r.order, r.curve.loss.tobytes()) for r in read_records(out)}


def times(out):
    return {file.parent.name: file.stat().st_mtime_ns for file in out.glob("trials/*/status.json")}


def finished(out):
    return {r.trial.name for r in read_records(out) if r.status in FINISHED}


def workers_of(process):
    """Process ids of a sweep's workers."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(OSError):
        return [int(pid) for pid in children.read_text().split()]
    return []


def crossings(out, target):
    """Steps to a target at the measured rates, by batch size and rate."""
    groups = {}
    for record in read_records(out):
        if record.role == "measure":
            groups.setdefault((record.trial.batch_size, record.trial.lr), []).append(record.curve)
    met = {key: crossing_of(curves, target, confirmed=False) for key, curves in groups.items()}
    return {key: crossing.steps for key, crossing in met.items() if crossing}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    file = folder / "tiny.toml"
    file.write_text(QUADRATIC.format(**PLAIN))
    code, out, _ = run(file, folder / "out")
    assert code == 0
    assert "0 reused" in out
    return told(folder / "out")


def test_interrupted_at_random_and_started_again_it_ends_as_if_nothing_had_been(spec, tmp_path, undisturbed):
    """Ctrl-C, SIGTERM and SIGKILL of the sweep, SIGKILL of a worker; no finished trial is trained again."""
    out, chance = tmp_path / "out", random.Random(0)
    codes = []
    for way in ("INT", "TERM", "KILL", "worker", "KILL", "worker"):
        before, done = times(out), finished(out) if (out / "trials").is_dir() else set()
        process = start(spec(), out)
        while not workers_of(process) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(3 * chance.random())
        if way == "worker":
            for pid in workers_of(process)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
            process.terminate()
        else:
            process.send_signal(getattr(signal, f"SIG{way}"))
        codes.append((way, finish(process)[0]))
        after = times(out)
        assert {name: after[name] for name in done} == {name: before[name] for name in done}
    assert {code for way, code in codes if way == "INT"} <= {0, 130}
    assert {code for way, code in codes if way == "TERM"} <= {0, 143}
    assert any(code not in (0, 1) for _, code in codes), "it was hit at least once before it ended"
    assert run(spec(), out)[0] == 0
    assert told(out) == undisturbed
    assert not list(out.glob("trials/*/checkpoint.pt"))
    before = times(out)
    code, text, _ = run(spec(), out)
    assert (code, times(out)) == (0, before)
    assert " 0 new" in text


def test_a_worker_that_is_killed_is_tried_again_and_told(spec, tmp_path, undisturbed):
    process = start(spec(), tmp_path / "out")
    end = time.monotonic() + 60
    while not list((tmp_path / "out").glob("trials/*/curve.csv")) and time.monotonic() < end:
        time.sleep(0.01)
    for pid in workers_of(process):
        os.kill(pid, signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 0
    assert "the worker was killed by SIGKILL, likely for lack of memory" in err
    assert told(tmp_path / "out") == undisturbed


def test_two_sweeps_at_once_in_one_folder(spec, tmp_path, undisturbed):
    both = [start(spec(), tmp_path / "out") for _ in range(2)]
    results = [finish(process) for process in both]
    assert [code for code, _, _ in results] == [0, 0]
    assert sum("waiting for another sweep" in err for _, _, err in results) == 1
    assert sorted(" 0 new" in out for _, out, _ in results) == [False, True]
    assert told(tmp_path / "out") == undisturbed


def test_a_workload_that_raises_is_a_row_for_each_trial_with_its_log(tmp_path):
    spec = write_spec(
        tmp_path / "own", batch="if start == 24 and size == 8: raise ZeroDivisionError('in my code')"
    )
    code, out, err = run(spec, tmp_path / "out")
    assert code == 1
    rows = [line for line in out.splitlines() if line.startswith("failed: ")]
    assert rows
    assert all("batch size 8: ZeroDivisionError: in my code (rate " in row for row in rows)
    log = Path(rows[0].rpartition(", log ")[2].rstrip(")"))
    assert "raise ZeroDivisionError('in my code')" in log.read_text()
    assert "missing: " in err
    assert "hint: mend what failed; the same command tries it again" in err
    assert "Traceback" not in err
    measured = {r.trial.batch_size for r in read_records(tmp_path / "out") if r.role == "measure"}
    assert measured == {2, 32}, "the other batch sizes are complete"


def test_a_user_s_own_sweep_that_prints_threads_and_draws(tmp_path):
    code, out, err = run(
        write_spec(
            tmp_path / "own",
            init="print('hello'); torch.manual_seed(time.time_ns() % 2**31)",
            model="threading.Thread(target=time.sleep, args=(99,)).start()",
            batch="print('x' * 99)",
        ),
        tmp_path / "out of the way",
    )
    assert (code, "hello" in out, "hello" in err) == (0, False, False)
    assert "hello" in (tmp_path / "out of the way" / "workers.log").read_text()
    again = tmp_path / "again"
    assert run(tmp_path / "own" / "mine.toml", again)[0] == 0
    assert told(again) == told(tmp_path / "out of the way")


def test_the_example_of_a_user_s_own_class(tmp_path):
    spec = Path(__file__).parent.parent / "sweeps" / "own" / "own.toml"
    code, out, _ = run(
        spec, tmp_path / "out", "--set", "sweep.batch_sizes=[32, 512]", "--set", "sweep.seeds=1"
    )
    assert code == 0
    assert "points" in out


def test_micro_batches_and_vectorised_lanes_change_no_crossing(tmp_path):
    spec = write_spec(tmp_path / "own")
    assert run(spec, tmp_path / "plain")[0] == 0
    expected = crossings(tmp_path / "plain", 0.15)
    assert {size for size, _ in expected} == {2, 8, 32}
    for name, setting in (("parts", "micro_batch=3"), ("vmap", "lanes=vmap")):
        assert run(spec, tmp_path / name, "--set", f"compute.{setting}")[0] == 0
        assert crossings(tmp_path / name, 0.15) == pytest.approx(expected, rel=1e-3)


def test_a_warm_up_costs_about_half_its_length(spec, tmp_path):
    """As the science has it: warm-up of W steps adds about W/2 steps at every batch size."""
    for name, schedule in (("plain", ""), ("warm", "warmup_steps = 20")):
        file = spec(name, schedule=schedule, rate='tune = "grid"\nrates = [0.3]')
        assert run(file, tmp_path / name, "--set", "sweep.batch_sizes=[32]")[0] == 0
    ((_, plain),) = crossings(tmp_path / "plain", 0.5).items()
    ((_, warm),) = crossings(tmp_path / "warm", 0.5).items()
    assert warm - plain == pytest.approx(10, abs=3)


def test_a_full_disk_is_one_clear_error_and_what_is_finished_is_kept(spec, tmp_path):
    """Where disks may be mounted, one of 300 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        code, _, err = run(spec(), disk / "out")
        lines = [line for line in err.splitlines() if not line.startswith("[")]
        assert code == 2
        assert "Traceback" not in err
        assert len(lines) == 2
        assert "No space left on device" in lines[0]
        assert "free some space and run the same command again" in lines[1]
        shutil.copytree(disk / "out", tmp_path / "out", ignore=shutil.ignore_patterns("*.log"))
        before, done = times(tmp_path / "out"), finished(tmp_path / "out")
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done
    assert run(spec(), tmp_path / "out")[0] == 0
    assert {name: times(tmp_path / "out")[name] for name in done} == {name: before[name] for name in done}


def test_a_limit_on_file_sizes_is_one_clear_error(spec, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    code, _, err = run(spec(), tmp_path / "out", preexec_fn=limit)
    assert code == 2
    assert "Traceback" not in err
    assert "File too large" in err


def test_a_folder_that_may_not_be_written(spec, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write anywhere")
    code, _, err = run(spec(), locked / "out")
    assert code == 2
    assert "choose a folder that you may write, with --out" in err
