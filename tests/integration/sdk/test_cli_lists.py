"""What the command line lists: runs and hosts, as tables and as JSON."""

import json
import unicodedata
from typing import Any

import pytest

from drumline.contracts.base import new_id
from support import answers
from support.answers import RUN_ID
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import ok

DEVICE_ID = new_id("dev")


@pytest.mark.parametrize(
    ("arguments", "path", "page"),
    [
        (["ps"], "/runs", {"items": [], "next": None}),
        (["hosts"], "/hosts", {"items": [], "next": None}),
    ],
)
def test_json_of_nothing_is_an_empty_list(
    cli: Cli, server: EdgeServer, arguments: list[str], path: str, page: dict[str, Any]
) -> None:
    server.layer.answer_instead("GET", path, ok(page))
    assert cli(*arguments, "--json") == 0
    assert json.loads(cli.out) == []


def test_ps_lists_runs_and_stops_at_its_limit(cli: Cli, server: EdgeServer) -> None:
    summary = json.loads(
        answers.run(owner={"name": "ann"}, progress={"step": 5, "total_steps": 9, "steps_per_s": 2.5}).model_dump_json()
    )
    server.layer.answer_instead("GET", "/runs", ok({"items": [summary] * 3, "next": "more"}))
    assert cli("ps", "--live", "--limit", "2") == 0
    headings, *rows = cli.out.splitlines()
    assert headings.split() == ["RUN", "JOB", "OWNER", "STATE", "REPLICAS", "STEPS", "RATE", "AGE"]
    assert [row.split()[:7] for row in rows] == [[RUN_ID, "digits", "v1", "ann", "RUNNING", "8", "mirrored"]] * 2
    assert "RUNNING" in server.layer.sent("GET", "/runs")[0].query["state"]


def test_ps_lists_the_runs_of_an_owner_or_ones_own(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/runs", ok({"items": [], "next": None}))
    assert [cli("ps", "--owner", "ann"), cli("ps", "--mine")] == [0, 0]
    assert [sent.query["owner"] for sent in server.layer.sent("GET", "/runs")] == [["ann"], ["local admin"]]
    assert cli("ps", "--mine", "--owner", "ann") == 2


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("state:running", "use --state running"),
        ("stat:running", "'stat' is no filter; did you mean 'state'?"),
        ("host:me", "filter by --state, --job, --version, --owner, --batch, --label"),
    ],
)
def test_ps_names_a_filter_that_is_none_instead_of_finding_no_run(cli: Cli, word: str, told: str) -> None:
    assert cli("ps", word) == 2
    assert told in " ".join(cli.err.split())


def test_a_result_with_nan_is_marked_in_lists_and_at_the_end(cli: Cli, server: EdgeServer) -> None:
    odd = answers.run(state="SUCCEEDED", result={"loss": "NaN"}, not_finite={"loss": "NaN"})
    server.layer.answer_instead("GET", "/runs", ok({"items": [json.loads(odd.model_dump_json())], "next": None}))
    assert cli("ps") == 0
    assert "SUCCEEDED (NaN in its result)" in cli.out


def test_json_says_the_same_without_characters_that_drive_a_terminal(cli: Cli, server: EdgeServer) -> None:
    odd = "a\x1b[2J\x7f\x9b31m\u202eb\u2028\u200f\U000e0041é"
    summary = json.loads(answers.run(labels={"who": odd}).model_dump_json())
    server.layer.answer_instead("GET", "/runs", ok({"items": [summary], "next": None}))
    assert cli("ps", "--json") == 0
    assert json.loads(cli.out)[0]["labels"] == {"who": odd}
    assert [character for character in cli.out if unicodedata.category(character) in ("Cc", "Cf", "Zl")] == ["\n"]


def reason(code: str) -> dict[str, Any]:
    return {"code": code, "category": "infrastructure", "retryable": False, "sentence": "It ended."}


@pytest.mark.parametrize(
    ("state", "changes", "shown"),
    [
        ("QUEUED", {"wait": {"rule": "devices_busy", "phrase": "devices are busy"}}, "QUEUED (devices are busy)"),
        ("RUNNING", {"wait": {"rule": "finishing", "phrase": "last records"}}, "RUNNING (last records)"),
        ("RUNNING", {"reason": reason("KILLED")}, "RUNNING "),
        ("FAILED", {"reason": reason("HANG")}, "FAILED (HANG)"),
        ("CANCELLED", {"reason": reason("CANCELLED")}, "CANCELLED "),
        ("SUCCEEDED", {"reason": reason("COMPLETED")}, "SUCCEEDED "),
    ],
)
def test_ps_says_what_a_run_waits_for_and_why_one_failed(
    cli: Cli, server: EdgeServer, state: str, changes: dict[str, Any], shown: str
) -> None:
    summary = json.loads(answers.run(state, **changes).model_dump_json())
    server.layer.answer_instead("GET", "/runs", ok({"items": [summary], "next": None}))
    assert cli("ps") == 0
    assert f"digits v1  unknown  {shown}" in cli.out


def host_answer(name: str = "box", **changes: Any) -> dict[str, Any]:
    return {
        "id": answers.HOST_ID, "name": name, "state": "live", "devices": 8, "free_devices": 3,
        "platforms": ["cpu"], "version": "1", "jax_version": "0.10.2", "cpu_count": 2, "memory_bytes": 2**33,
        "registered_at": answers.NOW.isoformat(), "last_heartbeat_at": answers.NOW.isoformat(), "runs": [], **changes,
    }  # fmt: skip


def device_answer() -> dict[str, Any]:
    quarantine = {
        "reason": "lease_ran_out", "sentence": "Its host fell silent.", "since": answers.NOW.isoformat(),
        "run": RUN_ID, "attempt": new_id("att"), "member": new_id("mem"), "probed_at": None,
        "probe_message": "Processes survive: 7.",
    }  # fmt: skip
    return {
        "id": DEVICE_ID, "host": answers.HOST_ID, "host_name": "box", "platform": "gpu", "index": 3, "kind": "H200",
        "memory_bytes": None, "coords": None, "core_on_chip": None, "simulated": False, "state": "QUARANTINED",
        "run": None, "job": None, "replica": None, "quarantine": quarantine,
    }  # fmt: skip


def test_hosts_tell_free_devices_and_memory(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/hosts", ok({"items": [host_answer("box\x1b[2J")], "next": None}))
    server.layer.answer_instead("GET", "/devices", ok({"items": [], "next": None}))
    assert cli("hosts") == 0
    assert cli.out.splitlines()[1].split()[:7] == ["box", "live", "3/8", "cpu", "2", "8.0", "GiB"]


def test_hosts_tell_every_quarantine_with_its_evidence(cli: Cli, server: EdgeServer) -> None:
    failure = {"run": RUN_ID, "job": "digits", "reason": "KILLED", "at": answers.NOW.isoformat()}
    trouble = {
        "kind": "quarantined", "sentence": "3 runs failed.", "since": answers.NOW.isoformat(), "failures": [failure]
    }  # fmt: skip
    server.layer.answer_instead(
        "GET", "/hosts", ok({"items": [host_answer(state="quarantined", trouble=trouble)], "next": None})
    )
    server.layer.answer_instead("GET", "/devices", ok({"items": [device_answer()], "next": None}))
    assert cli("hosts") == 0
    assert f"box: quarantined. 3 runs failed. {RUN_ID} KILLED" in cli.out
    assert f"gpu:3 on box: quarantined. Its host fell silent. Processes survive: 7. Run {RUN_ID}." in cli.out


@pytest.mark.parametrize(("verb", "state"), [("drain", "draining"), ("undrain", "live"), ("release", "live")])
def test_host_is_drained_and_released_by_name(cli: Cli, server: EdgeServer, verb: str, state: str) -> None:
    server.layer.answer_instead("GET", "/hosts", ok({"items": [host_answer()], "next": None}))
    server.layer.answer_instead("POST", f"/hosts/{answers.HOST_ID}:{verb}", ok(host_answer(state=state)))
    assert cli("hosts", verb, "box") == 0
    assert cli.out == f"box  {state}\n"


def test_device_is_released_by_host_and_index(cli: Cli, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/hosts", ok({"items": [host_answer()], "next": None}))
    server.layer.answer_instead("GET", "/devices", ok({"items": [device_answer()], "next": None}))
    server.layer.answer_instead(
        "POST", f"/devices/{DEVICE_ID}:release", ok({**device_answer(), "state": "FREE", "quarantine": None})
    )
    assert cli("hosts", "release", "box", "--device", "gpu:3") == 0
    assert cli.out == "gpu:3 on box  FREE\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("drain", "bx"), "no host is called 'bx'; there are: box"), (("release", "box", "--device", "gpu:9"), "gpu:3")],
)
def test_unknown_hosts_and_devices_are_named_with_those_there_are(
    cli: Cli, server: EdgeServer, arguments: tuple[str, ...], said: str
) -> None:
    server.layer.answer_instead("GET", "/hosts", ok({"items": [host_answer()], "next": None}))
    server.layer.answer_instead("GET", "/devices", ok({"items": [device_answer()], "next": None}))
    assert cli("hosts", *arguments) == 2
    assert said in cli.err
