"""The way of a run from the queue to its end, as its worker drives it."""

import pytest

from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline_server.base.errors import DrumlineError
from support.core import Core
from support.runs import running

pytestmark = pytest.mark.both_databases


def test_run_goes_from_queue_to_success(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    member = worker.take()
    core.clock.advance(1)
    member.start()
    member.send(member.event("result", value={"accuracy": 0.97}))
    core.clock.advance(2)
    member.end()

    ended = core.run(run.id)
    assert core.states(run.id) == ["QUEUED", "PLACED", "RUNNING", "SUCCEEDED"]
    assert ended.result == {"accuracy": 0.97}
    assert ended.reason is not None
    assert ended.reason.code is EndReason.COMPLETED
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert (ended.ended_at - ended.started_at).total_seconds() == 2
    assert ended.hosts == ("alpha",)
    assert core.device_states() == ["FREE"] * 8


def test_attempt_and_member_have_their_own_history(core: Core) -> None:
    run_id, member = running(core)
    member.end()

    (attempt,) = core.attempts(run_id)
    kinds = [(event.kind, event.body["state"]) for event in core.events(run_id) if event.kind in ("attempt", "member")]

    assert attempt.state is AttemptState.SUCCEEDED
    assert attempt.members[0].state is MemberState.EXITED
    assert [state for kind, state in kinds if kind == "attempt"] == [
        "DISPATCHED",
        "CLAIMED",
        "STARTING",
        "RUNNING",
        "FINISHING",
        "SUCCEEDED",
    ]
    assert [state for kind, state in kinds if kind == "member"] == [
        "PENDING",
        "CLAIMED",
        "STARTING",
        "RUNNING",
        "EXITED",
    ]


def test_events_are_numbered_without_gap_and_the_last_is_the_terminal_state(core: Core) -> None:
    run_id, member = running(core)
    member.end()

    events = core.events(run_id)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].kind == "state"
    assert events[-1].body["terminal"] is True
    assert core.run(run_id).last_event == len(events)


def test_end_that_overtakes_telemetry_waits_for_it(core: Core) -> None:
    run_id, member = running(core)
    late = [member.event("log", stream="stdout", text="bye\n", offset=0), member.event("result", value=1)]
    member.end()

    assert core.run(run_id).state is RunState.RUNNING
    assert core.attempts(run_id)[0].state is AttemptState.FINISHING
    assert core.device_states() == ["FREE"] * 8

    member.send(*late)

    assert core.run(run_id).state is RunState.SUCCEEDED
    assert core.run(run_id).result == 1
    assert core.events(run_id)[-1].body["terminal"] is True


def test_end_before_any_telemetry_still_shows_that_the_program_ran(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    member = worker.take()
    phases = [member.event("state", phase="starting"), member.event("state", phase="running")]
    member.end()
    member.send(*phases)

    assert core.states(run.id) == ["QUEUED", "PLACED", "RUNNING", "SUCCEEDED"]
    assert core.run(run.id).started_at is not None


def test_telemetry_that_never_comes_ends_the_wait_with_a_gap(core: Core) -> None:
    run_id, member = running(core)
    member.end(last_seq=member.seq + 5)

    core.clock.advance(119)
    core.reap()
    assert core.run(run_id).state is RunState.RUNNING
    core.clock.advance(2)
    core.reap()

    assert core.run(run_id).state is RunState.SUCCEEDED
    gaps = {event.body["what"]: event.body for event in core.events(run_id) if event.kind == "gap"}
    assert gaps["spool"]["count"] == 5


def test_telemetry_is_awaited_as_long_as_it_comes_or_its_host_tells_of_it(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, limits={"run_s": 300}).id
    core.schedule()
    member = worker.take().start()
    events = [member.event("log", stream="stdout", text="x\n", offset=2 * number) for number in range(20)]
    member.end()
    assert core.device_states() == ["FREE"] * 8

    for event in events[:-1]:
        core.clock.advance(100)
        worker.beat(unsent={member.id: 5_000_000})
        core.reap()
        core.clock.advance(100)
        member.send(event)
        core.reap()
        run = core.run(run_id)
        assert run.state is RunState.RUNNING
        assert run.why is not None
        assert "alpha is sending 4.8 MiB of telemetry" in run.why.sentence
    member.send(events[-1])

    assert core.run(run_id).state is RunState.SUCCEEDED
    assert "gap" not in {event.kind for event in core.events(run_id)}


def test_after_a_start_of_the_server_telemetry_is_awaited_for_a_full_lease(core: Core) -> None:
    run_id, member = running(core)
    late = member.event("log", stream="stdout", text="x\n", offset=0)
    member.end()
    core.clock.advance(3_600)
    core.leases_from = core.clock.now() + 120_000_000
    core.reap()
    member.send(late)

    assert core.run(run_id).state is RunState.SUCCEEDED
    assert "gap" not in {event.kind for event in core.events(run_id)}


def test_who_still_sends_for_another_host_or_what_is_stored_changes_nothing(core: Core) -> None:
    run_id, member = running(core)
    other = core.add_worker("beta")
    member.end(last_seq=member.seq + 5)
    for _ in range(3):
        core.clock.advance(50)
        member.worker.beat()
        other.beat(unsent={member.id: 1})
        core.reap()

    assert core.run(run_id).state is RunState.SUCCEEDED


def test_program_that_raises_fails_without_retry(core: Core) -> None:
    run_id, member = running(core)
    member.end(EndReason.PROGRAM_ERROR, message="ZeroDivisionError: division by zero")

    run = core.run(run_id)

    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert (run.reason.code, run.reason.message) == (
        EndReason.PROGRAM_ERROR,
        "ZeroDivisionError: division by zero",
    )


def test_killed_program_is_retried_with_growing_backoff_and_then_fails(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit()
    waits = []
    for _ in range(4):
        core.schedule()
        worker.take().start().end(EndReason.KILLED, signal=9)
        if core.run(run.id).state is not RunState.RETRY_WAIT:
            break
        waited = 0
        while core.run(run.id).state is RunState.RETRY_WAIT:
            core.clock.advance(1)
            waited += 1
            worker.beat()
            core.reap()
        waits.append(waited)

    assert waits == [5, 15, 45]
    assert core.run(run.id).state is RunState.FAILED
    assert core.run(run.id).attempts == 4
    assert [attempt.fence for attempt in core.attempts(run.id)] == [4, 3, 2, 1]
    begun = [event.body["number"] for event in core.events(run.id) if event.body.get("state") == "DISPATCHED"]
    assert begun == [1, 2, 3, 4]


def test_run_without_retries_fails_at_the_first_kill(core: Core) -> None:
    run_id, member = running(core, retries={"infrastructure": 0})
    member.end(EndReason.KILLED, signal=9)

    run = core.run(run_id)
    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert run.reason.code is EndReason.KILLED


def test_user_retries_count_on_their_own(core: Core) -> None:
    run_id, member = running(core, retries={"user": 1})
    member.end(EndReason.PROGRAM_ERROR)

    assert core.run(run_id).state is RunState.RETRY_WAIT
    why = core.run(run_id).why
    assert why is not None
    assert why.rule == "retry_backoff"


def test_queued_run_is_cancelled_at_once(core: Core) -> None:
    run = core.submit(wait_for_devices=True)

    cancelled = core.cancel(run.id)

    assert cancelled.state is RunState.CANCELLED
    assert cancelled.cancel_requested
    assert core.states(run.id) == ["QUEUED", "CANCELLED"]


def test_placed_run_that_nobody_claimed_is_cancelled_at_once_and_frees_its_devices(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    (notice,) = worker.beat().assigned

    assert core.cancel(run.id).state is RunState.CANCELLED
    assert core.device_states() == ["FREE"] * 8
    with pytest.raises(DrumlineError) as refused:
        worker.claim(notice)
    assert refused.value.code is ProblemCode.FENCED


def test_running_program_is_told_to_stop_and_ends_cancelled(core: Core) -> None:
    run_id, member = running(core)

    assert core.cancel(run_id, grace_s=3).state is RunState.CANCELLING
    (notice,) = member.worker.beat().cancelled
    assert (notice.member, notice.grace_s) == (member.id, 3)
    assert member.send(member.event("progress", step=1)).cancel
    member.end(EndReason.CANCELLED)

    assert core.run(run_id).state is RunState.CANCELLED
    assert core.states(run_id) == ["QUEUED", "PLACED", "RUNNING", "CANCELLING", "CANCELLED"]


def test_program_that_had_to_be_killed_for_a_cancel_is_cancelled_and_not_retried(core: Core) -> None:
    run_id, member = running(core)
    core.cancel(run_id)
    member.end(EndReason.KILLED, signal=9)

    assert core.run(run_id).state is RunState.CANCELLED


def test_success_that_wins_the_race_with_a_cancel_stays_a_success(core: Core) -> None:
    run_id, member = running(core)
    core.cancel(run_id)
    member.end()

    run = core.run(run_id)
    assert run.state is RunState.SUCCEEDED
    assert run.cancel_requested


def test_ended_run_cannot_be_cancelled(core: Core) -> None:
    run_id, member = running(core)
    member.end()

    with pytest.raises(DrumlineError) as refused:
        core.cancel(run_id)

    assert refused.value.code is ProblemCode.ALREADY_TERMINAL


def test_cancelling_twice_answers_alike(core: Core) -> None:
    run = core.submit(wait_for_devices=True)
    core.cancel(run.id)

    assert core.cancel(run.id).state is RunState.CANCELLED


def test_run_over_its_time_limit_is_stopped_and_fails(core: Core) -> None:
    run_id, member = running(core, limits={"run_s": 60})
    core.clock.advance(66)
    member.worker.beat()
    core.reap()

    assert [notice.member for notice in member.worker.beat().cancelled] == [member.id]
    member.end(EndReason.CANCELLED)

    run = core.run(run_id)
    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert run.reason.code is EndReason.RUN_LIMIT


def test_run_over_its_queue_limit_fails(core: Core) -> None:
    run = core.submit(wait_for_devices=True, limits={"queue_s": 10})
    core.clock.advance(9)
    core.reap()
    assert core.run(run.id).state is RunState.QUEUED
    core.clock.advance(1)
    core.reap()

    ended = core.run(run.id)
    assert ended.state is RunState.FAILED
    assert ended.reason is not None
    assert ended.reason.code is EndReason.QUEUE_LIMIT


def test_unproven_death_quarantines_devices_until_it_is_proven(core: Core) -> None:
    run_id, member = running(core, retries={"infrastructure": 0})
    member.end(EndReason.KILLED, devices_released=False)

    assert core.run(run_id).state is RunState.FAILED
    assert core.device_states() == [DeviceState.QUARANTINED] * 8
    member.end(EndReason.KILLED, devices_released=True)
    assert core.device_states() == ["FREE"] * 8
