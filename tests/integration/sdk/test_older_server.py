"""A client that is newer than its server says so, where the server refuses what it does not know."""

from importlib.metadata import version
from typing import Any

import pytest

from drumline import errors
from drumline._transport import Body, Transport
from drumline.contracts import api
from drumline.contracts.worker_api import PROTOCOL_VERSION
from support.command_line import Cli
from support.edge import EdgeServer
from support.layer import NO_ANSWER, Answer, ok, problem

OURS = version("drumline")
OLD = {"version": "0.0.9", "protocol": 1, "capabilities": []}
RUN = "run_00000000000000000000000000"
ASKED: dict[str, tuple[str, str, dict[str, Any] | None, bytes | None]] = {
    "a route": ("GET", f"/runs/{RUN}/curves-of-tomorrow", None, None),
    "a method": ("PUT", "/runs", None, b"{}"),
    "a parameter of a list": ("GET", "/runs", {"of_tomorrow": "1"}, None),
    "a field": ("POST", "/tokens", None, b'{"name": "a", "kind": "enr", "of_tomorrow": true}'),
}


def _ask(transport: Transport, what: str) -> None:
    method, path, params, body = ASKED[what]
    content = None if body is None else Body(body, "application/json")
    transport.send(method, path, content, params=params)


@pytest.mark.parametrize("what", ASKED)
def test_a_server_that_does_not_know_it_is_named_with_both_versions_and_the_fix(
    transport: Transport, server: EdgeServer, what: str
) -> None:
    """Refusals as servers give them since 0.1.0; only the version is made up."""
    server.layer.answer_instead("GET", "/version", ok(OLD))
    with pytest.raises(errors.ServerTooOldError, match=r"drumline 0\.0\.9, older than this client") as caught:
        _ask(transport, what)
    error = caught.value
    assert (error.server_version, error.client_version) == ("0.0.9", OURS)
    assert server.url in str(error)
    assert str(error).endswith(str(error.refusal))
    assert f"upgrade the server to drumline {OURS}" in error.hint
    assert error.status == error.refusal.status
    assert len(server.layer.sent("GET", "/version")) == 1


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize(
    "told", [{**OLD, "version": OURS, "protocol": PROTOCOL_VERSION}, {**OLD, "version": "99.1", "protocol": 99}]
)
def test_a_server_of_this_or_a_newer_version_has_refused_a_mistake(
    transport: Transport, server: EdgeServer, what: str, told: dict[str, Any]
) -> None:
    server.layer.answer_instead("GET", "/version", ok(told))
    with pytest.raises(errors.APIError) as caught:
        _ask(transport, what)
    assert not isinstance(caught.value, errors.ServerTooOldError)


def test_builds_of_one_version_are_told_apart_by_their_protocol(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", ok({**OLD, "version": OURS, "protocol": PROTOCOL_VERSION - 1}))
    with pytest.raises(errors.ServerTooOldError, match=rf"drumline {OURS} \(protocol {PROTOCOL_VERSION - 1}\), older"):
        _ask(transport, "a route")


@pytest.mark.parametrize("told", [NO_ANSWER, Answer(500), ok({"release": "1"})])
def test_where_its_version_is_not_to_be_had_the_refusal_stays_as_it_is(
    transport: Transport, server: EdgeServer, told: Answer
) -> None:
    server.layer.answer_instead("GET", "/version", told)
    with pytest.raises(errors.NotFoundError, match="There is nothing at"):
        _ask(transport, "a route")
    assert len(server.layer.sent("GET", "/version")) == 1


@pytest.mark.parametrize("odd", ["", "tomorrow", "1" * 5_000, "0.0.9rc1+local"])
def test_an_odd_version_is_older_than_every_one(transport: Transport, server: EdgeServer, odd: str) -> None:
    server.layer.answer_instead("GET", "/version", ok({**OLD, "version": odd}))
    with pytest.raises(errors.APIError, match="There is nothing at") as caught:
        _ask(transport, "a route")
    assert isinstance(caught.value, errors.ServerTooOldError) is (not odd.startswith("111"))


def test_a_thing_that_is_missing_is_missing_on_an_older_server_too(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", ok(OLD))
    with pytest.raises(errors.NotFoundError, match="There is no run"):
        transport.get(f"/runs/{RUN}", api.Run)
    assert server.layer.sent("GET", "/version") == []


def test_an_answer_that_lacks_what_this_client_reads_is_of_an_older_server(
    transport: Transport, server: EdgeServer
) -> None:
    server.layer.answer_instead("GET", "/hosts", ok({"machines": []}))
    server.layer.answer_instead("GET", "/version", ok(OLD))
    with pytest.raises(errors.ServerTooOldError, match="is not what this client knows"):
        transport.get("/hosts", api.Page[api.Host])


def test_the_command_line_ends_with_the_code_of_a_server_that_cannot(server: EdgeServer, cli: Cli) -> None:
    server.layer.answer_instead("GET", "/version", ok(OLD))
    server.layer.answer_instead(
        "GET", "/hosts", problem(404, "not_found", "There is nothing at /api/v1/hosts.", request_id="req_1")
    )
    assert cli("hosts") == 3
    assert f"is drumline 0.0.9, older than this client, drumline {OURS}" in cli.err
    assert f"Hint: upgrade the server to drumline {OURS}" in cli.err
    assert "Request: req_1" in cli.err
