"""Requests over a real socket: what is repeated, what is not, and what each refusal becomes."""

import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from drumline import bundle, errors
from drumline._transport import MAX_TRIES, Body, Config, Transport
from drumline.contracts import api
from drumline.errors import ServerUnreachableError
from drumline.resources.uploads import PIECEWISE_BYTES, upload_program
from integration.sdk.conftest import Pauses
from support.edge import EdgeServer
from support.layer import NO_ANSWER, Answer, ok, problem

VERSION = {"version": "1", "protocol": 1, "capabilities": []}
EMPTY = Body(b"{}", "application/json")


@pytest.mark.parametrize("hiccup", [NO_ANSWER, Answer(502), Answer(503), problem(429, "rate_limited")])
def test_get_is_repeated_after_a_hiccup(
    transport: Transport, server: EdgeServer, hiccup: Answer, pauses: Pauses
) -> None:
    server.layer.answer_instead("GET", "/version", hiccup, hiccup, ok(VERSION))
    assert transport.get("/version", api.Version).version == "1"
    assert len(server.layer.sent("GET", "/version")) == 3
    assert 0 < pauses.lengths[0] < pauses.lengths[1]


@pytest.mark.parametrize("hiccup", [NO_ANSWER, Answer(503)])
def test_post_without_key_is_sent_once(transport: Transport, server: EdgeServer, hiccup: Answer) -> None:
    server.layer.answer_instead("POST", "/tokens", hiccup)
    with pytest.raises(errors.DrumlineError):
        transport.send("POST", "/tokens", EMPTY)
    assert len(server.layer.sent("POST", "/tokens")) == 1


def test_post_with_key_is_repeated_with_the_same_key_and_body(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("POST", "/runs", NO_ANSWER, Answer(502), ok(VERSION))
    transport.post("/runs", api.Version, Body(b'{"a": 1}', "application/json"), key="k1")
    sent = server.layer.sent("POST", "/runs")
    assert [(r.headers["idempotency-key"], r.body) for r in sent] == [("k1", b'{"a": 1}')] * 3


def test_a_twin_in_flight_is_waited_for(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("POST", "/runs", problem(409, "idempotency_in_flight"), ok(VERSION))
    assert transport.post("/runs", api.Version, EMPTY, key="k1").version == "1"


def test_other_conflicts_and_server_errors_are_not_repeated(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", problem(409, "conflict"))
    with pytest.raises(errors.ConflictError):
        transport.get("/version", api.Version)
    server.layer.answer_instead("GET", "/version", Answer(500))
    with pytest.raises(errors.ServerError):
        transport.get("/version", api.Version)
    assert len(server.layer.sent("GET", "/version")) == 2


def test_server_that_asks_for_patience_gets_it(transport: Transport, server: EdgeServer, pauses: Pauses) -> None:
    server.layer.answer_instead("GET", "/version", Answer(503, headers={"Retry-After": "2"}), ok(VERSION))
    transport.get("/version", api.Version)
    assert pauses.lengths == [2.0]


def test_trying_ends_and_the_last_answer_is_the_error(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead(
        "GET", "/version", problem(503, "unavailable", "starting", request_id="req_1", hint="wait")
    )
    with pytest.raises(errors.ServerError, match="starting") as caught:
        transport.get("/version", api.Version)
    assert (caught.value.code, caught.value.request_id, caught.value.hint) == ("unavailable", "req_1", "wait")
    assert len(server.layer.sent("GET", "/version")) == MAX_TRIES


def test_nobody_there_is_told_with_address_and_command(pauses: Pauses) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    transport = Transport(Config(url, SecretStr("drm_pat_x")), sleep=pauses)
    with pytest.raises(ServerUnreachableError, match=url) as caught:
        transport.get("/version", api.Version)
    transport.close()
    assert "drumline up" in caught.value.hint
    assert len(pauses.lengths) == MAX_TRIES - 1


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "unauthenticated", errors.AuthenticationError),
        (403, "forbidden", errors.PermissionDeniedError),
        (421, "host_not_allowed", errors.PermissionDeniedError),
        (404, "not_found", errors.NotFoundError),
        (409, "idempotency_mismatch", errors.ConflictError),
        (413, "payload_too_large", errors.PayloadTooLargeError),
        (422, "invalid_request", errors.InvalidRequestError),
        (422, "too_many_replicas", errors.TooManyReplicasError),
        (422, "bad_bundle", errors.RejectedProgramError),
        (422, "unknown_parameter", errors.RejectedProgramError),
        (400, "a_code_of_the_future", errors.InvalidRequestError),
        (500, "internal", errors.ServerError),
    ],
)
def test_each_refusal_is_its_own_class(
    transport: Transport, server: EdgeServer, status: int, code: str, expected: type[errors.APIError]
) -> None:
    server.layer.answer_instead("GET", "/version", problem(status, code, context={"replicas": 9}))
    with pytest.raises(errors.APIError) as caught:
        transport.get("/version", api.Version)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.code) == (status, code)
    assert caught.value.problem.context == {"replicas": 9}


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]"])
def test_answer_of_a_proxy_is_told_apart_from_ours(transport: Transport, server: EdgeServer, body: bytes) -> None:
    server.layer.answer_instead("GET", "/version", Answer(500, body, "text/html"))
    with pytest.raises(errors.ServerError, match="500 Internal Server Error, and not as a Drumline server"):
        transport.get("/version", api.Version)


def test_answer_of_another_shape_names_both_versions_as_the_way_out(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", ok({"release": "1"}))
    with pytest.raises(errors.ServerError) as caught:
        transport.get("/version", api.Version)
    assert "drumline version" in caught.value.hint


def test_fields_of_a_newer_server_are_ignored(transport: Transport, server: EdgeServer) -> None:
    newer: dict[str, Any] = {**VERSION, "of_tomorrow": True}
    server.layer.answer_instead("GET", "/version", ok(newer))
    assert transport.get("/version", api.Version).version == "1"


def test_redirects_are_not_followed_with_the_token(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/version", Answer(302, headers={"Location": f"{server.url}/api/v1/elsewhere"}))
    with pytest.raises(errors.APIError):
        transport.get("/version", api.Version)
    assert server.layer.sent("GET", "/elsewhere") == []


@pytest.fixture
def large(tmp_path: Path) -> bytes:
    """A program that goes piece by piece."""
    (tmp_path / "main.py").write_text("def main(run):\n    return 1\n")
    (tmp_path / "weights.bin").write_bytes(bytes(PIECEWISE_BYTES))
    return bundle.pack(tmp_path)


def test_large_bundle_is_sent_once_though_the_answer_is_lost(
    transport: Transport, server: EdgeServer, large: bytes
) -> None:
    path = f"/bundles/{bundle.digest(large)}/upload"
    server.layer.cut_after("PATCH", path)
    for _ in range(2):
        upload_program(transport, large, bundle.digest(large))
    assert len(server.layer.sent("PATCH", path)) == 1


@pytest.mark.parametrize("detail", ["", "There is nothing at /api/v1/bundles/x/upload."])
def test_large_bundle_goes_whole_to_a_server_of_the_release_before(
    transport: Transport, server: EdgeServer, large: bytes, detail: str
) -> None:
    other = large + b"\0"  # a comment of the zip, so that the server does not have it
    server.layer.answer_instead("GET", "/version", ok({**VERSION, "version": "0.0.9"}))
    server.layer.answer_instead("GET", f"/bundles/{bundle.digest(other)}/upload", problem(404, "not_found", detail))
    server.layer.answer_instead("POST", "/bundles", ok({}, 201))
    upload_program(transport, other, bundle.digest(other))
    assert [request.body for request in server.layer.sent("POST", "/bundles")] == [other]
