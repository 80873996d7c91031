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
from drumline_server.base.clock import Clock
from drumline_server.lifecycle import finish, release, retries
from drumline_server.lifecycle.clock_skew import pull_back_host
from drumline_server.lifecycle.finish import close_attempt
from drumline_server.lifecycle.guard import SKEW_US
from drumline_server.lifecycle.release import quarantine_devices
from drumline_server.lifecycle.transitions import move_run
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import Attempt, Device, Host, Incarnation, Member, Run, table_of
from drumline_server.storage.runs import attempt_by_id, live_attempt, member_by_id
from drumline_server.storage.wakeups import QUEUE, announce

DRAIN_S = 120.0
"""So long after telemetry last came of an ended member, or its host last told that there is more, none is awaited."""
RELEASE_S = 60.0
"""How long a worker may take to prove the end of a member that was fenced off before it ran. A worker that the answer
to its claim never reached knows of no such member: after this its devices have to be probed."""
_MICROS = 1_000_000
_MOST = 500
"""Due things of one kind that one round looks at."""
_AT_WORK = (RunState.PLACED, RunState.RUNNING)
_BEGUN = (MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING)

Deed = Callable[[Session], None]
Times = Mapping[str, int]
"""What the statements compare with, in microseconds."""
Finder = Callable[[Session, Times], Sequence[str]]


def _select_undrained() -> Select[str]:
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
    return select(Attempt.id).where(*over, ~alive, ~sending).limit(_MOST)


def _select_unreleased() -> Select[str]:
    return (
        select(Member.id)
        .join(Device, (Device.attempt_id == Member.attempt_id) & (Device.host_id == Member.host_id))
        .where(Device.state == DeviceState.RELEASING, Member.ended_at <= bindparam("ended_before"))
        .distinct()
        .limit(_MOST)
    )


_UNCLAIMED = (
    select(Attempt.id)
    .where(Attempt.state == AttemptState.DISPATCHED, Attempt.claim_deadline <= bindparam("now"))
    .limit(_MOST)
)
_UNDRAINED = _select_undrained()
_OVERDUE = select(Run.id).where(Run.state == RunState.QUEUED, Run.queue_deadline <= bindparam("now")).limit(_MOST)
_RESTED = select(Run.id).where(Run.state == RunState.RETRY_WAIT, Run.retry_at <= bindparam("now")).limit(_MOST)
_WORKING = (
    select(Run.id, Run.limits, Attempt.started_at, Attempt.claimed_at)
    .join(Attempt, Attempt.id == Run.attempt_id)
    .where(Run.state.in_(_AT_WORK), Attempt.claimed_at.is_not(None), Attempt.state != AttemptState.FINISHING)
)
_UNRELEASED = _select_unreleased()
_UNLOST = select(Host.id).where(Host.lost_at.is_(None)).limit(_MOST)
_SILENT = _UNLOST.where(Host.last_heartbeat_at <= bindparam("heard_before"), Host.suspect_since.is_(None))
_LOST = _UNLOST.where(Host.last_heartbeat_at <= bindparam("leased_before"))
_AHEAD = select(Host.id).where(Host.last_heartbeat_at > bindparam("ahead_from")).limit(_MOST)
_LEFT = select(Incarnation).where(Incarnation.last_heartbeat_at.is_not(None)).limit(_MOST)
_GLANCE = select(
    _UNCLAIMED.exists().label("unclaimed"),
    _UNDRAINED.exists().label("undrained"),
    _OVERDUE.exists().label("overdue"),
    _RESTED.exists().label("rested"),
    _WORKING.exists().label("working"),
    _UNRELEASED.exists().label("unreleased"),
    _SILENT.exists().label("silent"),
    retries.TROUBLED.exists().label("troubled"),
    _LOST.exists().label("lost"),
    _LEFT.exists().label("left"),
    _AHEAD.exists().label("ahead"),
)
_HOSTS = table_of(Host)
_PROMISED = select(func.max(_HOSTS.c.takeover_s)).where(_HOSTS.c.lost_at.is_(None))


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the server waits, in seconds; before `leases_from` (microseconds) no lease runs out."""

    takeover_s: float
    suspect_s: float
    leases_from: int
    stalled_us: int = 0
    """How long the server itself stood still lately: nobody could reach it, so leases run out that much later."""


def due(session: Session, deadlines: Deadlines, clock: Clock, *, now: int) -> list[Deed]:
    """What is to be done now: each a function for one write transaction, which looks again before it acts.

    `clock` is for what must not act by a time that has passed since.
    """
    times = _times(deadlines, now)
    found = session.execute(_GLANCE, times).one()
    may_lose = now >= deadlines.leases_from
    lose_host = partial(_lose_host, before=times["leased_before"])
    kinds: tuple[tuple[bool, Finder, Callable[..., None]], ...] = (
        (found.unclaimed, _unclaimed, _expire),
        (may_lose and found.undrained, _undrained, _end_drain),
        (found.overdue, _overdue_in_queue, _end_wait),
        (found.rested, _rested, _end_backoff),
        (found.working, _running_too_long, _end_limit),
        (found.unreleased, _unreleased, _doubt_release),
        (found.silent, _silent, _suspect),
        (found.troubled, _troubled_hosts, retries.judge_host),
        (may_lose and found.lost, _lost_hosts, lose_host),
        (may_lose and found.left, _left_incarnations, _lose_left),
    )
    ahead = _hosts_ahead(session, times) if found.ahead else ()
    return [
        *(partial(pull_back_host, host_id, clock=clock) for host_id in ahead),
        *(partial(act, thing, now=now) for is_any, find, act in kinds if is_any for thing in find(session, times)),
    ]


def longest_takeover_s(session: Session, takeover_s: float) -> float:
    """T, or what living workers were promised if that was longer: T may have been made shorter since."""
    return max(takeover_s, session.scalar(_PROMISED) or 0.0)


def _times(deadlines: Deadlines, now: int) -> Times:
    return {
        "now": now,
        "ahead_from": now + SKEW_US,
        "finished_before": now - int(DRAIN_S * _MICROS),
        "ended_before": now - int(RELEASE_S * _MICROS),
        "heard_before": now - int(deadlines.suspect_s * _MICROS) - deadlines.stalled_us,
        "leased_before": now - int(deadlines.takeover_s * _MICROS) - deadlines.stalled_us,
        "stalled": deadlines.stalled_us,
        "failed_since": retries.failed_since(now),
    }


def _unclaimed(session: Session, times: Times) -> Sequence[str]:
    return session.scalars(_UNCLAIMED, times).all()


def _undrained(session: Session, times: Times) -> Sequence[str]:
    """Attempts that wait for telemetry only: of no member the end is still awaited."""
    return session.scalars(_UNDRAINED, times).all()


def _overdue_in_queue(session: Session, times: Times) -> Sequence[str]:
    return session.scalars(_OVERDUE, times).all()


def _rested(session: Session, times: Times) -> Sequence[str]:
    return session.scalars(_RESTED, times).all()


def _running_too_long(session: Session, times: Times) -> list[str]:
    return [
        run_id
        for run_id, limits, started_at, claimed_at in session.execute(_WORKING)
        if _is_over_limit(limits, started_at or claimed_at, times["now"])
    ]


def _is_over_limit(limits: Mapping[str, Any], since: int, now: int) -> bool:  # Any: JSON of Limits
    """The limit counts from the program's start; before it from the claim, so that no start takes for ever."""
    return limits["run_s"] is not None and since + int(limits["run_s"] * _MICROS) <= now


def _unreleased(session: Session, times: Times) -> Sequence[str]:
    """Members that are over and whose devices have not come back."""
    return session.scalars(_UNRELEASED, times).all()


def _silent(session: Session, times: Times) -> Sequence[str]:
    return session.scalars(_SILENT, times).all()


def _troubled_hosts(session: Session, times: Times) -> list[str]:
    return retries.troubled_hosts(session, now=times["now"])


def _lost_hosts(session: Session, times: Times) -> Sequence[str]:
    return session.scalars(_LOST, times).all()


def _hosts_ahead(session: Session, times: Times) -> Sequence[str]:
    """Stamped by a clock that was ahead, for a moment or on another server."""
    return session.scalars(_AHEAD, times).all()


def _left_incarnations(session: Session, times: Times) -> list[str]:
    """Incarnations that their hosts moved away from, and whose lease is over."""
    ended_by = times["now"] - times["stalled"]
    return [each.id for each in session.scalars(_LEFT) if (each.lease_ends_at() or ended_by) <= ended_by]


def _expire(attempt_id: str, session: Session, *, now: int) -> None:
    """Not every member was claimed in time: nobody's failure, the run waits on, unless it has waited long enough."""
    run, attempt = _locked(session, attempt_id)
    if attempt.state != AttemptState.DISPATCHED or attempt.claim_deadline > now:
        return
    release.abandon(session, attempt, AttemptState.EXPIRED, EndReason.NOT_CLAIMED, now=now)
    if run.state == RunState.PLACED and _has_waited_long_enough(run, now):
        move_run(session, run, RunState.FAILED, now=now, reason=EndReason.QUEUE_LIMIT)
    elif run.state == RunState.PLACED:
        retries.requeue(session, run, now=now)
    elif run.state == RunState.CANCELLING:
        reason = EndReason(run.stop_reason or EndReason.CANCELLED)
        move_run(session, run, release.end_state(reason), now=now, reason=reason)
    announce(session, QUEUE)


def _end_drain(attempt_id: str, session: Session, *, now: int) -> None:
    run, attempt = _locked(session, attempt_id)
    if attempt.state == AttemptState.FINISHING:
        close_attempt(session, run, attempt, now=now)


def _end_wait(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is not None and run.state == RunState.QUEUED and _has_waited_long_enough(run, now):
        move_run(session, run, RunState.FAILED, now=now, reason=EndReason.QUEUE_LIMIT)


def _has_waited_long_enough(run: Run, now: int) -> bool:
    return run.queue_deadline is not None and run.queue_deadline <= now


def _end_backoff(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is not None and run.state == RunState.RETRY_WAIT and (run.retry_at or 0) <= now:
        retries.requeue(session, run, now=now)
        announce(session, QUEUE)


def _end_limit(run_id: str, session: Session, *, now: int) -> None:
    run = lock_run(session, run_id)
    if run is None or run.state not in _AT_WORK:
        return
    attempt = live_attempt(session, run.id)
    since = attempt and attempt.state != AttemptState.FINISHING and (attempt.started_at or attempt.claimed_at)
    if since and _is_over_limit(run.limits, since, now):
        release.stop_run(session, run, EndReason.RUN_LIMIT, now=now)


def _doubt_release(member_id: str, session: Session, *, now: int) -> None:
    member = member_by_id(session, member_id)
    assert member is not None
    _locked(session, member.attempt_id)
    quarantine_devices(session, member, "death_not_proven", now=now)


def _suspect(host_id: str, session: Session, *, now: int) -> None:
    """Shown, and nothing else."""
    session.get_one(Host, host_id).suspect_since = now
    announce(session, f"fleet:{host_id}")


def _lose_host(host_id: str, session: Session, *, before: int, now: int) -> None:
    """The lease of a host ran out: the members of its newest incarnation are lost."""
    query = select(Host).where(Host.id == host_id).with_for_update()
    host = session.scalars(query, execution_options={"populate_existing": True}).one()
    if host.lost_at is not None or (host.last_heartbeat_at or 0) > before:
        return
    host.lost_at = now
    session.flush()
    _lose_members(session, host_id, host.incarnation_id, now=now)


def _lose_left(incarnation_id: str, session: Session, *, now: int) -> None:
    """The lease of an incarnation ran out whose host lives on elsewhere."""
    query = select(Incarnation).where(Incarnation.id == incarnation_id).with_for_update()
    incarnation = session.scalars(query, execution_options={"populate_existing": True}).one()
    if (incarnation.lease_ends_at() or now) > now:
        return
    incarnation.last_heartbeat_at = None
    session.flush()
    _lose_members(session, incarnation.host_id, incarnation.id, now=now)


def _lose_members(session: Session, host_id: str, incarnation_id: str | None, *, now: int) -> None:
    """Their devices are quarantined, as nobody saw them die."""
    begun = (Member.host_id == host_id, Member.incarnation_id == incarnation_id, Member.state.in_(_BEGUN))
    for member_id in session.scalars(select(Member.id).where(*begun).order_by(Member.id)).all():
        member = member_by_id(session, member_id)
        assert member is not None
        run, attempt = _locked(session, member.attempt_id)
        finish.lose_member(session, run, attempt, member, EndReason.LOST, proven_dead=False, now=now)
    announce(session, f"fleet:{host_id}", QUEUE)


def _locked(session: Session, attempt_id: str) -> tuple[Run, Attempt]:
    known = attempt_by_id(session, attempt_id)
    run = lock_run(session, known.run_id)
    assert run is not None
    return run, attempt_by_id(session, attempt_id)
