"""The command line against a server over a real socket: what it prints, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumline.contracts import api
from support import answers
from support.answers import RUN_ID, end, event
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import Answer, events, ok, problem
from support.processes import wait_until


def _accept(server: EdgeServer, stream: Answer, ended: api.Run) -> None:
    """A server that takes the submission, streams, and then says how the run ended."""
    server.layer.answer_instead("POST", "/bundles", ok({}, 201))
    server.layer.answer_instead(
        "POST", "/runs", ok(api.SubmittedRun(run=answers.run("QUEUED"), created_version=True), 201)
    )
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(ended))
    server.layer.answer_instead("GET", "/stream", stream)


def test_submit_prints_the_address_first_then_progress_then_the_result(
    cli: Cli, server: EdgeServer, program: str
) -> None:
    stream = events(
        event(1, "state", state="RUNNING"),
        event(2, "placement", executor="spmd", confirmed=True, replicas=8),
        event(3, "progress", step=50, total_steps=100, steps_per_s=12.5),
        event(4, "metrics", names=["loss", "sys/step_ms"], first_step=50, last_step=50),
        event(5, "gap", what="reduction", count=2),
        event(6, "gap", what="reduction", count=3),
        end(7),
    )
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/metrics", ok(_metrics(loss=0.25)))
    _accept(server, stream, answers.run("SUCCEEDED", result={"accuracy": 0.97}))
    assert cli("submit", program, "--replicas", "8") == 0
    first, result = cli.out.splitlines()
    assert first == f"{RUN_ID}  {server.url}/runs/{RUN_ID}"
    assert json.loads(result) == {"accuracy": 0.97}
    assert "8 replicas, executor spmd" in cli.err
    assert "step 50/100  12.5 steps/s  loss 0.25" in cli.err
    assert cli.err.count(" lost") == cli.err.count("5 reduction records lost") == 1
    assert cli.err.splitlines()[-1].startswith("SUCCEEDED in ")


def test_submit_prints_what_the_server_warns_of(cli: Cli, server: EdgeServer, program: str) -> None:
    warning = {"code": "no_shared_store", "message": "Its hosts share no checkpoint store."}
    _accept(server, events(end(1)), answers.run("SUCCEEDED", result=1))
    submitted = api.SubmittedRun(run=answers.run("QUEUED", warnings=[warning]), created_version=True)
    server.layer.answer_instead("POST", "/runs", ok(submitted, 201))

    assert cli("submit", program, "--replicas", "4") == 0
    assert cli.out.splitlines()[1] == "1"
    assert "warning: Its hosts share no checkpoint store." in cli.err.splitlines()


def _metrics(**latest: float) -> dict[str, Any]:
    """Metrics whose newest values are these."""
    series = [
        {
            "name": name, "unit": "", "n": 1, "last_step": 50, "bucket_width": 0,
            "points": {"x": [50], "min": [value], "max": [value], "mean": [value], "last": [value], "count": [1]},
        }
        for name, value in latest.items()
    ]  # fmt: skip
    return {"run": RUN_ID, "x": "step", "series": series}


def test_failed_run_exits_with_1_and_shows_the_end_of_its_output_and_the_reason(
    cli: Cli, server: EdgeServer, program: str
) -> None:
    _accept(server, events(end(1, "FAILED")), answers.failed("ValueError: bad rate"))
    traceback = "Traceback (most recent call last):\n\x1b[31mValueError: bad rate\n"
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/logs", ok(answers.logs(traceback, 0, len(traceback))))
    for arguments, expected in (([], "ValueError: bad rate"), (["--no-logs"], "  | ValueError: bad rate")):
        assert cli("submit", program, *arguments) == 1
        *_, last, reason, outcome = cli.err.splitlines()
        assert last == expected
        assert reason.startswith("The program raised an exception")
        assert outcome.startswith("FAILED in ")


def test_output_of_the_program_is_printed_as_it_comes_and_stdout_stays_clean(
    cli: Cli, server: EdgeServer, program: str
) -> None:
    text = "one\ntwo \x1b[31mred\x1b[0m\nlast without an end"
    stream = events(
        event(1, "log", first_byte=0, next_byte=6), event(2, "log", first_byte=6, next_byte=len(text)), end(3)
    )
    _accept(server, stream, answers.run("SUCCEEDED", result=1))
    parts = [answers.logs(text[:6], 0, 6), answers.logs(text[6:], 6, len(text)), answers.logs("", len(text), len(text))]
    path = f"/runs/{RUN_ID}/logs"
    server.layer.answer_instead("GET", path, ok(parts[0]), problem(404, "not_found"), ok(parts[1]), ok(parts[2]))
    stream = events(*(event(n, "log", first_byte=0, next_byte=6) for n in (1, 2, 3)), end(4))
    server.layer.answer_instead("GET", "/stream", stream)

    assert cli("submit", program) == 0

    assert [line for line in cli.err.splitlines() if line in ("one", "two red", "last without an end")] == [
        "one",
        "two red",
        "last without an end",
    ]
    assert cli.out.splitlines()[1:] == ["1"]
    assert cli("submit", program, "--no-logs") == 0
    assert "two red" not in cli.err


def test_cancelled_run_exits_with_1(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("CANCELLED")))
    assert cli("watch", RUN_ID) == 1


def test_parameters_are_read_as_their_types(cli: Cli, server: EdgeServer, program: str) -> None:
    _accept(server, events(end(1)), answers.run("SUCCEEDED"))
    assert cli("submit", program, "-p", "learning_rate=1e-3", "-p", "epochs=5", "-p", "name=7", "--detach") == 0
    assert server.layer.sent("POST", "/runs")[0].json()["parameters"] == {
        "learning_rate": 0.001,
        "epochs": 5,
        "name": "7",
    }
    assert server.layer.sent("GET", "/stream") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "epoch=3"], "did you mean 'epochs'?"),
        (["-p", "epochs=many"], "'epochs' takes a whole number"),
        (["-p", "epochs"], "not of the form NAME=VALUE"),
        (["--strategy", "mirored"], "did you mean 'mirrored'?"),
        (["-s", "executer=spmd"], "did you mean 'executor'?"),
        (["--replicas", "0"], "--replicas 0: Input should be greater than or equal to 1"),
        (["--replicas", "many"], "not a valid integer"),
        (["--platform", "abacus"], "--platform 'abacus': "),
        (
            ["--spread", "one-host"],
            "--spread 'one-host': Input should be 'pack', 'balance' or 'one_host'; did you mean",
        ),
        (["--retries", "-1"], "--retries -1: Input should be greater than or equal to 0"),
        (
            ["--infrastructure-retries", "101"],
            "--infrastructure-retries 101: Input should be less than or equal to 100",
        ),
        (["--infrastructure-retries", "many"], "'--infrastructure-retries': 'many' is not a valid integer"),
        (["--record", "reductions_every"], "not of the form NAME=VALUE"),
        (["--record", "reduction_every=5"], "record has no setting 'reduction_every'; did you mean 'reductions_every'"),
        (
            ["--record", "reductions_every=-5"],
            "--record reductions_every='-5': Input should be greater than or equal to",
        ),
        (["--record", "reductions_every=often"], "--record reductions_every='often': Input should be a valid integer"),
        (["--entrypoint", "digits:train"], "it has digits:main"),
        (["--time-limit", "-1"], "'--time-limit': '-1' is no length of time; write seconds, or such as 90s"),
        (["--time-limit", "400d"], "--time-limit 34560000.0: Input should be less than or equal to 31536000"),
        (["--step-limit", "500ms"], "--step-limit 0.5: Input should be greater than or equal to 1"),
        (["--grace", "2h"], "--grace 7200.0: Input should be less than or equal to 3600"),
        (["--label", "a b=c"], "--label a b: is no name of a label; use letters, digits, "),
        (["--priority", "5000"], "--priority 5000: Input should be less than or equal to 1000"),
        (["--checkpoint-every", "0"], "--checkpoint-every 0: Input should be greater than or equal to 1"),
        (["--keep", "1"], "--keep 1: Input should be greater than or equal to 2"),
        (["--name", "No Spaces"], "--name 'No Spaces': "),
    ],
)
def test_wrong_usage_exits_with_2_before_anything_is_sent(
    cli: Cli, server: EdgeServer, program: str, arguments: list[str], said: str
) -> None:
    assert cli("submit", program, *arguments) == 2
    assert said in cli.err
    assert "Traceback" not in cli.err
    assert server.layer.requests == []


@pytest.mark.parametrize(
    ("source", "said"),
    [("x = 1", "def main(run"), ("def main(run:\n", "line 1"), ("def a(run): 1\ndef b(run): 1", "digits:a, digits:b")],
)
def test_program_that_cannot_run_exits_with_2(cli: Cli, program: str, source: str, said: str) -> None:
    Path(program).write_text(source)
    assert cli("submit", program) == 2
    assert said in cli.err


def test_too_many_replicas_print_both_numbers_and_the_way_out(cli: Cli, server: EdgeServer, program: str) -> None:
    server.layer.answer_instead("POST", "/bundles", ok({}, 201))
    hint = "Ask for at most 8 replicas, or set wait_for_devices (--wait-for-devices)."
    refusal = problem(422, "too_many_replicas", "9 replicas, 8 devices", request_id="req_7", hint=hint)
    server.layer.answer_instead("POST", "/runs", refusal)
    assert cli("submit", program, "--replicas", "9") == 2
    assert "9 replicas, 8 devices" in cli.err
    assert f"Hint: {hint}" in cli.err
    assert "req_7" in cli.err


def test_refused_fields_are_listed(cli: Cli, server: EdgeServer) -> None:
    errors = [{"field": "limits.run_s", "message": "too long"}]
    server.layer.answer_instead(
        "GET", "/runs", problem(422, "invalid_request", "The request is not valid.", errors=errors)
    )
    assert cli("ps") == 2
    assert "--time-limit: too long" in cli.err


def test_nobody_there_exits_with_3_and_names_the_address(cli: Cli) -> None:
    assert cli("ps", "--url", "http://127.0.0.1:1") == 3
    assert "http://127.0.0.1:1" in cli.err


def test_unknown_server_and_wrong_token_exit_with_3(
    cli: Cli, server: EdgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_TOKEN", "drm_pat_wrong")
    assert cli("hosts") == 3
    monkeypatch.delenv("DRUMLINE_URL")
    assert cli("hosts") == 3
    assert "drumline up" in cli.err


def test_unknown_run_exits_with_2(cli: Cli) -> None:
    assert cli("watch", "run_x") == 2


def test_unknown_command_exits_with_2_and_offers_the_nearest(cli: Cli) -> None:
    assert cli("submt") == 2
    assert "Did you mean 'submit'" in cli.err


def test_command_of_a_missing_extra_exits_with_2_and_says_what_to_install(tmp_path: Path) -> None:
    # A finder that hides a library of the server, as if only `pip install drumline` had been done.
    hide = (
        "import sys, importlib.abc\n"
        "class Hidden(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'sqlalchemy', 'fastapi', 'uvicorn', 'celery', 'jax'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from drumline.cli.main import main\n"
        "main(['server', 'api'])\n"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install 'drumline[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_of_a_watched_run_is_one_document_on_stdout(cli: Cli, server: EdgeServer, program: str) -> None:
    _accept(server, events(end(1)), answers.run("SUCCEEDED", result=3))
    assert cli("submit", program, "--json") == 0
    assert json.loads(cli.out)["result"] == 3


def test_logs_are_printed_as_they_are_but_harmless(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/logs", ok(answers.logs("one\ntwo\x1b[2J", 0, 11)))
    assert cli("logs", RUN_ID) == 0
    assert cli.out == "one\ntwo"


def test_cancel_prints_the_state(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("CANCELLING")))
    server.layer.answer_instead("POST", f"/runs/{RUN_ID}:cancel", ok(answers.run("CANCELLING"), 202))
    assert cli("cancel", RUN_ID, "--grace", "5") == 0
    assert cli.out == f"{RUN_ID}  CANCELLING\n"
    assert server.layer.sent("POST", f"/runs/{RUN_ID}:cancel")[0].json() == {"grace_s": 5.0}


def test_open_prints_a_one_time_link_for_an_admin_and_a_plain_one_for_others(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    server.layer.answer_instead(
        "POST",
        "/login-codes",
        ok({"code": "abc", "expires_at": "2026-01-01T00:00:00Z"}, 201),
        problem(403, "forbidden"),
    )
    assert cli("open", RUN_ID, "--print") == 0
    assert cli.out.strip() == f"{server.url}/login?next=%2Fruns%2F{RUN_ID}#code=abc"
    assert cli("open", RUN_ID, "--json") == 0
    assert json.loads(cli.out) == {"url": f"{server.url}/runs/{RUN_ID}"}


def test_version_tells_the_server_too_and_does_without(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", ok({"version": "9.9", "protocol": 1, "capabilities": []}))
    assert cli("version", "--json") == 0
    assert json.loads(cli.out)["server"] == "9.9"
    assert cli("version", "--url", "http://127.0.0.1:1") == 0
    assert "server (none answers)" in cli.out


_HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and hands that down
from drumline.cli.main import main
main()
"""


def test_ctrl_c_detaches_and_says_how_to_go_on(server: EdgeServer, tmp_path: Path) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    server.layer.answer_instead("GET", "/stream", events(event(1, "state", state="RUNNING"), cut=True))
    environment = {**os.environ, "DRUMLINE_URL": server.url, "DRUMLINE_TOKEN": server.admin_token}
    with subprocess.Popen(
        [sys.executable, "-c", _HEARS_CTRL_C, "watch", RUN_ID],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("RUNNING")
        wait_until(lambda: bool(server.layer.sent("GET", "/stream")), timeout_s=30, what="it watches the stream")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"drumline watch {RUN_ID}" in err
    assert f"drumline cancel {RUN_ID}" in err
    assert "Traceback" not in err
    assert server.layer.sent("POST", f"/runs/{RUN_ID}:cancel") == []


def test_lost_connection_is_said_while_watching(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()), ok(answers.run("SUCCEEDED")))
    server.layer.answer_instead("GET", "/stream", events(event(1), cut=True), events(end(2)))
    assert cli("watch", RUN_ID) == 0
    assert "connection lost" in cli.err


def test_the_end_of_an_id_as_the_dashboard_shows_it_is_enough(cli: Cli, server: EdgeServer) -> None:
    run = answers.run("SUCCEEDED", result={"accuracy": 0.97})
    server.layer.answer_instead("GET", "/runs", ok(api.Page(items=(run,))))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(run))

    assert cli("watch", f"r-{RUN_ID[-5:].lower()}") == 0
    assert RUN_ID in cli.out


def test_cancel_of_a_batch_says_how_many_of_its_runs_are_still_to_be_asked(cli: Cli, server: EdgeServer) -> None:
    cancel = api.BatchCancel(requested_at=datetime.now(UTC), left=960)
    batch = answers.batch(QUEUED=960, CANCELLED=40).model_copy(update={"cancel": cancel})
    server.layer.answer_instead("GET", f"/batches/{batch.id}", ok(batch))
    server.layer.answer_instead("POST", f"/batches/{batch.id}:cancel", ok(batch, 202))

    assert cli("batches", "cancel", batch.id) == 0

    states = "960 queued, 40 cancelled; being cancelled, 960 runs still to be asked to stop"
    assert cli.out == f"{batch.id}  {states}\n"


def test_numbers_of_a_batch_that_json_does_not_have_are_named(cli: Cli, server: EdgeServer) -> None:
    batch = answers.batch(SUCCEEDED=2)
    row = {
        "run": RUN_ID, "state": "SUCCEEDED", "reason": None, "parameters": {}, "duration_s": None,
        "metrics": {"loss": 2**60 + 1}, "not_finite": {"accuracy": "NaN"},
    }  # fmt: skip
    rows = [{**row, "index": 0}, {**row, "index": 1, "metrics": {}, "not_finite": {"loss": "-Infinity"}}]
    names = [{"name": "loss", "better": "lower"}, {"name": "accuracy", "better": "higher"}]
    server.layer.answer_instead("GET", f"/batches/{batch.id}", ok(batch))
    page = {"items": rows, "next": None, "total": 2, "parameters": [], "metrics": names}
    server.layer.answer_instead("GET", f"/batches/{batch.id}/outcomes", ok(page))

    assert cli("batches", "show", batch.id) == 0

    shown = [line.split() for line in cli.out.splitlines()]
    assert shown == [
        ["RUN", "STATE", "loss", "accuracy", "DURATION"],
        [RUN_ID, "SUCCEEDED", str(2**60 + 1), "NaN", "-"],
        [RUN_ID, "SUCCEEDED", "-Infinity", "-", "-"],
    ]


def test_a_run_that_is_not_there_is_named_with_the_fix(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/runs", ok(api.Page(items=())))

    assert cli("logs", "nope") == 2
    assert "no run is called 'nope'" in cli.err
    assert "drumline ps" in cli.err
