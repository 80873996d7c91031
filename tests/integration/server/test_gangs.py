"""Gangs over several hosts: they start together or not at all, and end together."""

import pytest

from drumline.contracts.programs import MemberTick
from drumline.contracts.reasons import HOST_FAULTS, EndReason
from drumline.contracts.states import AttemptState, RunState
from drumline.contracts.worker_api import Claim, Claimed, DeviceCheckReport, MemberHeartbeat, MemberNotice
from drumline_server.base.errors import FencedError
from drumline_server.lifecycle import members as claim_lifecycle
from support.checkpoints import save
from support.core import GANG, Core, Member, Worker, key_of
from support.statements import statements

PLACE = "10.0.0.1:4711"


def two_hosts(core: Core, store: str = "") -> tuple[str, list[Worker]]:
    """A run of 4 replicas over two hosts of 2 devices each; the workers by rank. They may share a store."""
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    for worker in workers:
        worker.register(checkpoint_store=store)
    run = core.submit(job=GANG, resources={"replicas": 4})
    assert core.schedule() == [run.id]
    (attempt,) = core.attempts(run.id)
    hosts = [member.host for member in attempt.members]
    return run.id, sorted(workers, key=lambda worker: hosts.index(worker.host_id))


def claim(core: Core, worker: Worker, notice: MemberNotice, coordinator: str | None = None) -> Claimed:
    body = Claim(incarnation=worker.incarnation, fence=notice.fence, coordinator=coordinator, key=key_of(notice.member))
    return core.write(
        lambda session: claim_lifecycle.claim(session, worker.host_id, notice.member, body, now=core.clock.now())
    )


def running(core: Core, store: str = "") -> tuple[str, list[Member]]:
    run_id, workers = two_hosts(core, store)
    notices = [worker.beat().assigned[0] for worker in workers]
    for worker, notice in zip(workers, notices, strict=True):
        claim(core, worker, notice, PLACE)
    members = [Member(worker, claim(core, worker, notice)) for worker, notice in zip(workers, notices, strict=True)]
    for member in members:
        member.start()
    assert core.run(run_id).state is RunState.RUNNING
    return run_id, members


def beat(member: Member, tick: MemberTick | None = None) -> tuple[MemberNotice, ...]:
    """What the server wants stopped on the member's host."""
    return member.worker.beat(MemberHeartbeat(member=member.id, fence=member.claimed.fence, tick=tick)).cancelled


def tick(advances: int, activity: str = "in_step", *, overdue: bool = False, silent_s: float = 0.5) -> MemberTick:
    return MemberTick.model_validate(
        {"activity": activity, "advances": advances, "idle_s": 61, "silent_s": silent_s, "overdue": overdue}
    )


def test_nobody_learns_where_to_meet_before_all_are_claimed(core: Core) -> None:
    _, (first, second) = two_hosts(core)
    (notice,), (other,) = first.beat().assigned, second.beat().assigned

    assert claim(core, first, notice, PLACE).rendezvous.coordinator is None
    told = claim(core, second, other).rendezvous

    assert (told.rank, told.size, told.coordinator) == (1, 2, PLACE)
    assert claim(core, first, notice).rendezvous.coordinator == PLACE


def test_a_gang_waits_for_the_place_that_rank_0_opens(core: Core) -> None:
    _, (first, second) = two_hosts(core)
    (notice,), (other,) = first.beat().assigned, second.beat().assigned
    claim(core, first, notice)

    assert claim(core, second, other, "10.0.0.2:1").rendezvous.coordinator is None
    claim(core, first, notice, PLACE)
    assert claim(core, second, other).rendezvous.coordinator == PLACE


def test_every_member_knows_the_devices_of_all_in_replica_order(core: Core) -> None:
    _, members = running(core)

    devices = members[0].claimed.rendezvous.devices
    assert members[1].claimed.rendezvous.devices == devices
    assert [(device.replica, device.rank) for device in devices] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [device.replica for device in members[1].claimed.devices] == [2, 3]


def test_claims_of_a_large_gang_cost_the_database_no_more_than_those_of_a_small_one(core: Core) -> None:
    sent = {}
    for size in (2, 5):
        workers = [core.add_worker(f"of-{size}-{number}", devices=2) for number in range(size)]
        run = core.submit(job=GANG, resources={"replicas": 2 * size})
        assert core.schedule() == [run.id]
        notices = {worker.name: worker.beat().assigned[0] for worker in workers}
        for worker in workers[:-1]:
            claim(core, worker, notices[worker.name], PLACE)
        with statements() as waiting:
            told = [claim(core, worker, notices[worker.name]) for worker in workers[:-1]]
        assert all(each.rendezvous.devices == () for each in told)
        claim(core, workers[-1], notices[workers[-1].name], PLACE)
        with statements() as complete:
            told = [claim(core, worker, notices[worker.name]) for worker in workers]
        assert all(len(each.rendezvous.devices) == 2 * size for each in told)
        sent[size] = [len(waiting) / (size - 1), len(complete) / size]

    assert sent[2] == sent[5]


def test_a_gang_that_stays_incomplete_expires_and_leaves_no_device_behind(core: Core) -> None:
    run_id, (first, second) = two_hosts(core)
    (notice,) = first.beat().assigned
    claimed = Member(first, claim(core, first, notice, PLACE))
    core.clock.advance(61)
    first.beat()
    second.beat()
    core.reap()

    assert core.attempts(run_id)[0].state is AttemptState.EXPIRED
    assert core.run(run_id).state is RunState.QUEUED
    with pytest.raises(FencedError):
        claim(core, first, notice)
    claimed.end(EndReason.FENCED)
    assert core.device_states() == ["FREE"] * 4
    assert core.schedule() == [run_id]


def test_devices_of_a_claim_that_its_worker_never_heard_of_come_back(core: Core) -> None:
    """The answer was lost and the attempt expired: no worker knows of a member whose end it could report."""
    run_id, (first, second) = two_hosts(core)
    claim(core, first, first.beat().assigned[0], PLACE)
    core.clock.advance(61)
    for _ in range(2):
        for worker in (first, second):
            worker.beat()
        core.reap()
        core.clock.advance(61)

    asked = first.beat().probes
    assert len(asked) == 2
    first.report(*(DeviceCheckReport(device=probe.device, fence=probe.fence, usable=True) for probe in asked))
    second.beat()
    assert core.device_states() == ["FREE"] * 4
    assert core.schedule() == [run_id]


def test_two_gangs_never_hold_half_of_the_hosts_each(core: Core) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    runs = [core.submit(job=GANG, resources={"replicas": 4}).id for _ in range(2)]

    assert core.schedule() == runs[:1]
    assert core.schedule() == []
    core.clock.advance(61)
    for worker in workers:
        worker.beat()
    core.reap()
    assert len(core.schedule()) == 1
    assert sorted(core.device_states()) == ["HELD"] * 4


def test_the_rest_of_a_gang_is_killed_when_one_dies_and_the_whole_is_tried_again(core: Core) -> None:
    run_id, (first, second) = running(core)
    second.end(EndReason.KILLED, signal=9)

    (notice,) = beat(first)
    assert (notice.member, notice.reason) == (first.id, EndReason.PEER_LOST)
    first.end(EndReason.PEER_LOST)

    (attempt,) = core.attempts(run_id)
    assert (attempt.state, attempt.reason and attempt.reason.code) == (AttemptState.FAILED, EndReason.KILLED)
    assert core.device_states() == ["FREE"] * 4
    core.clock.advance(6)
    for member in (first, second):
        member.worker.beat()
    core.reap()
    assert core.schedule() == [run_id]
    assert len(core.attempts(run_id)[0].members) == 2


def test_every_member_knows_the_hosts_of_all_by_rank(core: Core) -> None:
    _, members = running(core)

    names = tuple(member.worker.name for member in members)
    assert [member.claimed.rendezvous.hosts for member in members] == [names, names]


@pytest.mark.parametrize("is_first_to_tell", [True, False])
def test_a_member_that_was_killed_is_named(core: Core, is_first_to_tell: bool) -> None:
    run_id, (first, second) = running(core)
    if not is_first_to_tell:
        first.end(EndReason.PEER_LOST)
    second.end(EndReason.KILLED, signal=9, message="Something outside Drumline sent SIGKILL.")
    if is_first_to_tell:
        first.end(EndReason.PEER_LOST)

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.KILLED
    assert reason.message == f"Rank 1 on {second.worker.name}: Something outside Drumline sent SIGKILL."


def test_the_killed_member_is_named_although_another_ended_of_it_before(core: Core) -> None:
    run_id, (first, second) = running(core)
    second.end(EndReason.KILLED, signal=9, message="Something outside Drumline sent SIGKILL.", ended_at=2_000_000)
    first.end(EndReason.PROGRAM_ERROR, message="ValueError: of it", ended_at=1_000_000)

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.KILLED
    assert reason.message == f"Rank 1 on {second.worker.name}: Something outside Drumline sent SIGKILL."


@pytest.mark.parametrize("told", [EndReason.PROGRAM_ERROR, EndReason.PROGRAM_EXITED])
def test_the_killed_member_is_named_although_another_told_of_an_error_of_its_own_first(
    core: Core, told: EndReason
) -> None:
    """A program may turn the failure of a collective into anything."""
    run_id, (first, second) = running(core)
    first.end(told, message="IndexError: nothing was gathered", ended_at=1_000_000)
    second.end(EndReason.KILLED, signal=9, message="Something outside Drumline sent SIGKILL.", ended_at=2_000_000)

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.KILLED
    assert reason.message == f"Rank 1 on {second.worker.name}: Something outside Drumline sent SIGKILL."


def test_a_member_that_stands_still_is_named_although_jax_ended_the_others_first(core: Core) -> None:
    run_id, (first, second) = running(core)
    first.end(EndReason.PEER_LOST, tick=tick(7))
    second.end(EndReason.PEER_LOST, tick=tick(7, silent_s=16))

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.HANG
    assert reason.message.startswith(f"Has not arrived: rank 1 on {second.worker.name} "), reason.message
    assert "whose process does not answer" in reason.message


def test_who_did_not_come_is_named_by_those_that_did_and_no_host_is_to_blame(core: Core) -> None:
    run_id, (first, second) = running(core)
    said = f"Did not come to the rendezvous within 30 s: rank 1 on {second.worker.name}."
    first.end(EndReason.GANG_INCOMPLETE, message=said)
    second.end(EndReason.PEER_LOST)

    run = core.run(run_id)
    assert (run.state, run.reason and run.reason.code) == (RunState.RETRY_WAIT, EndReason.GANG_INCOMPLETE)
    assert run.reason is not None
    assert run.reason.message == said
    assert EndReason.GANG_INCOMPLETE not in HOST_FAULTS


def test_who_went_along_is_not_the_cause_although_it_told_first(core: Core) -> None:
    run_id, (first, second) = running(core)
    first.end(EndReason.PEER_LOST)
    second.end(EndReason.PROGRAM_ERROR, message="ValueError: odd rank")

    run = core.run(run_id)
    assert (run.state, run.reason and run.reason.code) == (RunState.FAILED, EndReason.PROGRAM_ERROR)
    assert run.reason is not None
    assert run.reason.message == "ValueError: odd rank"


def test_a_cancelled_gang_keeps_its_grace_when_one_member_is_quicker(core: Core) -> None:
    run_id, (first, second) = running(core)
    core.cancel(run_id)
    second.end(EndReason.CANCELLED)

    (notice,) = beat(first)
    assert notice.reason is None
    first.end(EndReason.CANCELLED)
    assert core.run(run_id).state is RunState.CANCELLED


def test_a_gang_that_is_cancelled_half_claimed_ends_as_cancelled(core: Core) -> None:
    run_id, (first, _) = two_hosts(core)
    member = first.take()
    core.cancel(run_id)
    member.end(EndReason.CANCELLED)

    (attempt,) = core.attempts(run_id)
    assert core.run(run_id).state is RunState.CANCELLED
    assert (attempt.state, attempt.reason and attempt.reason.code) == (AttemptState.CANCELLED, EndReason.CANCELLED)
    assert core.device_states() == ["FREE"] * 4


def test_a_hang_stops_all_members_and_names_the_one_behind(core: Core) -> None:
    run_id, (first, second) = running(core)
    beat(second, tick(6, "own_code"))

    assert beat(first, tick(7, overdue=True))[0].reason is EndReason.HANG
    assert beat(second, tick(6, "own_code"))[0].reason is EndReason.HANG
    second.end(EndReason.HANG, tick=tick(6, "own_code"))
    first.end(EndReason.HANG, tick=tick(7, overdue=True))

    run = core.run(run_id)
    assert (run.state, run.reason and run.reason.code) == (RunState.RETRY_WAIT, EndReason.HANG)
    assert run.reason is not None
    late = f"rank 1 on {second.worker.name} (replicas 2, 3), after 6 steps or logs, in the program's own code"
    assert run.reason.message == f"Has not arrived: {late}. 1 other waits, after 7."


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (tick(7, "own_code"), "in the program's own code"),
        (tick(7, silent_s=30), "whose process does not answer: it is stopped, or a call holds its interpreter"),
    ],
)
def test_at_the_same_step_the_late_one_is_who_does_not_wait(core: Core, late: MemberTick, says: str) -> None:
    run_id, (first, second) = running(core)
    beat(first, tick(7, overdue=True))
    first.end(EndReason.HANG, tick=late)
    second.end(EndReason.HANG, tick=tick(7))

    reason = core.run(run_id).reason
    assert reason is not None
    assert "rank 0" in reason.message
    assert "rank 1" not in reason.message
    assert says in reason.message


def test_a_gang_that_waits_for_itself_blames_nobody(core: Core) -> None:
    run_id, members = running(core)
    beat(members[0], tick(7, overdue=True))
    for member in members:
        member.end(EndReason.HANG, tick=tick(7))

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.message == "All 2 members wait in the same place, after 7 steps or logs."


def test_of_all_in_their_own_code_at_the_same_step_the_one_that_does_not_answer_is_late(core: Core) -> None:
    run_id, (first, second) = running(core)
    beat(first, tick(7, "own_code", overdue=True))
    first.end(EndReason.HANG, tick=tick(7, "own_code"))
    second.end(EndReason.HANG, tick=tick(7, "own_code", silent_s=30))

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.message.startswith(f"Has not arrived: rank 1 on {second.worker.name} "), reason.message


def test_one_that_does_not_answer_is_late_although_it_is_a_step_ahead(core: Core) -> None:
    """It stopped after its step, with a part of the collective not yet sent to who waits behind it."""
    run_id, (first, second) = running(core)
    beat(first, tick(58, "own_code", overdue=True))
    first.end(EndReason.HANG, tick=tick(58, "own_code"))
    second.end(EndReason.HANG, tick=tick(59, "own_code", silent_s=11))

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.message == (
        f"Has not arrived: rank 1 on {second.worker.name} (replicas 2, 3), after 59 steps or logs, "
        "whose process does not answer: it is stopped, or a call holds its interpreter. 1 other waits, after 58."
    )


@pytest.mark.parametrize(("store", "shared"), [("", False), ("vol_x", True)])
def test_members_are_told_whether_all_of_them_see_what_each_saves(core: Core, store: str, shared: bool) -> None:
    _, members = running(core, store)

    assert [member.claimed.rendezvous.one_store for member in members] == [shared, shared]


def test_a_gang_goes_on_over_as_many_hosts_as_saved_although_one_has_room_for_all_now(core: Core) -> None:
    run_id, (first, second) = running(core, "vol_x")
    save(first, 10)
    large = core.add_worker("large")
    large.register(checkpoint_store="vol_x")
    first.end(EndReason.KILLED, signal=9, exit_code=None)
    beat(second)
    second.end(EndReason.PEER_LOST)
    core.clock.advance(46)
    for worker in (first.worker, second.worker, large):
        worker.beat()
    core.reap()

    assert core.schedule() == [run_id]
    newest, _ = core.attempts(run_id)
    assert len(newest.members) == 2
    notices = [(worker, notice) for worker in (first.worker, second.worker, large) for notice in worker.beat().assigned]
    told = [claim(core, worker, notice) for worker, notice in notices]
    assert [[(point.fence, point.step) for point in each.resume] for each in told] == [[(1, 10)]] * 2
