"""What happens when two things meet: a lost answer, a limit before the start, a stale deadline, an old hold."""

import json

import pytest
from sqlalchemy import update

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import DeviceState, MemberState, RunState
from drumline.contracts.worker_api import MemberHeartbeat
from drumline_server.lifecycle.deadlines import RELEASE_S, Deadlines, overdue_actions
from drumline_server.lifecycle.guard import clamp_timestamps
from drumline_server.storage import models
from support.core import CLAIM_S, SUSPECT_S, TAKEOVER_S, Core
from support.runs import placed

pytestmark = pytest.mark.both_databases


def test_a_claim_whose_answer_was_lost_is_offered_again_and_answered_alike(core: Core) -> None:
    _, worker = placed(core)
    (notice,) = worker.beat().assigned
    first = worker.claim(notice)

    (again,) = worker.beat().assigned

    assert again == notice
    assert worker.claim(again) == first
    listed = MemberHeartbeat(member=notice.member, fence=notice.fence)
    assert worker.beat(listed).assigned == ()


def test_a_member_that_has_begun_is_not_offered_again(core: Core) -> None:
    _, worker = placed(core)
    worker.take().start()

    assert worker.beat().assigned == ()


def test_the_time_limit_also_ends_a_run_that_never_comes_to_run(core: Core) -> None:
    run_id, worker = placed(core, limits={"run_s": 60})
    member = worker.take()
    member.send(member.event("state", phase="loading"))
    core.clock.advance(59)
    core.reap()
    assert core.run(run_id).state is RunState.PLACED

    core.clock.advance(7)
    worker.beat()
    core.reap()
    assert core.run(run_id).state is RunState.CANCELLING
    member.end(EndReason.CANCELLED)

    ended = core.run(run_id)
    assert ended.reason is not None
    assert (ended.state, ended.reason.code) == (RunState.FAILED, EndReason.RUN_LIMIT)


def test_a_program_that_returns_in_its_grace_has_broken_its_time_limit_all_the_same(core: Core) -> None:
    run_id, worker = placed(core, limits={"run_s": 60})
    member = worker.take().start()
    core.clock.advance(66)
    worker.beat()
    core.reap()
    member.end(EndReason.COMPLETED)

    ended = core.run(run_id)
    assert ended.reason is not None
    assert (ended.state, ended.reason.code) == (RunState.FAILED, EndReason.RUN_LIMIT)
    assert "60 s" in ended.reason.message


def test_the_time_limit_found_in_one_attempt_does_not_end_the_next(core: Core) -> None:
    run_id, worker = placed(core, limits={"run_s": 60})
    member = worker.take().start()
    core.clock.advance(66)
    deadlines = Deadlines(TAKEOVER_S, SUSPECT_S, core.leases_from)
    late = core.read(lambda session: overdue_actions(session, deadlines, core.clock, now=core.clock.now()))
    member.end(EndReason.KILLED)
    core.clock.advance(6)
    core.reap()
    worker.beat()
    core.schedule()
    worker.take().start()

    for action in late:
        core.write(action)

    assert core.run(run_id).state is RunState.RUNNING


def test_a_queue_deadline_that_moved_on_ends_nothing(core: Core) -> None:
    """A retry waits again from zero."""
    run_id = core.submit(resources={"replicas": 8}, limits={"queue_s": 10}, wait_for_devices=True).id
    core.clock.advance(11)
    deadlines = Deadlines(TAKEOVER_S, SUSPECT_S, core.leases_from)
    late = core.read(lambda session: overdue_actions(session, deadlines, core.clock, now=core.clock.now()))
    worker = core.add_worker()
    core.schedule()
    worker.take().start().end(EndReason.KILLED)
    core.clock.advance(5)
    worker.beat()
    core.reap()
    assert core.run(run_id).state is RunState.QUEUED
    assert late

    for action in late:
        core.write(action)

    assert core.run(run_id).state is RunState.QUEUED


def test_a_run_that_nobody_claims_waits_no_longer_than_its_limit(core: Core) -> None:
    run_id, worker = placed(core, limits={"queue_s": 2.5 * CLAIM_S})
    for _ in range(2):
        core.clock.advance(CLAIM_S + 1)
        worker.beat()
        core.reap()
        assert core.run(run_id).state is RunState.QUEUED
        assert core.schedule() == [run_id]
    core.clock.advance(CLAIM_S + 1)
    worker.beat()
    core.reap()

    ended = core.run(run_id)
    assert ended.reason is not None
    assert (ended.state, ended.reason.code) == (RunState.FAILED, EndReason.QUEUE_LIMIT)
    assert core.device_states() == [DeviceState.FREE] * 8


def test_a_run_that_its_host_does_not_claim_goes_to_another(core: Core) -> None:
    run_id, first = placed(core)
    second = core.add_worker("beta")
    core.clock.advance(CLAIM_S + 1)
    first.beat()
    second.beat()
    core.reap()
    core.schedule()

    assert first.beat().assigned == ()
    assert second.take().claimed.run == run_id


def test_a_preempted_run_is_queued_again_whatever_its_retries(core: Core) -> None:
    run_id, worker = placed(core, retries={"infrastructure": 0})
    worker.take().start().end(EndReason.PREEMPTED)
    assert core.run(run_id).state is RunState.RETRY_WAIT

    core.clock.advance(6)
    core.reap()

    assert core.run(run_id).state is RunState.QUEUED


def test_devices_that_a_registration_frees_can_be_held_again(core: Core) -> None:
    """As when a gang expires of which one member was claimed and its worker died before it could tell its end."""
    run_id, worker = placed(core)
    claimed = {"state": MemberState.CLAIMED, "incarnation_id": worker.incarnation}
    core.write(lambda session: session.execute(update(models.Member).values(**claimed)) and None)
    core.clock.advance(CLAIM_S + 1)
    core.reap()
    assert core.device_states() == ["RELEASING"] * 8

    worker.register()
    assert core.device_states() == ["FREE"] * 8
    assert core.schedule() == [run_id]


def test_devices_whose_release_nobody_proves_are_probed_in_time_after_the_clock_is_set_back(core: Core) -> None:
    """The wait counts from the member's end, which lies an hour ahead then."""
    _, worker = placed(core)
    claimed = {"state": MemberState.CLAIMED, "incarnation_id": worker.incarnation}
    core.write(lambda session: session.execute(update(models.Member).values(**claimed)) and None)
    core.clock.advance(CLAIM_S + 1)
    core.reap()
    core.clock.advance(-3600)
    core.write(lambda session: clamp_timestamps(session, claim_s=CLAIM_S, clock=core.clock))

    core.clock.advance(RELEASE_S - 1)
    core.reap()
    assert core.device_states() == ["RELEASING"] * 8
    core.clock.advance(2)
    core.reap()
    assert core.device_states() == ["QUARANTINED"] * 8


@pytest.mark.parametrize("search", ["digits", "DIGITS", "Igit"])
def test_search_takes_capitals_for_small_letters_on_every_database(core: Core, search: str) -> None:
    run = core.submit(wait_for_devices=True)

    assert [row.id for row in core.runs(search=search).items] == [run.id]
    assert [row.id for row in core.runs(search=run.id.upper()).items] == [run.id]


def test_a_result_with_half_a_surrogate_pair_is_mended(core: Core) -> None:
    run_id, worker = placed(core)
    member = worker.take().start()

    member.send(member.event("result", value={"a": "x\ud800"}))

    assert core.run(run_id).result == {"a": "x?"}


@pytest.mark.parametrize("depth", [101, 240, 900])
def test_a_result_nested_too_deep_to_be_read_back_is_a_gap(core: Core, depth: int) -> None:
    run_id, worker = placed(core)
    member = worker.take().start()

    member.send(member.event("result", value=json.loads("[" * depth + "]" * depth)))

    assert core.run(run_id).result is None
    assert [event.body["what"] for event in core.events(run_id) if event.kind == "gap"] == ["result"]
