"""Programs that cost far more to read than to send: refused in time, and nobody else notices."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from drumline_server.bundles.reading import Reading
from support.edge import EdgeServer
from support.zips import make_zip

MIB = 2**20
_PYTHON = {"Content-Type": "text/x-python"}
_ENTRY = b"def main(run):\n    pass\n"


@pytest.fixture(autouse=True)
def _impatient(server: EdgeServer) -> None:
    """Little processor time, and much patience with a busy machine."""
    server.app.state.reading = Reading(cpu_s=1.0, deadline_s=120.0)


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

    assert answer.status_code in (httpx2.codes.CREATED, httpx2.codes.UNPROCESSABLE_ENTITY)
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

    assert first.status_code == again.status_code == httpx2.codes.UNPROCESSABLE_ENTITY
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

    assert answer.status_code == httpx2.codes.UNPROCESSABLE_ENTITY
    assert "over 200 entrypoints" in answer.json()["detail"]


def test_content_that_was_read_once_is_not_read_again(server: EdgeServer) -> None:
    archive = make_zip("train.py", content=_ENTRY)
    headers = {"Content-Type": "application/zip"}
    first = server.admin.post("/api/v1/bundles", content=archive, headers=headers)
    reading = server.app.state.reading
    before = [each.process.pid for each in reading._children if each.process]

    other = server.client(server.token("submitter", server.core.add_project("other")))
    again = other.post("/api/v1/bundles", content=archive, headers=headers)

    assert first.json() == again.json()
    assert server.app.state.blobs.note(first.json()["sha256"]) is not None
    assert [each.process.pid for each in reading._children if each.process] == before
