"""Files that programs keep with their runs: told of by members, sent by hosts in pieces, and gone with their runs."""

import asyncio
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline import Client
from drumline.contracts import api
from drumline.contracts.artifacts import MAX_ARTIFACTS
from drumline.contracts.worker_api import KEY_HEADER
from drumline.errors import RunError
from drumline_server.base.settings import Settings
from drumline_server.lifecycle import deletion, stored
from drumline_server.lifecycle.stored import BundleSweep
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.storage.blobs import open_store
from drumline_server.storage.models import Artifact, Run
from drumline_server.telemetry import media
from drumline_server.telemetry.logs import list_gaps
from support.core import Core, Member, Worker, key_of
from support.deletions import delete, erase
from support.edge import EdgeServer, edge_server

pytestmark = pytest.mark.both_databases
V1 = "/api/v1"
CONTENT = b"weights " * 1_000
LARGE = bytes(range(256)) * 8_192
"""Of two MiB: no JSON may be so long."""


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Sender:
    """A host that sends what a member keeps, by hand."""

    server: EdgeServer
    member: Member

    def __post_init__(self) -> None:
        self.token = self.server.worker_token(self.member.worker.host_id)
        self.client = self.server.client(self.token, **{KEY_HEADER: key_of(self.member.id).get_secret_value()})
        self.path = f"{V1}/worker/members/{self.member.id}/artifacts"

    @property
    def run(self) -> str:
        return self.member.claimed.run

    def tell(self, content: bytes = CONTENT, **fields: Any) -> None:
        """The member's event."""
        told = {"name": "weights.bin", "size_bytes": len(content), "sha256": sha256(content), **fields}
        self.member.send(self.member.event("artifact", artifact=told))

    def ask(self, content: bytes = CONTENT) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get(f"{self.path}/{sha256(content)}").raise_for_status().json()
        return answer

    def send(self, content: bytes = CONTENT, begin: int = 0, end: int | None = None) -> httpx2.Response:
        place = f"{self.path}/{sha256(content)}"
        return self.client.patch(place, params={"offset": begin}, content=content[begin:end])

    def end(self) -> None:
        self.client.post(f"{self.path}:end").raise_for_status()

    def listed(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.server.admin.get(f"{V1}/runs/{self.run}/artifacts").json()["items"]
        return items


def start(core: Core, worker: Worker | None = None) -> Member:
    """Of a run of its own, by default on a new host."""
    worker = worker or core.add_worker("alpha")
    core.submit(resources={"replicas": 1})
    core.schedule()
    return worker.take().start()


@pytest.fixture
def sender(server: EdgeServer) -> Sender:
    return Sender(server, start(server.core))


def stored_files(server: EdgeServer) -> list[str]:
    """Contents in the store, by the begin of their names."""
    return sorted(each.name[:8] for each in (server.data_dir / "blobs").glob("[0-9a-f][0-9a-f]/*-*"))


def name_in_store(content: bytes) -> str:
    return sha256(content)[9:17]


def test_a_file_that_is_told_of_arrives_piece_by_piece_and_is_read_back_as_it_was(
    sender: Sender, tmp_path: Path
) -> None:
    assert sender.ask() == {"state": None, "size_bytes": 0, "received_bytes": 0, "by_address": False}
    sender.tell(kind="model", metadata={"accuracy": 0.97, "note": "best", "whole": 3, "is_last": True, "none": None})
    assert sender.ask()["state"] == "ARRIVING"
    half = sender.send(end=3_000).json()
    (arriving,) = sender.listed()
    assert (half["received_bytes"], arriving["received_bytes"], arriving["state"]) == (3_000, 3_000, "ARRIVING")
    file = f"{V1}/runs/{sender.run}/artifacts/{arriving['id']}/file"
    early = sender.server.admin.get(file)
    assert (early.status_code, early.json()["context"]["received_bytes"]) == (409, 3_000)
    again = sender.send(begin=2_000)
    assert (again.status_code, again.json()["context"]) == (409, {"received_bytes": 3_000})

    assert sender.send(begin=3_000).json()["state"] == "STORED"
    (kept,) = sender.listed()
    assert (kept["state"], kept["kind"], kept["host_name"], kept["rank"]) == ("STORED", "model", "alpha", 0)
    assert kept["metadata"] == {"accuracy": 0.97, "note": "best", "whole": 3, "is_last": True, "none": None}
    answer = sender.server.admin.get(file)
    assert answer.content == CONTENT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="weights.bin"'
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert [event.body["state"] for event in sender.server.core.events(sender.run) if event.kind == "artifact"] == [
        "ARRIVING",
        "STORED",
    ]
    with Client(sender.server.url, sender.server.admin_token) as client:
        (one,) = client.get(sender.run).artifacts()
        saved = tmp_path / "saved"
        saved.mkdir()
        assert one.save(saved).read_bytes() == CONTENT
        assert one.save(saved / "other").name == "other"
    assert sorted(each.name for each in saved.iterdir()) == ["other", "weights.bin"]


def test_what_the_project_has_stored_already_is_not_sent_again_and_stays_for_the_last_that_names_it(
    sender: Sender,
) -> None:
    server, core = sender.server, sender.server.core
    sender.tell()
    sender.send()
    sender.member.end()
    second = Sender(server, start(core, sender.member.worker))
    second.tell(name="copy.bin")
    assert second.ask()["state"] == "STORED"
    assert stored_files(server) == [name_in_store(CONTENT)]
    second.member.end()

    delete(core, sender.run)
    erase(core)
    sweep(server)
    (kept,) = second.listed()
    file = server.admin.get(f"{V1}/runs/{second.run}/artifacts/{kept['id']}/file")
    assert file.content == CONTENT
    delete(core, second.run)
    erase(core)
    sweep(server)
    assert stored_files(server) == []


def sweep(server: EdgeServer) -> None:
    """A round of the leader's loop: by its clock what is in the store is older than a day."""
    settings = Settings(data_dir=server.data_dir)
    asyncio.run(BundleSweep(server.core.database, settings, server.core.clock, SoleServer().guard).round())


def test_what_never_comes_is_lost_and_says_why(sender: Sender) -> None:
    other, wrong = LARGE, b"what the program changed"
    for content in (CONTENT, other, wrong):
        sender.tell(content, name=f"{len(content)}.bin")
    place = f"{sender.path}/{sha256(wrong)}"
    answer = sender.client.patch(place, params={"offset": 0}, content=wrong.upper())
    assert answer.json()["state"] == "LOST"
    sender.send(other)
    sender.end()
    by_name = {one["name"]: (one["state"], one["reason"]) for one in sender.listed()}
    assert by_name["8000.bin"] == ("LOST", "Its host no longer has it.")
    assert by_name["2097152.bin"] == ("STORED", None)
    state, reason = by_name["24.bin"]
    assert (state, reason) == ("LOST", f"What its host sent is {sha256(wrong.upper())}, not {sha256(wrong)}.")
    assert stored_files(sender.server) == [name_in_store(other)]
    (id_,) = [one["id"] for one in sender.listed() if one["name"] == "8000.bin"]
    gone = sender.server.admin.get(f"{V1}/runs/{sender.run}/artifacts/{id_}/file")
    assert (gone.status_code, "lost: Its host no longer has it." in gone.json()["detail"]) == (404, True)
    with Client(sender.server.url, sender.server.admin_token) as client:
        (one,) = [each for each in client.get(sender.run).artifacts() if each.name == "8000.bin"]
        with pytest.raises(RunError, match=r"'8000\.bin' can't be saved: Its host no longer has it"):
            one.save("none")


def test_a_host_that_is_silent_for_a_day_sends_no_more(sender: Sender) -> None:
    sender.tell()
    sender.send(end=100)
    sweep(sender.server)
    assert sender.listed()[0]["state"] == "ARRIVING"
    sender.server.core.clock.advance(86_400 + 1)
    sweep(sender.server)
    (lost,) = sender.listed()
    assert (lost["state"], lost["reason"]) == ("LOST", "Its host did not send it within a day.")
    assert sender.ask()["state"] == "LOST"
    assert sender.send(begin=0).status_code == 409


def test_only_the_host_with_the_members_key_sends_and_nobody_for_a_deleted_run(sender: Sender) -> None:
    sender.tell()
    place = f"{sender.path}/{sha256(CONTENT)}"
    server = sender.server
    without = server.client(sender.token).get(place)
    another = server.client(sender.token, **{KEY_HEADER: "x" * 43}).patch(place, params={"offset": 0}, content=CONTENT)
    assert [(each.status_code, each.json()["code"]) for each in (without, another)] == [(409, "fenced")] * 2
    stranger = server.core.add_worker("stranger")
    foreign = server.client(server.worker_token(stranger.host_id)).get(place)
    assert foreign.status_code == 404
    assert server.admin.get(place).status_code in (401, 403)
    sender.member.end()
    delete(server.core, sender.run)
    assert (sender.client.get(place).status_code, sender.send().status_code) == (404, 404)
    assert stored_files(server) == []


def test_what_is_too_large_or_beyond_the_projects_share_is_refused_with_the_setting(
    database_url: str, tmp_path: Path
) -> None:
    settings = {"artifact_bytes": 10_000, "project_artifact_bytes": 12_000}
    with edge_server(database_url, tmp_path / "data", **settings) as server:
        sender = Sender(server, start(server.core))
        large, beyond = b"x" * 10_001, b"y" * 5_000
        for content in (large, CONTENT, beyond):
            sender.tell(content, name=f"{len(content)}.bin")
            assert sender.ask(content)["state"] == ("ARRIVING" if content == CONTENT else "LOST")
        sender.send()
        reasons = {one["name"]: one["reason"] for one in sender.listed()}
    assert reasons["8000.bin"] is None
    assert reasons["10001.bin"].startswith("It has 10001 bytes; at most 10000 are taken.")
    assert "DRUMLINE_ARTIFACT_BYTES" in reasons["10001.bin"]
    assert reasons["5000.bin"].startswith(
        "The project's artifacts take 8000 bytes; with these 5000 they would take more"
    )
    assert "DRUMLINE_PROJECT_ARTIFACT_BYTES" in reasons["5000.bin"]


def test_more_than_a_run_may_keep_are_a_gap_and_all_others_are_listed_page_by_page(core: Core) -> None:
    member = start(core)
    told = [
        member.event("artifact", artifact={"name": f"{n}.bin", "size_bytes": 1, "sha256": sha256(b"x")})
        for n in range(MAX_ARTIFACTS + 3)
    ]
    member.send(*told[:500])
    member.send(*told[500:])
    run, project = member.claimed.run, core.project_id
    (gap,) = core.read(lambda session: list_gaps(session, project, run, None, cursor=None, limit=9)).items
    assert (gap.what, gap.count) == ("artifact", 3)

    def page(cursor: str | None) -> api.Page[api.Artifact]:
        return core.read(lambda session: media.list_artifacts(session, project, run, None, cursor=cursor, limit=600))

    first = page(None)
    rest = page(first.next)
    assert (len(first.items), len(rest.items), rest.next) == (600, MAX_ARTIFACTS - 600, None)
    assert len({one.id for one in (*first.items, *rest.items)}) == MAX_ARTIFACTS


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "a\\b", "c:d", " x", "x ", "x.", "a\u202eb", "a\nb", "a\x00b", "n" * 201]
)
def test_a_name_that_no_file_may_have_is_refused(core: Core, name: str) -> None:
    member = start(core)
    with pytest.raises(ValueError, match="name"):
        member.event("artifact", artifact={"name": name, "size_bytes": 1, "sha256": sha256(b"x")})


def number_of(session: Session, run_id: str) -> int:
    return session.scalars(select(Run.number).where(Run.id == run_id)).one()


def test_artifacts_count_for_what_a_project_keeps_but_not_those_that_are_lost(core: Core) -> None:
    worker = core.add_worker("alpha")
    sizes = []
    for is_lost in (False, True):
        member = start(core, worker)
        content = sha256(member.id.encode())
        member.send(member.event("artifact", artifact={"name": "w", "size_bytes": 10_000_000, "sha256": content}))
        if is_lost:
            kept = stored.Kept(worker.host_id, member.id, content, key_of(member.id))
            core.write(partial(stored.lose, kept=kept, reason="why", now=core.clock.now()))
        member.end()
        number = core.read(partial(number_of, run_id=member.claimed.run))
        sizes.append(core.read(partial(deletion.measure_run, number=number)))
    assert sizes[0] >= 10_000_000 > sizes[1]


def test_a_content_stored_for_a_run_that_is_gone_meanwhile_is_taken_back(sender: Sender) -> None:
    sender.tell()
    sender.member.end()
    kept = stored.Kept(sender.member.worker.host_id, sender.member.id, sha256(CONTENT), key_of(sender.member.id))
    core = sender.server.core
    delete(core, sender.run)
    assert core.write(lambda session: stored.keep(session, kept, "ab/cd-ef", now=core.clock.now())) is False
    store = open_store(Settings(data_dir=sender.server.data_dir))
    assert asyncio.run(store.folders()) == []
    erase(core)
    assert core.read(lambda session: session.scalars(select(Artifact.id)).all()) == []
