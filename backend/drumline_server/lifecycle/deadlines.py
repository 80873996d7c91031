"""Enforces deadlines: claims, leases, limits, backoffs, drains. Each due thing gets a transaction of its own.

Most rounds find nothing due: one read says so of all kinds at once. The statements are made once: making one costs more
than running it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline_server.base.settings import Clock
from drumline_server.lifecycle import aftermath, finish
from drumline_server.lifecycle.aftermath import quarantine_devices
from drumline_server.lifecycle.alerts import record_stall
from drumline_server.lifecycle.finish import close_attempt
from drumline_server.lifecycle.guard import SKEW_US, clamp_host_timestamps
from drumline_server.lifecycle.transitions import transition_run
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import Attempt, Device, Host, Incarnation, Member, Run, table_of
from drumline_server.storage.notifications import QUEUE, announce, host_list
from drumline_server.storage.runs import attempt_by_id, live_attempt, member_by_id

DRAIN_S = 120.0
"""Telemetry of an ended member is awaited until neither it nor word of more has come for so many seconds."""
RELEASE_S = 60.0
"""How long a worker may take to prove the end of a member that was fenced off before it ran. A worker that the answer
to its claim never reached knows of no such member: after this its devices have to be probed."""
_MICROS = 1_000_000
_PER_ROUND = 500
"""Due things of one kind that one round looks at."""
_USUAL_STEPS = 10
"""A run that takes long over its steps stands still after so many of them, if that is longer."""
_ACTIVE_RUNS = (RunState.PLACED, RunState.RUNNING)
_BEGUN = (MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING)

OverdueAction = Callable[[Session], None]
Cutoffs = Mapping[str, int]
"""What the statements compare with, in microseconds."""
Finder = Callable[[Session, Cutoffs], Sequence[str]]


def _select_past_drain_timeout() -> Select[str]:
    alive = select(Member.id).where(Member.attempt_id == Attempt.id, Member.state.in_(_BEGUN)).exists()
    sending = (
        select(Member.id)
        .where(
            Member.attempt_id == Attempt.id,
            Member.acked_seq < Member.last_seq,
            Member.telemetry_at > bindparam("finished_before"),
        )
        .exists()
    )
    over = (Attempt.state == AttemptState.FINISHING, Attempt.finishing_at <= bindparam("finished_before"))
    return select(Attempt.id).where(*over, ~alive, ~sending).limit(_PER_ROUND)


def _select_unreleased() -> Select[str]:
    return (
        select(Member.id)
        .join(Device, (Device.attempt_id == Member.attempt_id) & (Device.host_id == Member.host_id))
        .where(Device.state == DeviceState.RELEASING, Member.ended_at <= bindparam("ended_before"))
        .distinct()
        .limit(_PER_ROUND)
    )


_UNCLAIMED = (
    select(Attempt.id)
    .where(Attempt.state == AttemptState.DISPATCHED, Attempt.claim_deadline <= bindparam("now"))
    .limit(_PER_ROUND)
)
_PAST_DRAIN_TIMEOUT = _select_past_drain_timeout()
_OVERDUE = select(Run.id).where(Run.state == RunState.QUEUED, Run.queue_deadline <= bindparam("now")).limit(_PER_ROUND)
_BACKOFF_ELAPSED = (
    select(Run.id).where(Run.state == RunState.RETRY_WAIT, Run.retry_at <= bindparam("now")).limit(_PER_ROUND)
)
_ACTIVE_ATTEMPTS = (
    select(Run.id, Run.limits, Attempt.started_at, Attempt.claimed_at)
    .join(Attempt, Attempt.id == Run.attempt_id)
    .where(Run.state.in_(_ACTIVE_RUNS), Attempt.claimed_at.is_not(None), Attempt.state != AttemptState.FINISHING)
)
_STANDS_STILL = (
    Run.state == RunState.RUNNING,
    Run.stalled_at.is_(None),
    Run.advanced_at <= bindparam("advanced_before"),
    Run.advanced_at + _USUAL_STEPS * Run.step_us <= bindparam("now"),
)
_STALLED = select(Run.id).where(*_STANDS_STILL).limit(_PER_ROUND)
_UNRELEASED = _select_unreleased()
_LIVE_HOSTS = select(Host.id).where(Host.lost_at.is_(None)).limit(_PER_ROUND)
_SILENT = _LIVE_HOSTS.where(Host.last_heartbeat_at <= bindparam("heard_before"), Host.suspect_since.is_(None))
_LOST = _LIVE_HOSTS.where(Host.last_heartbeat_at <= bindparam("leased_before"))
_AHEAD = select(Host.id).where(Host.last_heartbeat_at > bindparam("ahead_from")).limit(_PER_ROUND)
_SUPERSEDED = select(Incarnation).where(Incarnation.last_heartbeat_at.is_not(None)).limit(_PER_ROUND)
_ANY_DUE = select(
    _UNCLAIMED.exists().label("unclaimed"),
    _PAST_DRAIN_TIMEOUT.exists().label("past_drain"),
    _OVERDUE.exists().label("overdue"),
    _BACKOFF_ELAPSED.exists().label("backoff_elapsed"),
    _ACTIVE_ATTEMPTS.exists().label("active"),
    _STALLED.exists().label("stalled"),
    _UNRELEASED.exists().label("unreleased"),
    _SILENT.exists().label("silent"),
    aftermath.FAULTY_HOSTS.exists().label("faulty"),
    _LOST.exists().label("lost"),
    _SUPERSEDED.exists().label("superseded"),
    _AHEAD.exists().label("ahead"),
)
_HOSTS = table_of(Host)
_LONGEST_PROMISED = select(func.max(_HOSTS.c.takeover_s)).where(_HOSTS.c.lost_at.is_(None))


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the server waits, in seconds; before `leases_from` (microseconds) no lease runs out."""

    takeover_s: float
    suspect_s: float
    leases_from: int
    stalled_us: int = 0
    """How long the server itself stood still lately: nobody could reach it, so leases run out that much later."""
    scale: float = 1.0
    """Of the deadlines that no setting names; the others are in force as they are here."""
    stall_s: float = 600.0
    """A run whose steps get no further for so long stands still."""


def overdue_actions(session: Session, deadlines: Deadlines, clock: Clock, *, now: int) -> list[OverdueAction]:
    """What is to be done now: each a function for one write transaction, which looks again before it acts.

    `clock` is for what must not act by a time that has passed since.
    """
    times = _cutoffs(deadlines, now)
    found = session.execute(_ANY_DUE, times).one()
    # After a start or a jump of our clock silence proves nothing, so what only silence ends waits one T.
    may_lose = now >= deadlines.leases_from
    lose_host = partial(_mark_host_lost, before=times["leased_before"])
    tell_stall = partial(_mark_stalled, before=times["advanced_before"])
    kinds: tuple[tuple[bool, Finder, Callable[..., None]], ...] = (
        (found.unclaimed, _unclaimed_attempts, _expire_unclaimed),
        (may_lose and found.past_drain, _attempts_past_drain_timeout, _close_past_drain_timeout),
        (found.overdue, _runs_overdue_in_queue, _fail_overdue_in_queue),
        (found.backoff_elapsed, _runs_with_elapsed_backoff, _requeue_after_backoff),
        (found.active, _runs_over_limit, _stop_over_limit),
        (found.unreleased, _members_with_unreleased_devices, _quarantine_unreleased),
        (found.silent, _silent_hosts, _mark_host_suspect),
        (found.faulty, _faulty_hosts, aftermath.quarantine_faulty_host),
        (may_lose and found.stalled, _stalled_runs, tell_stall),
        (may_lose and found.lost, _lost_hosts, lose_host),
        (may_lose and found.superseded, _superseded_incarnations, _expire_superseded),
    )
    # These come first below: until its timestamp is clamped a host's heartbeats are refused.
    ahead = _hosts_ahead(session, times) if found.ahead else ()
    return [
        *(partial(clamp_host_timestamps, host_id, clock=clock) for host_id in ahead),
        *(partial(act, thing, now=now) for is_any, find, act in kinds if is_any for thing in find(session, times)),
    ]


def longest_takeover_s(session: Session, takeover_s: float) -> float:
    """T, or what living workers were promised if that was longer: T may have been made shorter since."""
    return max(takeover_s, session.scalar(_LONGEST_PROMISED) or 0.0)


def _cutoffs(deadlines: Deadlines, now: int) -> Cutoffs:
    return {
        "now": now,
        "ahead_from": now + SKEW_US,
        "finished_before": now - int(deadlines.scale * DRAIN_S * _MICROS),
        "ended_before": now - int(deadlines.scale * RELEASE_S * _MICROS),
        "heard_before": now - int(deadlines.suspect_s * _MICROS) - deadlines.stalled_us,
        "leased_before": now - int(deadlines.takeover_s * _MICROS) - deadlines.stalled_us,
        "advanced_before": now - int(deadlines.stall_s * _MICROS) - deadlines.stalled_us,
        "stalled": deadlines.stalled_us,
        "failed_since": aftermath.fault_window_start(now),
    }


def _unclaimed_attempts(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_UNCLAIMED, times).all()


def _attempts_past_drain_timeout(session: Session, times: Cutoffs) -> Sequence[str]:
    """Attempts that wait for telemetry only: of no member the end is still awaited."""
    return session.scalars(_PAST_DRAIN_TIMEOUT, times).all()


def _runs_overdue_in_queue(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_OVERDUE, times).all()


def _runs_with_elapsed_backoff(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_BACKOFF_ELAPSED, times).all()


def _runs_over_limit(session: Session, times: Cutoffs) -> list[str]:
    return [
        run_id
        for run_id, limits, started_at, claimed_at in session.execute(_ACTIVE_ATTEMPTS)
        if _is_over_limit(limits, started_at or claimed_at, times["now"])
    ]


def _is_over_limit(limits: Mapping[str, Any], since: int, now: int) -> bool:  # Any: JSON of Limits
    """The limit counts from the program's start; before it from the claim, so that no start takes for ever."""
    return limits["run_s"] is not None and since + int(limits["run_s"] * _MICROS) <= now


def _members_with_unreleased_devices(session: Session, times: Cutoffs) -> Sequence[str]:
    """Members that are over and whose devices have not come back."""
    return session.scalars(_UNRELEASED, times).all()


def _stalled_runs(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_STALLED, times).all()


def _silent_hosts(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_SILENT, times).all()


def _faulty_hosts(session: Session, times: Cutoffs) -> list[str]:
    return aftermath.faulty_hosts(session, now=times["now"])


def _lost_hosts(session: Session, times: Cutoffs) -> Sequence[str]:
    return session.scalars(_LOST, times).all()


def _hosts_ahead(session: Session, times: Cutoffs) -> Sequence[str]:
    """Stamped by a clock that was ahead, for a moment or on another server."""
    return session.scalars(_AHEAD, times).all()


def _superseded_incarnations(session: Session, times: Cutoffs) -> list[str]:
    """Incarnations that their hosts moved away from, and whose lease is over."""
    ended_by = times["now"] - times["stalled"]
    return [each.id for each in session.scalars(_SUPERSEDED) if (each.lease_ends_at() or ended_by) <= ended_by]


def _expire_unclaimed(attempt_id: str, session: Session, *, now: int) -> None:
    """Not every member was claimed in time. No failure is counted: the run keeps waiting until its queue deadline."""
    run, attempt = _lock_attempt(session, attempt_id)
    if attempt.state != AttemptState.DISPATCHED or attempt.claim_deadline > now:
        return
    aftermath.end_unstarted_attempt(session, attempt, AttemptState.EXPIRED, EndReason.NOT_CLAIMED, now=now)
    if run.state == RunState.PLACED and _is_past_queue_deadline(run, now):
        transition_run(session, run, RunState.FAILED, now=now, reason=EndReason.QUEUE_LIMIT)
    elif run.state == RunState.PLACED:
        aftermath.requeue(session, run, now=now)
    elif run.state == RunState.CANCELLING:
        reason = EndReason(run.stop_reason or EndReason.CANCELLED)
        transition_run(session, run, aftermath.end_state(reason), now=now, reason=reason)
    announce(session, QUEUE)


def _close_past_drain_timeout(attempt_id: str, session: Session, *, now: int) -> None:
    run, attempt = _lock_attempt(session, attempt_id)
    if attempt.state == AttemptState.FINISHING:
        close_attempt(session, run, attempt, now=now)


def _fail_overdue_in_queue(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is not None and run.state == RunState.QUEUED and _is_past_queue_deadline(run, now):
        transition_run(session, run, RunState.FAILED, now=now, reason=EndReason.QUEUE_LIMIT)


def _is_past_queue_deadline(run: Run, now: int) -> bool:
    return run.queue_deadline is not None and run.queue_deadline <= now


def _requeue_after_backoff(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is not None and run.state == RunState.RETRY_WAIT and (run.retry_at or 0) <= now:
        aftermath.requeue(session, run, now=now)
        announce(session, QUEUE)


def _stop_over_limit(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is None or run.state not in _ACTIVE_RUNS:
        return
    attempt = live_attempt(session, run.id)
    since = attempt and attempt.state != AttemptState.FINISHING and (attempt.started_at or attempt.claimed_at)
    if since and _is_over_limit(run.limits, since, now):
        aftermath.stop_run(session, run, EndReason.RUN_LIMIT, now=now)


def _mark_stalled(run_id: str, session: Session, *, before: int, now: int) -> None:
    """Shown and told, and nothing else: the watchdog decides whether it is ended."""
    run = lock_run(session, run_id)
    if run is None or run.state != RunState.RUNNING or run.advanced_at is None or run.step_us is None:
        return
    # It may have got further since the read.
    if run.advanced_at <= before and run.advanced_at + _USUAL_STEPS * run.step_us <= now:
        record_stall(session, run, now=now)


def _quarantine_unreleased(member_id: str, session: Session, *, now: int) -> None:
    member = member_by_id(session, member_id)
    assert member is not None
    # The lock first: a report that proves the death may be under way, and then frees them.
    _lock_attempt(session, member.attempt_id)
    quarantine_devices(session, member, "death_not_proven", now=now)


def _mark_host_suspect(host_id: str, session: Session, *, now: int) -> None:
    """Shown, and nothing else."""
    session.get_one(Host, host_id).suspect_since = now
    announce(session, host_list(host_id))


def _mark_host_lost(host_id: str, session: Session, *, before: int, now: int) -> None:
    """The lease of a host ran out: the members of its newest incarnation are lost."""
    query = select(Host).where(Host.id == host_id).with_for_update()
    host = session.scalars(query, execution_options={"populate_existing": True}).one()
    # A heartbeat came between the read and this lock.
    if host.lost_at is not None or (host.last_heartbeat_at or 0) > before:
        return
    host.lost_at = now
    session.flush()
    _mark_members_lost(session, host_id, host.incarnation_id, now=now)


def _expire_superseded(incarnation_id: str, session: Session, *, now: int) -> None:
    """The lease of an incarnation ran out whose host lives on elsewhere."""
    query = select(Incarnation).where(Incarnation.id == incarnation_id).with_for_update()
    incarnation = session.scalars(query, execution_options={"populate_existing": True}).one()
    if (incarnation.lease_ends_at() or now) > now:
        return
    incarnation.last_heartbeat_at = None
    session.flush()
    _mark_members_lost(session, incarnation.host_id, incarnation.id, now=now)


def _mark_members_lost(session: Session, host_id: str, incarnation_id: str | None, *, now: int) -> None:
    """Their devices are quarantined, as nobody saw them die."""
    begun = (Member.host_id == host_id, Member.incarnation_id == incarnation_id, Member.state.in_(_BEGUN))
    for member_id in session.scalars(select(Member.id).where(*begun).order_by(Member.id)).all():
        member = member_by_id(session, member_id)
        assert member is not None
        run, attempt = _lock_attempt(session, member.attempt_id)
        finish.mark_member_lost(session, run, attempt, member, EndReason.LOST, proven_dead=False, now=now)
    announce(session, host_list(host_id), QUEUE)


def _lock_attempt(session: Session, attempt_id: str) -> tuple[Run, Attempt]:
    known = attempt_by_id(session, attempt_id)
    run = lock_run(session, known.run_id)
    assert run is not None
    return run, attempt_by_id(session, attempt_id)
