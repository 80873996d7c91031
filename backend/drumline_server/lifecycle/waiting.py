"""Notes which programs are made to wait for their telemetry, and what is still to come of ended ones (P12)."""

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session, aliased

from drumline.contracts.states import TERMINAL_MEMBER, MemberState
from drumline.contracts.worker_api import MemberBeat, UnsentTelemetry
from drumline_server.lifecycle.guard import lock_member
from drumline_server.storage.history import record_event
from drumline_server.storage.models import WAITING, Member, table_of
from drumline_server.storage.wakeups import announce

_RUNNING = "running"
_PHASES = select(Member.id, Member.phase).where(
    Member.id.in_(bindparam("members", expanding=True)), Member.host_id == bindparam("host")
)
_PEER = aliased(Member)
_HELD = select(Member.id).where(
    Member.id.in_(bindparam("members", expanding=True)),
    select(_PEER.id)
    .where(
        _PEER.attempt_id == Member.attempt_id,
        _PEER.id != Member.id,
        _PEER.phase == WAITING,
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


def note_waits(session: Session, host_id: str, incarnation: str, beats: Sequence[MemberBeat], *, now: int) -> None:
    """Gives members the phase WAITING when their program begins to wait, and takes it back when it goes on."""
    told = {beat.member: beat.tick.activity == WAITING for beat in beats if beat.tick is not None}
    if not told:
        return
    phases = session.execute(_PHASES, {"members": list(told), "host": host_id}).all()
    for member_id, phase in phases:
        if (phase == WAITING) != told[member_id]:
            _change_phase(session, host_id, member_id, incarnation, waits=told[member_id], now=now)


def note_unsent(session: Session, host_id: str, unsent: Sequence[UnsentTelemetry], *, now: int) -> None:
    """Remembers how much is to come of members that have ended: as long as it is told, it is awaited."""
    for member in unsent:
        told = {"member": member.member, "host": host_id, "unsent": member.unsent_bytes, "at": now}
        session.connection().execute(_UNSENT, told)


def held(session: Session, members: Sequence[Member]) -> tuple[str, ...]:
    """Those of whose gang another member waits."""
    if not members:
        return ()
    return tuple(session.scalars(_HELD, {"members": [member.id for member in members]}))


def _change_phase(session: Session, host_id: str, member_id: str, incarnation: str, *, waits: bool, now: int) -> None:
    member = lock_member(session, host_id, member_id).member
    if member.incarnation_id != incarnation or member.state in TERMINAL_MEMBER:
        return
    member.phase = WAITING if waits else _RUNNING
    body = {"member": member.id, "host": member.host_id, "state": member.state, "phase": member.phase}
    record_event(session, member.run_id, "member", body, now=now, attempt_id=member.attempt_id)
    announce(session, f"runs:{member.run_id}")
