"""A bundle that is sent piece by piece: what came of it counts, and only that."""

import asyncio
import hashlib
import os
import random
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from drumline import Client, bundle
from drumline.contracts.base import Sha256
from drumline_server.base.errors import DrumlineError
from drumline_server.storage.blob_files import FileStore
from support.edge import EdgeServer
from support.processes import wait_until
from support.proxy import proxy_to

V1 = "/api/v1"
MIB = 2**20


@pytest.fixture
def packed(tmp_path: Path) -> bytes:
    """A program of some kilobytes."""
    (tmp_path / "one.py").write_text("def main(run):\n    return 1\n" + "# a line\n" * 200)
    return bundle.pack(tmp_path / "one.py")


def send(client: httpx2.Client, packed: bytes, begin: int, end: int, sha256: Sha256 | None = None) -> httpx2.Response:
    address = f"{V1}/bundles/{sha256 or bundle.digest(packed)}/upload"
    headers = {"Content-Type": "application/octet-stream"}
    where = {"offset": begin, "size": len(packed)}
    return client.patch(address, params=where, content=packed[begin:end], headers=headers)


def received(client: httpx2.Client, packed: bytes) -> int:
    return int(client.get(f"{V1}/bundles/{bundle.digest(packed)}/upload").json()["received_bytes"])


def left_behind(data_dir: Path) -> list[Path]:
    blobs = data_dir / "blobs"
    return [*(blobs / "incoming").iterdir(), *blobs.glob("unfinished/*/*")]


def test_a_client_whose_line_breaks_again_and_again_sends_what_is_missing(server: EdgeServer, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "main.py").write_text("def main(run):\n    return 1\n")
    (program / "weights.bin").write_bytes(random.Random(1).randbytes(8 * MIB))
    with proxy_to(server.url) as proxy, Client(proxy.url, server.admin_token) as client:
        proxy.break_after(3 * MIB, 3 * MIB)
        run = client.submit(program, wait_for_devices=True)
        passed = proxy.passed

        assert run.details.state == "QUEUED"
        assert 8 * MIB < passed < 11 * MIB
        assert left_behind(server.data_dir) == []
        client.submit(program, wait_for_devices=True)
        assert proxy.passed - passed < MIB, "what the server has is not sent again"


def test_a_piece_that_begins_elsewhere_is_refused_with_where_to_go_on(server: EdgeServer, packed: bytes) -> None:
    half = len(packed) // 2
    first = send(server.admin, packed, 0, half).json()
    assert (first["received_bytes"], first["bundle"]) == (half, None)
    other = server.client(server.token("submitter"))
    assert (received(server.admin, packed), received(other, packed)) == (half, 0), "each token has its own"
    again = send(server.admin, packed, 0, half)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert again.json()["context"] == {"received_bytes": half}

    whole = send(server.admin, packed, half, len(packed)).json()
    assert whole["bundle"] == server.admin.get(f"{V1}/bundles/{bundle.digest(packed)}").json()
    assert other.get(f"{V1}/bundles/{bundle.digest(packed)}/upload").json() == whole
    assert left_behind(server.data_dir) == []


def test_bytes_that_are_another_bundle_or_too_many_are_refused(server: EdgeServer, packed: bytes) -> None:
    named = f"sha256:{hashlib.sha256(b'another').hexdigest()}"
    wrong = send(server.admin, packed, 0, len(packed), named)
    assert (wrong.json()["code"], bundle.digest(packed) in wrong.json()["detail"]) == ("bad_bundle", True)
    assert left_behind(server.data_dir) == []
    address = f"{V1}/bundles/{bundle.digest(packed)}/upload"
    more = server.admin.patch(address, params={"offset": 0, "size": 5}, content=packed)
    assert (more.status_code, "5 bytes were announced" in more.json()["detail"]) == (422, True)
    large = server.admin.patch(address, params={"offset": 0, "size": 2**39}, content=packed)
    assert (large.status_code, large.json()["code"]) == (413, "payload_too_large")
    no_program = b"no zip"
    refused = send(server.admin, no_program, 0, len(no_program))
    assert (refused.json()["code"], received(server.admin, no_program)) == ("bad_bundle", 0)


def test_what_came_before_a_line_broke_is_kept(server: EdgeServer) -> None:
    noise = random.Random(2).randbytes(2 * MIB)
    with proxy_to(server.url) as proxy:
        proxy.break_after(MIB)
        client = httpx2.Client(base_url=proxy.url, headers=server.admin.headers)
        with client, pytest.raises(httpx2.TransportError):
            send(client, noise, 0, len(noise))
    wait_until(lambda: received(server.admin, noise) > 0, timeout_s=30, what="some of it is there")


def test_one_request_at_a_time_adds_to_an_upload_and_the_oldest_of_many_gives_way(tmp_path: Path) -> None:
    blobs = FileStore(tmp_path)
    digests = [f"sha256:{number:064x}" for number in range(9)]
    sizes: list[list[int]] = []

    async def look() -> None:
        sizes.append([await blobs.received("one", digest) for digest in digests])

    async def send() -> None:
        async with blobs.unfinished("one", digests[0]) as upload, AsyncExitStack() as second:
            upload.add(b"some")
            with pytest.raises(DrumlineError, match="Another request sends"):
                await second.enter_async_context(blobs.unfinished("one", digests[0]))
        for age, digest in enumerate(digests[1:]):
            async with blobs.unfinished("one", digest) as upload:
                upload.add(b"more")
                os.utime(upload.file.name, (1_000 + age, 1_000 + age))
        async with blobs.unfinished("two", digests[0]) as upload:
            upload.add(b"own")
        await look()
        assert await blobs.received("two", digests[0]) == 3
        await blobs.remove_old_incoming(1_004 * 1_000_000)
        await look()

    asyncio.run(send())
    assert sizes == [[4, 0, *[4] * 7], [4, 0, 0, 0, 0, 4, 4, 4, 4]]
