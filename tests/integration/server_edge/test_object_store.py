"""Programs in an object store: sent and read by signed addresses, over lines that break, and judged by the server."""

import asyncio
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr, ValidationError

from drumline import Client, bundle
from drumline.errors import StoreUnreachableError
from drumline_server.app.application import prepare
from drumline_server.base.errors import StoreError
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.stored import BundleSweep
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.storage import object_store
from drumline_server.storage.blobs import open_store
from drumline_worker.agent.api import Api, BundleMismatchError, MemberKeys, UnreachableError
from drumline_worker.agent.host_cache import BundleCache
from support.deployment import DRUMLINE, QUICKER, Deployment
from support.edge import EdgeServer, Setup, edge_server
from support.layer import Answer
from support.object_store import BUCKET, SECRET, ObjectServer
from support.processes import wait_until

V1 = "/api/v1"
MIB = 2**20
DAY_S = 86_400
PYTHON = {"Content-Type": "text/x-python"}


@pytest.fixture
def server(bucket_server: EdgeServer, monkeypatch: pytest.MonkeyPatch) -> EdgeServer:
    """A server whose programs are in the bucket, and come in pieces of two MiB."""
    monkeypatch.setattr(object_store, "PIECE_BYTES", 2 * MIB)
    return bucket_server


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program of five MiB: three pieces."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "main.py").write_text("def main(run):\n    return 1\n")
    (folder / "weights.bin").write_bytes(random.Random(1).randbytes(5 * MIB))
    return folder


def stored(objects: ObjectServer) -> list[str]:
    """What is in the bucket, beside the mark and notes."""
    settings = Settings(store=objects.url)
    listed = open_store(settings)
    assert isinstance(listed, object_store.ObjectStore)

    async def names() -> list[str]:
        return sorted([each.place async for each in listed._listed("")])

    return [name for name in asyncio.run(names()) if "." not in name]


def test_a_large_program_goes_into_the_store_by_itself_and_continues_where_the_line_broke(
    objects: ObjectServer, server: EdgeServer, program: Path
) -> None:
    packed = bundle.pack(program)
    objects.line.break_after(3 * MIB)  # in the second piece
    with Client(server.url, server.admin_token) as client:
        sent = objects.line.passed
        run = client.submit(program, wait_for_devices=True)

    assert run.details.state == "QUEUED"
    pieces = [name.rpartition("/")[2] for name in objects.sent("PUT", "/unfinished/")]
    assert pieces == [f"{begin:013d}" for begin in (0, 2 * MIB, 2 * MIB, 4 * MIB)]
    assert objects.line.passed - sent < 3.2 * len(packed), "pieces that were there are not sent again"
    digest = bundle.digest(packed).removeprefix("sha256:")
    assert [name[:66] for name in stored(objects)] == [f"{digest[:2]}/{digest[2:]}-"]
    source = server.admin.get(f"{V1}/bundles/sha256:{digest}/source").json()
    assert source["files"] == {"main.py": "def main(run):\n    return 1\n"}


def test_nobody_is_given_the_stores_secret_and_an_address_is_for_one_piece(
    objects: ObjectServer, server: EdgeServer, program: Path
) -> None:
    packed = bundle.pack(program)
    path = f"{V1}/bundles/{bundle.digest(packed)}/upload"
    assert server.admin.get(path).json()["by_address"] is True
    given = server.admin.post(f"{path}/address", params={"offset": 0, "size": len(packed)})
    address = given.json()

    assert (given.status_code, address["size_bytes"]) == (200, 2 * MIB)
    assert SECRET not in given.text
    assert httpx2.get(address["url"]).status_code in (403, 404), "nothing is there yet"
    ahead = server.admin.post(f"{path}/address", params={"offset": 7, "size": len(packed)})
    assert (ahead.status_code, ahead.json()["context"]) == (409, {"received_bytes": 0})
    beyond = server.admin.post(f"{path}/address", params={"offset": 9, "size": 9})
    assert (beyond.status_code, "is not below" in beyond.json()["detail"]) == (422, True)

    httpx2.put(address["url"], content=packed + b"more").raise_for_status()
    done = server.admin.patch(path, params={"offset": len(packed), "size": len(packed)})
    assert done.json()["context"] == {"received_bytes": 0}, "more than was announced counts as nothing"
    assert stored(objects) == []
    httpx2.put(address["url"], content=packed[:-1] + b"?").raise_for_status()
    wrong = server.admin.patch(path, params={"offset": len(packed), "size": len(packed)})
    assert wrong.json()["code"] == "bad_bundle"
    assert (stored(objects), server.admin.get(path).json()["received_bytes"]) == ([], 0)


def test_an_address_that_is_no_longer_good_is_asked_for_again(
    objects: ObjectServer, server: EdgeServer, program: Path, tmp_path: Path
) -> None:
    with Client(server.url, server.admin_token) as client:
        client._transport.sleep = lambda _: setattr(objects.door, "ahead_s", 0.0)
        objects.door.ahead_s = 301
        client.submit(program, wait_for_devices=True)
    refused = server.admin.get(f"{V1}/bundles/{bundle.digest(bundle.pack(program))}")
    assert refused.status_code == 200
    api = worker_api(server, tmp_path)

    async def fetch() -> None:
        objects.door.ahead_s = 301
        with pytest.raises(UnreachableError, match=r"object store 127\.0\.0\.1 answered 403"):
            await api.fetch_bundle(refused.json()["sha256"], tmp_path / "late")
        objects.door.ahead_s = 200  # of 300: a busy machine may take its time
        await api.fetch_bundle(refused.json()["sha256"], tmp_path / "early")
        await api.close()

    asyncio.run(fetch())
    assert (tmp_path / "early").read_bytes() == bundle.pack(program)


def test_a_copy_that_came_in_part_is_noticed_and_fetched_again(
    objects: ObjectServer, server: EdgeServer, program: Path, tmp_path: Path
) -> None:
    with Client(server.url, server.admin_token) as client:
        client.submit(program, wait_for_devices=True)
    packed = bundle.pack(program)
    location = stored(objects)[0]
    api = worker_api(server, tmp_path)

    async def fetch() -> None:
        objects.line.truncate_after(MIB)
        with pytest.raises(UnreachableError):
            await api.fetch_bundle(bundle.digest(packed), tmp_path / "cut")
        whole = Answer(200, packed[:MIB], "application/zip")
        with objects.door.refuse("GET", f"/{BUCKET}/a/place/{location}", whole):
            with pytest.raises(BundleMismatchError):
                await api.fetch_bundle(bundle.digest(packed), tmp_path / "short")
            told = await asyncio.to_thread(server.admin.get, f"{V1}/bundles/{bundle.digest(packed)}/source")
            assert (told.status_code, "another content" in told.json()["detail"]) == (503, True)
        objects.line.truncate_after(MIB)
        for folder in ("cache", "run"):
            (tmp_path / folder).mkdir()
        await BundleCache(tmp_path / "cache", api, 2**30).extract(bundle.digest(packed), tmp_path / "run")
        await api.close()

    asyncio.run(fetch())
    assert (tmp_path / "run" / "weights.bin").stat().st_size == 5 * MIB
    objects.line.truncate_after(MIB)
    assert server.admin.get(f"{V1}/bundles/{bundle.digest(packed)}/source").status_code == 200, "the server reads on"


def test_a_worker_of_the_release_before_gets_the_bytes_from_the_server(
    objects: ObjectServer, server: EdgeServer
) -> None:
    source = server.admin.post(f"{V1}/bundles", content=b"def main(run): pass\n", headers=PYTHON).json()
    worker = server.client(server.worker_token(server.core.add_worker().host_id))
    answer = worker.get(f"{V1}/worker/bundles/{source['sha256']}")
    moved = worker.get(f"{V1}/worker/bundles/{source['sha256']}", params={"direct": True})

    assert bundle.digest(answer.content) == source["sha256"]
    assert (moved.status_code, moved.content) == (307, b"")
    assert moved.headers["location"].startswith(f"{objects.line.url}/{BUCKET}/a/place/{source['sha256'][7:9]}/")
    incoming = server.data_dir / "blobs" / "incoming"
    wait_until(lambda: not list(incoming.iterdir()), timeout_s=30, what="the copy is gone once it was sent")


def test_a_slow_store_holds_nobody_but_who_needs_it(objects: ObjectServer, server: EdgeServer) -> None:
    goes_on = threading.Event()
    objects.door.delay("PUT", f"/{BUCKET}/*", goes_on)
    with ThreadPoolExecutor(8) as pool:
        uploads = [
            pool.submit(server.admin.post, f"{V1}/bundles", content=b"def main(run): %d\n" % nth, headers=PYTHON)
            for nth in range(8)
        ]
        wait_until(lambda: len(objects.sent("PUT")) >= 8, timeout_s=60, what="the store is asked")
        others = [server.admin.get(path).status_code for path in ("/healthz", f"{V1}/runs", "/readyz")]
        under_way = [each for each in uploads if not each.done()]
        goes_on.set()

        assert (others, len(under_way)) == ([200, 200, 200], 8)
        assert {each.result(60).status_code for each in uploads} == {201}


def test_a_store_that_is_away_is_told_of_and_comes_back(
    objects: ObjectServer, server: EdgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_CHECKED_S", 0.0)
    assert server.client().get("/readyz").text == "ready\n"
    objects.line.cut()
    away = server.client().get("/readyz")
    upload = server.admin.post(f"{V1}/bundles", content=b"def main(run): pass\n", headers=PYTHON)
    objects.line.mend()

    assert (away.status_code, f"The store of content, {objects.url}, cannot be used" in away.text) == (503, True)
    assert (upload.status_code, upload.json()["code"]) == (503, "unavailable")
    assert server.client().get("/healthz").status_code == 200
    assert server.client().get("/readyz").text == "ready\n"


def test_what_nothing_names_goes_from_the_store_and_what_comes_at_the_moment_stays(
    objects: ObjectServer, server: EdgeServer, program: Path
) -> None:
    packed = bundle.pack(program)
    path = f"{V1}/bundles/{bundle.digest(packed)}/upload"
    address = server.admin.post(f"{path}/address", params={"offset": 0, "size": len(packed)}).json()
    httpx2.put(address["url"], content=packed[: address["size_bytes"]]).raise_for_status()
    source = server.admin.post(f"{V1}/bundles", content=b"def main(run): pass\n", headers=PYTHON).json()
    settings = Settings(data_dir=server.data_dir, store=objects.url)
    core = server.core
    round_ = BundleSweep(core.database, settings, core.clock, SoleServer().guard).round
    asyncio.run(round_())
    assert [len(stored(objects)), server.admin.get(path).json()["received_bytes"]] == [2, address["size_bytes"]]

    core.clock.advance(8 * DAY_S)
    server.admin.post(f"{V1}/bundles", content=b"def main(run): pass\n", headers=PYTHON)  # renews its mark
    asyncio.run(round_())
    assert [name[:2] for name in stored(objects)] == [source["sha256"][7:9]]
    core.clock.advance(8 * DAY_S)
    asyncio.run(round_())
    assert stored(objects) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"AWS_ACCESS_KEY_ID": "stranger"}, "refuses the credentials (InvalidAccessKeyId): set AWS_ACCESS_KEY_ID"),
        ({"DRUMLINE_STORE": "s3://nowhere/a"}, "there is no bucket of that name: create it"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "set AWS_ENDPOINT_URL to where it listens"),
    ],
)
def test_a_server_that_cannot_use_its_store_says_why_in_one_line(
    objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], told: str
) -> None:
    objects.reset()
    environment = objects.environment(**{"DRUMLINE_STORE": objects.url, **changes})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError) as refused:
        prepare(Settings(data_dir=tmp_path / "data"))
    assert str(refused.value).startswith(f"DRUMLINE_STORE={environment['DRUMLINE_STORE']}: ")
    assert (told in str(refused.value), "\n" in str(refused.value)) == (True, False)


def test_servers_of_one_database_share_the_bucket_and_no_directory(
    objects: ObjectServer, server: EdgeServer, program: Path, sqlite_url: str, tmp_path: Path
) -> None:
    packed = bundle.pack(program)
    path = f"{V1}/bundles/{bundle.digest(packed)}/upload"
    half = server.admin.patch(path, params={"offset": 0, "size": len(packed)}, content=packed[: 3 * MIB]).json()
    settings = {"data_dir": tmp_path / "second", "database_url": sqlite_url}
    with pytest.raises(StoreError, match=r"/other does not hold the programs of this database"):
        prepare(Settings.model_validate({**settings, "store": f"s3://{BUCKET}/other"}))
    with pytest.raises(StoreError, match="does not hold the programs of this database"):
        prepare(Settings.model_validate(settings))

    left = tmp_path / "second" / "blobs" / "incoming" / "left"
    left.write_bytes(b"of a process that was killed")
    os.utime(left, (0, 0))
    second = Setup(server.core.clock, server.core)
    with edge_server(sqlite_url, tmp_path / "second", second, store=objects.url) as other:
        client = other.client(server.admin_token)
        known = client.get(path).json()
        done = client.patch(path, params={"offset": 3 * MIB, "size": len(packed)}, content=packed[3 * MIB :]).json()
    assert (half["received_bytes"], known["received_bytes"]) == (3 * MIB, 3 * MIB)
    assert done["bundle"] == server.admin.get(path).json()["bundle"] is not None
    assert not left.exists()


def test_without_obstore_and_with_another_scheme_the_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "drumline_server.storage.object_store", None)
    with pytest.raises(StoreError, match=r"DRUMLINE_STORE=s3://b needs obstore.*pip install 'drumline\[store\]'"):
        open_store(Settings(store="s3://b", data_dir=tmp_path))
    with pytest.raises(ValidationError, match="store"):
        Settings(store="ftp://b")


def test_a_store_that_is_out_of_reach_for_the_client_is_named(
    objects: ObjectServer, server: EdgeServer, program: Path
) -> None:
    with Client(server.url, server.admin_token) as client:
        client._transport.sleep = lambda _: None
        objects.door.ahead_s = 301
        with pytest.raises(StoreUnreachableError, match=f"none at {objects.line.url}: it answered 403") as refused:
            client.submit(program, wait_for_devices=True)
    assert "X-Amz" not in str(refused.value)


def worker_api(server: EdgeServer, directory: Path) -> Api:
    host = server.core.add_worker().host_id
    api = Api(server.url, trust_env=False, keys=MemberKeys(directory))
    api.use_token(SecretStr(server.worker_token(host)))
    return api


def test_a_run_of_a_real_worker_has_its_program_from_the_store_and_no_credential_of_it(
    objects: ObjectServer, program: Path, tmp_path: Path
) -> None:
    objects.reset()
    (program / "main.py").write_text(
        "import os\n\ndef main(run):\n    return {'aws': [name for name in os.environ if name.startswith('AWS')]}\n"
    )
    settings = {**QUICKER, **objects.environment(DRUMLINE_STORE=objects.url)}
    deployment = Deployment.start(tmp_path / "up", "--cpu-devices", "1", environment=settings)
    try:
        deployment.wait_for_devices(1)
        with Client(deployment.url, deployment.token) as client:
            result = client.submit(program).wait(120).result
        workers = [each for each in deployment.processes() if "drumline_worker" in " ".join(each.cmdline())]
        told = [SECRET in str(each.environ()) for each in workers]
    finally:
        deployment.stop()
    assert result == {"aws": []}
    assert (len(told) > 0, any(told)) == (True, False)
    (location,) = [name for name in objects.sent("GET") if "-" in name]
    assert location[:2] == bundle.digest(bundle.pack(program))[7:9], "the worker had it from the store"


def adopted(objects: ObjectServer, data_dir: Path, database_url: str, place: str) -> subprocess.CompletedProcess[str]:
    """What `drumline server adopt-store` says of another place in the bucket."""
    named = {"DRUMLINE_DATA_DIR": str(data_dir), "DRUMLINE_DATABASE_URL": database_url, "DRUMLINE_STORE": place}
    return subprocess.run(
        [DRUMLINE, "server", "adopt-store"],
        env={**os.environ, **objects.environment(), **named},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_database_whose_bucket_is_lost_adopts_another_and_hears_what_it_lacks(
    objects: ObjectServer, server: EdgeServer, program: Path, sqlite_url: str, tmp_path: Path
) -> None:
    other = f"s3://{BUCKET}/other"
    with Client(server.url, server.admin_token) as client:
        client.submit(program, wait_for_devices=True)
    settings = Settings.model_validate({"data_dir": tmp_path / "second", "database_url": sqlite_url, "store": other})
    with pytest.raises(StoreError, match="run: drumline server adopt-store"):
        prepare(settings)

    told = adopted(objects, tmp_path / "second", sqlite_url, other)
    assert told.returncode == 0, told.stderr
    assert f"{other} is the store of this database from now on." in told.stdout
    assert "2 of the 2 bundles that the database knows are not in it" in told.stderr
    prepare(settings)
    with pytest.raises(StoreError, match="does not hold the programs of this database"):
        prepare(settings.model_copy(update={"store": objects.url}))

    back = adopted(objects, tmp_path / "second", sqlite_url, objects.url)
    assert back.returncode == 0
    assert "1 of the 2 bundles" in back.stderr, "the core's own has no bytes"
    nowhere = adopted(objects, tmp_path / "second", sqlite_url, "s3://nowhere/a")
    assert (nowhere.returncode > 0, "there is no bucket of that name" in nowhere.stderr) == (True, True)
