"""What the command line tells of a run that waits or would: `why` and `plan`."""

from datetime import UTC, datetime, timedelta

import pytest

from drumline.contracts import api
from support import answers
from support.answers import RUN_ID
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import ok


@pytest.mark.parametrize("state", ["QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING"])
def test_why_is_told_in_every_state_that_can_wait(cli: Cli, server: EdgeServer, state: str) -> None:
    starts = api.Prediction(at=datetime.now(UTC) + timedelta(days=2, minutes=1), basis="the time limit of run_1\x1b[2J")
    why = api.Why(rule="no_hosts", sentence="No worker with a device has registered.", remedy="Start.", starts=starts)
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run(state, why=why)))

    assert cli("why", RUN_ID) == 0

    assert cli.out.splitlines() == [
        f"{RUN_ID}  {state}",
        "No worker with a device has registered. Start.",
        "  expected to start in 2 d 00 h, by the time limit of run_1",
        "  rule no_hosts",
    ]


def test_why_tells_a_start_that_is_overdue_as_such(cli: Cli, server: EdgeServer) -> None:
    starts = api.Prediction(overdue_s=185, basis="the time limit of run_1")
    why = api.Why(rule="devices_busy", sentence="Devices are busy.", starts=starts)
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("QUEUED", why=why)))

    assert cli("why", RUN_ID) == 0

    assert "  expected to start by now, 3 m 05 s over, by the time limit of run_1" in cli.out.splitlines()


def test_why_of_a_start_that_passed_on_its_way_here_tells_no_time_in_the_past(cli: Cli, server: EdgeServer) -> None:
    starts = api.Prediction(at=datetime.now(UTC) - timedelta(seconds=65), basis="the time limit of run_1")
    why = api.Why(rule="devices_busy", sentence="Devices are busy.", starts=starts)
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("QUEUED", why=why)))

    assert cli("why", RUN_ID) == 0

    assert "expected to start by now, 1 m 0" in cli.out


@pytest.mark.parametrize(("state", "said"), [("RUNNING", "is not held up"), ("SUCCEEDED", "has ended")])
def test_why_of_a_run_that_does_not_wait_says_so(cli: Cli, server: EdgeServer, state: str, said: str) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run(state)))

    assert cli("why", RUN_ID) == 0
    assert cli.out == f"{RUN_ID}  {state}  It {said}: it waits for nothing.\n"
    assert cli("why", RUN_ID, "--json") == 0
    assert cli.out == "null\n"


def test_plan_prints_placement_and_the_reason_to_wait(cli: Cli, server: EdgeServer, program: str) -> None:
    server.layer.answer_instead("POST", "/bundles", ok({}, 201))
    server.layer.answer_instead("POST", "/plan", ok(answers.plan(), 201))
    assert cli("plan", program, "-n", "2", "--no-probe") == 0
    assert "it would wait: Needs 2 devices on one host; box has 1 free." in cli.out
    assert [line.split() for line in cli.out.splitlines() if "cpu:" in line] == [
        ["0", "0", "0", "box", "cpu:0"],
        ["1", "1", "0", "box", "cpu:1"],
    ]
    sent = server.layer.sent("POST", "/plan")[-1].json()
    assert (sent["probe"], sent["run"]["resources"]["replicas"]) == (None, 2)


def test_plan_of_a_program_that_fails_shows_its_output_and_exits_with_1(
    cli: Cli, server: EdgeServer, program: str
) -> None:
    server.layer.answer_instead("POST", "/bundles", ok({}, 201))
    server.layer.answer_instead("POST", "/plan", ok(answers.plan("waiting"), 201))
    failed = answers.plan("failed", fault="program_error", message="ValueError: no", output="line 1\n\x1b[31mline 2\n")
    server.layer.answer_instead("GET", f"/plan/{answers.PLAN_ID}", ok(answers.plan("running")), ok(failed))
    assert cli("plan", program) == 1
    assert "ValueError: no\nline 1" in cli.out
    assert "\x1b" not in cli.out


@pytest.mark.parametrize(("option", "value"), [("--steps", "0"), ("--probe-limit", "9999")])
def test_plan_refuses_terms_out_of_range(cli: Cli, program: str, option: str, value: str) -> None:
    assert cli("plan", program, option, value) == 2
    assert value in cli.err


def test_why_prints_what_the_server_warns_of(cli: Cli, server: EdgeServer) -> None:
    warning = {"code": "no_shared_store", "message": "Its hosts share no checkpoint store."}
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("RUNNING", warnings=[warning])))

    assert cli("why", RUN_ID) == 0
    assert cli.err.splitlines() == ["warning: Its hosts share no checkpoint store."]
    assert cli("why", RUN_ID, "--json") == 0
    assert cli.out.splitlines()[-1] == "null"
