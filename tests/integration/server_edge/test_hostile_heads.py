"""A head costs the interpreter little, whatever it holds, and no body is read before its sender is known."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from fastapi.routing import APIRoute
from starlette.types import Message, Scope

from drumline.contracts import api
from drumline_server.app.application import Application, create_app, default_project
from drumline_server.base.settings import Settings
from drumline_server.http.dependencies import guards_of
from drumline_server.http.layers import Dashboard
from drumline_server.services import access

T = TypeVar("T")
HELD_S = 0.05
"""What one request may hold the interpreter for at a time; everything before its body is far below."""
KIB_16 = 16_000
OPEN = {"/healthz", "/readyz", "/api/v1/sessions"}
PAGES = {"/", "/assets/index.js"}

HOSTILE: dict[str, list[tuple[bytes, bytes]]] = {
    "quoted cookie": [(b"cookie", b'drumline="' + b"\\" * 15_000)],
    "cookie under its cap": [(b"cookie", b'drumline="' + b"\\" * 8_000)],
    "octal cookie": [(b"cookie", b'drumline="' + b"\\101" * 2_000 + b'"')],
    "many cookies": [(b"cookie", b"a=b;" * 2_000)],
    "cookies of no name": [(b"cookie", b";=" * 4_000)],
    "quoted content type": [(b"content-type", b"application/json" + b';"' * 7_000)],
    "content type of parameters": [(b"content-type", b"application/json" + b";a=b" * 3_800)],
    "encoded content type": [(b"content-type", b"application/json" + b";a*0*=%41" * 1_700)],
    "multipart": [(b"content-type", b"multipart/form-data; boundary=" + b"a" * 15_000)],
    "accept": [(b"accept", b"text/html;q=0," * 1_100)],
    "accept-encoding": [(b"accept-encoding", b"gzip;q=0.1," * 1_400)],
    "range": [(b"range", b"bytes=" + b"0-0," * 3_900)],
    "ranges apart": [(b"range", b"bytes=" + b",".join(b"%d-%d" % (n * 3, n * 3) for n in range(1_400)))],
    "if-none-match": [(b"if-none-match", b'W/"a",' * 2_600)],
    "if-modified-since": [(b"if-modified-since", b"(" * 15_000)],
    "if-range": [(b"if-range", b"Mon, " * 3_000), (b"range", b"bytes=0-1")],
    "bearer": [(b"authorization", b"Bearer " + b"drm_pat_" * 1_900)],
    "bearer of blanks": [(b"authorization", b"Bearer" + b" " * 15_000 + b"x")],
    "basic": [(b"authorization", b"Basic " + b"=" * 15_000)],
    "origin": [(b"origin", b"http://" + b"a:" * 7_000), (b"cookie", b"drumline=x")],
    "forwarded": [(b"x-forwarded-for", b"1.1.1.1," * 1_900)],
    "last event": [(b"last-event-id", b"run_x=1," * 1_900)],
    "key": [(b"idempotency-key", b"!" * 15_000)],
    "many headers": [(b"x-%d" % n, b"a" * 100) for n in range(99)],
    "length": [(b"content-length", b"9" * 15_000)],
}
QUERIES = {
    "no query": b"",
    "blank parameters": b"&" * 90,
    "encoded": b"q=" + b"%41" * 5_000,
    "broken codes": b"q=" + b"%" * 15_000,
    "plus": b"+" * 15_000,
    "token-like": b"q=" + b"drm_" * 3_700,
    "positions": b"topics=" + b"run:," * 2_000 + b"&from=" + b"=" * 4_000,
    "cursor": b"cursor=" + b"W" * 15_000 + b"&limit=" + b"9" * 500,
    "too many": b"a=1&" * 3_900,
}


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Application]:
    """The whole application, in this very loop."""
    static = directory / "dist"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>")
    (static / "assets" / "index.js").write_bytes(b"export {}\n" * 40_000)
    app = create_app(
        Settings(data_dir=directory / "data", static_dir=static, loops=False, proxy_addresses=("10.0.0.0/8",))
    )
    async with app.router.lifespan_context(app):
        await status_of(app, scope_of("GET", "/healthz", []), no_body)
        gc.collect()
        gc.freeze()  # as a server does at its start: what tests before left is none of its garbage
        yield app


def routes_of(app: Application) -> list[tuple[str, str]]:
    return [("GET", "/"), ("HEAD", "/assets/index.js"), ("GET", "/assets/index.js")] + [
        (method, route.path.replace("{", "").replace("}", ""))
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    ]


def scope_of(method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes = b"") -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("10.0.0.1", 1),
        "server": ("localhost", 80),
        "state": {},
    }


async def status_of(app: Application, scope: Scope, receive: Callable[[], Awaitable[Message]]) -> int:
    statuses: list[int] = []
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # the client stays
        is_read = True
        return await receive()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, read, send)
    return statuses[0]


async def no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def forbidden_body() -> Message:
    raise AssertionError("the body was read")


def test_a_hostile_head_holds_the_interpreter_for_a_moment(tmp_path: Path) -> None:
    async def longest() -> dict[str, float]:
        took: dict[str, float] = {}
        async with running(tmp_path) as app:
            for name, headers in HOSTILE.items():
                for method, path in routes_of(app):
                    began = time.thread_time()
                    status = await status_of(app, scope_of(method, path, headers), no_body)
                    took[f"{name}: {method} {path}: {status}"] = time.thread_time() - began
            for name, query in QUERIES.items():
                for method, path in routes_of(app):
                    began = time.thread_time()
                    status = await status_of(app, scope_of(method, path, [], query), no_body)
                    took[f"{name}: {method} {path}: {status}"] = time.thread_time() - began
        return took

    took = asyncio.run(longest())

    assert len(took) > 1_500
    assert {name: held for name, held in took.items() if held > HELD_S} == {}
    assert {name for name in took if name.endswith(": 500")} == set()


@pytest.mark.parametrize(
    "path", ["/" + "a/" * 7_900, "/api/v1/" + "a" * 15_000, "/" + "%" * 15_000, "/" + "../" * 5_000]
)
def test_a_hostile_address_holds_the_interpreter_for_a_moment(tmp_path: Path, path: str) -> None:
    async def asked() -> tuple[int, float]:
        async with running(tmp_path) as app:
            began = time.thread_time()
            status = await status_of(app, scope_of("GET", path, [(b"accept", b"text/html")]), no_body)
            return status, time.thread_time() - began

    status, held = asyncio.run(asked())

    assert status < 500
    assert held < HELD_S


def test_no_route_reads_a_body_before_it_knows_who_asks(tmp_path: Path) -> None:
    async def statuses() -> dict[str, int]:
        async with running(tmp_path) as app:
            return {
                f"{method} {path} with {sent}": await status_of(
                    app,
                    scope_of(method, path, [(b"content-length", b"9"), (b"content-type", b"application/json"), *sent]),
                    forbidden_body,
                )
                for sent in ([], [(b"authorization", b"Bearer drm_pat_x")], [(b"cookie", b"drumline=x")])
                for method, path in routes_of(app)
                if path not in OPEN | PAGES
                if not (sent and sent[0][0] == b"cookie" and method != "GET")  # refused for want of an Origin
            }

    found = asyncio.run(statuses())

    assert len(found) > 100
    assert {name: status for name, status in found.items() if status != 401} == {}


def test_a_role_that_is_too_small_is_told_before_its_body_is_read(tmp_path: Path) -> None:
    async def statuses() -> dict[str, int]:
        async with running(tmp_path) as app:
            now = app.clock.now()
            request = api.TokenCreate(name="viewer", role="viewer")
            made = await app.parts.database.write(
                lambda session: access.create_token(
                    session,
                    request,
                    project_id=default_project(session, now=now),
                    by=api.PrincipalRef(name="test"),
                    now=now,
                )
            )
            bearer = (b"authorization", b"Bearer " + made.secret.get_secret_value().encode())
            return {
                f"{method} {path}": await status_of(
                    app, scope_of(method, path, [bearer, (b"content-length", b"9")]), forbidden_body
                )
                for method, path in routes_of(app)
                if method == "POST" and path not in OPEN and not path.startswith("/api/v1/worker/")
            }

    found = asyncio.run(statuses())

    assert len(found) > 10
    assert set(found.values()) == {403}


def test_every_guard_is_one_that_speaks_first(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path / "data", loops=False))
    guarded = {route.path: list(guards_of(route.dependant)) for route in app.routes if isinstance(route, APIRoute)}

    assert {path for path, guards in guarded.items() if not guards} == OPEN
    assert isinstance(app.router.default, Dashboard), "all else is answered without a body"


def test_health_is_answered_while_every_thread_of_the_database_is_taken(tmp_path: Path) -> None:
    async def answered() -> int:
        async with running(tmp_path) as app:
            free = asyncio.Event()
            loop = asyncio.get_running_loop()

            def hold(_: object) -> None:
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result()

            held = [asyncio.create_task(app.parts.database.read(hold)) for _ in range(50)]
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(5):
                    return await status_of(app, scope_of("GET", "/healthz", []), forbidden_body)
            finally:
                free.set()
                await asyncio.gather(*held)

    assert asyncio.run(answered()) == 200
