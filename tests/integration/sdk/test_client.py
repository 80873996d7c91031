"""The client against a server over a real socket: submitting, lists, one run and what it shows."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from drumline import Client, bundle, errors
from drumline._transport import Config, Transport
from drumline.client import job_name
from drumline.contracts import api
from drumline.contracts.spec import Limits, OneDeviceSpec
from drumline.resources.batches import Batch
from drumline.resources.runs import Run
from support import answers
from support.answers import ATTEMPT_ID, RUN_ID, SECOND_ATTEMPT_ID, end, event
from support.core import Worker
from support.edge import EdgeServer
from support.layer import NO_ANSWER, Answer, events, ok, problem

SOURCE = "def main(run, *, learning_rate: float = 0.1, epochs: int = 20):\n    return {}\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def accepting(server: EdgeServer, host_of_application: Worker) -> EdgeServer:
    """The server, with a host of 8 devices."""
    host_of_application.beat()
    return server


def test_submit_uploads_the_bundle_and_then_sends_the_run(client: Client, accepting: EdgeServer, program: Path) -> None:
    run = client.submit(program, replicas=8, parameters={"epochs": 5, "learning_rate": 1}, labels={"team": "vision"})
    assert (run.state, run.url) == ("QUEUED", f"{accepting.url}/runs/{run.id}")
    (upload,), (sent,) = accepting.layer.sent("POST", "/bundles"), accepting.layer.sent("POST", "/runs")
    assert (upload.body, upload.headers["content-type"]) == (bundle.pack(program), "application/zip")
    body = sent.json()
    assert body["job"]["name"] == "digits"
    assert body["job"]["program"] == {"bundle": bundle.digest(upload.body), "entrypoint": "digits:main"}
    assert body["parameters"] == {"epochs": 5, "learning_rate": 1.0}
    assert (body["resources"]["replicas"], body["labels"]) == (8, {"team": "vision"})


def test_each_submission_has_a_key_of_its_own_and_keeps_it_when_repeated(
    client: Client, accepting: EdgeServer, program: Path
) -> None:
    before = {run.id for run in client.list()}
    accepting.layer.cut_after("POST", "/runs")
    runs = [client.submit(program), client.submit(program), client.submit(program, idempotency_key="mine")]
    keys = [request.headers["idempotency-key"] for request in accepting.layer.sent("POST", "/runs")]
    assert keys[0] == keys[1]
    assert keys[3] == "mine"
    assert len(set(keys)) == 3
    assert {run.id for run in runs} == {run.id for run in client.list()} - before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"parameters": {"epoch": 1}}, errors.UnknownParameterError),
        ({"parameters": {"epochs": "many"}}, errors.BadParameterError),
        ({"entrypoint": "digits:train"}, errors.EntrypointNotFoundError),
        ({"strategy": "mirored"}, errors.ParameterError),
        ({"replicas": 0}, errors.ParameterError),
        ({"name": "No Spaces"}, errors.ParameterError),
        ({"labels": {"a": "\0"}}, errors.ParameterError),
        ({"priority": 10_000}, errors.ParameterError),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_sent(
    client: Client, server: EdgeServer, program: Path, arguments: dict[str, Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        client.submit(program, **arguments)
    assert server.layer.requests == []


def test_too_many_replicas_tell_both_numbers(client: Client, accepting: EdgeServer, program: Path) -> None:
    with pytest.raises(errors.TooManyReplicasError) as caught:
        client.submit(program, replicas=9)
    context = caught.value.problem.context
    assert (context["replicas"], context["devices"]) == (9, 8)
    client.submit(program, replicas=9, wait_for_devices=True)
    assert accepting.layer.sent("POST", "/runs")[-1].json()["wait_for_devices"] is True


def test_strategy_and_limits_are_sent_as_given(client: Client, accepting: EdgeServer, program: Path) -> None:
    client.submit(program, strategy=OneDeviceSpec(), limits=Limits(run_s=5))
    body = accepting.layer.sent("POST", "/runs")[0].json()
    assert (body["job"]["strategy"], body["limits"]["run_s"]) == ({"kind": "one_device"}, 5)


@pytest.mark.parametrize(
    ("path", "name"),
    [("digits.py", "digits"), ("My_Prog.v2.py", "my_prog.v2"), ("Ünï", "n"), ("-._", "job"), ("x" * 99, "x" * 63)],
)
def test_job_is_named_by_its_file_in_allowed_letters(path: str, name: str) -> None:
    assert job_name(Path(path)) == name


def test_lists_fetch_the_next_page_when_they_need_it(client: Client, server: EdgeServer) -> None:
    first = {"items": [_summary()] * 2, "next": "c2"}
    server.layer.answer_instead("GET", "/runs", ok(first), ok({"items": [_summary()], "next": None}))
    found = client.list(states=["RUNNING", "QUEUED"], labels={"team": "vision"}, search="dig")
    next(found)
    assert len(server.layer.sent("GET", "/runs")) == 1
    assert len(list(found)) == 2
    one, two = (request.query for request in server.layer.sent("GET", "/runs"))
    assert (one["state"], one["label"], one["q"]) == (["RUNNING", "QUEUED"], ["team=vision"], ["dig"])
    assert two["cursor"] == ["c2"]
    assert "cursor" not in one


def test_run_is_found_by_the_end_of_its_id_as_the_dashboard_shows_it(client: Client, server: EdgeServer) -> None:
    other = f"{RUN_ID[:-6]}100000"
    server.layer.answer_instead("GET", "/runs", ok({"items": [_summary(), {**_summary(), "id": other}], "next": None}))
    server.layer.answer_instead("GET", f"/runs/{other}", ok(answers.run(id=other)))
    assert [client.get(text).id for text in ("r-100000", "run_100000", other)] == [other] * 3
    with pytest.raises(errors.OptionError, match=f"run_id='r-00000': 2 runs end so: {RUN_ID} and {other}"):
        client.get("r-00000")


@pytest.mark.parametrize("text", ["r-2vgbg", "r-", "../tokens?x=1"])
def test_run_that_is_not_there_is_an_error_with_the_fix(client: Client, server: EdgeServer, text: str) -> None:
    server.layer.answer_instead("GET", "/runs", ok({"items": [_summary()], "next": None}))
    with pytest.raises(errors.NotFoundError, match=f"no run is called '{re.escape(text)}'") as caught:
        client.get(text)
    assert "drumline ps" in caught.value.hint
    assert {request.path for request in server.layer.requests} <= {"/api/v1/runs"}


def test_wait_returns_when_the_stream_ends(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("SUCCEEDED", result={"accuracy": 0.97})))
    server.layer.answer_instead("GET", "/stream", events(event(1), cut=True), events(end(2)))
    assert run.wait().result == {"accuracy": 0.97}


def test_wait_with_a_time_limit_raises_when_it_is_over(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    with pytest.raises(TimeoutError, match=r"still RUNNING after 0\.1 s"):
        run.wait(timeout=0.1)
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()), ok(answers.run("SUCCEEDED")))
    assert run.wait(timeout=30).ended


def test_wait_with_a_time_limit_waits_out_a_restart_of_the_server(run: Run, server: EdgeServer) -> None:
    away = [NO_ANSWER] * 9 + [problem(503, "unavailable")] * 9 + [problem(502, "bad_gateway")]
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()), *away, ok(answers.run("SUCCEEDED")))
    assert run.wait(timeout=60).state == "SUCCEEDED"


def test_wait_without_a_time_limit_waits_out_one_after_the_last_event(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", *[NO_ANSWER] * 9, ok(answers.run("SUCCEEDED")))
    server.layer.answer_instead("GET", "/stream", events(end(2)))
    assert run.wait().state == "SUCCEEDED"


def test_wait_of_a_batch_waits_out_a_restart_of_the_server(transport: Transport, server: EdgeServer) -> None:
    batch = Batch(transport, answers.batch(RUNNING=1))
    over = ok(answers.batch(SUCCEEDED=1))
    server.layer.answer_instead("GET", f"/batches/{batch.id}", *[NO_ANSWER] * 9, problem(503, "unavailable"), over)
    assert batch.wait(timeout=60).ended
    server.layer.answer_instead("GET", f"/batches/{batch.id}", *[NO_ANSWER] * 9, over)
    assert batch.wait().ended


def test_wait_says_what_it_heard_last_when_time_is_over_and_gives_up_after_two_minutes(server: EdgeServer) -> None:
    passed = [0.0]
    config = Config(server.url, SecretStr(server.admin_token))
    transport = Transport(config, sleep=lambda s: passed.append(passed[-1] + s), clock=lambda: passed[-1])
    run = Run(transport, answers.run())
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", NO_ANSWER)

    with pytest.raises(
        errors.WaitTimeoutError, match=r"still RUNNING after 100 s; when last asked, no Drumline server"
    ):
        run.wait(timeout=100)
    began = passed[-1]
    with pytest.raises(errors.ServerUnreachableError):
        run.wait(timeout=3600)
    transport.close()

    assert 120 <= passed[-1] - began < 130


@pytest.mark.parametrize("answer", [problem(404, "not_found"), problem(401, "unauthenticated"), ok({"id": 5})])
def test_wait_does_not_wait_for_what_will_not_pass(run: Run, server: EdgeServer, answer: Answer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", answer)
    with pytest.raises(errors.APIError):
        run.wait(timeout=60)
    assert len(server.layer.sent("GET", f"/runs/{RUN_ID}")) == 1


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True])
def test_time_limit_that_is_none_is_refused(run: Run, timeout: Any) -> None:
    with pytest.raises(errors.OptionError, match=r"timeout=.* is no number of seconds"):
        run.wait(timeout=timeout)


def _train(run: object) -> None:
    """A program that somebody hands over as it is."""


@pytest.mark.parametrize("source", [_train, lambda run: 1, None, 3, ["digits.py"], Path])
def test_program_that_is_no_path_is_told_what_to_pass(client: Client, source: Any) -> None:
    for call in (client.submit, client.plan, client.prepare, lambda each: client.sweep(each, {"epochs": [1]})):
        with pytest.raises(errors.OptionError, match=r"source is .*; pass the path of the Python file or directory"):
            call(source)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"learning_rate": np.float32(0.1)}, r"parameters\.learning_rate=.*: float32 is no JSON.*x\.tolist"),
        ({"epochs": np.int64(5)}, "int64 is no JSON"),
        ({"epochs": np.bool_(True)}, "bool is no JSON"),
        ({"epochs": [1, {"a": np.ones(3)}]}, r"parameters\.epochs\.1\.a=.*: ndarray is no JSON"),
        ({"epochs": {1, 2}}, "set is no JSON; pass numbers, text, lists or dicts"),
        ({"epochs": {1: 2}}, "the key 1 is no text"),
        ({1: 2}, "the name of a parameter is text"),
        ([1], r"parameters=\[1\]: pass a dict"),
    ],
)
def test_parameters_that_json_does_not_have_are_named(
    client: Client, program: Path, parameters: Any, said: str
) -> None:
    for call in (client.submit, client.plan):
        with pytest.raises(errors.OptionError, match=said):
            call(program, parameters=parameters)


def test_a_float_of_numpy_is_a_float(client: Client, accepting: EdgeServer, program: Path) -> None:
    client.submit(program, parameters={"learning_rate": np.float64(0.25)})
    assert accepting.layer.sent("POST", "/runs")[0].json()["parameters"] == {"learning_rate": 0.25}


@pytest.mark.parametrize("wrong", [None, 5, "", b"run_1"])
def test_ids_that_are_no_text_are_told_what_to_pass(client: Client, wrong: Any) -> None:
    for call in (client.get, client.batch, client.job, client.drain_host, client.release_device):
        with pytest.raises(errors.OptionError, match=r"=.*: pass the (id|name) of"):
            call(wrong)


def test_values_of_a_sweep_and_labels_of_another_form_are_told_what_to_pass(client: Client, program: Path) -> None:
    with pytest.raises(errors.OptionError, match=r"sweep\.epochs=3: pass a list of the values"):
        client.sweep(program, {"epochs": 3})  # type: ignore[dict-item] # what people type
    with pytest.raises(errors.OptionError, match=r"labels=.*: pass a dict"):
        client.submit(program, labels=["a"])  # type: ignore[arg-type] # what people type
    with pytest.raises(errors.OptionError, match="requests=None: pass a list"):
        client.submit_batch(None)  # type: ignore[arg-type] # what people type


def test_result_of_a_failed_run_is_its_reason(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.failed("ValueError: bad rate")))
    with pytest.raises(errors.RunFailedError, match="ValueError: bad rate") as caught:
        _ = run.result
    assert caught.value.reason is not None
    assert (caught.value.reason.code, caught.value.run_id) == ("PROGRAM_ERROR", RUN_ID)


@pytest.mark.parametrize(
    ("state", "expected"), [("CANCELLED", errors.RunCancelledError), ("RUNNING", errors.RunNotEndedError)]
)
def test_result_that_there_is_not_is_an_error(
    run: Run, server: EdgeServer, state: str, expected: type[Exception]
) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run(state)))
    with pytest.raises(expected):
        _ = run.result


def test_cancelling_an_ended_run_changes_nothing(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("POST", f"/runs/{RUN_ID}:cancel", problem(409, "already_terminal"))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("SUCCEEDED")))
    assert run.cancel(grace_s=2.5).state == "SUCCEEDED"
    assert server.layer.sent("POST", f"/runs/{RUN_ID}:cancel")[0].json() == {"grace_s": 2.5}


def test_logs_are_read_chunk_by_chunk_to_the_end(run: Run, server: EdgeServer) -> None:
    path = f"/runs/{RUN_ID}/logs"
    server.layer.answer_instead("GET", path, ok(answers.logs("one\n", 0, 8)), ok(answers.logs("two\n", 4, 8)))
    assert [segment.text for segment in run.logs(start=-8)] == ["one\n", "two\n"]
    assert [request.query["from"] for request in server.layer.sent("GET", path)] == [["-8"], ["4"]]


def test_followed_logs_lose_and_repeat_nothing_and_begin_anew_with_an_attempt(run: Run, server: EdgeServer) -> None:
    path = f"/runs/{RUN_ID}/logs"
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run(last_event=4)))
    server.layer.answer_instead(
        "GET",
        path,
        ok(answers.logs("a", 0, 1)),
        ok(answers.logs("b", 1, 2)),
        ok(answers.logs("c", 0, 1, SECOND_ATTEMPT_ID)),
        ok(answers.logs("", 1, 1, SECOND_ATTEMPT_ID)),
    )
    again = event(6, "log", SECOND_ATTEMPT_ID, first_byte=0, next_byte=1)
    server.layer.answer_instead(
        "GET", "/stream", events(event(5, "log", first_byte=1, next_byte=2), cut=True), events(again, end(7))
    )
    assert "".join(segment.text for segment in run.logs(follow=True)) == "abc"
    asked = [(request.query.get("attempt"), request.query["from"]) for request in server.layer.sent("GET", path)]
    assert asked == [
        (None, ["0"]), ([ATTEMPT_ID], ["1"]), ([SECOND_ATTEMPT_ID], ["0"]), ([SECOND_ATTEMPT_ID], ["1"]),
    ]  # fmt: skip


def test_metrics_are_asked_for_by_name(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/metrics", ok(api.Metrics(run=RUN_ID, x="time", series=())))
    assert run.metrics("loss", "accuracy", x="time", buckets=10).series == ()
    query = server.layer.sent("GET", f"/runs/{RUN_ID}/metrics")[0].query
    assert query == {"names": ["loss", "accuracy"], "x": ["time"], "buckets": ["10"]}


def test_token_shows_nowhere(client: Client, transport: Transport) -> None:
    token = client.config.token.get_secret_value()
    assert token not in f"{client!r} {client.config!r} {transport.config!r}"


def test_login_address_carries_the_code_in_its_fragment(client: Client, server: EdgeServer) -> None:
    server.layer.answer_instead(
        "POST", "/login-codes", Answer(201, json.dumps({"code": "c/1", "expires_at": "2026-01-01T00:00:00Z"}).encode())
    )
    assert client.login_url("/runs/x") == f"{server.url}/login?next=%2Fruns%2Fx#code=c%2F1"


def _summary() -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(answers.run().model_dump_json())
    return summary
