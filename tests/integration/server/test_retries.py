"""What a failed attempt costs of the retries that the user gave, by what it failed of."""

import pytest

from drumline.contracts.reasons import REASONS, Category, EndReason
from drumline.contracts.states import AttemptState, RunState
from drumline_server.lifecycle.aftermath import MAX_CONTROL_PLANE_FAILURES
from support.core import Core, Worker

RETRYABLE = [reason for reason, facts in REASONS.items() if facts.retryable]
OF_CONTROL_PLANE = [reason for reason in RETRYABLE if REASONS[reason].category is Category.CONTROL_PLANE]
FINAL = [
    reason for reason, facts in REASONS.items() if not facts.retryable and facts.attempt_state is AttemptState.FAILED
]
COUNTED = [reason for reason in RETRYABLE if REASONS[reason].category in (Category.USER, Category.INFRASTRUCTURE)]


def _fail_once(core: Core, worker: Worker, run_id: str, reason: EndReason) -> RunState:
    core.schedule()
    member = worker.take()
    member.end(reason)
    state = core.run(run_id).state
    if state is RunState.RETRY_WAIT:
        core.clock.advance(46)
        worker.beat()
        core.reap()
    return state


@pytest.mark.parametrize("reason", OF_CONTROL_PLANE)
def test_an_attempt_that_failed_for_a_cause_of_the_control_plane_costs_no_retry(core: Core, reason: EndReason) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 1, "infrastructure": 0}).id

    states = [_fail_once(core, worker, run_id, reason) for _ in range(5)]
    user_states = [_fail_once(core, worker, run_id, EndReason.PROGRAM_ERROR) for _ in range(2)]

    assert states == [RunState.RETRY_WAIT] * 5
    assert user_states == [RunState.RETRY_WAIT, RunState.FAILED]


@pytest.mark.parametrize("reason", COUNTED)
def test_an_attempt_that_failed_of_the_program_or_of_its_host_costs_a_retry(core: Core, reason: EndReason) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 1, "infrastructure": 1}).id

    assert [_fail_once(core, worker, run_id, reason) for _ in range(2)] == [RunState.RETRY_WAIT, RunState.FAILED]


@pytest.mark.parametrize("reason", FINAL)
def test_what_would_fail_again_is_not_tried_again(core: Core, reason: EndReason) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 5, "infrastructure": 5}).id

    assert _fail_once(core, worker, run_id, reason) is RunState.FAILED


def test_a_control_plane_that_fails_again_and_again_does_not_keep_a_run_for_ever(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}).id

    states = [
        _fail_once(core, worker, run_id, EndReason.BUNDLE_UNAVAILABLE) for _ in range(MAX_CONTROL_PLANE_FAILURES + 1)
    ]

    assert states == [RunState.RETRY_WAIT] * MAX_CONTROL_PLANE_FAILURES + [RunState.FAILED]
    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.BUNDLE_UNAVAILABLE


@pytest.mark.parametrize(
    ("unstarted", "reason", "state"),
    [(True, EndReason.NOT_STARTED, RunState.RETRY_WAIT), (False, EndReason.HOST_REBOOTED, RunState.FAILED)],
    ids=["registered again", "restarted"],
)
def test_a_worker_that_had_to_register_again_before_the_start_costs_no_retry_and_one_that_restarted_does(
    core: Core, unstarted: bool, reason: EndReason, state: RunState
) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 0, "infrastructure": 0}).id
    core.schedule()
    member = worker.take()

    worker.register(unstarted=(member.id,) if unstarted else ())

    run = core.run(run_id)
    assert (run.state, run.reason and run.reason.code) == (state, reason)
    assert core.device_states() == ["FREE"] * 8


def test_a_member_that_began_is_lost_with_its_worker_whatever_a_registration_says(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 0, "infrastructure": 0}).id
    core.schedule()
    member = worker.take().start()

    worker.register(unstarted=(member.id,))

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.HOST_REBOOTED


def test_a_run_that_waits_for_its_next_attempt_has_the_rate_of_none(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"user": 1, "infrastructure": 1}).id
    core.schedule()
    member = worker.take().start()
    member.send(member.event("progress", step=10, total_steps=110, steps_per_s=10.0, throughput={"step_ms": 100.0}))

    member.end(EndReason.KILLED, signal=9, exit_code=None)

    run = core.run(run_id)
    assert run.state is RunState.RETRY_WAIT
    assert (run.progress.step, run.progress.steps_per_s, run.progress.throughput) == (10, None, None)
