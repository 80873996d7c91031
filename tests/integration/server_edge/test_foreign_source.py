"""Programs that cost far more to read than to send: refused in time, and nobody else notices."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from drumline_server.base.errors import DrumlineError
from drumline_server.services.bundle_reading import MOST_WAITING, Reading, Task
from support.edge import EdgeServer, edge_server
from support.processes import wait_until
from support.zips import make_zip

MIB = 2**20
_PYTHON = {"Content-Type": "text/x-python"}
_ENTRY = b"def main(run):\n    pass\n"


@pytest.fixture(autouse=True)
def _impatient(server: EdgeServer) -> None:
    """Little processor time (the kernel counts whole seconds), and much patience with a busy machine."""
    server.app.parts = replace(server.app.parts, reading=Reading(cpu_s=0.5, deadline_s=120.0))


def _nested_strings() -> bytes:
    return _ENTRY + b"a=f'" + b"{a}" * ((MIB - 100) // 3) + b"'\n"


def _statements() -> bytes:
    return _ENTRY + b"a;" * ((MIB - 100) // 2) + b"a\n"


def _upload(client: httpx2.Client, source: bytes, filename: str = "train.py") -> httpx2.Response:
    return client.post("/api/v1/bundles", params={"filename": filename}, content=source, headers=_PYTHON, timeout=150)


@pytest.mark.parametrize("source", [_nested_strings(), _statements()], ids=["f-strings", "statements"])
def test_source_that_takes_minutes_to_parse_is_refused_and_healthz_answers_meanwhile(
    server: EdgeServer, source: bytes
) -> None:
    submitter, other = server.admin, server.client()
    worst = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal worst
        while not done.is_set():
            began = time.monotonic()
            assert other.get("/healthz").status_code == httpx2.codes.OK
            worst = max(worst, time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        answer = _upload(submitter, source)
        done.set()
        watching.result()

    assert answer.status_code in (httpx2.codes.CREATED, httpx2.codes.UNPROCESSABLE_CONTENT)
    if answer.status_code != httpx2.codes.CREATED:
        problem = answer.json()
        assert problem["code"] == "bad_bundle"
        assert "train.py is too much to read" in problem["detail"]
        assert ".drumlineignore" in problem["hint"] + problem["detail"]
    assert worst < 1.0, "the interpreter was held"


def test_source_that_was_too_much_is_refused_at_once_the_next_time(server: EdgeServer) -> None:
    submitter = server.admin
    first = _upload(submitter, _nested_strings())
    began = time.monotonic()

    again = _upload(submitter, _nested_strings())

    assert first.status_code == again.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
    assert first.json()["detail"] == again.json()["detail"]
    assert time.monotonic() - began < 3


def test_one_caller_that_sends_much_to_read_keeps_nobody_else_waiting(server: EdgeServer) -> None:
    greedy, other = server.admin, server.client(server.token("submitter"))
    sources = [_nested_strings() + b"#" + str(number).encode() for number in range(3)]

    with ThreadPoolExecutor(len(sources)) as pool:
        uploads = [pool.submit(_upload, greedy, source) for source in sources]
        answer = _upload(other, _ENTRY)
        assert answer.status_code == httpx2.codes.CREATED
        assert not all(upload.done() for upload in uploads), "the other caller waited for all of them"
        assert {upload.result().status_code for upload in uploads} <= {422, 429}


def test_a_caller_with_many_programs_to_read_is_refused_and_nobody_else_is(tmp_path: Path) -> None:
    dear, cheap = tmp_path / "dear.zip", tmp_path / "cheap.zip"
    dear.write_bytes(make_zip("train.py", content=_nested_strings()))
    cheap.write_bytes(make_zip("train.py", content=_ENTRY))

    async def read_all() -> tuple[list[DrumlineError], bytes]:
        reading = Reading()
        greedy = [asyncio.create_task(reading.read(Task("inspect", (dear,)), "greedy")) for _ in range(40)]
        try:
            await asyncio.sleep(0)
            refused = [error for task in greedy if task.done() and isinstance(error := task.exception(), DrumlineError)]
            return refused, await reading.read(Task("inspect", (cheap,)), "other")
        finally:
            for task in greedy:
                task.cancel()
            await asyncio.gather(*greedy, return_exceptions=True)
            await reading.close()

    refused, read = asyncio.run(read_all())

    assert len(refused) == 40 - MOST_WAITING
    assert {error.code for error in refused} == {"rate_limited"}
    assert b"train:main" in read


def test_sessions_of_a_token_are_one_caller(server: EdgeServer) -> None:
    token = server.token("submitter")
    browser = server.client(**{"Origin": server.url, "X-Drumline": "1"})
    assert browser.post("/api/v1/sessions", json={"token": token}).status_code == httpx2.codes.CREATED
    reading = server.app.parts.reading

    with ThreadPoolExecutor(2) as pool:
        uploads = [
            pool.submit(_upload, client, _nested_strings() + b"#" + name)
            for client, name in [(server.client(token), b"token"), (browser, b"session")]
        ]
        wait_until(
            lambda: list(reading.turns.waiting.values()) == [len(uploads)],
            timeout_s=20,
            what="both are read or wait",
        )
        assert {upload.result().status_code for upload in uploads} <= {422, 429}


def test_parameters_that_nobody_could_list_are_refused(server: EdgeServer) -> None:
    parameters = b", ".join(b"p%d=0" % number for number in range(200))
    source = b"".join(b"def f%d(run, %b): pass\n" % (number, parameters) for number in range(100))

    answer = _upload(server.admin, source)

    assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
    assert "over 262144 characters" in answer.json()["detail"]


def test_a_good_program_is_read_after_a_bad_one_killed_its_reader(server: EdgeServer) -> None:
    submitter = server.admin
    assert _upload(submitter, _nested_strings()).is_client_error
    assert _upload(submitter, _statements()).is_client_error

    answer = _upload(submitter, _ENTRY)

    assert answer.status_code == httpx2.codes.CREATED
    assert [offered["entrypoint"] for offered in answer.json()["entrypoints"]] == ["train:main"]


def test_more_entrypoints_than_anybody_chooses_from_are_refused(server: EdgeServer) -> None:
    source = b"".join(b"def f%d(run): pass\n" % number for number in range(300))

    answer = _upload(server.admin, source)

    assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
    assert "over 200 entrypoints" in answer.json()["detail"]


def test_content_that_was_read_once_is_not_read_again(server: EdgeServer) -> None:
    archive = make_zip("train.py", content=_ENTRY)
    headers = {"Content-Type": "application/zip"}
    first = server.admin.post("/api/v1/bundles", content=archive, headers=headers)
    reading = server.app.parts.reading
    before = [each.process.pid for each in reading._children if each.process]

    other = server.client(server.token("submitter", server.core.add_project("other")))
    again = other.post("/api/v1/bundles", content=archive, headers=headers)

    assert first.json() == again.json()
    assert asyncio.run(server.app.parts.blobs.note(first.json()["sha256"])) is not None
    assert [each.process.pid for each in reading._children if each.process] == before


def test_a_reader_stays_for_the_next_program_however_much_memory_the_server_has(server: EdgeServer) -> None:
    of_the_server = b"\x01" * (256 * MIB)  # Linux counts it into the highest use of each process that starts from here
    answer = _upload(server.admin, _ENTRY)
    reading = server.app.parts.reading
    readers = [each.process.pid for each in reading._children if each.process]
    again = _upload(server.admin, _ENTRY + b"# another\n")

    assert len(of_the_server) == 256 * MIB
    assert (answer.status_code, again.status_code) == (httpx2.codes.CREATED, httpx2.codes.CREATED)
    assert [each.process.pid for each in reading._children if each.process] == readers


def test_no_bundle_takes_the_last_of_the_disk(tmp_path: Path) -> None:
    with edge_server(f"sqlite:///{tmp_path}/own.db", tmp_path / "own", disk_kept_bytes=2**60) as server:
        answer = _upload(server.admin, _ENTRY)

        assert answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE
        assert "bytes left" in answer.json()["detail"]
        assert "DRUMLINE_DISK_KEPT_BYTES" in answer.json()["hint"]
        assert list((tmp_path / "own" / "blobs" / "incoming").iterdir()) == []
        assert server.admin.get("/api/v1/runs").status_code == httpx2.codes.OK


def test_a_project_fills_its_quota_of_bundles_and_not_the_disk(tmp_path: Path) -> None:
    blobs = tmp_path / "own" / "blobs"
    with edge_server(f"sqlite:///{tmp_path}/own.db", tmp_path / "own", project_bundle_bytes=2_000) as server:
        taken = 0
        while (answer := _upload(server.admin, _ENTRY + b"# %d\n" % taken)).status_code == httpx2.codes.CREATED:
            taken += 1
        stored = sum(file.stat().st_size for file in blobs.glob("??/*") if not file.suffix)
        again = _upload(server.admin, _ENTRY + b"# 0\n")
        other = server.client(server.token("submitter", server.core.add_project("other")))

        assert taken > 1
        assert stored <= 2_000
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
        assert "DRUMLINE_PROJECT_BUNDLE_BYTES" in answer.json()["hint"]
        assert answer.json()["context"]["used_bytes"] == 100 + stored  # the core's project has a bundle of 100 bytes
        assert list((blobs / "incoming").iterdir()) == []
        assert again.status_code == httpx2.codes.CREATED
        assert _upload(other, _ENTRY).status_code == httpx2.codes.CREATED


def test_further_uploads_of_a_token_wait_and_those_of_others_do_not(tmp_path: Path) -> None:
    incoming = tmp_path / "own" / "blobs" / "incoming"
    done = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield _ENTRY
        done.wait(8)
        yield b"# the end\n"

    def upload(client: httpx2.Client) -> int:
        return client.post("/api/v1/bundles", content=slowly(), headers=_PYTHON, timeout=60).status_code

    with (
        edge_server(f"sqlite:///{tmp_path}/own.db", tmp_path / "own", uploads_per_token=2) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        token = server.token("submitter")
        uploads = [pool.submit(upload, server.client(token)) for _ in range(4)]
        wait_until(lambda: len(list(incoming.iterdir())) == 2, timeout_s=30, what="two uploads are received")
        assert _upload(server.admin, _ENTRY).status_code == httpx2.codes.CREATED
        assert len(list(incoming.iterdir())) == 2
        done.set()
        assert {each.result() for each in uploads} == {httpx2.codes.CREATED}


def test_slow_readers_keep_few_large_answers_in_memory(tmp_path: Path) -> None:
    with edge_server(f"sqlite:///{tmp_path}/own.db", tmp_path / "own", large_answers_per_token=2) as server:
        token = server.token("viewer")
        archive = make_zip(*(f"{number}.txt" for number in range(7)), content=b"\x01" * 500_000)
        made = server.admin.post("/api/v1/bundles", content=archive, headers={"Content-Type": "application/zip"}).json()
        source = f"/api/v1/bundles/{made['sha256']}/source"
        with contextlib.ExitStack() as reading:
            for _ in range(2):
                plain = server.client(token, **{"Accept-Encoding": "identity"})  # compressed it fits into a socket
                slow = reading.enter_context(plain.stream("GET", source))
                assert slow.status_code == httpx2.codes.OK
            refused = server.client(token).get(source)
            assert refused.status_code == httpx2.codes.TOO_MANY_REQUESTS
            assert refused.json()["context"]["cap"] == "DRUMLINE_LARGE_ANSWERS_PER_TOKEN"
            assert server.client(token).get("/api/v1/runs").status_code == httpx2.codes.OK
            assert server.admin.get(source).status_code == httpx2.codes.OK
        wait_until(
            lambda: server.client(token).get(source).status_code == httpx2.codes.OK,
            timeout_s=20,
            what="their places are free again",
        )
