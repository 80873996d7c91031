"""Leases and the server's clock: it steps, trembles, has just started, or is ahead of another server's."""

import pytest

from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import RunState
from drumline.contracts.worker_api import MemberHeartbeat
from drumline_server.base.errors import DrumlineError
from drumline_server.lifecycle.deadlines import Deadlines, overdue_actions
from drumline_server.lifecycle.guard import clamp_timestamps
from drumline_server.storage.models import Host
from support.clock import FakeClock
from support.core import Core
from support.runs import running


def test_clock_that_is_back_and_forth_between_two_looks_costs_nobody_the_lease(core: Core) -> None:
    """No look of the deadline loop fell in between, so it noticed nothing."""
    run_id, member = running(core)
    core.clock.advance(-3600)
    with pytest.raises(DrumlineError, match=r"clock is behind by 3600\.0 s") as refused:
        member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    with pytest.raises(DrumlineError, match="clock is behind"):
        member.worker.register()
    core.clock.advance(3600)
    core.reap()

    assert refused.value.code is ProblemCode.UNAVAILABLE
    assert core.run(run_id).state is RunState.RUNNING


def test_host_whose_stamp_was_pulled_back_after_the_clock_is_heard_again(core: Core) -> None:
    run_id, member = running(core)
    core.clock.advance(-3600)
    core.write(lambda session: clamp_timestamps(session, claim_s=60.0, clock=core.clock))
    member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    core.clock.advance(119)
    core.reap()
    assert core.run(run_id).state is RunState.RUNNING

    core.clock.advance(2)
    core.reap()
    assert core.run(run_id).state is RunState.RETRY_WAIT


def test_host_that_a_clock_ahead_has_stamped_is_heard_again_after_one_look(core: Core) -> None:
    """As the clock of another server would, or one that is right again before anybody looks."""
    run_id, member = running(core)
    core.clock.advance(3600)
    member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    core.clock.advance(-3600)
    with pytest.raises(DrumlineError, match="clock is behind"):
        member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    core.reap()
    member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    core.clock.advance(121)
    core.reap()

    assert core.run(run_id).state is RunState.RETRY_WAIT


class WaitingClock:
    """It continues while whoever reads it waits for a lock."""

    def __init__(self, clock: FakeClock, wait_s: float) -> None:
        self._clock, self._wait_s = clock, wait_s

    def now(self) -> int:
        read = self._clock.now()
        self._clock.advance(self._wait_s)
        return read


def test_lease_that_was_renewed_since_the_look_is_not_pulled_back(core: Core) -> None:
    _, member = running(core)
    core.clock.advance(-5)
    deadlines = Deadlines(120, 10, core.clock.now())
    actions = core.read(lambda session: overdue_actions(session, deadlines, core.clock, now=core.clock.now()))
    core.clock.advance(5)
    member.worker.beat(MemberHeartbeat(member=member.id, fence=1))
    for action in actions:
        core.write(action)

    assert len(actions) == 1
    assert core.read(lambda session: session.get_one(Host, member.worker.host_id).last_heartbeat_at) == core.clock.now()


def test_lease_that_was_renewed_while_hosts_were_locked_is_not_pulled_back(core: Core) -> None:
    _, member = running(core)
    renewed_at = core.clock.now()
    core.clock.advance(-5)
    core.write(lambda session: clamp_timestamps(session, claim_s=60.0, clock=WaitingClock(core.clock, 5)))

    assert core.read(lambda session: session.get_one(Host, member.worker.host_id).last_heartbeat_at) == renewed_at


def test_clock_that_trembles_within_a_second_neither_refuses_nor_shortens(core: Core) -> None:
    worker = core.add_worker()
    heard_at = core.host("alpha").last_heartbeat_at
    core.clock.advance(-0.9)
    worker.beat()

    assert core.host("alpha").last_heartbeat_at == heard_at


def test_no_lease_runs_out_within_t_of_the_servers_start(core: Core) -> None:
    run_id, _ = running(core)
    core.clock.advance(1000)
    core.leases_from = core.clock.now() + 120_000_000
    core.clock.advance(119)
    core.reap()
    assert core.run(run_id).state is RunState.RUNNING

    core.clock.advance(2)
    core.reap()
    assert core.run(run_id).state is RunState.RETRY_WAIT


def test_run_whose_end_read_the_clock_before_its_start_did_ends_when_it_started(core: Core) -> None:
    """On PostgreSQL both come at once, each reads the clock, and then the one waits for the other's lock."""
    run_id, member = running(core)
    core.clock.advance(-0.0014)
    member.end()

    run = core.run(run_id)
    (attempt,) = core.attempts(run_id)
    assert run.state is RunState.SUCCEEDED
    assert run.started_at == run.ended_at == attempt.started_at == attempt.ended_at
