"""Leases, incarnations and boots: who is lost when, and which devices return on what proof."""

import pytest
from sqlalchemy import update

from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline.contracts.worker_api import MemberHeartbeat
from drumline_server.base.errors import DrumlineError
from drumline_server.storage.models import Host
from support.core import Core, Worker
from support.refusals import code_of
from support.runs import placed, running


def test_silent_host_is_suspect_after_15_s_and_nothing_else(core: Core) -> None:
    run_id, _ = running(core)
    core.clock.advance(16)
    core.reap()

    assert core.run(run_id).state is RunState.RUNNING
    assert core.device_states() == [DeviceState.HELD] * 8


def test_lease_holds_for_t_and_then_the_member_is_lost_and_its_devices_quarantined(core: Core) -> None:
    run_id, _ = running(core)
    core.clock.advance(119)
    core.reap()
    assert core.run(run_id).state is RunState.RUNNING
    core.clock.advance(2)
    core.reap()

    assert core.run(run_id).state is RunState.RETRY_WAIT
    assert core.attempts(run_id)[0].state is AttemptState.LOST
    assert core.device_states() == [DeviceState.QUARANTINED] * 8


def test_heartbeats_keep_the_lease(core: Core) -> None:
    run_id, member = running(core)
    for _ in range(50):
        core.clock.advance(5)
        member.worker.beat(MemberHeartbeat(member=member.id, fence=1, step=3))
        core.reap()

    assert core.run(run_id).state is RunState.RUNNING


def test_host_that_was_given_up_and_claims_can_be_lost_again(core: Core) -> None:
    """Its claim was the first that was heard of it again, and the last."""
    run_id, worker = placed(core)
    (notice,) = worker.beat().assigned
    core.write(lambda session: session.execute(update(Host).values(lost_at=core.clock.now())))
    worker.claim(notice)
    core.clock.advance(121)
    core.reap()
    assert core.attempts(run_id)[0].state is AttemptState.LOST


def test_host_that_comes_back_after_its_lease_is_told_to_kill_and_its_proof_frees_the_devices(core: Core) -> None:
    _, member = running(core)
    core.clock.advance(121)
    core.reap()

    reply = member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    assert [notice.member for notice in reply.fenced] == [member.id]
    assert member.end(EndReason.KILLED).fenced is not None

    assert core.device_states() == ["FREE"] * 8


def test_worker_that_restarts_without_its_member_loses_it_at_once_and_frees_the_devices(core: Core) -> None:
    run_id, member = running(core)
    member.worker.register()

    attempt = core.attempts(run_id)[0]
    assert core.run(run_id).state is RunState.RETRY_WAIT
    assert attempt.members[0].state is MemberState.LOST
    assert attempt.reason is not None
    assert attempt.reason.code is EndReason.HOST_REBOOTED
    assert core.device_states() == ["FREE"] * 8


def test_worker_that_restarts_with_its_member_goes_on_without_a_retry(core: Core) -> None:
    run_id, member = running(core)
    member.worker.register([member.alive()])
    member.send(member.event("result", value=5))
    member.end()

    run = core.run(run_id)
    assert (run.state, run.attempts, run.result) == (RunState.SUCCEEDED, 1, 5)


def test_rebooted_host_has_lost_what_it_lists_from_another_boot(core: Core) -> None:
    run_id, member = running(core)
    member.worker.boot_id = "boot-2"
    member.worker.register([member.alive()])

    assert core.run(run_id).state is RunState.RETRY_WAIT


def test_restart_before_the_claim_costs_nothing(core: Core) -> None:
    run_id, worker = placed(core)
    worker.register()
    worker.take().start().end()

    run = core.run(run_id)
    assert (run.state, run.attempts) == (RunState.SUCCEEDED, 1)


def test_older_incarnation_is_refused_everywhere(core: Core) -> None:
    _, member = running(core)
    twin = Worker(core, member.worker.host_id, "alpha", 8, "cpu")
    twin.register([member.alive()])

    for write in (member.worker.beat, lambda: member.send(member.event("progress", step=1)), member.end):
        with pytest.raises(DrumlineError) as refused:
            write()
        assert code_of(refused) is ProblemCode.FENCED


def test_reboot_frees_quarantined_devices_and_a_mere_restart_does_not(core: Core) -> None:
    _, member = running(core)
    core.clock.advance(121)
    core.reap()

    member.worker.register()
    assert core.device_states() == [DeviceState.QUARANTINED] * 8
    member.worker.boot_id = "boot-2"
    member.worker.register()

    assert core.device_states() == ["FREE"] * 8


def test_restart_that_finds_unkillable_processes_of_a_member_leaves_its_devices_quarantined(core: Core) -> None:
    run_id, member = running(core)

    member.worker.register(unproven=(member.id,))

    assert core.run(run_id).state is RunState.RETRY_WAIT
    assert core.device_states() == [DeviceState.QUARANTINED] * 8


def test_registration_keeps_ids_of_devices_and_hides_those_that_vanished(core: Core) -> None:
    worker = core.add_worker(devices=4)
    first = worker.register().devices
    worker.device_count = 2

    assert worker.register().devices == first[:2]
    assert [device.present for device in core.devices()] == [True, True, False, False]
    worker.device_count = 4
    assert worker.register().devices == first
