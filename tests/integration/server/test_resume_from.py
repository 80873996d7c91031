"""`resume_from`: runs that resume from a checkpoint of another run, wait for one who can read it, or are refused."""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.retention import StoredRuns
from drumline.contracts.states import CheckpointState
from drumline_server.base.errors import DrumlineError, InvalidRequestError
from drumline_server.lifecycle import checkpoints
from drumline_server.services.checking import Checked
from drumline_server.services.submit import CheckedRun, queue_runs
from drumline_server.storage.models import Checkpoint, JobVersion, Run
from support.checkpoints import DAY_S, expired, listed, offered, rerun, save, started
from support.core import TAKEOVER_S, TESTER, Core, Worker, submission_body
from support.processes import wait_until


def saved_at_home(core: Core, devices: int = 2) -> tuple[Worker, str]:
    """A host of so many devices, alone with the checkpoint of step 10 of a run that is over."""
    home = core.add_worker("home", devices=devices)
    source = started(core, home)
    save(source, 10)
    source.end()
    return home, source.claimed.run


def test_run_goes_on_from_another_runs_checkpoint(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10, 20)
    source.end()
    older = listed(core, source.claimed.run).items[1]

    from_run = core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    core.schedule()
    member = worker.take().start()
    assert offered(member) == [(1, 20), (1, 10)]
    assert from_run.resume_from == listed(core, source.claimed.run).items[0].id
    member.end()
    core.submit(resources={"replicas": 1}, resume_from=older.id)
    core.schedule()
    assert offered(worker.take()) == [(1, 10)]


def test_run_whose_source_continues_and_deletes_its_checkpoint_is_told_so_and_does_not_start_over(core: Core) -> None:
    """The source keeps two, so that the third one it saves deletes the one that was named, and the next all before."""
    worker = core.add_worker("home", devices=2)
    source = started(core, worker, job={"checkpoint": {"keep": 2}})
    save(source, 10, 20)
    named = listed(core, source.claimed.run).items[0]
    core.submit(resources={"replicas": 1}, resume_from=named.id)
    save(source, 30, 40)

    core.schedule()
    member = worker.take()

    assert (offered(member), member.claimed.resume_from) == ([], named.id)


def test_run_that_no_reader_of_its_checkpoint_has_room_for_is_refused_or_waits_for_one(core: Core) -> None:
    _, source = saved_at_home(core)
    core.add_worker("away", devices=8)
    wanted: dict[str, Any] = {"resources": {"replicas": 4, "spread": "one_host"}, "resume_from": source}
    with pytest.raises(InvalidRequestError, match="only home can read it, with room for 2 replicas") as refused:
        core.submit(**wanted)
    assert "Ask for at most 2 replicas" in refused.value.hint

    run = core.submit(**wanted, wait_for_devices=True)
    assert core.schedule() == []
    reason = core.run(run.id).why
    assert reason is not None
    assert (reason.rule, reason.evidence["possible"]) == ("checkpoint_host", 2)
    assert [each.replicas for each in reason.suggestions] == [2]
    assert "which only home can read, with room for 2 replicas, not for 4." in reason.sentence
    (row,) = [row for row in core.runs().items if row.id == run.id]
    assert row.wait is not None
    assert row.wait.rule == "checkpoint_host"


def test_run_whose_checkpoint_nobody_can_read_any_more_is_refused_or_waits_and_never_starts_over(core: Core) -> None:
    home, source = saved_at_home(core)
    queued = core.submit(resources={"replicas": 1}, resume_from=source)
    away = core.add_worker("away", devices=8)
    core.clock.advance(TAKEOVER_S + 1)
    away.beat()
    core.reap()

    assert core.schedule() == []
    reason = core.run(queued.id).why
    assert reason is not None
    assert reason.rule == "checkpoint_host"
    assert reason.sentence.endswith("Its checkpoint of step 10 was on home, which is lost.")
    assert f"`drumline rerun {queued.id} --from-start`" in reason.remedy
    with pytest.raises(InvalidRequestError, match="no living host can read it"):
        core.submit(resources={"replicas": 1}, resume_from=source)

    home.register()
    home.beat()
    assert core.schedule() == [queued.id]
    assert offered(home.take()) == [(1, 10)]


def test_what_is_suggested_to_a_run_that_goes_on_from_a_checkpoint_starts_it(core: Core) -> None:
    _, source = saved_at_home(core, devices=4)
    core.submit(resources={"replicas": 3})
    core.schedule()
    core.add_worker("away", devices=8)
    waiting = core.submit(resources={"replicas": 4, "spread": "one_host"}, resume_from=source)
    assert core.schedule() == []

    reason = core.run(waiting.id).why
    assert reason is not None
    (fewer,) = [each for each in reason.suggestions if each.kind == "replicas"]
    assert fewer.replicas == 1, "away has room for more, and can't read the checkpoint"
    core.cancel(waiting.id)
    fresh = core.submit(resources={"replicas": 1, "spread": "one_host"}, resume_from=source)
    assert core.schedule() == [fresh.id]


def test_a_run_that_went_on_from_a_checkpoint_does_so_again_when_run_again(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    first = core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    core.schedule()
    worker.take().start().end()

    again = rerun(core, first.id)
    core.schedule()

    assert again.resume_from == first.resume_from
    assert offered(worker.take()) == [(1, 10)]


def test_a_run_whose_checkpoint_is_gone_runs_again_from_the_start_if_told_so(core: Core) -> None:
    _, source = saved_at_home(core)
    old = core.submit(resources={"replicas": 1}, resume_from=source)
    core.cancel(old.id)
    core.write(lambda session: session.execute(update(Checkpoint).values(state=CheckpointState.DELETED)))

    with pytest.raises(InvalidRequestError, match="of step 10 is deleted") as refused:
        rerun(core, old.id)
    assert "from_start" in refused.value.hint
    again = rerun(core, old.id, from_start=True)
    assert (again.rerun_of, again.resume_from) == (old.id, None)


def test_resume_from_what_is_not_there_is_refused_by_name(core: Core) -> None:
    worker = core.add_worker()
    bare = started(core, worker)
    for wanted in (bare.claimed.run, new_id("run"), new_id("chk")):
        with pytest.raises(InvalidRequestError, match=wanted) as refused:
            core.submit(resources={"replicas": 1}, resume_from=wanted)
        assert isinstance(refused.value, DrumlineError)
    save(bare, 10, 20, 30)
    deleted = next(row for row in listed(core, bare.claimed.run).items if row.step == 10)
    with pytest.raises(InvalidRequestError, match="of step 10 is deleted"):
        core.submit(resources={"replicas": 1}, resume_from=deleted.id)


def test_a_run_is_not_stored_whose_checkpoint_was_deleted_after_it_had_been_checked(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    (row,) = listed(core, source.claimed.run).items
    core.clock.advance(31 * DAY_S)
    assert expired(core, worker, source.claimed.run)

    def queue(session: Session) -> None:
        run = session.get_one(Run, source.claimed.run)
        version = session.get_one(JobVersion, run.version_id)
        checked = Checked({}, plan_id=None, resume_from=row.id)
        order = CheckedRun(core.project_id, TESTER, version, submission_body(), checked)
        queue_runs(session, [order], now=core.clock.now())

    with pytest.raises(InvalidRequestError, match="of step 10 is deleted"):
        core.write(queue)
    assert len(core.runs().items) == 1


def test_a_submission_that_meets_the_expiry_of_its_checkpoint_is_refused(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    worker.register()
    body = StoredRuns(incarnation=worker.incarnation, runs=(source.claimed.run,))
    core.clock.advance(31 * DAY_S)
    now = core.clock.now()
    submissions: list[Future[api.Run]] = []

    def expire_meanwhile(session: Session) -> None:
        assert checkpoints.expire_checkpoints(session, worker.host_id, body, ended_before=now).runs
        submissions.append(pool.submit(core.submit, resources={"replicas": 1}, resume_from=source.claimed.run))
        if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer: the other comes after it
            met = partial(_met, core, submissions[0])
            wait_until(met, timeout_s=60, what="the submission waits or is through")

    with ThreadPoolExecutor(1) as pool:
        core.write(expire_meanwhile)
        with pytest.raises(InvalidRequestError, match="checkpoint"):
            submissions[0].result(60)
    assert len(core.runs().items) == 1


def _met(core: Core, submission: Future[api.Run]) -> bool:
    """Whether the submission has come to the lock of the other, or past it."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return submission.done() or bool(core.read(lambda session: session.scalar(waiting)))
