"""What the first page shows of the runs."""

from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline_server.services import run_lists
from drumline_server.storage.models import Host
from support.core import Core, Member, Worker
from support.edge import EdgeServer, edge_server
from support.statements import Statement, statements

pytestmark = pytest.mark.both_databases


def test_the_run_that_ended_last_is_the_first_of_the_recent_ones(server: EdgeServer) -> None:
    core = server.core
    worker = core.add_worker()
    first, second = (begin(core, worker) for _ in range(2))
    for member in (second, first):
        core.clock.advance(2)
        member.end()

    recent = server.admin.get("/api/v1/overview").json()["recent"]

    assert [run["id"] for run in recent] == [run_of(first), run_of(second)]


def test_a_run_that_ended_last_is_shown_however_many_were_submitted_after_it(server: EdgeServer) -> None:
    core = server.core
    worker = core.add_worker()
    first = begin(core, worker)
    later = [begin(core, worker) for _ in range(3)]
    for _ in range(4):
        for member in later:
            core.clock.advance(1)
            worker.beat()
            member.end(EndReason.PROGRAM_ERROR)
        later = [begin(core, worker) for _ in range(3)]
    core.clock.advance(1)

    first.end(EndReason.PROGRAM_ERROR)

    told = server.admin.get("/api/v1/overview").json()
    assert (told["failed_total"], told["stalled_total"]) == (13, 0)
    for part, most in (("recent", 10), ("attention", 5)):
        shown = told[part]
        assert shown[0]["id"] == run_of(first)
        assert len(shown) == most
        assert [run["ended_at"] for run in shown] == sorted((run["ended_at"] for run in shown), reverse=True)


def test_what_is_archived_needs_no_attention(server: EdgeServer) -> None:
    core = server.core
    worker = core.add_worker()
    members = [begin(core, worker) for _ in range(2)]
    for member in members:
        core.clock.advance(1)
        member.end(EndReason.PROGRAM_ERROR)
    server.admin.patch(f"/api/v1/runs/{run_of(members[1])}", json={"archived": True}).raise_for_status()

    told = server.admin.get("/api/v1/overview").json()
    assert told["failed_total"] == 1
    assert [[run["id"] for run in told[part]] for part in ("attention", "recent")] == [[run_of(members[0])]] * 2


def test_every_host_counts_and_those_in_trouble_are_shown_however_many_there_are(server: EdgeServer) -> None:
    core = server.core
    workers = [core.add_worker(f"host-{number:03}", devices=1) for number in range(203)]
    core.clock.advance(60)
    for number, worker in enumerate(workers):
        if number not in (7, 202):
            worker.beat()
    flag = update(Host).where(Host.id.in_([workers[7].host_id, workers[201].host_id]))
    core.write(lambda session: session.execute(flag.values(flagged_at=core.clock.now(), failures=[])))

    told = server.admin.get("/api/v1/overview").json()

    assert (told["hosts_total"], told["hosts_silent"], told["hosts_failing"]) == (203, 1, 2)
    assert [host["name"] for host in told["hosts"]] == [
        *(f"host-{number:03}" for number in range(200)),
        "host-201",
        "host-202",
    ]
    assert [host["name"] for host in told["hosts"] if host["trouble"]] == ["host-007", "host-201"]


def test_the_runs_that_ended_last_are_found_by_an_index(sqlite_url: str, tmp_path: Path) -> None:
    """PostgreSQL reads tables as small as these whole."""
    with edge_server(sqlite_url, tmp_path / "other") as server:
        core = server.core
        with statements() as sent:
            core.read(lambda session: run_lists.list_last_ended(session, core.project_id, 10))
            core.read(lambda session: run_lists.list_last_failed(session, core.project_id, 5, since=core.clock.now()))
        plans = [core.read(partial(plan_of, statement=one)) for one in sent if "run.ended_at DESC" in one[0]]

    assert len(plans) == 2
    assert all("ix_run_project_id_ended_at_id" in plan and "TEMP B-TREE" not in plan for plan in plans), plans


def plan_of(session: Session, statement: Statement) -> str:
    """How SQLite finds the rows."""
    text, parameters = statement
    return str(session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all())


def begin(core: Core, worker: Worker) -> Member:
    """The member of a new run, which runs."""
    core.submit(resources={"replicas": 2})
    core.schedule()
    return worker.take().start()


def run_of(member: Member) -> str:
    """The run that it works for."""
    return member.claimed.run
