"""Large media and files of profiles in a bucket: over lines that break, while it is away, and while it is slow."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.edge import EdgeServer
from support.large_media import (
    LARGE,
    PICTURES,
    KilledError,
    dying,
    locations,
    log_all,
    log_picture,
    move,
    require_all,
    running,
    waiting,
)
from support.object_store import BUCKET, ObjectServer
from support.processes import wait_until

V1 = "/api/v1"


@pytest.fixture
def server(bucket_server: EdgeServer) -> EdgeServer:
    """One whose store is the bucket."""
    return bucket_server


def move_all(server: EdgeServer, objects: ObjectServer) -> None:
    move(server.core, server.data_dir, store=objects.url)


def test_contents_go_into_the_bucket_and_come_back_as_they_were_over_lines_that_break(
    objects: ObjectServer, server: EdgeServer, tmp_path: Path
) -> None:
    member = running(server.core)
    log_all(member)
    objects.line.break_after(20_000, 30_000)
    with pytest.raises(KilledError):
        move(server.core, server.data_dir, dying(after=2), store=objects.url)
    assert waiting(server.core) == LARGE - 2
    require_all(server, member.claimed.run, tmp_path)
    move_all(server, objects)

    assert waiting(server.core) == 0
    objects.line.truncate_after(15_000, 25_000)
    require_all(server, member.claimed.run, tmp_path)
    named = {*locations(server.core)}
    assert (len(named), named < {*objects.sent("PUT", "-")}) == (LARGE, True)
    assert {*objects.sent("GET", "-")} == named, "what is read comes from the bucket"
    assert [*(server.data_dir / "blobs" / "incoming").iterdir()] == []


def test_while_the_store_is_away_contents_wait_in_the_database_and_go_there_when_it_is_back(
    objects: ObjectServer, server: EdgeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    member = running(server.core)
    run = f"{V1}/runs/{member.claimed.run}"
    log_picture(member, 9, PICTURES[2])
    move_all(server, objects)
    objects.line.cut()
    log_picture(member, 10, PICTURES[1])
    with caplog.at_level(logging.WARNING, "drumline_server.lifecycle.stored"):
        move_all(server, objects)
    (told,) = [each.getMessage() for each in caplog.records if each.name == "drumline_server.lifecycle.stored"]
    assert told.startswith("media and profiles wait in the database for their store: ")
    assert waiting(server.core) == 1
    listed = server.admin.get(f"{run}/media/values", params={"name": "picture", "kind": "image"}).json()["items"]
    away, waits = [server.admin.get(f"{run}/media/{each['id']}/png") for each in listed]
    assert (away.status_code, away.json()["code"], away.headers["retry-after"]) == (503, "unavailable", "5")
    assert waits.content == PICTURES[1]

    objects.line.mend()
    move_all(server, objects)
    assert waiting(server.core) == 0
    pngs = [server.admin.get(f"{run}/media/{each['id']}/png").content for each in listed]
    assert pngs == [PICTURES[2], PICTURES[1]]


def test_a_slow_store_holds_neither_telemetry_nor_readers(objects: ObjectServer, server: EdgeServer) -> None:
    member = running(server.core)
    log_picture(member, 0)
    goes_on = threading.Event()
    objects.door.delay("PUT", f"/{BUCKET}/*", goes_on)
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(move_all, server, objects)
        wait_until(lambda: bool(objects.sent("PUT", "-")), timeout_s=60, what="the store is asked")
        log_picture(member, 1, PICTURES[1])
        run = f"{V1}/runs/{member.claimed.run}"
        listed = server.admin.get(f"{run}/media/values", params={"name": "picture", "kind": "image"}).json()["items"]
        pngs = [server.admin.get(f"{run}/media/{each['id']}/png").content for each in listed]
        is_under_way = not moved.done()
        goes_on.set()
        moved.result(60)
    assert (pngs, is_under_way) == (PICTURES[:2], True)
    assert (waiting(server.core), len(locations(server.core))) == (0, 2)
