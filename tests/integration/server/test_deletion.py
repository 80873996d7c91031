"""Deleted runs: gone from sight at once, then erased in short parts; who lives or is resumed from is kept."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session

from drumline import Client
from drumline.contracts import api
from drumline_server.base.errors import InvalidRequestError, NotFoundError, RunDeletedError, RunInUseError
from drumline_server.lifecycle.deletion import Deletion, delete_runs, deleted_runs, erase_part, pointing_at
from drumline_server.lifecycle.run_changes import bulk_part, open_bulks
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.scheduling.loops import erase_runs
from drumline_server.services import run_changes
from drumline_server.services.submit import Submission
from drumline_server.storage.models import Base, LedgerEntry, Run, RunEvent
from support.checkpoints import expired, save, started
from support.core import TESTER, Core, submission_body
from support.deletions import delete, ended_run, erase, stored_rows
from support.edge import EdgeServer, described_paths
from support.processes import wait_until
from support.run_lists import change_runs, mark
from support.submissions import submit_one
from support.turns import hold_limit_s

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"


def test_every_row_that_points_at_a_run_is_found_by_an_index() -> None:
    """Without one, the deletion of a row reads the whole table that might point at it."""
    unfound = [
        (table.name, column)
        for parent in ("run", "attempt", "member")
        for table, column in pointing_at(parent)
        if not any(list(index)[:1] == [column] for index in leading_columns(table.name))
    ]
    assert unfound == []


def leading_columns(name: str) -> Iterator[list[str]]:
    table = Base.metadata.tables[name]
    yield [column.name for column in table.primary_key]
    for index in table.indexes:
        if index.dialect_options["sqlite"]["where"] is None:
            yield [column.name for column in index.columns]
    for constraint in table.constraints:
        if type(constraint).__name__ == "UniqueConstraint":
            yield [column.name for column in constraint.columns]  # type: ignore[attr-defined] # it has them


def test_a_deleted_run_is_in_no_answer_and_its_address_says_who_deleted_it(server: EdgeServer) -> None:
    core = server.core
    worker = core.add_worker()
    run, other = ended_run(core, worker), ended_run(core, worker)
    mark(core, run, starred=True)
    seen = answers(server, run)
    assert {path for path, found in seen.items() if found} >= {"/runs", "/overview", "/runs/{run_id}"}

    told = server.admin.delete(f"{V1}/runs/{run}", params={"why": "a typo in the data"})
    assert (told.status_code, told.json()["why"]) == (200, "a typo in the data")
    assert [path for path, found in answers(server, run).items() if found] == []
    assert server.admin.get(f"{V1}/runs:count").json() == {"matching": 1}
    for query in (
        {"where": "min.loss < 1"},
        {"where": "created > -1d or starred"},
        {"sort": "-last.loss"},
        {"q": run},
    ):
        listed = server.admin.get(f"{V1}/runs", params=query).json()["items"]
        assert [each["id"] for each in listed] == [other][: len(listed)], query
    grouped = server.admin.get(f"{V1}/runs:groups", params={"by": "labels.kind"}).json()["items"]
    assert [group["runs"] for group in grouped] == [1]
    (job,) = server.admin.get(f"{V1}/jobs").json()["items"]
    assert job["runs"] == 1

    gone = server.admin.get(f"{V1}/runs/{run}")
    assert gone.status_code == 404
    assert (gone.json()["code"], gone.json()["context"]["deleted_by"]) == ("not_found", "local admin")
    assert f"Run {run} of job digits was deleted by local admin on 20" in gone.json()["detail"]
    assert gone.json()["detail"].endswith("UTC: a typo in the data")
    assert server.admin.delete(f"{V1}/runs/{run}").json() == told.json()
    for act in (
        server.admin.post(f"{V1}/runs/{run}:cancel"),
        server.admin.patch(f"{V1}/runs/{run}", json={"note": "n"}),
    ):
        assert act.status_code == 404
        assert "was deleted by" in act.json()["detail"]
    assert server.client(server.token("viewer")).delete(f"{V1}/runs/{other}").status_code == 403


def answers(server: EdgeServer, run: str) -> dict[str, bool]:
    """By path that can be read: whether its answer has the run."""
    host = server.admin.get(f"{V1}/hosts").json()["items"][0]["id"]
    names = {"run_id": run, "host_id": host, "job": "digits", "name": "digits"}
    found = {}
    for path, operations in described_paths().items():
        address = path
        for name, value in names.items():
            address = address.replace(f"{{{name}}}", value)
        if "get" not in operations or "{" in address or "/stream" in address:
            continue
        query: dict[str, Any] = {"runs": run, "run": run, "by": "id", "name": "loss"}
        asked = {
            each["name"]: query[each["name"]]
            for each in operations["get"].get("parameters", ())
            if each["name"] in query
        }
        answer = server.admin.get(address, params=asked)
        assert answer.status_code < 500, (address, answer.text)
        found[path.removeprefix(V1)] = answer.status_code == 200 and run in answer.text
    return found


@pytest.mark.usefixtures("_no_collections")
def test_a_run_is_erased_in_short_parts_and_only_what_it_used_stays(core: Core) -> None:
    worker = core.add_worker()
    run, other = ended_run(core, worker), ended_run(core, worker)
    wanted = {"run", "run_event", "run_label", "run_field", "run_figures", "attempt", "member", "hold", "log_chunk"}
    wanted |= {"metric", "metric_chunk", "metric_page", "gap", "reduction", "reduction_kind", "non_finite"}
    wanted |= {
        "placement_record",
        "variable_record",
        "checkpoint",
        "stretch",
        "media",
        "arrival_record",
        "profile",
        "artifact",
    }
    assert set(stored_rows(core, run)) == wanted == {table.name for table in child_tables()} | {"run"}
    beside = stored_rows(core, other)
    core.write(lambda session: add_events(session, run, 20_000))  # more than a fast machine erases in one part

    delete(core, run)
    took = []
    while numbers := core.read(deleted_runs):

        def part(session: Session, number: int = numbers[0]) -> float:
            began = time.thread_time()
            erase_part(session, number)
            return time.thread_time() - began

        took.append(core.write(part))
    assert len(took) >= 2
    assert max(took) < hold_limit_s()
    assert stored_rows(core, run) == {}
    assert stored_rows(core, other) == beside
    used = select(func.count()).select_from(LedgerEntry).where(LedgerEntry.run_id == run)
    assert core.read(lambda session: session.scalar(used))
    with pytest.raises(RunDeletedError):
        core.run(run)


def add_events(session: Session, run: str, count: int) -> None:
    """Copies of the run's last event, numbered on."""
    last = session.scalars(select(RunEvent).where(RunEvent.run_id == run).order_by(RunEvent.seq.desc()).limit(1)).one()
    values = {column.key: getattr(last, column.key) for column in RunEvent.__mapper__.column_attrs}
    session.execute(insert(RunEvent), [values | {"seq": last.seq + number} for number in range(1, count + 1)])


def child_tables() -> set[Any]:
    return {table for parent in ("run", "attempt", "member") for table, _ in pointing_at(parent)}


def test_an_erasure_that_is_cut_off_anywhere_continues_with_what_is_left(core: Core) -> None:
    worker = core.add_worker()
    run = ended_run(core, worker)
    core.queue()
    before = stored_rows(core, run)
    delete(core, run)
    (number,) = core.read(deleted_runs)

    def cut_off(session: Session) -> None:
        erase_part(session, number)
        raise ConnectionAbortedError

    left = sum(before.values())
    while core.read(deleted_runs):
        with pytest.raises(ConnectionAbortedError):
            core.write(cut_off)
        assert sum(stored_rows(core, run).values()) == left
        core.write(partial(erase_part, number=number))
        fewer = sum(stored_rows(core, run).values())
        assert fewer < left
        left = fewer
    assert stored_rows(core, run) == {}


def test_the_loop_erases_all_that_was_deleted_and_then_rests(core: Core) -> None:
    worker = core.add_worker()
    runs = [ended_run(core, worker) for _ in range(2)]
    for run in runs:
        delete(core, run)
    core.queue()
    asyncio.run(erase_runs(core.database, SoleServer()))

    assert [stored_rows(core, run) for run in runs] == [{}, {}]


def test_the_number_of_the_last_run_is_not_given_again(core: Core) -> None:
    worker = core.add_worker()
    run = ended_run(core, worker)
    number = core.read(lambda session: session.scalar(select(Run.number).where(Run.id == run)))
    delete(core, run)
    erase(core)
    assert set(stored_rows(core, run)) <= {"run"}
    later = core.queue()
    erase(core)

    assert stored_rows(core, run) == {}
    assert (core.read(lambda session: session.scalar(select(Run.number).where(Run.id == later.id))) or 0) > (
        number or 0
    )


def test_a_run_that_lives_is_not_deleted(core: Core) -> None:
    member = started(core, core.add_worker())
    with pytest.raises(RunInUseError, match="is RUNNING; only a run that has ended") as refused:
        delete(core, member.claimed.run)
    assert refused.value.hint.startswith(f"Stop it first (drumline cancel {member.claimed.run})")


def test_a_run_that_another_one_resumes_from_is_kept_until_that_has_ended(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    resumer = core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    with pytest.raises(RunInUseError, match=f"is kept: run {resumer.id} resumes from its checkpoint"):
        delete(core, source.claimed.run)
    core.cancel(resumer.id)

    delete(core, source.claimed.run)
    with pytest.raises(InvalidRequestError, match="no checkpoint to resume from"):
        core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    assert expired(core, worker, source.claimed.run) == (source.claimed.run,), "its host deletes the files"
    erase(core)
    assert expired(core, worker, source.claimed.run) == (source.claimed.run,)


@pytest.mark.parametrize("first", ["deletion", "submission"])
def test_of_a_deletion_and_a_submission_that_resumes_at_the_same_moment_one_is_refused(core: Core, first: str) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    run = source.claimed.run
    others: list[Future[Any]] = []

    def meet(session: Session, act: Any) -> None:
        others.append(pool.submit(act))
        if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer: the other comes after it
            wait_until(partial(_met, core, others[0]), timeout_s=60, what="the other waits or is through")

    def delete_meanwhile(session: Session) -> None:
        number = session.scalars(select(Run.number).where(Run.id == run)).one()
        assert delete_runs(session, [number], Deletion(TESTER, "", core.clock.now())) == {}
        meet(session, partial(core.submit, resources={"replicas": 1}, resume_from=run))

    def submit_meanwhile(session: Session) -> None:
        body = submission_body(resources={"replicas": 1}, resume_from=run)
        submit_one(session, Submission(core.project_id, TESTER, "key", body, "tok_1"), now=core.clock.now())
        meet(session, partial(delete, core, run))

    with ThreadPoolExecutor(1) as pool:
        core.write(delete_meanwhile if first == "deletion" else submit_meanwhile)
        with pytest.raises(InvalidRequestError if first == "deletion" else RunInUseError, match="checkpoint"):
            others[0].result(60)
    assert len(core.runs().items) == (0 if first == "deletion" else 2)


def _met(core: Core, other: Future[Any]) -> bool:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return other.done() or bool(core.read(lambda session: session.scalar(waiting)))


def test_telemetry_that_comes_after_the_deletion_is_of_no_member(core: Core) -> None:
    member = started(core, core.add_worker())
    member.end()
    delete(core, member.claimed.run)
    with pytest.raises(NotFoundError, match=f"There is no member {member.id}"):
        member.send(member.event("log", stream="stdout", text="late", offset=0))
    erase(core)
    with pytest.raises(NotFoundError):
        member.send(member.event("log", stream="stdout", text="late", offset=0))


def test_many_are_deleted_by_one_request_and_those_that_are_kept_are_named(server: EdgeServer) -> None:
    core = server.core
    core.add_worker()
    runs = [core.queue(parameters={"lr": place}).id for place in range(120)]
    for run in runs[:110]:
        core.cancel(run)
    asked = {"action": {"kind": "delete", "why": "old"}, "where": "params.lr >= 50"}
    change = server.admin.post(f"{V1}/runs:change", json=asked).json()
    assert change_runs(core) == 2
    done = server.admin.get(f"{V1}/bulk-changes/{change['id']}").json()

    assert (done["total"], done["done"], done["changed"]) == (70, 70, 60)
    assert sorted(each["run"] for each in done["refused"]) == sorted(runs[110:])
    assert "is QUEUED" in done["refused"][0]["detail"]
    assert server.admin.get(f"{V1}/runs:count").json() == {"matching": 60}
    assert "local admin" in server.admin.get(f"{V1}/runs/{runs[60]}").json()["detail"]
    named = server.admin.post(f"{V1}/runs:change", json={"action": {"kind": "delete"}, "runs": [runs[60]]})
    assert (named.status_code, "was deleted" in named.json()["detail"]) == (404, True)


@pytest.mark.usefixtures("_no_collections")
def test_no_part_of_a_bulk_deletion_takes_the_writer_for_long(core: Core) -> None:
    for run in [core.queue(labels={"n": str(place)}).id for place in range(110)]:
        core.cancel(run)
    asked = api.BulkRequest(action=api.BulkAction(kind="delete"), where="")
    core.write(lambda session: run_changes.begin_bulk(session, core.project_id, asked, by=TESTER, now=core.clock.now()))
    took = []
    while changes := core.read(open_bulks):

        def part(session: Session, change: str = changes[0]) -> float:
            began = time.thread_time()
            bulk_part(session, change, now=core.clock.now())
            return time.thread_time() - began

        took.append(core.write(part))
    assert len(took) == 3
    assert max(took) < hold_limit_s()
    assert core.runs().items == ()


def test_runs_of_a_batch_that_were_deleted_are_counted_and_not_queued_again(server: EdgeServer) -> None:
    core = server.core
    core.add_worker()
    made = sweep(server)
    for each in made["runs"]:
        core.cancel(each)
    for each in made["runs"][1:]:
        delete(core, each)
    erase(core)
    again = sweep(server)
    with Client(server.url, server.admin_token) as client:
        assert client.batch(made["batch"]["id"]).live == 0
    batch = server.admin.get(f"{V1}/batches/{made['batch']['id']}").json()

    assert (batch["states"], batch["deleted"], batch["complete"], batch["hint"]) == ({"CANCELLED": 1}, 2, True, "")
    assert again["batch"]["id"] == batch["id"]
    assert server.admin.get(f"{V1}/batches/{batch['id']}/outcomes").json()["total"] == 1
    assert len(core.runs(archived=True).items) == 1


def sweep(server: EdgeServer) -> dict[str, Any]:
    run = submission_body().model_dump(mode="json") | {"parameters": {}}
    grid = {"kind": "grid", "parameters": {"learning_rate": [0.1, 0.2, 0.3]}}
    body = {"name": "three", "run": run, "sweep": grid}
    made = server.admin.post(f"{V1}/runs:sweep", json=body, headers={"Idempotency-Key": "three"})
    assert made.status_code == 201, made.text
    answer: dict[str, Any] = made.json()
    return answer
