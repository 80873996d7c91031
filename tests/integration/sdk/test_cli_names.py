"""What the command line calls by name: metrics, attempts, runs; and what it says where there is none of that name."""

from pathlib import Path

import pytest

from support import answers
from support.answers import RUN_ID
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import Answer, ok, problem


def _name_metrics(server: EdgeServer, *names: str) -> None:
    found = [{"name": name, "unit": "", "n": 1, "first_step": 0, "last_step": 0} for name in names]
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/metrics/names", ok({"items": found, "next": None}))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/metrics.csv", Answer(200, b"run,attempt\n", "text/csv"))


@pytest.mark.parametrize(
    ("known", "typed", "told"),
    [
        (("train/loss", "accuracy"), "train/los", "no metric 'train/los'; did you mean 'train/loss'?"),
        (("loss", "accuracy"), "zzz\x1b[2J", "no metric 'zzz\\x1b[2J'; it has 'loss' and 'accuracy'"),
        ((), "loss", "no metric 'loss'; it has none yet"),
    ],
)
def test_a_metric_that_the_run_has_not_is_named_with_the_nearest(
    *, cli: Cli, server: EdgeServer, tmp_path: Path, known: tuple[str, ...], typed: str, told: str
) -> None:
    _name_metrics(server, *known)
    target = tmp_path / "points.csv"

    assert cli("metrics", RUN_ID, *known, typed, "-o", str(target)) == 2
    assert f"{RUN_ID} has {told}" in cli.err
    assert not target.exists()
    assert [cli("metrics", RUN_ID, *known), cli("metrics", RUN_ID)] == [0, 0]


_RULE = "is no name of a label; use letters, digits, '.', '_', '-' and '/', at most 63, a letter or digit first"


@pytest.mark.parametrize("name", ["a b", "-team", "é", "x" * 64])
def test_the_rule_for_names_of_labels_is_said_in_words(cli: Cli, server: EdgeServer, program: str, name: str) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run()))
    for command in (("submit", program), ("mark", RUN_ID), ("mark", "--where", "loss < 1")):
        assert cli(*command, "--label", f"{name}=1") == 2
        assert cli.err == f"Error: --label {name}: {_RULE}\n"


def test_rest_says_it_once_and_the_command_line_too(cli: Cli, server: EdgeServer) -> None:
    change = {"action": {"kind": "label", "labels": {"a b": "1"}}, "where": ""}
    told = server.admin.post("/api/v1/runs:change", json=change).json()
    assert told["detail"] == f"action.labels.a b: {_RULE}; got 'a b'"

    fields = [*told["errors"], {"field": "limits.run_s", "message": "is too long"}]
    for errors, rest in ((fields[:1], []), (fields, ["  --time-limit: is too long"])):
        server.layer.answer_instead("GET", "/runs", problem(422, "invalid_request", told["detail"], errors=errors))
        assert cli("ps") == 2
        assert cli.err.splitlines() == [f"Error: --label a b: {_RULE}; got 'a b'", *rest]


def test_an_attempt_is_named_by_its_number_as_on_pages_or_by_its_id(cli: Cli, server: EdgeServer) -> None:
    attempt = {
        "fence": 1, "state": "RUNNING", "reason": None, "created_at": answers.NOW.isoformat(), "started_at": None,
        "ended_at": None, "members": [],
    }  # fmt: skip
    ids = (answers.SECOND_ATTEMPT_ID, answers.ATTEMPT_ID)
    attempts = [{**attempt, "id": attempt_id, "number": number} for attempt_id, number in zip(ids, (2, 1), strict=True)]
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/attempts", ok({"items": attempts, "next": None}))
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/logs", ok(answers.logs("one\n", 0, 4)))
    _name_metrics(server)

    for named in ("1", answers.ATTEMPT_ID):
        assert cli("metrics", RUN_ID, "--attempt", named) == 0
        assert cli("logs", RUN_ID, "--attempt", named) == 0
    paths = (f"/runs/{RUN_ID}/metrics.csv", f"/runs/{RUN_ID}/logs")
    asked = [request.query["attempt"] for path in paths for request in server.layer.sent("GET", path)]
    assert asked == [[answers.ATTEMPT_ID]] * 4
    for command in ("metrics", "logs"):
        assert cli(command, RUN_ID, "--attempt", "3") == 2
        assert f"{RUN_ID} has no attempt '3'; it has 1 and 2" in cli.err
