"""Requests and answers: typed, whole, strict, and taken once."""

from pathlib import Path

import pytest

from bscrit.errors import UserError
from bscrit.preflight import Preflight
from bscrit.request import (
    Done,
    Facts,
    Failed,
    Inspect,
    Prepare,
    Setup,
    Shard,
    Stretch,
    Train,
    Waits,
    read_request,
    take_answer,
    take_request,
    write_answer,
    write_request,
)

SETUP = Setup(
    use="mine:Mine",
    settings={"width": 8, "rate": 1.0, "names": ["a"], "on": True},
    device="auto",
    dtype="float32",
    lanes="auto",
    execution="replay",
    micro_batch=None,
    first_seed=0,
    optimizers=((4, {"use": "sgd", "momentum": 0.0}), (8, {"use": "sgd", "momentum": 0.5})),
)
FOLDERS = (Path("/results/a"), Path("/results/b"))
REQUESTS = [
    Inspect(SETUP),
    Prepare(SETUP),
    Train(FOLDERS),
    Train(FOLDERS, Shard(own=(1,), stamps=((3, 4, 5), None))),
]
ANSWERS = [
    Facts(Preflight(engines={4: "vmap"}, untrained_value=2.5, problems=("one",))),
    Facts(Preflight(untrained_value=float("inf"))),
    Done(),
    Done(False, (Stretch(5, 100, 0.25),), Waits(3, 0.5)),
    Failed("user", "is wrong", "here", "mend it"),
    Failed("worker", "died", lanes=(0, 2)),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_read_as_it_was_written_and_taken_once(tmp_path, request_):
    file = write_request(tmp_path, request_)
    assert read_request(file) == request_
    assert repr(take_request(file)) == repr(request_), "with the same types: 1 and 1.0 make two trials"
    assert take_request(file) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_read_as_it_was_written_and_nothing_stays(tmp_path, answer):
    file = write_request(tmp_path, REQUESTS[0])
    write_answer(file, answer)
    assert repr(take_answer(file)) == repr(answer)
    assert not list(tmp_path.iterdir())


def test_two_requests_never_share_a_name(tmp_path):
    assert len({write_request(tmp_path, REQUESTS[2]) for _ in range(20)}) == 20


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"kind": "dance", "folders": []}',
        '{"kind": "train"}',
        '{"kind": "train", "folders": ["a"], "shard": null, "odd": 1}',
        '{"kind": "train", "folders": [1], "shard": null}',
        '{"kind": "train", "folders": ["a"], "shard": {"own": ["0"], "stamps": []}}',
    ],
)
def test_a_request_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x\.json: is not of the form .*\n  hint: .*one version"):
        take_request(tmp_path / "x.json")


@pytest.mark.parametrize(
    "text", ["{", '{"kind": "done", "ended": "yes"}', '{"kind": "facts", "preflight": {"engines": 3}}']
)
def test_an_answer_of_another_form_is_one_of_a_worker_that_failed(tmp_path, text):
    (tmp_path / "x.answer.json").write_text(text)
    answer = take_answer(tmp_path / "x.json")
    assert answer.fault == "worker"
    assert "is not of the form" in answer.what


def test_no_answer_is_one_of_a_worker_that_failed(tmp_path):
    assert take_answer(tmp_path / "x.json") == Failed("worker", "the worker left no answer")


def test_what_is_not_of_its_type_is_not_even_made():
    with pytest.raises(ValueError, match="'user', 'trial' or 'worker'"):
        Failed("nobody", "what")
