"""A host's identity moves to another machine or data directory: what began before waits for the end of its lease."""

import asyncio
from pathlib import Path

import pytest

from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline.contracts.worker_api import MemberHeartbeat, MemberNotice
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.scheduling.loops import DeadlineLoop
from support.core import GANG, TAKEOVER_S, Core, Member, Worker

HELD, FREE, QUARANTINED = [DeviceState.HELD] * 8, [DeviceState.FREE] * 8, [DeviceState.QUARANTINED] * 8


def running(core: Core) -> tuple[str, Member]:
    """A run on all devices of a fresh worker."""
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8}, limits={"run_s": 86_400})
    core.schedule()
    return run.id, worker.take().start()


def twin_of(worker: Worker, *, place: str = "place-2", boot_id: str = "boot-2") -> Worker:
    """Another worker that takes itself for the same host."""
    return Worker(worker.core, worker.host_id, worker.name, worker.device_count, worker.platform, boot_id, place)


def beat_for(core: Core, worker: Worker, seconds: float) -> None:
    """Heartbeats and rounds of the deadline loop."""
    for _ in range(2):
        core.clock.advance(seconds / 2)
        worker.beat()
        core.reap()


def is_lost(core: Core, run_id: str) -> bool:
    return core.attempts(run_id)[0].state is AttemptState.LOST


def is_fenced(refused: pytest.ExceptionInfo[DrumlineError]) -> bool:
    return refused.value.code is ProblemCode.FENCED


@pytest.mark.parametrize(
    ("places", "boot_id", "listed", "member", "devices"),
    [
        (("a", "a"), "boot-1", True, MemberState.RUNNING, HELD),
        (("a", "a"), "boot-1", False, MemberState.LOST, FREE),
        (("a", "a"), "boot-2", True, MemberState.LOST, FREE),
        (("a", "b"), "boot-1", True, MemberState.RUNNING, HELD),
        (("a", "b"), "boot-1", False, MemberState.RUNNING, HELD),
        (("a", "b"), "boot-2", False, MemberState.RUNNING, HELD),
        (("a", ""), "boot-1", False, MemberState.RUNNING, HELD),
        (("a", ""), "boot-2", True, MemberState.RUNNING, HELD),
        (("", "a"), "boot-2", False, MemberState.RUNNING, HELD),
        (("", ""), "boot-1", False, MemberState.RUNNING, HELD),
        (("", ""), "boot-2", False, MemberState.RUNNING, HELD),
    ],
)
def test_only_a_worker_in_the_same_place_proves_that_a_member_is_dead(
    *, core: Core, places: tuple[str, str], boot_id: str, listed: bool, member: MemberState, devices: list[DeviceState]
) -> None:
    worker = core.add_worker()
    worker.place = places[0]
    worker.register()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    begun = worker.take().start()

    twin_of(worker, place=places[1], boot_id=boot_id).register([begun.alive()] if listed else [])

    assert core.attempts(run.id)[0].members[0].state is member
    assert core.device_states() == devices


def test_member_left_behind_is_lost_when_the_lease_of_its_own_incarnation_is_over(core: Core) -> None:
    run_id, member = running(core)
    core.clock.advance(20)
    twin = twin_of(member.worker)
    twin.register()

    beat_for(core, twin, TAKEOVER_S - 25)
    assert core.run(run_id).state is RunState.RUNNING
    assert core.device_states() == HELD
    assert core.schedule() == []
    beat_for(core, twin, 10)

    attempt = core.attempts(run_id)[0]
    assert (attempt.state, core.run(run_id).state) == (AttemptState.LOST, RunState.QUEUED)
    assert attempt.reason is not None
    assert attempt.reason.code is EndReason.LOST
    assert core.device_states() == QUARANTINED
    assert core.host("alpha").state == "live"


def test_lease_left_behind_is_the_longest_that_was_promised(core: Core) -> None:
    run_id, member = running(core)
    member.worker.register([member.alive()], takeover_s=300.0)
    twin = twin_of(member.worker)
    twin.register(takeover_s=45.0)

    beat_for(core, twin, 290)
    assert core.run(run_id).state is RunState.RUNNING
    beat_for(core, twin, 15)

    assert is_lost(core, run_id)


def test_second_move_neither_renews_the_lease_nor_shortens_it(core: Core) -> None:
    run_id, member = running(core)
    core.clock.advance(20)
    twin_of(member.worker).register()
    core.clock.advance(60)
    third = twin_of(member.worker, place="place-3", boot_id="boot-3")
    third.register()

    beat_for(core, third, 35)
    assert core.run(run_id).state is RunState.RUNNING
    beat_for(core, third, 10)

    assert is_lost(core, run_id)


def test_death_of_the_newer_machine_takes_nobody_along_whose_lease_is_longer(core: Core) -> None:
    run_id, member = running(core)
    member.worker.register([member.alive()], takeover_s=300.0)
    twin_of(member.worker).register(takeover_s=45.0)

    core.clock.advance(TAKEOVER_S + 5)
    core.reap()
    assert core.host("alpha").state == "lost"
    assert core.run(run_id).state is RunState.RUNNING
    core.clock.advance(180)
    core.reap()

    assert is_lost(core, run_id)


def test_lease_left_behind_does_not_end_right_after_a_start_of_the_server(core: Core) -> None:
    run_id, member = running(core)
    twin = twin_of(member.worker)
    twin.register()
    core.clock.advance(TAKEOVER_S + 5)
    core.leases_from = core.clock.now() + 60_000_000

    beat_for(core, twin, 55)
    assert core.run(run_id).state is RunState.RUNNING
    beat_for(core, twin, 10)

    assert is_lost(core, run_id)


def test_lease_left_behind_ends_in_time_after_the_clock_was_set_back(core: Core, tmp_path: Path) -> None:
    run_id, member = running(core)
    twin = twin_of(member.worker)
    twin.register()
    core.clock.advance(-3600)
    settings = Settings.model_validate({"data_dir": tmp_path, "deadlines_every_s": 60, "takeover_s": TAKEOVER_S})
    deadline_loop = DeadlineLoop(core.database, settings, core.clock)

    for _ in range(4):
        asyncio.run(deadline_loop.round())
        core.clock.advance(60)
        twin.beat()

    assert is_lost(core, run_id)


def test_newer_worker_hears_of_nothing_that_was_left_behind_and_is_told_to_kill_it(core: Core) -> None:
    run_id, member = running(core)
    core.cancel(run_id)
    twin = twin_of(member.worker)
    twin.register()

    reply = twin.beat()
    assert (reply.assigned, reply.cancelled, reply.fenced) == ((), (), ())
    reply = twin.beat(MemberHeartbeat(member=member.id, fence=member.claimed.fence))
    assert [notice.member for notice in reply.fenced] == [member.id]
    assert reply.cancelled == ()


def test_newer_worker_can_neither_claim_nor_report_nor_end_what_was_left_behind(core: Core) -> None:
    """A heartbeat's answer comes late, or the data directory was copied with everything in it."""
    run_id, member = running(core)
    twin = twin_of(member.worker)
    twin.register()
    copy = Member(twin, member.claimed, member.seq)
    notice = MemberNotice(member=member.id, attempt=member.claimed.attempt, fence=member.claimed.fence)

    for write in (
        lambda: twin.claim(notice),
        lambda: copy.send(copy.event("progress", step=1)),
        lambda: copy.end(EndReason.SHIM_KILLED),
    ):
        with pytest.raises(DrumlineError) as refused:
            write()
        assert is_fenced(refused)
        assert "incarnation" not in refused.value.context, "it would register again"
    assert core.run(run_id).state is RunState.RUNNING
    assert core.device_states() == HELD


def test_cancelled_run_that_was_left_behind_ends_with_the_lease(core: Core) -> None:
    run_id, member = running(core)
    twin = twin_of(member.worker)
    twin.register()
    core.cancel(run_id)

    beat_for(core, twin, TAKEOVER_S - 5)
    assert core.run(run_id).state is RunState.CANCELLING
    beat_for(core, twin, 10)

    assert core.run(run_id).state is RunState.CANCELLED


def test_worker_that_made_way_proves_the_end_and_the_run_goes_on_at_once(core: Core) -> None:
    run_id, member = running(core)
    twin = twin_of(member.worker)
    twin.register()

    taken = member.end(EndReason.PREEMPTED, last_seq=99)

    assert taken.fenced is not None
    assert taken.fenced.context["superseded"] is True
    assert core.run(run_id).state is RunState.RETRY_WAIT
    assert core.attempts(run_id)[0].state is AttemptState.PREEMPTED, "nobody's failure"
    assert core.device_states() == FREE
    core.clock.advance(5)
    twin.beat()
    core.reap()
    core.schedule()
    twin.take().start().end()
    run = core.run(run_id)
    assert (run.state, run.attempts) == (RunState.SUCCEEDED, 2)


def test_end_without_proof_of_a_worker_that_made_way_changes_nothing(core: Core) -> None:
    run_id, member = running(core)
    twin_of(member.worker).register()

    with pytest.raises(DrumlineError) as refused:
        member.end(EndReason.COMPLETED, devices_released=False)

    assert is_fenced(refused)
    assert core.run(run_id).state is RunState.RUNNING
    assert core.device_states() == HELD


@pytest.mark.parametrize("listed", [True, False])
def test_worker_that_comes_back_to_its_place_decides_about_what_it_had(core: Core, listed: bool) -> None:
    run_id, member = running(core)
    twin_of(member.worker).register()
    core.clock.advance(60)
    member.worker.register([member.alive()] if listed else [])

    assert core.run(run_id).state is (RunState.RUNNING if listed else RunState.RETRY_WAIT)
    beat_for(core, member.worker, 2 * TAKEOVER_S)
    assert (core.run(run_id).state is RunState.RUNNING) == listed


def test_devices_that_were_to_be_released_elsewhere_are_not_free_by_a_move(core: Core) -> None:
    """Claimed, fenced off before the gang was whole, and its worker has not proven the end."""
    alpha, _ = core.add_worker("alpha", 1), core.add_worker("beta", 1)
    core.submit(job=GANG, resources={"replicas": 2})
    core.schedule()
    (notice,) = alpha.beat().assigned
    alpha.claim(notice)
    core.clock.advance(61)
    core.reap()
    assert core.device_states() == [DeviceState.RELEASING, DeviceState.FREE]

    twin_of(alpha).register()

    assert core.device_states() == [DeviceState.RELEASING, DeviceState.FREE]


@pytest.mark.parametrize("cancelled", [False, True])
def test_run_and_lists_say_that_the_host_has_moved_while_the_server_waits(core: Core, cancelled: bool) -> None:
    run_id, member = running(core)
    core.clock.advance(20)
    twin = twin_of(member.worker)
    twin.register()
    if cancelled:
        core.cancel(run_id)

    why = core.run(run_id).why
    assert why is not None
    assert (why.rule, why.evidence["hosts"]) == ("host_moved", ["alpha"])
    assert f"counts as dead in {TAKEOVER_S - 20:.0f} s" in why.sentence
    (event,) = [event for event in core.events(run_id) if event.kind == "host"]
    assert (event.body["name"], event.body["state"], event.body["until"]) == ("alpha", "moved", why.evidence["until"])
    (listed,) = core.runs().items
    assert listed.wait is not None
    assert listed.wait.rule == "host_moved"
    assert listed.state is (RunState.CANCELLING if cancelled else RunState.RUNNING)
    beat_for(core, twin, TAKEOVER_S)
    assert (after := core.run(run_id).why) is None or after.rule != "host_moved"
    (listed,) = core.runs().items
    assert listed.wait is None or listed.wait.rule != "host_moved"
