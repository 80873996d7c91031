"""What runs keep, in an object store: from the host by signed addresses, over lines that break, and back."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from drumline import Client
from support.deployment import QUICKER, Deployment
from support.object_store import ObjectServer, object_server
from support.processes import wait_until

V1 = "/api/v1"
MIB = 2**20


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


KEEPS = """
import pathlib

def main(run, *, size: int):
    pathlib.Path("big.bin").write_bytes(bytes(range(256)) * (size // 256))
    pathlib.Path("small.txt").write_text("small")
    return [run.save_artifact("big.bin"), run.save_artifact("small.txt"), run.save_artifact("big.bin", "same.bin")]
"""


def test_what_a_run_keeps_goes_from_its_host_into_the_store_and_from_there_to_who_asks(
    objects: ObjectServer, tmp_path: Path
) -> None:
    objects.reset()
    size = 20 * MIB
    source = tmp_path / "keeps.py"
    source.write_text(KEEPS)
    settings = {**QUICKER, **objects.environment(DRUMLINE_STORE=objects.url)}
    deployment = Deployment.start(tmp_path / "up", "--cpu-devices", "1", environment=settings)
    try:
        deployment.wait_for_devices(1)
        with Client(deployment.url, deployment.token) as client:
            objects.line.break_after(12 * MIB)  # in the second piece
            run = client.submit(source, parameters={"size": size}).wait(120)
            wait_until(lambda: all(one.is_stored for one in run.artifacts()), timeout_s=60, what="all of it is there")
            same, small, big = run.artifacts()
            objects.line.truncate_after(5 * MIB)  # while it is read
            saved = big.save(tmp_path / "big").read_bytes()
            read = objects.sent("GET", f"{big.details.sha256[9:]}-")
            plain = httpx2.get(
                f"{deployment.url}{V1}/runs/{run.id}/artifacts/{small.details.id}/file",
                headers={"Authorization": f"Bearer {deployment.token}"},
            )
    finally:
        deployment.stop()
    assert run.result == [True] * 3
    assert saved == bytes(range(256)) * (size // 256)
    assert plain.content == b"small", "who does not ask for an address has it from the server"
    assert same.details.sha256 == big.details.sha256
    pieces = [int(name.rpartition("/")[2]) for name in objects.sent("PUT", "/unfinished/")]
    assert sorted({*pieces}) == [0, 8 * MIB, 16 * MIB]
    assert len(read) >= 2, "once by an address that broke, and once again"
    written = {name for name in objects.sent("PUT") if name[:2] + name[3:65] == big.details.sha256[7:]}
    assert len(written) == 1, "two names, one content"
