"""Keeps leases. The answer brings all news, so that workers need no broker: a notification makes one come early.

Idle hosts have nothing to tell and nothing to hear. Their beats that come at once share one read, which says so, and
one guarded write; statements are made once: making one costs more than running it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, bindparam, case, exists, or_, select, update
from sqlalchemy import Row as Columns
from sqlalchemy.orm import Session

from drumline.contracts.base import from_micros
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_MEMBER, AttemptState, DeviceState, MemberState, RunState
from drumline.contracts.worker_api import Heartbeat, HeartbeatReply, MemberBeat, MemberNotice
from drumline_server.lifecycle import probes, waiting
from drumline_server.lifecycle.finish import hang_gang
from drumline_server.lifecycle.guard import is_stamped_ahead, lock_member, require_clock, require_incarnation
from drumline_server.lifecycle.probes import is_active_on, wanted_probes
from drumline_server.storage.batching import Together
from drumline_server.storage.models import Attempt, Device, Host, Member, Run, table_of
from drumline_server.storage.wakeups import QUEUE, announce

Row = tuple[Member, Attempt, Run]
QuietBeats = Together[tuple[str, Heartbeat], HeartbeatReply | None]
"""Beats that come at once, by host, for `renew_quiet`."""
Glance = Columns[*tuple[Any, ...]]  # Any: the columns of `_GLANCES`

_HOST = table_of(Host).c
_GLANCES = select(
    _HOST.id,
    _HOST.incarnation_id,
    _HOST.draining,
    _HOST.drain_requested_at,
    _HOST.suspect_since,
    _HOST.lost_at,
    _HOST.last_heartbeat_at,
    exists().where(Member.host_id == _HOST.id, Member.state.not_in(TERMINAL_MEMBER)).label("has_members"),
    exists().where(Device.host_id == _HOST.id, Device.state == DeviceState.QUARANTINED).label("has_quarantined"),
    is_active_on(_HOST.id).label("has_plans"),
).where(_HOST.id.in_(bindparam("hosts", expanding=True)))
_FREE_GLANCES = _GLANCES.with_for_update(skip_locked=True, key_share=True, of=table_of(Host))
"""Without hosts that another transaction of PostgreSQL has locked: nobody waits for somebody else's host."""
_NOW: BindParameter[int] = bindparam("now")
_RENEW = (
    update(table_of(Host))
    .where(_HOST.id == bindparam("host"), _HOST.incarnation_id == bindparam("incarnation"))
    .values(
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


def beat(session: Session, host_id: str, heartbeat: Heartbeat, *, now: int) -> HeartbeatReply:
    """Renews the lease of the host and tells its worker what to claim, cancel and kill.

    Raises DrumlineError: fenced for an old incarnation, and as `require_clock`.
    """
    glance = session.execute(_GLANCES, {"hosts": [host_id]}).one_or_none()
    if glance is None or glance.incarnation_id != heartbeat.incarnation:
        require_incarnation(session, host_id, heartbeat.incarnation)
        glance = session.execute(_GLANCES, {"hosts": [host_id]}).one()
    require_clock(glance.last_heartbeat_at, now=now)
    if not _renew(session, [(glance, heartbeat)], now):
        require_incarnation(session, host_id, heartbeat.incarnation)  # there was another registration meanwhile
    for reported in heartbeat.members:
        if reported.tick is not None and reported.tick.overdue:
            _note_hang(session, host_id, heartbeat.incarnation, reported, now=now)
    waiting.note_waits(session, host_id, heartbeat.incarnation, heartbeat.members, now=now)
    waiting.note_unsent(session, host_id, heartbeat.unsent, now=now)
    live = _live_members(session, host_id, heartbeat.incarnation) if glance.has_members else ()
    by_id = {row[0].id: row for row in live}
    for reported in heartbeat.members:
        if reported.member in by_id:
            _note_step(by_id[reported.member][0], reported)
    return HeartbeatReply(
        assigned=tuple(_notice(row) for row in live if _is_to_claim(row[0], heartbeat)),
        cancelled=tuple(_notice(row) for row in live if _is_to_stop(row)),
        fenced=_fenced(session, host_id, heartbeat.members, by_id),
        probes=wanted_probes(session, host_id, now=now) if glance.has_quarantined else (),
        plans=probes.probe_orders(session, host_id, heartbeat.plans, now=now) if glance.has_plans else (),
        held=waiting.held(session, [row[0] for row in live]),
        unwanted_plans=probes.unwanted_probes(session, host_id, heartbeat.plans, now=now),
        drain=glance.drain_requested_at is not None,
        server_time=from_micros(now),
    )


def may_be_quiet(heartbeat: Heartbeat) -> bool:
    """Whether the worker has nothing to tell, and nothing to hear as far as it knows, so that `renew_quiet` may do."""
    return not (heartbeat.members or heartbeat.plans or heartbeat.unsent or heartbeat.notified)


def renew_quiet(session: Session, beats: Sequence[tuple[str, Heartbeat]], *, now: int) -> list[HeartbeatReply | None]:
    """Renews the leases of those hosts that have nothing to tell and nothing to be told; None for the others.

    A beat that gets None has changed nothing and is for `beat`.
    """
    rows = session.execute(_FREE_GLANCES, {"hosts": [host_id for host_id, _ in beats]})
    glances: dict[str, Glance] = {row.id: row for row in rows}
    quiet = [_is_quiet(glances.get(host_id), heartbeat, now) for host_id, heartbeat in beats]
    _renew(session, [(glances[each[0]], each[1]) for each, is_quiet in zip(beats, quiet, strict=True) if is_quiet], now)
    return [
        HeartbeatReply(drain=glances[host_id].drain_requested_at is not None, server_time=from_micros(now))
        if is_quiet
        else None
        for (host_id, _), is_quiet in zip(beats, quiet, strict=True)
    ]


def _is_quiet(host: Glance | None, heartbeat: Heartbeat, now: int) -> bool:
    return (
        host is not None
        and host.incarnation_id == heartbeat.incarnation
        and not is_stamped_ahead(host.last_heartbeat_at, now)
        and may_be_quiet(heartbeat)
        and not (host.has_members or host.has_quarantined or host.has_plans)
    )


def _renew(session: Session, beats: Sequence[tuple[Glance, Heartbeat]], now: int) -> int:
    """Renews the leases and counts them; tells of those hosts that came back or whose draining changed."""
    if not beats:
        return 0
    renewed = [
        {"host": host.id, "incarnation": heartbeat.incarnation, "now": now, "is_draining": heartbeat.draining}
        for host, heartbeat in beats
    ]
    result = session.connection().execute(_RENEW, renewed)
    for host, heartbeat in beats:
        if host.lost_at is not None or host.suspect_since is not None or host.draining != heartbeat.draining:
            announce(session, f"fleet:{host.id}", QUEUE)
    return result.rowcount


def _live_members(session: Session, host_id: str, incarnation: str) -> Sequence[Row]:
    """Those of the host, but for what lives on under an older incarnation on a machine that the host moved from."""
    rows = session.execute(_LIVE, {"host": host_id, "incarnation": incarnation})
    return [(member, attempt, run) for member, attempt, run in rows]


def _note_step(member: Member, reported: MemberBeat) -> None:
    if member.fence != reported.fence:
        return
    if reported.step is not None:
        member.step = reported.step
        member.last_collective = reported.last_collective
    if reported.tick is not None:
        member.tick = reported.tick.model_dump(mode="json")


def _note_hang(session: Session, host_id: str, incarnation: str, reported: MemberBeat, *, now: int) -> None:
    owner = select(Member.id).where(
        Member.id == reported.member, Member.host_id == host_id, Member.incarnation_id == incarnation
    )
    if session.scalar(owner) is None:
        return
    held = lock_member(session, host_id, reported.member)
    if held.member.fence == reported.fence == held.run.fence:
        hang_gang(session, held.attempt, now=now)


def _is_to_claim(member: Member, heartbeat: Heartbeat) -> bool:
    """Whether it waits for its worker, or was claimed by one that does not know, as the answer was lost."""
    if member.state == MemberState.PENDING:
        return True
    is_known = any(reported.member == member.id for reported in heartbeat.members)
    return member.state == MemberState.CLAIMED and member.incarnation_id == heartbeat.incarnation and not is_known


def _is_to_stop(row: Row) -> bool:
    """Whether a member that began is to stop: its run is being cancelled, or its attempt has failed elsewhere."""
    member, attempt, run = row
    ending = run.state == RunState.CANCELLING or attempt.state == AttemptState.FINISHING
    return member.state != MemberState.PENDING and ending


def _fenced(
    session: Session, host_id: str, reported: Sequence[MemberBeat], live: dict[str, Row]
) -> tuple[MemberNotice, ...]:
    """Members that the worker has and the server does not want any more."""
    stale = [beat for beat in reported if beat.member not in live or live[beat.member][0].fence != beat.fence]
    if not stale:
        return ()
    query = select(Member.id, Member.attempt_id).where(
        Member.id.in_([beat.member for beat in stale]), Member.host_id == host_id
    )
    attempts = {member: attempt for member, attempt in session.execute(query)}
    return tuple(
        MemberNotice(member=beat.member, attempt=attempts[beat.member], fence=beat.fence)
        for beat in stale
        if beat.member in attempts
    )


def _notice(row: Row) -> MemberNotice:
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
