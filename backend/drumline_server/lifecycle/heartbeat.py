"""Keeps leases. The answer brings all news, so that workers need no broker: a notification makes one come early.

Idle hosts have nothing to tell and nothing to hear. Heartbeats that come at once share one read, which says so, and
one guarded write; statements are made once: making one costs more than running it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr
from sqlalchemy import BindParameter, bindparam, case, exists, or_, select, update
from sqlalchemy import Row as Columns
from sqlalchemy.orm import Session, aliased

from drumline.contracts.base import from_micros, to_micros
from drumline.contracts.programs import WAITING_FOR_TELEMETRY
from drumline.contracts.reasons import EndReason
from drumline.contracts.stacks import StacksReport, StacksRequest
from drumline.contracts.states import TERMINAL_MEMBER, AttemptState, DeviceState, MemberState, RunState
from drumline.contracts.worker_api import (
    KEYED_HEARTBEAT_PROTOCOL,
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    MemberHeartbeat,
    MemberNotice,
    MemberRefusal,
    UnsentTelemetry,
)
from drumline_server.lifecycle import probes
from drumline_server.lifecycle.finish import mark_gang_hung
from drumline_server.lifecycle.guard import (
    is_from_the_future,
    lock_member,
    refuse_key,
    require_clock,
    require_fence,
    require_incarnation,
    require_key,
)
from drumline_server.lifecycle.probes import due_device_checks, has_active_probe
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Attempt, Device, Host, Member, Run, table_of
from drumline_server.storage.notifications import QUEUE, announce, host_list, run_list
from drumline_server.storage.requests import BatchingExecutor

LiveMember = tuple[Member, Attempt, Run]
IdleHeartbeats = BatchingExecutor[tuple[str, Heartbeat], HeartbeatReply | None]
"""Heartbeats that come at once, by host, for `renew_idle`."""
HostStatus = Columns[*tuple[Any, ...]]  # Any: the columns of `_HOST_STATUS`

_HOST = table_of(Host).c
_HOST_STATUS = select(
    _HOST.id,
    _HOST.incarnation_id,
    _HOST.draining,
    _HOST.drain_requested_at,
    _HOST.suspect_since,
    _HOST.lost_at,
    _HOST.last_heartbeat_at,
    exists().where(Member.host_id == _HOST.id, Member.state.not_in(TERMINAL_MEMBER)).label("has_members"),
    exists().where(Device.host_id == _HOST.id, Device.state == DeviceState.QUARANTINED).label("has_quarantined"),
    has_active_probe(_HOST.id).label("has_plans"),
).where(_HOST.id.in_(bindparam("hosts", expanding=True)))
_UNLOCKED_HOST_STATUS = _HOST_STATUS.with_for_update(skip_locked=True, key_share=True, of=table_of(Host))
"""Without hosts that another transaction of PostgreSQL has locked: nobody waits for somebody else's host."""
_NOW: BindParameter[int] = bindparam("now")
_RENEW = (
    update(table_of(Host))
    .where(_HOST.id == bindparam("host"), _HOST.incarnation_id == bindparam("incarnation"))
    .values(
        # Never shortened: servers' clocks differ, and the worker lives by the longest lease it was promised.
        last_heartbeat_at=case((_HOST.last_heartbeat_at > _NOW, _HOST.last_heartbeat_at), else_=_NOW),
        draining=bindparam("is_draining"),
        suspect_since=None,
        lost_at=None,
    )
)
_LIVE = (
    select(Member, Attempt, Run)
    .join(Attempt, Attempt.id == Member.attempt_id)
    .join(Run, Run.id == Member.run_id)
    .where(
        Member.host_id == bindparam("host"),
        Member.state.not_in(TERMINAL_MEMBER),
        or_(Member.incarnation_id.is_(None), Member.incarnation_id == bindparam("incarnation")),
    )
    .order_by(Member.created_at, Member.id)
)


def record_heartbeat(session: Session, host_id: str, heartbeat: Heartbeat, *, now: int) -> HeartbeatReply:
    """Renews the lease of the host and tells its worker what to claim, cancel and kill.

    Raises DrumlineError: fenced for an old incarnation, and as `require_clock`.
    """
    # Read without a lock, so that heartbeats don't queue; `_renew` compares the incarnation again.
    status = session.execute(_HOST_STATUS, {"hosts": [host_id]}).one_or_none()
    if status is None or status.incarnation_id != heartbeat.incarnation:
        require_incarnation(session, host_id, heartbeat.incarnation)
        status = session.execute(_HOST_STATUS, {"hosts": [host_id]}).one()
    require_clock(status.last_heartbeat_at, now=now)
    if not _renew(session, [(status, heartbeat)], now):
        require_incarnation(session, host_id, heartbeat.incarnation)  # there was another registration meanwhile
    heard = _hear(session, host_id, heartbeat)
    # Before the live members are read: the same reply then has the gang dump its stacks.
    for reported in heard.members:
        if reported.tick is not None and reported.tick.overdue:
            _record_hang(session, host_id, heartbeat.incarnation, reported, now=now)
    _record_waits(session, host_id, heartbeat.incarnation, heard, now=now)
    _record_unsent(session, host_id, heard.unsent, now=now)
    live = _live_members(session, host_id, heartbeat.incarnation) if status.has_members else ()
    by_id = {row[0].id: row for row in live}
    for reported in heard.members:
        if reported.member in by_id:
            _record_step(by_id[reported.member][0], reported)
    return HeartbeatReply(
        assigned=tuple(_member_notice(row) for row in live if _is_to_claim(row[0], heartbeat)),
        cancelled=tuple(_member_notice(row) for row in live if _is_to_stop(row)),
        fenced=_stale_members(session, host_id, heartbeat.members, by_id),
        probes=due_device_checks(session, host_id, now=now) if status.has_quarantined else (),
        plans=probes.probe_orders(session, host_id, heartbeat.plans, now=now) if status.has_plans else (),
        held=_members_waited_for(session, [row[0] for row in live]),
        stacks=tuple(_stacks_request(row[0]) for row in live if _is_asked_for_stacks(row[0])),
        unwanted_plans=probes.abandoned_probes(session, host_id, heartbeat.plans, now=now),
        refused=heard.refused,
        drain=status.drain_requested_at is not None,
        server_time=from_micros(now),
        protocol=PROTOCOL_VERSION,
    )


_TOLD_OF = select(Member.id, Member.state, Member.phase, Member.key_hash, Member.protocol).where(
    Member.id.in_(bindparam("members", expanding=True)), Member.host_id == bindparam("host")
)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What of a heartbeat is said of members by one who may."""

    members: Sequence[MemberHeartbeat] = ()
    unsent: Sequence[UnsentTelemetry] = ()
    phases: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[MemberRefusal, ...] = ()


def _hear(session: Session, host_id: str, heartbeat: Heartbeat) -> _Heard:
    """Leaves out what is told of other hosts' members, of those that nobody claimed, and without the key."""
    told = [each for each in heartbeat.members if each.step is not None or each.tick is not None]
    keys = [(each.member, each.key) for each in told] + [(each.member, each.key) for each in heartbeat.unsent]
    if not keys:
        return _Heard()
    rows = session.execute(_TOLD_OF, {"members": list(dict(keys)), "host": host_id})
    claimed = {row.id: row for row in rows if row.state != MemberState.PENDING}
    refusals = {
        member: refusal
        for member, key in keys
        if member in claimed and (refusal := _refusal(claimed[member], key)) is not None
    }
    may = claimed.keys() - refusals.keys()
    return _Heard(
        members=[each for each in told if each.member in may],
        unsent=[each for each in heartbeat.unsent if each.member in may],
        phases={member: row.phase for member, row in claimed.items()},
        refused=tuple(refusals.values()),
    )


def _refusal(member: Columns[*tuple[Any, ...]], key: SecretStr | None) -> MemberRefusal | None:
    """By what its worker spoke at the claim: who has only the host's token could say now that it is an older one."""
    if key is None and (member.protocol or 0) < KEYED_HEARTBEAT_PROTOCOL:
        return None
    refused = refuse_key(member.id, member.key_hash, key)
    if refused is None:
        return None
    return MemberRefusal(member=member.id, code=refused.code, detail=refused.detail, hint=refused.hint)


def _is_asked_for_stacks(member: Member) -> bool:
    return member.stacks_asked_at is not None and member.stacks_answered_at is None


def _stacks_request(member: Member) -> StacksRequest:
    return StacksRequest(member=member.id, asked_at=from_micros(member.stacks_asked_at or 0))


def record_standing(
    session: Session, host_id: str, member_id: str, report: StacksReport, *, key: SecretStr | None, now: int
) -> None:
    """Keeps where a member stands, if that was asked and is not answered yet; what comes late is no error.

    Raises NotFoundError; as `require_key`; DrumlineError fenced for an old incarnation or fence.
    """
    require_incarnation(session, host_id, report.incarnation)
    locked = lock_member(session, host_id, member_id)
    require_fence(locked, report.fence)
    require_key(locked, key)
    member = locked.member
    if member.stacks_asked_at != to_micros(report.standing.asked_at) or member.stacks_answered_at is not None:
        return
    member.standing = report.standing.model_dump(mode="json")
    member.stacks_answered_at = now
    announce(session, run_list(member.run_id))


def is_idle(heartbeat: Heartbeat) -> bool:
    """Whether the worker has nothing to tell, and nothing to hear as far as it knows, so that `renew_idle` may do."""
    return not (heartbeat.members or heartbeat.plans or heartbeat.unsent or heartbeat.notified)


def renew_idle(
    session: Session, heartbeats: Sequence[tuple[str, Heartbeat]], *, now: int
) -> list[HeartbeatReply | None]:
    """Renews the leases of those hosts that have nothing to tell and nothing to be told; None for the others.

    A heartbeat that gets None has changed nothing and is for `record_heartbeat`.
    """
    rows = session.execute(_UNLOCKED_HOST_STATUS, {"hosts": [host_id for host_id, _ in heartbeats]})
    statuses: dict[str, HostStatus] = {row.id: row for row in rows}
    idle = [_is_idle_host(statuses.get(host_id), heartbeat, now) for host_id, heartbeat in heartbeats]
    _renew(
        session,
        [(statuses[each[0]], each[1]) for each, is_idle_host in zip(heartbeats, idle, strict=True) if is_idle_host],
        now,
    )
    return [
        HeartbeatReply(
            drain=statuses[host_id].drain_requested_at is not None,
            server_time=from_micros(now),
            protocol=PROTOCOL_VERSION,
        )
        if is_idle_host
        else None
        for (host_id, _), is_idle_host in zip(heartbeats, idle, strict=True)
    ]


def _is_idle_host(host: HostStatus | None, heartbeat: Heartbeat, now: int) -> bool:
    return (
        host is not None
        and host.incarnation_id == heartbeat.incarnation
        and not is_from_the_future(host.last_heartbeat_at, now)
        and is_idle(heartbeat)
        and not (host.has_members or host.has_quarantined or host.has_plans)
    )


def _renew(session: Session, heartbeats: Sequence[tuple[HostStatus, Heartbeat]], now: int) -> int:
    """Renews the leases and counts them; tells of those hosts that came back or whose draining changed."""
    if not heartbeats:
        return 0
    renewed = [
        {"host": host.id, "incarnation": heartbeat.incarnation, "now": now, "is_draining": heartbeat.draining}
        for host, heartbeat in heartbeats
    ]
    result = session.connection().execute(_RENEW, renewed)
    for host, heartbeat in heartbeats:
        if host.lost_at is not None or host.suspect_since is not None or host.draining != heartbeat.draining:
            announce(session, host_list(host.id), QUEUE)
    return result.rowcount


def _live_members(session: Session, host_id: str, incarnation: str) -> Sequence[LiveMember]:
    """The host's live members, without those of an older incarnation on a machine that the host moved away from."""
    rows = session.execute(_LIVE, {"host": host_id, "incarnation": incarnation})
    return [(member, attempt, run) for member, attempt, run in rows]


def _record_step(member: Member, reported: MemberHeartbeat) -> None:
    if member.fence != reported.fence:
        return
    if reported.step is not None:
        member.step = reported.step
        member.last_collective = reported.last_collective
    if reported.tick is not None:
        member.tick = reported.tick.model_dump(mode="json")


def _record_hang(session: Session, host_id: str, incarnation: str, reported: MemberHeartbeat, *, now: int) -> None:
    locked = lock_member(session, host_id, reported.member)
    is_current = locked.member.fence == reported.fence == locked.run.fence
    if is_current and locked.member.incarnation_id == incarnation:
        mark_gang_hung(session, locked.attempt, now=now)


def _is_to_claim(member: Member, heartbeat: Heartbeat) -> bool:
    """Whether it waits for its worker, or was claimed by one that does not know, as the answer was lost."""
    if member.state == MemberState.PENDING:
        return True
    is_known = any(reported.member == member.id for reported in heartbeat.members)
    return member.state == MemberState.CLAIMED and member.incarnation_id == heartbeat.incarnation and not is_known


def _is_to_stop(row: LiveMember) -> bool:
    """Whether a member that began is to stop: its run is being cancelled, or its attempt has failed elsewhere."""
    member, attempt, run = row
    ending = run.state == RunState.CANCELLING or attempt.state == AttemptState.FINISHING
    return member.state != MemberState.PENDING and ending


def _stale_members(
    session: Session, host_id: str, reported: Sequence[MemberHeartbeat], live: dict[str, LiveMember]
) -> tuple[MemberNotice, ...]:
    """Members that the worker has and the server does not want any more."""
    stale = [each for each in reported if each.member not in live or live[each.member][0].fence != each.fence]
    if not stale:
        return ()
    query = select(Member.id, Member.attempt_id).where(
        Member.id.in_([each.member for each in stale]), Member.host_id == host_id
    )
    attempts = {member: attempt for member, attempt in session.execute(query)}
    return tuple(
        MemberNotice(member=each.member, attempt=attempts[each.member], fence=each.fence)
        for each in stale
        if each.member in attempts
    )


def _member_notice(row: LiveMember) -> MemberNotice:
    member, attempt, run = row
    grace_s = run.cancel_grace_s if run.state == RunState.CANCELLING else None
    return MemberNotice(
        member=member.id,
        attempt=member.attempt_id,
        fence=member.fence,
        grace_s=grace_s,
        reason=_stop_reason(attempt, run),
    )


def _stop_reason(attempt: Attempt, run: Run) -> EndReason | None:
    """Why a gang that is decided takes its last members along; nothing that they still do would count.

    Of a cancelled run each member has its own grace, also when another was quicker.
    """
    if attempt.state != AttemptState.FINISHING or run.state == RunState.CANCELLING:
        return None
    return EndReason.HANG if attempt.reason_code == EndReason.HANG else EndReason.PEER_LOST


_RUNNING = "running"
_PEER = aliased(Member)
_WAITED_FOR = select(Member.id).where(
    Member.id.in_(bindparam("members", expanding=True)),
    select(_PEER.id)
    .where(
        _PEER.attempt_id == Member.attempt_id,
        _PEER.id != Member.id,
        _PEER.phase == WAITING_FOR_TELEMETRY,
        _PEER.state.not_in(TERMINAL_MEMBER),
    )
    .exists(),
)
_MEMBER = table_of(Member).c
_UNSENT = (
    update(table_of(Member))
    .where(
        _MEMBER.id == bindparam("member"),
        _MEMBER.host_id == bindparam("host"),
        _MEMBER.state == str(MemberState.EXITED),
        _MEMBER.acked_seq < _MEMBER.last_seq,
    )
    .values(unsent_bytes=bindparam("unsent"), telemetry_at=bindparam("at"))
)


def _record_waits(session: Session, host_id: str, incarnation: str, heard: _Heard, *, now: int) -> None:
    """Gives members the phase of waiting when their program begins to wait, and takes it back when it continues."""
    told = {each.member: each.tick.activity == WAITING_FOR_TELEMETRY for each in heard.members if each.tick is not None}
    for member_id, waits in told.items():
        if (heard.phases[member_id] == WAITING_FOR_TELEMETRY) != waits:
            _change_phase(session, host_id, member_id, incarnation, waits=waits, now=now)


def _record_unsent(session: Session, host_id: str, unsent: Sequence[UnsentTelemetry], *, now: int) -> None:
    """Remembers how much is to come of members that have ended: as long as it is told, it is awaited."""
    for member in unsent:
        told = {"member": member.member, "host": host_id, "unsent": member.unsent_bytes, "at": now}
        session.connection().execute(_UNSENT, told)


def _members_waited_for(session: Session, members: Sequence[Member]) -> tuple[str, ...]:
    """Those of whose gang another member waits."""
    if not members:
        return ()
    return tuple(session.scalars(_WAITED_FOR, {"members": [member.id for member in members]}))


def _change_phase(session: Session, host_id: str, member_id: str, incarnation: str, *, waits: bool, now: int) -> None:
    member = lock_member(session, host_id, member_id).member
    if member.incarnation_id != incarnation or member.state in TERMINAL_MEMBER:
        return
    member.phase = WAITING_FOR_TELEMETRY if waits else _RUNNING
    body = {"member": member.id, "host": member.host_id, "state": member.state, "phase": member.phase}
    record_event(session, member.run_id, "member", body, now=now, attempt_id=member.attempt_id)
    announce(session, run_list(member.run_id))
