"""What workers may do: claims, fences, registrations, ends."""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, DeviceState, RunState
from drumline.contracts.worker_api import OLDEST_PROTOCOL, PROTOCOL_VERSION, Claim, MemberHeartbeat
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle import members as claim_lifecycle
from drumline_server.storage.database import Database
from drumline_server.storage.models import Host
from support.core import GANG, Core, Member, key_of
from support.edge import EdgeServer
from support.processes import wait_until
from support.refusals import code_of
from support.runs import placed, running


def test_claim_tells_everything_that_the_member_needs(core: Core) -> None:
    worker = core.add_worker()
    run = core.queue(
        resources={"replicas": 2, "platform": "cpu"},
        parameters={"epochs": 3},
        job={"strategy": {"kind": "tpu", "computation_shape": [2, 2, 1, 1]}},
    )
    core.schedule()
    claimed = worker.take().claimed

    assert (claimed.run, claimed.job_name, claimed.replicas, claimed.fence) == (run.id, "digits", 2, 1)
    assert claimed.parameters == {"epochs": 3}
    assert [(device.index, device.replica, device.logical) for device in claimed.devices] == [
        (index, index // 4, index % 4) for index in range(8)
    ]
    assert (claimed.rendezvous.rank, claimed.rendezvous.size) == (0, 1)


def test_same_claim_again_is_answered_alike(core: Core) -> None:
    _, worker = placed(core)
    (notice,) = worker.beat().assigned

    assert worker.claim(notice) == worker.claim(notice)


def test_claimed_member_that_its_worker_knows_is_not_assigned_again(core: Core) -> None:
    _, worker = placed(core)
    member = worker.take()

    assert worker.beat(MemberHeartbeat(member=member.id, fence=member.claimed.fence)).assigned == ()


def test_member_of_another_host_does_not_exist(core: Core) -> None:
    _, worker = placed(core)
    stranger = core.add_worker("beta")
    (notice,) = worker.beat().assigned

    with pytest.raises(NotFoundError):
        stranger.claim(notice)


def test_claim_with_another_fence_is_refused(core: Core) -> None:
    _, worker = placed(core)
    (notice,) = worker.beat().assigned

    with pytest.raises(DrumlineError) as refused:
        worker.claim(notice, fence=notice.fence + 1)

    assert code_of(refused) is ProblemCode.FENCED


def test_attempt_not_claimed_in_time_expires_and_the_run_waits_again(core: Core) -> None:
    run_id, worker = placed(core)
    (notice,) = worker.beat().assigned
    core.clock.advance(61)
    worker.beat()
    core.reap()

    assert core.run(run_id).state is RunState.QUEUED
    assert core.attempts(run_id)[0].state is AttemptState.EXPIRED
    assert core.device_states() == ["FREE"] * 8
    with pytest.raises(DrumlineError) as refused:
        worker.claim(notice)
    assert code_of(refused) is ProblemCode.FENCED

    core.schedule()
    worker.take().start().end()
    run = core.run(run_id)
    assert run.state is RunState.SUCCEEDED
    assert run.attempts == 1, "the attempt that nobody claimed costs nothing"
    assert [attempt.number for attempt in core.attempts(run_id)] == [2, 1]


def test_lower_fence_cannot_write_and_cannot_disturb_the_newer_attempt(core: Core) -> None:
    run_id, old = running(core)
    core.clock.advance(121)
    core.reap()
    core.clock.advance(5)
    newer = core.add_worker("beta")
    core.reap()
    core.schedule()
    current = newer.take().start()

    with pytest.raises(DrumlineError) as refused:
        old.send(old.event("result", value="stale"))
    assert code_of(refused) is ProblemCode.FENCED
    assert old.end().fenced is not None
    current.send(current.event("result", value="fresh"))
    current.end()

    assert core.run(run_id).result == "fresh"
    assert core.run(run_id).state is RunState.SUCCEEDED


def test_device_listed_twice_is_refused(core: Core) -> None:
    worker = core.add_worker(devices=1)
    report = {"platform": "cpu", "index": 0, "kind": "test"}

    with pytest.raises(DrumlineError, match="twice"):
        worker.register(devices=(report, report))


@pytest.mark.parametrize(
    ("protocol", "mend"),
    [
        (PROTOCOL_VERSION + 1, "Upgrade the server to drumline 0.1.0 first"),
        (OLDEST_PROTOCOL - 1, "Upgrade the worker on host alpha to drumline "),
    ],
)
def test_worker_of_an_unknown_protocol_is_refused_and_told_which_side_to_upgrade(
    core: Core, protocol: int, mend: str
) -> None:
    worker = core.add_worker()

    with pytest.raises(DrumlineError, match=f"protocol {protocol}") as refused:
        worker.register(protocol=protocol)
    assert refused.value.hint.startswith(mend)
    assert refused.value.context == {"protocol": PROTOCOL_VERSION}


def test_worker_of_the_release_before_is_served_without_keys(core: Core) -> None:
    run_id, worker = placed(core)
    worker.register(protocol=OLDEST_PROTOCOL)
    (notice,) = worker.beat().assigned
    member = Member(worker, worker.claim(notice, key=None), key=None).start()
    member.end()

    assert core.run(run_id).state is RunState.SUCCEEDED
    assert core.host("alpha").protocol == OLDEST_PROTOCOL


@pytest.mark.parametrize("speaks", ["without a key", "with another key"])
def test_nobody_speaks_for_a_member_without_the_key_of_its_claim(core: Core, speaks: str) -> None:
    """Whoever has only the host's token, and knows incarnation and fence."""
    run_id, member = running(core)
    thief = replace(member, key=None if speaks == "without a key" else key_of("mem_of_another"))
    for say in (lambda: thief.send(thief.event("progress", step=9)), thief.end):
        with pytest.raises(DrumlineError, match=f"claimed with a key, and this came {speaks}") as refused:
            say()
        assert refused.value.code is ProblemCode.FENCED
    assert core.run(run_id).state is RunState.RUNNING
    assert core.run(run_id).progress.step is None
    assert core.device_states() == [DeviceState.HELD] * 8

    member.end()
    assert core.run(run_id).state is RunState.SUCCEEDED


def test_a_claim_is_answered_again_to_who_has_its_key_and_to_nobody_else(core: Core) -> None:
    _, worker = placed(core)
    (notice,) = worker.beat().assigned
    first = worker.claim(notice)

    assert worker.claim(notice) == first
    for key in (None, key_of("mem_of_another")):
        with pytest.raises(DrumlineError, match="claimed with a key"):
            worker.claim(notice, key=key)


def test_a_worker_that_a_server_has_left_behind_hears_so_at_its_next_heartbeat(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    client = server.client(server.worker_token(worker.host_id))
    beat = {"incarnation": worker.incarnation, "sent_at": "2027-01-15T08:00:00Z"}
    answers = [
        client.post("/api/v1/worker/heartbeat", json={**beat, "protocol": protocol})
        for protocol in (PROTOCOL_VERSION, OLDEST_PROTOCOL, OLDEST_PROTOCOL - 1, 0)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 409, 409]
    assert answers[0].json()["protocol"] == PROTOCOL_VERSION
    assert f"speaks protocol {OLDEST_PROTOCOL - 1}, this server (drumline" in answers[2].json()["detail"]


def test_member_that_was_never_claimed_cannot_end(core: Core) -> None:
    run_id, worker = placed(core)
    (notice,) = worker.beat().assigned
    core.attempts(run_id)
    member = Member(worker, Member(worker, worker.claim(notice)).claimed)
    member.worker.register()  # the run is retried: its next member is PENDING
    core.clock.advance(6)
    worker.beat()
    core.reap()
    core.schedule()
    (fresh,) = worker.beat().assigned
    pending = Member(worker, member.claimed.model_copy(update={"member": fresh.member, "fence": fresh.fence}))

    with pytest.raises(DrumlineError, match="never claimed"):
        pending.end()
    assert core.device_states() == [DeviceState.HELD] * 8


def test_end_is_idempotent(core: Core) -> None:
    run_id, member = running(core)

    first = member.end()
    again = member.end()

    assert first.fenced is None
    assert again == first
    assert core.states(run_id).count("SUCCEEDED") == 1


def test_late_end_of_an_old_member_does_not_free_devices_of_the_new_one(core: Core) -> None:
    _, old = running(core)
    old.worker.register()
    core.clock.advance(6)
    old.worker.beat()
    core.reap()
    core.schedule()
    old.worker.take()

    assert old.end().fenced is not None
    assert core.device_states() == [DeviceState.HELD] * 8


def test_registration_waits_for_a_claim_that_is_being_stored_and_loses_its_member(postgres_url: str) -> None:
    """Else neither sees the other, and nobody has the member for ever."""
    core = Core(Database(postgres_url, pool_size=3))
    run_id, worker = placed(core)
    (notice,) = worker.beat().assigned
    body = Claim(incarnation=worker.incarnation, fence=notice.fence)
    stored, free = threading.Event(), threading.Event()

    def claim(session: Session) -> None:
        claim_lifecycle.claim(session, worker.host_id, notice.member, body, now=core.clock.now())
        stored.set()
        assert free.wait(20)

    claiming, registering = threading.Thread(target=core.write, args=(claim,)), threading.Thread(target=worker.register)
    claiming.start()
    assert stored.wait(20)
    registering.start()
    registering.join(0.5)
    assert registering.is_alive()
    free.set()
    claiming.join()
    registering.join()

    assert core.run(run_id).state is RunState.RETRY_WAIT
    core.database.close()


def test_beat_that_waited_for_another_registration_renews_nothing_and_hears_so(postgres_url: str) -> None:
    """Else its worker would take its lease for longer than the server does."""
    core = Core(Database(postgres_url, pool_size=3))
    _, member = running(core)
    stored, free = threading.Event(), threading.Event()
    refused: list[DrumlineError] = []

    def store(work: Callable[[Session], Any]) -> Any:  # Any: whatever a registration gives
        def hold(session: Session) -> Any:
            registered = work(session)
            session.flush()
            stored.set()
            assert free.wait(20)
            return registered

        return core.write(hold)

    def beat() -> None:
        try:
            member.worker.beat(MemberHeartbeat(member=member.id, fence=member.claimed.fence))
        except DrumlineError as error:
            refused.append(error)

    def waits_for_a_lock() -> bool:
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(core.read(lambda session: session.scalar(waiting)) == 1)

    other = replace(member.worker, core=cast(Core, SimpleNamespace(write=store, clock=core.clock)))
    registering, beating = threading.Thread(target=other.register), threading.Thread(target=beat)
    registering.start()
    assert stored.wait(20)
    registered_at = core.clock.now()
    core.clock.advance(3)
    beating.start()
    try:
        wait_until(waits_for_a_lock, timeout_s=20, what="the beat has looked and waits to renew")
    finally:
        free.set()
        registering.join()
        beating.join()

    assert [error.code for error in refused] == [ProblemCode.FENCED]
    assert refused[0].context["current"] == other.incarnation
    heard_at = core.read(lambda session: session.get_one(Host, member.worker.host_id).last_heartbeat_at)
    assert heard_at == registered_at
    core.database.close()


def test_draining_host_takes_no_more_runs(core: Core) -> None:
    worker = core.add_worker()
    worker.beat(draining=True)
    run = core.submit()

    assert core.schedule() == []
    worker.beat(draining=False)
    assert core.schedule() == [run.id]


def test_registration_that_arrives_after_a_newer_one_loses_nobody(core: Core) -> None:
    """Sent, given up, sent again and taken, a member claimed: only then the first one comes out of a stalled server."""
    worker = core.add_worker()
    known = worker.incarnation
    newest = worker.register(replaces=known).incarnation
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    worker.take().start()

    with pytest.raises(DrumlineError) as refused:
        worker.register(replaces=known)
    assert code_of(refused) is ProblemCode.FENCED
    assert refused.value.context == {"incarnation": known, "current": newest, "superseded": True}
    with pytest.raises(DrumlineError) as refused:
        worker.register(replaces=new_id("inc"))
    assert refused.value.context["superseded"] is False, "as after a restore of an old database"
    assert core.run(run.id).state is RunState.RUNNING
    assert worker.beat().fenced == ()


def test_worker_that_knows_no_incarnation_learns_the_newest_one(core: Core) -> None:
    worker = core.add_worker()
    known = worker.incarnation
    with pytest.raises(DrumlineError) as refused:
        worker.register(replaces="")
    assert worker.register(replaces=refused.value.context["current"]).incarnation != known


def test_drain_of_a_host_ends_a_gang_that_is_half_claimed(core: Core) -> None:
    first, _ = core.add_worker("alpha", 1), core.add_worker("beta", 1)
    run = core.submit(job=GANG, resources={"replicas": 2})
    core.schedule()

    (notice,) = first.beat().assigned
    Member(first, first.claim(notice)).end(EndReason.PREEMPTED)

    assert core.attempts(run.id)[0].state is AttemptState.PREEMPTED
    assert core.run(run.id).state is RunState.RETRY_WAIT
    assert core.device_states() == ["FREE", "FREE"]
