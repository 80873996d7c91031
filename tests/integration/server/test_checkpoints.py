"""Checkpoints on the server: registered under the fence, kept by policy, offered to those who can read them."""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.ids import new_id
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import CheckpointState
from drumline.contracts.worker_api import StoredRuns
from drumline_server.checkpoints import service
from drumline_server.devices import operating
from drumline_server.errors import DrumlineError, FencedError, InvalidRequestError
from drumline_server.models import Checkpoint, Host, JobVersion, Run
from drumline_server.runs import submission
from drumline_server.runs.checking import Checked
from drumline_server.runs.queueing import Order, queue_runs
from drumline_server.telemetry import checkpoints
from drumline_server.workers import stored_checkpoints
from support.core import SUSPECT_S, TAKEOVER_S, Core, Member, Worker, submission_body
from support.processes import wait_until


def started(core: Core, worker: Worker, **changes: Any) -> Member:
    """A run, of one replica unless told otherwise, on that worker."""
    core.submit(**{"resources": {"replicas": 1}, **changes})
    core.schedule()
    return worker.take().start()


def started_whole(core: Core, worker: Worker) -> Member:
    """A run of eight replicas that must not be split over hosts."""
    core.submit(resources={"replicas": 8, "spread": "one_host"})
    core.schedule()
    return worker.take().start()


def save(member: Member, *steps: int) -> None:
    for step in steps:
        path = f"f{member.claimed.fence}/step_{step}"
        member.send(member.event("checkpoint", step=step, path=path, size_bytes=10, manifest=f"sha256:{step}"))


def listed(core: Core, run_id: str, limit: int = 50, cursor: str | None = None) -> api.Page[api.Checkpoint]:
    return core.read(
        lambda session: checkpoints.list_checkpoints(session, core.project_id, run_id, cursor=cursor, limit=limit)
    )


def states(core: Core, run_id: str) -> dict[tuple[int, int], str]:
    return {(row.fence, row.step): str(row.state) for row in listed(core, run_id).items}


def fail(core: Core, member: Member, *others: Worker) -> None:
    """Ends the attempt for a reason that is retried, and lets the backoff pass."""
    member.end(EndReason.KILLED, signal=9, exit_code=None)
    core.clock.advance(46)
    for worker in (member.worker, *others):
        worker.beat()
    core.reap()
    core.schedule()


def offered(member: Member) -> list[tuple[int, int]]:
    return [(point.fence, point.step) for point in member.claimed.resume]


def test_retry_is_offered_the_newest_checkpoint_first_and_then_those_before(core: Core) -> None:
    worker = core.add_worker()
    first = started(core, worker)
    assert first.claimed.resume == ()
    save(first, 10, 20)
    fail(core, first)

    second = worker.take().start()
    assert offered(second) == [(1, 20), (1, 10)]
    assert [point.manifest for point in second.claimed.resume] == ["sha256:20", "sha256:10"]
    save(second, 15)
    fail(core, second)
    assert offered(worker.take()) == [(2, 15), (1, 20)]


def test_policy_keeps_the_newest_and_every_kth(core: Core) -> None:
    member = started(core, core.add_worker(), job={"checkpoint": {"keep": 2, "keep_every_steps": 20}})
    save(member, 10, 20, 30, 40, 50)
    kept = {key for key, state in states(core, member.claimed.run).items() if state == CheckpointState.KEPT}
    assert kept == {(1, 50), (1, 40), (1, 20)}


def test_a_writer_with_a_lower_fence_cannot_register(core: Core) -> None:
    lost, other = core.add_worker("alpha"), core.add_worker("beta")
    core.submit(resources={"replicas": 1})
    core.schedule()
    worker = next(host for host in (lost, other) if host.beat().assigned)
    zombie = worker.take().start()
    save(zombie, 10)
    core.clock.advance(TAKEOVER_S + 1)
    (other if worker is lost else lost).beat()
    core.reap()
    core.clock.advance(10)
    (other if worker is lost else lost).beat()
    core.reap()
    core.schedule()
    worker.register([zombie.alive()])
    with pytest.raises(FencedError):
        save(zombie, 20)
    assert states(core, zombie.claimed.run) == {(1, 10): "KEPT"}


def test_what_an_attempt_found_damaged_is_not_offered_again(core: Core) -> None:
    worker = core.add_worker()
    first = started(core, worker)
    save(first, 10, 20)
    fail(core, first)
    second = worker.take().start()
    newest, before = second.claimed.resume
    restored = second.event("restored", checkpoint=before.checkpoint, step=10, damaged=(newest.checkpoint,))
    second.send(restored)

    attempt, _ = core.attempts(second.claimed.run)
    assert (attempt.resumed_from, attempt.resumed_step) == (before.checkpoint, 10)
    assert states(core, second.claimed.run) == {(1, 20): "DAMAGED", (1, 10): "KEPT"}
    fail(core, second)
    assert offered(worker.take()) == [(1, 10)]


def test_retry_waits_for_the_host_that_has_the_checkpoints_while_it_lives(core: Core) -> None:
    alpha, beta = core.add_worker("alpha", devices=1), core.add_worker("beta", devices=1)
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    first = home.take().start()
    save(first, 10)
    away = alpha if home is beta else beta
    core.submit(resources={"replicas": 1}, priority=5)
    core.schedule()
    elsewhere = away.take().start()
    core.submit(resources={"replicas": 1}, priority=5)
    fail(core, first, away)  # the more urgent run takes the host
    elsewhere.end()
    core.schedule()
    assert away.beat().assigned == ()

    run = core.run(first.claimed.run)
    assert run.why is not None
    assert (run.why.rule, run.why.evidence["hosts"]) == ("checkpoint_host", [home.name])
    home.take().start().end()
    core.schedule()
    assert offered(home.take()) == [(1, 10)]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("state", ["draining", "quarantined"])
def test_run_tied_to_a_host_out_of_service_says_so_and_each_remedy_starts_it(
    core: Core, state: str, resumed: bool
) -> None:
    home = core.add_worker("home", devices=1)
    first = started(core, home)
    save(first, 10)
    if resumed:
        first.end()
        waiting = core.submit(resources={"replicas": 1}, resume_from=first.claimed.run)
    else:
        first.end(EndReason.PREEMPTED)
        waiting = core.run(first.claimed.run)
    put_out_of_service(core, home, state)
    away = core.add_worker("away", devices=1)
    core.clock.advance(6)
    core.reap()
    away.beat()
    assert core.schedule() == []

    reason = core.run(waiting.id).why

    assert reason is not None
    assert (reason.rule, reason.evidence["hosts"], reason.evidence["host"]) == ("checkpoint_host", ["home"], "home")
    assert {"draining": "is being drained", "quarantined": "is quarantined"}[state] in reason.sentence
    assert "step 10" in reason.sentence
    assert {"draining": "hosts undrain home", "quarantined": "hosts release home"}[state] in reason.remedy
    assert ("without resume_from" if resumed else f"drumline rerun {waiting.id}") in reason.remedy
    anew = core.submit(resources={"replicas": 1}).id if resumed else rerun(core, waiting.id).id
    assert core.schedule() == [anew]
    put_into_service(core, home, state)
    home.beat()
    assert core.schedule() == [waiting.id]


def rerun(core: Core, run_id: str, *, from_start: bool = False) -> api.Run:
    key, body = f"again-{run_id}-{from_start}", api.RerunRequest(from_start=from_start)
    request = submission.Rerun(core.project_id, "tester", key, run_id, body, "tok_tester")
    return core.write(lambda session: submission.rerun(session, request, now=core.clock.now())).submitted.run


def put_out_of_service(core: Core, worker: Worker, state: str) -> None:
    def quarantine(session: Session) -> None:
        session.get_one(Host, worker.host_id).quarantined_at = core.clock.now()

    if state == "quarantined":
        core.write(quarantine)
        return
    core.write(lambda session: operating.drain_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))


def put_into_service(core: Core, worker: Worker, state: str) -> None:
    act = operating.release_host if state == "quarantined" else operating.undrain_host
    core.write(lambda session: act(session, core.order(worker.host_id), suspect_s=SUSPECT_S))


def test_work_on_a_lost_host_is_named_and_the_run_goes_on_elsewhere(core: Core) -> None:
    alpha, beta = core.add_worker("alpha"), core.add_worker("beta")
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    away = alpha if home is beta else beta
    first = home.take().start()
    save(first, 10)
    core.clock.advance(TAKEOVER_S + 1)
    away.beat()
    core.reap()

    run = core.run(first.claimed.run)
    assert run.why is not None
    assert f"Its checkpoint of step 10 was on {home.name}, which is lost: it begins anew." in run.why.sentence
    core.clock.advance(10)
    away.beat()
    core.reap()
    core.schedule()
    assert away.take().claimed.resume == ()


def test_hosts_that_share_a_volume_go_on_with_each_others_runs(core: Core) -> None:
    alpha, beta = core.add_worker("alpha"), core.add_worker("beta")
    alpha.register(checkpoint_store="vol_x")
    beta.register(checkpoint_store="vol_x")
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    first = home.take().start()
    save(first, 10)
    assert listed(core, first.claimed.run).items[0].shared
    away = alpha if home is beta else beta
    fail(core, first, away)
    assert offered(away.take()) == [(1, 10)]  # a retry goes to another host if it can


def test_run_that_fits_only_on_all_hosts_of_its_volume_together_goes_on_elsewhere(core: Core) -> None:
    """A gang that must stay on one host has room on a host, never on a sum."""
    alpha = core.add_worker("alpha")
    alpha.register(checkpoint_store="vol_x")
    first = started_whole(core, alpha)
    save(first, 10)
    others = [core.add_worker(name, devices=4) for name in ("beta", "gamma")]
    for worker in others:
        worker.register(checkpoint_store="vol_x")
    others.append(core.add_worker("delta"))
    for seconds in (TAKEOVER_S + 1, 10):
        core.clock.advance(seconds)
        for worker in others:
            worker.beat()
        core.reap()

    assert core.schedule() == [first.claimed.run]
    assert others[-1].take().claimed.resume == ()


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


def saved_at_home(core: Core, devices: int = 2) -> tuple[Worker, str]:
    """A host of so many devices, alone with the checkpoint of step 10 of a run that is over."""
    home = core.add_worker("home", devices=devices)
    source = started(core, home)
    save(source, 10)
    source.end()
    return home, source.claimed.run


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


def test_run_whose_checkpoint_nobody_can_read_any_more_is_refused_or_waits_and_never_begins_anew(core: Core) -> None:
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
    assert "without resume_from" in reason.remedy
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
    anew = core.submit(resources={"replicas": 1, "spread": "one_host"}, resume_from=source)
    assert core.schedule() == [anew.id]


def test_what_a_run_loses_that_is_submitted_anew_is_said(core: Core) -> None:
    home = core.add_worker("home", devices=2)
    first = started(core, home, resources={"replicas": 2})
    save(first, 10)
    first.end(EndReason.PREEMPTED)
    core.submit(resources={"replicas": 1}, priority=9)
    core.schedule()
    core.clock.advance(6)
    home.beat()
    core.reap()

    reason = core.run(first.claimed.run).why
    assert reason is not None
    (fewer,) = [each for each in reason.suggestions if each.kind == "replicas"]
    assert fewer.sentence.endswith("submit it anew. It then does again what it has done up to step 10.")


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


DAY_S = 86_400.0


def expired(core: Core, worker: Worker, *runs: str) -> tuple[str, ...]:
    """What the worker may delete of those runs, if runs are kept for 30 days."""
    worker.register()
    body = StoredRuns(incarnation=worker.incarnation, runs=runs)
    before = core.clock.now() - int(30 * DAY_S * 1e6)
    return core.write(
        lambda session: stored_checkpoints.expire(session, worker.host_id, body, ended_before=before)
    ).runs


def test_checkpoints_of_a_run_that_ended_long_ago_are_the_workers_to_delete(core: Core) -> None:
    worker = core.add_worker(devices=4)
    over, live = started(core, worker), started(core, worker)
    for member in (over, live):
        save(member, 10)
    over.end()
    both = (over.claimed.run, live.claimed.run, new_id("run"))

    core.clock.advance(29 * DAY_S)
    assert expired(core, worker, *both) == ()
    assert states(core, over.claimed.run) == {(1, 10): "KEPT"}
    core.clock.advance(2 * DAY_S)
    foreign = core.add_worker("beta", project_id=core.add_project("foreign"))
    assert expired(core, foreign, *both) == ()
    assert expired(core, worker, *both) == (over.claimed.run,)

    assert states(core, over.claimed.run) == {(1, 10): "DELETED"}
    with pytest.raises(InvalidRequestError, match="has no checkpoint to go on from"):
        core.submit(resources={"replicas": 1}, resume_from=over.claimed.run)


def test_checkpoints_that_a_live_run_goes_on_from_stay_until_it_ends(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    user = core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    core.clock.advance(31 * DAY_S)

    assert expired(core, worker, source.claimed.run) == ()
    core.schedule()
    assert offered(worker.take()) == [(1, 10)]
    core.cancel(user.id)
    worker.register()  # without the member: it is dead
    assert expired(core, worker, source.claimed.run) == (source.claimed.run,)


def test_a_host_gives_up_what_is_in_its_own_store_only(core: Core) -> None:
    alpha = core.add_worker("alpha")
    member = started(core, alpha)
    save(member, 10)
    member.end()
    core.clock.advance(31 * DAY_S)
    beta = core.add_worker("beta")

    assert expired(core, beta, member.claimed.run) == (member.claimed.run,)
    assert states(core, member.claimed.run) == {(1, 10): "KEPT"}


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
        order = Order(core.project_id, "tester", version, submission_body(), checked)
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
        assert stored_checkpoints.expire(session, worker.host_id, body, ended_before=now).runs
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


def test_rows_of_deleted_checkpoints_go_after_a_week_but_those_that_a_live_run_names(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10, 20)
    named = listed(core, source.claimed.run).items[1]
    core.submit(resources={"replicas": 1}, resume_from=named.id)
    save(source, 30, 40, 50)
    assert states(core, source.claimed.run)[1, 10] == "DELETED"

    core.clock.advance(8 * DAY_S)
    core.write(lambda session: service.forget_deleted(session, now=core.clock.now()))

    assert states(core, source.claimed.run) == {(1, 50): "KEPT", (1, 40): "KEPT", (1, 10): "DELETED"}


def test_same_step_saved_again_takes_the_place_of_the_first(core: Core) -> None:
    member = started(core, core.add_worker())
    save(member, 10)
    member.send(member.event("checkpoint", step=10, path="f1/step_10", size_bytes=11, manifest="sha256:new"))
    (only,) = listed(core, member.claimed.run).items
    assert (only.size_bytes, only.manifest) == (11, "sha256:new")


def test_checkpoints_page(core: Core) -> None:
    member = started(core, core.add_worker())
    save(member, *range(0, 50, 10))
    first = listed(core, member.claimed.run, limit=2)
    second = listed(core, member.claimed.run, limit=50, cursor=first.next)
    assert [row.step for row in (*first.items, *second.items)] == [40, 30, 20, 10, 0]
