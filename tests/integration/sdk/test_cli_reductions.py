"""`drumline reductions`: names, the reductions of a name page by page, and how each came to its result."""

import json
from typing import Any

import pytest

from support.answers import ATTEMPT_ID, RUN_ID
from support.answers import run as answer_of_run
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import ok

PATH = f"/runs/{RUN_ID}/reductions"


@pytest.fixture
def served(server: EdgeServer) -> EdgeServer:
    """A run with three reductions of a loss, in steps 0, 10 and 20."""
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answer_of_run()))
    names = [{"name": "loss", "op": "mean", "axis": 0, "origin": "host", "recorded": 3, "steps": [0, 10, 20]}]
    server.layer.answer_instead("GET", f"{PATH}/names", ok({"names": [{**one, "ragged_steps": []} for one in names]}))
    found = [_reduction(number) for number in range(3)]
    server.layer.answer_instead("GET", PATH, ok({"items": found, "next": None}))
    for one in found:
        server.layer.answer_instead("GET", f"{PATH}/{one['id']}", ok(one))
    return server


def test_names_are_listed_with_their_steps(cli: Cli, served: EdgeServer) -> None:
    assert cli("reductions", RUN_ID) == 0
    headings, row = cli.out.splitlines()
    assert headings.split() == ["NAME", "OP", "AXIS", "WHERE", "RECORDED", "FIRST", "STEP", "LAST", "STEP"]
    assert row.split() == ["loss", "mean", "0", "outside", "of", "steps", "3", "0", "20"]
    assert cli("reductions", RUN_ID, "--json") == 0
    assert json.loads(cli.out)[0]["steps"] == [0, 10, 20]


def test_reductions_of_a_name_are_listed_so_many_at_a_time(cli: Cli, served: EdgeServer) -> None:
    assert cli("reductions", RUN_ID, "--name", "loss", "--limit", "2") == 0
    rows = [row.split() for row in cli.out.splitlines()[1:]]
    assert rows == [["0", "loss", "mean", "0", "2", "3"], ["10", "loss", "mean", "0", "2", "3"]]
    assert cli.err == "there are more; --from 20 continues there\n"
    assert cli("reductions", RUN_ID, "--name", "loss", "--from", "20") == 0
    asked = [sent.query for sent in served.layer.sent("GET", PATH)]
    assert asked == [{"name": ["loss"]}, {"name": ["loss"], "step_from": ["20"]}]


def test_a_reduction_is_explained_and_replayed(cli: Cli, served: EdgeServer) -> None:
    assert cli("reductions", RUN_ID, "--step", "10", "--explain", "--limit", "1") == 0
    lines = cli.out.splitlines()
    assert lines[0] == "loss, step 0: mean over replicas and axis 0"
    assert lines[-1] == "  replayed: bit for bit, added in the order of the replicas"
    assert cli.err == "there are more than 1; --limit takes up to 1000, --name one name of them\n"
    assert served.layer.sent("GET", PATH)[0].query == {"step_from": ["10"], "step_to": ["10"]}
    assert cli("reductions", RUN_ID, "--step", "10", "--explain", "--json") == 0
    assert [one["denominator"] for one in json.loads(cli.out)] == [3, 3, 3]


def test_what_was_not_recorded_is_told_with_how_to_find_what_was(cli: Cli, served: EdgeServer) -> None:
    served.layer.answer_instead("GET", PATH, ok({"items": [], "next": None}))
    assert cli("reductions", RUN_ID, "--name", "less") == 0
    assert (cli.out, cli.err) == ("", "nothing of that was recorded; `drumline reductions RUN` lists the names\n")
    served.layer.answer_instead("GET", f"{PATH}/names", ok({"names": []}))
    assert cli("reductions", RUN_ID) == 0
    assert cli.err.startswith("the run recorded no reduction; --record reductions_every=N")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--explain"], "needs --name, --step or --from"), (["--step", "1", "--from", "1"], "give one")],
)
def test_options_that_say_too_little_or_too_much_are_refused(
    cli: Cli, served: EdgeServer, arguments: list[str], told: str
) -> None:
    assert cli("reductions", RUN_ID, *arguments) == 2
    assert told in cli.err


def _reduction(number: int) -> dict[str, Any]:
    parts = [{"shape": [2], "dtype": "float32", "values": [1, 2]}, {"shape": [1], "dtype": "float32", "values": [6]}]
    return {
        "id": f"red_{number:026d}", "attempt": ATTEMPT_ID, "step": 10 * number, "name": "loss", "op": "mean",
        "axis": 0, "origin": "host", "replicas": 2, "ragged": True, "result_shape": [], "result": 3.0,
        "inputs": parts, "counts": [2, 1], "denominator": 3, "output": {**parts[1], "shape": [], "values": [3]},
        "recorded_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
