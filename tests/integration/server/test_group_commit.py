"""Requests that share a transaction: each has its own outcome, on both databases."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.base import from_micros
from drumline.contracts.problems import ProblemCode
from drumline.contracts.worker_api import Heartbeat, HeartbeatReply
from drumline_server.base.errors import DrumlineError
from drumline_server.lifecycle.heartbeat import IdleHeartbeats, renew_idle
from drumline_server.services.submit import Submission, SubmissionResult, submit_all
from drumline_server.storage.database import Database
from drumline_server.storage.models import Host, Project
from drumline_server.storage.requests import BatchingExecutor
from support.core import TESTER, Core, Worker, submission_body
from support.statements import statements
from support.submissions import MOST_WAITING

pytestmark = pytest.mark.both_databases


def submission(core: Core, key: str, **changes: object) -> Submission:
    return Submission(core.project_id, TESTER, key, submission_body(wait_for_devices=True, **changes), "tok_1")


def submitted(core: Core, wanted: Sequence[Submission]) -> list[SubmissionResult | BaseException]:
    """What becomes of submissions that come at once."""

    async def run() -> list[SubmissionResult | BaseException]:
        intake: BatchingExecutor[Submission, SubmissionResult] = BatchingExecutor(
            core.database.write,
            lambda session, group: submit_all(session, group, most_waiting=MOST_WAITING, now=core.clock.now()),
        )
        return await asyncio.gather(*(intake.submit(each) for each in wanted), return_exceptions=True)

    return asyncio.run(run())


def code(outcome: SubmissionResult | BaseException) -> ProblemCode | None:
    return outcome.code if isinstance(outcome, DrumlineError) else None


def test_submissions_that_come_at_once_share_their_statements_and_each_has_its_run(core: Core) -> None:
    core.submit(wait_for_devices=True)

    with statements() as sent:
        outcomes = submitted(core, [submission(core, f"k{number}") for number in range(40)])

    runs = {outcome.submitted.run.id for outcome in outcomes if isinstance(outcome, SubmissionResult)}
    assert len(runs) == 40
    assert sum("INSERT INTO run " in statement for statement, _ in sent) == 1
    assert {run.id for run in core.runs(limit=100).items} > runs


def test_refused_submission_harms_none_of_those_it_came_with_and_leaves_nothing(core: Core) -> None:
    wanted = [
        submission(core, "good"),
        submission(core, "bad", job={"name": "never"}, parameters={"no_such": 1}),
        submission(core, "better"),
    ]

    good, bad, better = submitted(core, wanted)

    assert [code(each) for each in (good, bad, better)] == [None, ProblemCode.UNKNOWN_PARAMETER, None]
    assert {run.job for run in core.runs().items} == {"digits"}
    assert core.submit_answer(key="bad", wait_for_devices=True).replayed is False


def test_only_the_first_of_new_submissions_alike_makes_the_version(core: Core) -> None:
    outcomes = submitted(core, [submission(core, f"k{number}") for number in range(3)])

    assert [isinstance(each, SubmissionResult) and each.submitted.created_version for each in outcomes] == [
        True,
        False,
        False,
    ]


def test_twins_that_come_at_once_make_one_run_and_have_one_answer(core: Core) -> None:
    first, twin, another, other = submitted(
        core,
        [
            submission(core, "k"),
            submission(core, "k"),
            submission(core, "k", labels={"another": "body"}),
            submission(core, "other"),
        ],
    )

    assert code(another) is ProblemCode.IDEMPOTENCY_MISMATCH
    assert isinstance(first, SubmissionResult)
    assert isinstance(twin, SubmissionResult)
    assert isinstance(other, SubmissionResult)
    assert (first.replayed, twin.replayed, other.replayed) == (False, True, False)
    assert twin.submitted == first.submitted
    assert len(core.runs().items) == 2


def test_what_spoils_a_transaction_of_several_spoils_only_its_own_answer(database: Database) -> None:
    def add(session: Session, names: Sequence[str]) -> list[str | DrumlineError]:
        session.add_all(Project(id=f"prj_{name}", name=name, created_at=1) for name in names)
        session.flush()
        if "bad" in names:
            raise KeyError("bad")
        return list(names)

    async def run() -> list[str | BaseException]:
        adding: BatchingExecutor[str, str] = BatchingExecutor(database.write, add)
        return await asyncio.gather(*(adding.submit(name) for name in ("one", "bad", "two")), return_exceptions=True)

    one, bad, two = asyncio.run(run())

    assert (one, two) == ("one", "two")
    assert isinstance(bad, KeyError)
    assert database.read_now(lambda session: session.query(Project).count()) == 2


def test_request_whose_sender_went_away_is_left_out(database: Database) -> None:
    performed: list[str] = []

    def note(_: Session, names: Sequence[str]) -> list[str | DrumlineError]:
        performed.extend(names)
        return list(names)

    async def run() -> str:
        noting: BatchingExecutor[str, str] = BatchingExecutor(database.write, note)
        gone = asyncio.create_task(noting.submit("gone"))
        stays = asyncio.create_task(noting.submit("stays"))
        await asyncio.sleep(0)  # both have asked, and nothing was begun
        gone.cancel()
        return await stays

    assert asyncio.run(run()) == "stays"
    assert performed == ["stays"]


def test_what_comes_right_after_a_transaction_shares_the_next_with_what_waited(database: Database) -> None:
    groups: list[list[str]] = []
    begun, go_on = threading.Event(), threading.Event()

    def note(_: Session, names: Sequence[str]) -> list[str | DrumlineError]:
        groups.append(list(names))
        begun.set()
        assert go_on.wait(20)
        return list(names)

    async def run() -> None:
        noting: BatchingExecutor[str, str] = BatchingExecutor(database.write, note, pause_s=1)
        first = asyncio.create_task(noting.submit("first"))
        await asyncio.to_thread(begun.wait, 20)
        second = asyncio.create_task(noting.submit("second"))
        await asyncio.sleep(0)  # it has asked
        go_on.set()
        await first
        await asyncio.gather(second, noting.submit("third"))

    asyncio.run(run())

    assert groups == [["first"], ["second", "third"]]


def beats_at_once(core: Core, asked: Sequence[tuple[str, Heartbeat]]) -> list[HeartbeatReply | None]:
    """What becomes of heartbeats that come at once."""

    async def run() -> list[HeartbeatReply | None]:
        quiet: IdleHeartbeats = BatchingExecutor(
            core.database.write, lambda session, group: renew_idle(session, group, now=core.clock.now())
        )
        return await asyncio.gather(*(quiet.submit(each) for each in asked))

    return asyncio.run(run())


def beat_of(worker: Worker) -> tuple[str, Heartbeat]:
    return worker.host_id, Heartbeat(incarnation=worker.incarnation, sent_at=from_micros(1))


def test_quiet_hosts_that_beat_at_once_share_their_statements_and_keep_their_leases(core: Core) -> None:
    workers = [core.add_worker(f"host-{number}") for number in range(20)]
    core.clock.advance(10)

    with statements() as sent:
        replies = beats_at_once(core, [beat_of(worker) for worker in workers])

    assert {reply.server_time for reply in replies if reply} == {from_micros(core.clock.now())}
    assert sum("UPDATE host" in statement for statement, _ in sent) == 1
    assert {core.host(worker.name).last_heartbeat_at for worker in workers} == {from_micros(core.clock.now())}


def test_beat_with_something_to_tell_or_to_hear_is_left_to_be_looked_at_alone(core: Core) -> None:
    quiet, replaced, assigned = (core.add_worker(*each) for each in (("quiet", 1), ("replaced", 1), ("assigned", 8)))
    core.submit(resources={"replicas": 8})
    core.schedule()
    old = beat_of(replaced)
    replaced.register()
    before = core.clock.now()
    core.clock.advance(10)

    replies = beats_at_once(core, [old, beat_of(quiet), beat_of(assigned), beat_of(replaced)])

    assert [reply is not None for reply in replies] == [False, True, False, True]
    seen = [core.host(name).last_heartbeat_at for name in ("quiet", "assigned", "replaced")]
    assert seen == [from_micros(at) for at in (core.clock.now(), before, core.clock.now())]


def test_beats_wait_for_no_host_that_another_transaction_has_locked(postgres_url: str) -> None:
    """Such a transaction may hang with its server for half a minute."""
    core = Core(Database(postgres_url, pool_size=2))
    workers = [core.add_worker(f"host-{number}", 1) for number in range(3)]
    held, free = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        session.execute(select(Host.id).where(Host.id == workers[1].host_id).with_for_update()).one()
        held.set()
        assert free.wait(20)

    holder = threading.Thread(target=core.write, args=(hold,))
    holder.start()
    assert held.wait(20)
    try:
        replies = beats_at_once(core, [beat_of(worker) for worker in workers])
    finally:
        free.set()
        holder.join()
        core.database.close()

    assert [reply is not None for reply in replies] == [True, False, True]
