"""What is compressed, what is not, and that nobody gets what they cannot read."""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from drumline_server.http.layers import accepts_gzip
from support.edge import EdgeServer, edge_server

SCRIPT = b"export const a = 'drumline';\n" * 12_000
GZIP = {"Accept-Encoding": "gzip, deflate, br, zstd"}
PLAIN = {"Accept-Encoding": "identity"}
PAGE = {"Accept": "text/html"}


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    static = tmp_path / "dist"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>" + "<!-- -->" * 500)
    (static / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (static / "assets" / "small-abc.js").write_bytes(b"export {}")
    (static / "assets" / "inter-abc.woff2").write_bytes(SCRIPT)
    with edge_server(sqlite_url, tmp_path / "data", static_dir=static) as running:
        yield running


def raw(server: EdgeServer, path: str, **headers: str) -> tuple[Any, bytes]:  # Any: an HTTP answer
    """The answer, and its body as it was sent."""
    with server.admin.stream("GET", path, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


def filled(server: EdgeServer) -> None:
    for number in range(30):
        server.token("viewer", name=f"token {number}")


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip", True), ("GZIP", True), ("br, gzip;q=0.1", True), ("*", True), ("gzip; q=1.0", True),
        ("", False), ("identity", False), ("gzip;q=0", False), ("gzip;q=0.000", False), ("*;q=0", False),
        ("gzip;q=0, *", False), ("gzip;q=x", False), ("gzip;q=nan", False), ("notgzip", False), ("br", False),
    ],
)  # fmt: skip
def test_gzip_is_sent_to_those_who_accept_it(header: str, accepts: bool) -> None:
    assert accepts_gzip(Headers({"accept-encoding": header})) is accepts


@pytest.mark.parametrize("path", ["/assets/index-abc.js", "/runs"])
def test_files_are_compressed_with_a_validator_of_their_own(server: EdgeServer, path: str) -> None:
    packed, body = raw(server, path, **GZIP, **PAGE)
    plain, whole = raw(server, path, **PLAIN, **PAGE)

    assert gzip.decompress(body) == whole
    assert len(body) < len(whole) / 10
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["cache-control"] == plain.headers["cache-control"]
    assert packed.headers["content-type"] == plain.headers["content-type"]
    for answer, accepted in ((packed, GZIP), (plain, PLAIN)):
        again, nothing = raw(server, path, **accepted, **PAGE, **{"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, nothing, again.headers["etag"]) == (304, b"", answer.headers["etag"])
    other, whole_again = raw(server, path, **PLAIN, **PAGE, **{"If-None-Match": packed.headers["etag"]})
    assert (other.status_code, whole_again) == (200, whole)


def test_a_file_that_changed_is_compressed_again(server: EdgeServer) -> None:
    raw(server, "/assets/index-abc.js", **GZIP)
    static = server.app.settings.static_dir
    assert static is not None
    (static / "assets" / "index-abc.js").write_bytes(SCRIPT + b"// more")

    assert gzip.decompress(raw(server, "/assets/index-abc.js", **GZIP)[1]).endswith(b"// more")


@pytest.mark.parametrize("path", ["/assets/small-abc.js", "/assets/inter-abc.woff2"])
def test_small_files_and_fonts_are_sent_as_they_are(server: EdgeServer, path: str) -> None:
    assert "content-encoding" not in raw(server, path, **GZIP)[0].headers


def test_a_range_of_a_file_is_answered_with_the_whole(server: EdgeServer) -> None:
    answer, body = raw(server, "/assets/inter-abc.woff2", Range="bytes=0-9,20-29")

    assert (answer.status_code, body) == (200, SCRIPT)


def test_json_is_compressed_from_a_kilobyte_on(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    for _ in range(30):
        server.core.submit(wait_for_devices=True)
    packed, body = raw(server, "/api/v1/runs", **GZIP)
    plain, whole = raw(server, "/api/v1/runs", **PLAIN)
    small, _ = raw(server, "/api/v1/version", **GZIP)

    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(body) < len(whole) / 2
    assert json.loads(gzip.decompress(body)).keys() == json.loads(whole).keys()
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in small.headers
    assert run.id in whole.decode()


def test_answers_with_secrets_are_never_compressed(server: EdgeServer) -> None:
    filled(server)
    answers = [
        server.admin.post("/api/v1/tokens", json={"name": "n" * 100}, headers=GZIP),
        server.admin.post("/api/v1/login-codes", headers=GZIP),
        server.client().post("/api/v1/sessions", json={"token": server.admin_token}, headers=GZIP),
        server.admin.get("/api/v1/tokens", headers=GZIP),
    ]

    assert [answer.status_code for answer in answers] == [201, 201, 201, 200]
    assert len(answers[-1].content) > 4096
    assert all("content-encoding" not in answer.headers for answer in answers)


def test_a_stream_is_neither_compressed_nor_held_back(server: EdgeServer) -> None:
    with server.admin.stream("GET", "/api/v1/stream", params={"topics": "runs"}, headers=GZIP) as answer:
        pieces = answer.iter_raw()
        first = next(pieces)
        began = time.monotonic()
        server.core.submit(wait_for_devices=True)
        hint = next(pieces)
        took_s = time.monotonic() - began

    assert "content-encoding" not in answer.headers
    assert b": drumline" in first
    assert b"event: hint" in hint
    assert took_s < 10
