"""No token takes the places of the others, and nobody's address is what a stranger says it is."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import select
from starlette.types import Scope

from drumline_server.base.errors import CapError, DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.http.limits import LoginLimiter, Shares
from drumline_server.http.request_context import Proxies
from drumline_server.storage.engines import SqliteStore
from drumline_server.storage.models import Audit
from support.core import submission_body
from support.edge import EdgeServer, edge_server
from support.processes import wait_until

STREAM = "/api/v1/stream"
TOPICS = {"topics": "runs"}


@contextlib.contextmanager
def streams(clients: list[Any]) -> Iterator[list[Any]]:  # Any: HTTP clients, and their answers
    """A stream of each client, all asked for at once."""
    answers: list[Any] = [None] * len(clients)
    done = threading.Event()

    def read(at: int) -> None:
        with clients[at].stream("GET", STREAM, params=TOPICS) as answer:
            if answer.status_code != 200:
                answer.read()
            answers[at] = answer
            if answer.status_code == 200:
                done.wait(60)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(len(clients))]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: None not in answers, timeout_s=60, what="every stream was answered")
        yield answers
    finally:
        done.set()
        for thread in threads:
            thread.join(30)


def signed_in(server: EdgeServer, token: str) -> Any:  # Any: an HTTP client
    browser = server.client()
    assert browser.post("/api/v1/sessions", json={"token": token}).status_code == 201
    return browser


def test_streams_of_a_token_and_its_sessions_count_together(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", live_clients_per_token=6) as server:
        token = server.token("viewer")
        mine = [server.client(token) for _ in range(10)] + [signed_in(server, token) for _ in range(10)]
        with streams(mine) as answers, streams([server.client(server.token("viewer"))]) as others:
            taken = [answer.status_code for answer in answers]
            problem = next(answer for answer in answers if answer.status_code == 429).json()
            assert (taken.count(200), taken.count(429)) == (6, 14)
            assert problem["context"]["cap"] == "DRUMLINE_LIVE_CLIENTS_PER_TOKEN"
            assert others[0].status_code == 200


def test_the_last_streams_are_kept_for_tokens_that_have_few(sqlite_url: str, tmp_path: Path) -> None:
    caps = {"live_clients": 10, "live_clients_per_token": 8, "live_clients_kept": 4, "live_clients_few": 2}
    with edge_server(sqlite_url, tmp_path / "data", **caps) as server:
        greedy, modest = server.token("viewer"), server.token("viewer")
        with streams([server.client(greedy) for _ in range(9)]) as first:
            assert [answer.status_code for answer in first].count(200) == 6
            with streams([server.client(modest) for _ in range(3)]) as second:
                assert [answer.status_code for answer in second].count(200) == 2


def test_requests_under_way_of_one_token_have_a_cap(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", requests_per_token=3) as server:
        greedy = server.token("viewer")
        with streams([server.client(greedy) for _ in range(3)]):
            refused = server.client(greedy).get("/api/v1/version")
            assert refused.status_code == 429
            assert refused.json()["context"]["cap"] == "DRUMLINE_REQUESTS_PER_TOKEN"
            assert server.admin.get("/api/v1/version").status_code == 200
        wait_until(
            lambda: server.client(greedy).get("/api/v1/version").status_code == 200,
            timeout_s=20,
            what="the places are free again",
        )


def test_a_revoked_tokens_stream_ends_at_once(any_server: EdgeServer) -> None:
    made = any_server.admin.post("/api/v1/tokens", json={"name": "v", "role": "viewer"}).json()
    ended = threading.Event()

    def read() -> None:
        with any_server.client(made["secret"]).stream("GET", STREAM, params=TOPICS) as answer:
            for _ in answer.iter_lines():
                pass
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: any_server.app.live.clients == 1, timeout_s=30, what="the stream is open")
    any_server.admin.delete(f"/api/v1/tokens/{made['id']}")

    assert ended.wait(10), "well before it would have been looked at anyway"
    reader.join(10)


def client_of(peer: str | None, *forwarded: str, ours: tuple[str, ...] = ("10.0.0.0/8", "fd00::/8")) -> str | None:
    scope = {
        "client": None if peer is None else (peer, 7),
        "headers": [(b"x-forwarded-for", each.encode("latin-1")) for each in forwarded],
    }
    Proxies(ours).find_client(scope)
    found: tuple[str, int] | None = scope["client"]  # type: ignore[assignment]  # a list elsewhere in the dict
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", ("1.2.3.4",), "1.2.3.4"),
        ("10.0.0.1", ("6.6.6.6, 1.2.3.4",), "1.2.3.4"),
        ("10.0.0.1", ("6.6.6.6", "1.2.3.4"), "1.2.3.4"),
        ("10.0.0.1", ("6.6.6.6, 1.2.3.4, 10.9.9.9",), "1.2.3.4"),
        ("10.0.0.1", ("10.0.0.3, 10.0.0.2",), "10.0.0.3"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("unknown",), "10.0.0.1"),
        ("10.0.0.1", ("6.6.6.6, unknown, 10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", ("1.2.3.4:5678",), "1.2.3.4"),
        ("10.0.0.1", ("[2001:db8::1]:443",), "2001:db8::1"),
        ("10.0.0.1", ("2001:db8::1",), "2001:db8::1"),
        ("10.0.0.1", ("::ffff:10.0.0.2",), "10.0.0.2"),
        ("::ffff:10.0.0.1", ("1.2.3.4",), "1.2.3.4"),
        ("fd00::1", ("1.2.3.4",), "1.2.3.4"),
        ("1.2.3.4", ("6.6.6.6",), "1.2.3.4"),
        (None, ("6.6.6.6",), None),
        ("testclient", ("6.6.6.6",), "testclient"),
        ("10.0.0.1", ("6.6.6.6," + "10.0.0.2," * 1_000 + "10.0.0.2",), "10.0.0.2"),
    ],
)
def test_the_last_entry_that_is_no_proxy_is_the_client(
    peer: str | None, forwarded: tuple[str, ...], client: str | None
) -> None:
    assert client_of(peer, *forwarded) == client


def test_without_named_proxies_nobody_is_believed() -> None:
    assert client_of("127.0.0.1", "6.6.6.6", ours=()) == "127.0.0.1"


@pytest.mark.parametrize("wrong", ["proxy.example", "10.0.0.0/33", "10.0.0.1/8", "*", ",".join(["10.0.0.1"] * 65)])
def test_a_proxy_that_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match=r"no address|at most 64"):
        Settings.model_validate({"proxy_addresses": wrong})


@pytest.mark.parametrize(("proxies", "client"), [("127.0.0.0/8", "1.2.3.4"), ("", "127.0.0.1")])
def test_a_login_is_noted_with_its_clients_address(sqlite_url: str, tmp_path: Path, proxies: str, client: str) -> None:
    settings = {"behind_proxy": True, "allowed_hosts": "localhost", "proxy_addresses": proxies}
    with edge_server(sqlite_url, tmp_path / "data", **settings) as server:
        headers = {"X-Forwarded-For": "6.6.6.6, 1.2.3.4", "Forwarded": "for=7.7.7.7", "X-Real-IP": "8.8.8.8"}
        answer = server.client(**headers).post("/api/v1/sessions", json={"token": server.admin_token})
        noted = server.core.read(
            lambda session: session.scalars(select(Audit).where(Audit.action == "session.open")).all()
        )

    assert answer.status_code == 201
    assert [act.client for act in noted] == [client]


def test_the_memory_of_failed_logins_is_bounded() -> None:
    limiter = LoginLimiter(2)
    for n in range(50_000):
        limiter.count_failure(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", n)

    assert limiter.addresses <= 10_000


def test_addresses_of_one_network_of_ipv6_fail_together() -> None:
    limiter = LoginLimiter(2)
    for n in range(2):
        limiter.count_failure(f"2001:db8::{n:x}", 0)

    with pytest.raises(DrumlineError, match="failed logins"):
        limiter.check("2001:db8::ffff", 1)
    limiter.check("2001:db8:0:1::1", 1)


def test_of_files_only_so_many_are_written_at_once() -> None:
    async def take() -> None:
        shares = Shares(100, reads=2, uploads=2, large=2, exports=1)
        async with shares.hold_export():
            with pytest.raises(CapError, match="DRUMLINE_EXPORTS"):
                shares.hold_export()
        async with shares.hold_export():
            pass

    asyncio.run(take())


def test_a_token_takes_turns_and_others_do_not_wait_for_it() -> None:
    async def take_turns() -> None:
        shares = Shares(100, reads=2, uploads=2, large=2, exports=1)
        mine, others = [_begun(shares, "mine") for _ in range(3)], _begun(shares, "other")
        async with shares.turn(mine[0], "read"), shares.turn(mine[1], "read"):
            waiting = asyncio.create_task(_pass(shares, mine[2]))
            await asyncio.wait_for(_pass(shares, others), 5)
            async with shares.turn(mine[2], "batch"):
                assert not waiting.done()
        await asyncio.wait_for(waiting, 5)
        for scope in (*mine, others):
            shares.end(scope)
        assert not shares._turns

    asyncio.run(take_turns())


def _begun(shares: Shares, token: str) -> Scope:
    scope: Scope = {"state": {}}
    shares.begin(scope, token)
    return scope


async def _pass(shares: Shares, scope: Scope) -> None:
    async with shares.turn(scope, "read"):
        pass


def test_a_transaction_holds_one_batch_of_a_token_at_most(sqlite_url: str, tmp_path: Path) -> None:
    """The writer commits all that waits in one transaction: of one token there is never more than one batch in it."""
    with edge_server(sqlite_url, tmp_path / "data") as server:
        token, run = server.token("submitter"), submission_body(wait_for_devices=True).model_dump(mode="json")
        run.pop("parameters")
        sweep = {"kind": "grid", "parameters": {"epochs": list(range(1, 201))}}
        under_way: list[int] = []
        store = server.app.parts.database._store
        assert isinstance(store, SqliteStore)
        perform = store._commit

        def noted(batch: list[Any]) -> None:
            under_way.append(sum("_submit.<locals>" in str(write.fn) for write in batch))
            perform(batch)

        store._commit = noted  # type: ignore[method-assign] # of the real store: what it commits together is seen nowhere else
        with ThreadPoolExecutor(12) as pool:
            answers = list(
                pool.map(
                    lambda key: server.client(token).post(
                        "/api/v1/runs:sweep", json={"run": run, "sweep": sweep}, headers={"Idempotency-Key": str(key)}
                    ),
                    range(12),
                )
            )
        assert {answer.status_code for answer in answers} == {201}
        assert max(under_way) == 1
