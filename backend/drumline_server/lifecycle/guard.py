"""Lets a worker write only what is its own and current: its host, its incarnation, the fence of the run.

Clamps timestamps that lie ahead of now, because a clock was set back or another server's is ahead. Now is read once the
hosts are locked: a lease that was renewed in the meantime must not be shortened.
"""

from dataclasses import dataclass
from secrets import compare_digest

from pydantic import SecretStr
from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from drumline.contracts.events import MAX_EVENTS_PER_BATCH, MemberAck
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import (
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.base.callers import digest
from drumline_server.base.errors import DrumlineError, FencedError, NotFoundError
from drumline_server.base.settings import Clock
from drumline_server.lifecycle.aftermath import BACKOFF_S
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import Attempt, Device, Host, Incarnation, Member, Run, table_of
from drumline_server.storage.runs import attempt_by_id, member_by_id

_HOST = select(Host).where(Host.id == bindparam("host")).execution_options(populate_existing=True)
_HOST_LOCKED = _HOST.with_for_update()
_HOST_KEPT = _HOST.with_for_update(read=True, key_share=True)
SKEW_US = 1_000_000
"""How far apart the clocks of servers may be."""
_OWNER = select(Member.run_id, Member.host_id).where(Member.id == bindparam("member"))


@dataclass(frozen=True, slots=True)
class LockedMember:
    """A member with its attempt and its run; the run is locked."""

    run: Run
    attempt: Attempt
    member: Member


def require_host(session: Session, host_id: str, *, lock: bool = False, keep: bool = False) -> Host:
    """The host of a worker's token. Raises NotFoundError.

    `lock` takes the row to write it; `keep` only keeps others from taking it until this transaction ends.
    """
    host = session.scalar(_HOST_LOCKED if lock else _HOST_KEPT if keep else _HOST, {"host": host_id})
    if host is None:
        raise NotFoundError("host", host_id)
    return host


def require_incarnation(session: Session, host_id: str, incarnation: str, *, keep: bool = False) -> Host:
    """The host, if `incarnation` is its newest; with `keep` until the transaction ends.

    Raises DrumlineError fenced for an older one.
    """
    host = require_host(session, host_id, keep=keep)
    if host.incarnation_id != incarnation:
        raise DrumlineError(
            ProblemCode.FENCED,
            f"Incarnation {incarnation} is not the newest of host {host.name}; that is {host.incarnation_id}.",
            hint="Register again; if another worker runs under this host's token, stop one of the two.",
            context=describe_other_incarnation(session, host, incarnation),
        )
    return host


def is_from_the_future(heard_at: int | None, now: int) -> bool:
    """Whether a host was last heard of later than now: a clock was set back, or another server's is ahead."""
    return heard_at is not None and heard_at > now + SKEW_US


def require_clock(heard_at: int | None, *, now: int) -> None:
    """Raises DrumlineError unavailable where a lease that begins now would end before the one that the host has.

    What is not acknowledged lengthens no worker's lease either; the next round of deadlines clamps such timestamps.
    """
    if heard_at is not None and is_from_the_future(heard_at, now):
        behind_s = (heard_at - now) / 1_000_000
        raise DrumlineError(
            ProblemCode.UNAVAILABLE,
            f"The server's clock is behind by {behind_s:.1f} s: this host was heard of later than now.",
            hint="Try again in a second; where that does not help, set the clocks of all servers by NTP.",
            context={"retry_after_s": 1},
        )


def describe_other_incarnation(session: Session, host: Host, named: str) -> dict[str, str | bool | None]:
    """Context of a refusal: the incarnation that the worker named, the current one, and whether the named one is known,
    and so superseded. After a restore of an old database it may be unknown.
    """
    superseded = session.scalar(select(Incarnation.id).where(Incarnation.id == named, Incarnation.host_id == host.id))
    return {"incarnation": named, "current": host.incarnation_id, "superseded": superseded is not None}


def lock_member(session: Session, host_id: str, member_id: str) -> LockedMember:
    """A member of that host, with its run locked. Raises NotFoundError, also for a member of another host."""
    known = session.execute(_OWNER, {"member": member_id}).one_or_none()
    if known is None or known.host_id != host_id:
        raise NotFoundError("member", member_id)
    run = lock_run(session, known.run_id)
    member = member_by_id(session, member_id)
    if run is None or member is None:  # deleted, perhaps just now: nothing of it is wanted any more
        raise NotFoundError("member", member_id)
    return LockedMember(run, attempt_by_id(session, member.attempt_id), member)


def require_fence(locked: LockedMember, fence: int) -> None:
    """Raises FencedError unless `fence` is the member's own and still that of the run."""
    if fence != locked.member.fence or locked.member.fence != locked.run.fence:
        raise FencedError(locked.member.id, fence, locked.run.fence)


def require_same_incarnation(locked: LockedMember, incarnation: str) -> None:
    """Raises FencedError for a member that lives under an older incarnation, on a machine that the host moved from."""
    is_live = locked.member.state not in TERMINAL_MEMBER
    if is_live and locked.member.incarnation_id not in (None, incarnation):
        raise FencedError(locked.member.id, locked.member.fence, locked.run.fence)


def require_key(locked: LockedMember, key: SecretStr | None) -> None:
    """Raises DrumlineError fenced unless it comes with the key that the member was claimed with, if it was with one.

    The token of a host is not enough to speak for a run: whoever has it has not what the claim's worker made up.
    """
    refusal = refuse_key(locked.member.id, locked.member.key_hash, key)
    if refusal is not None:
        raise refusal


def refuse_key(member_id: str, known: str | None, key: SecretStr | None) -> DrumlineError | None:
    """As `require_key`, by the hash that is known of the member's key: what to raise, or to tell, if anything."""
    if known is None or (key is not None and compare_digest(digest(key.get_secret_value()), known)):
        return None
    came = "without a key" if key is None else "with another key"
    return DrumlineError(
        ProblemCode.FENCED,
        f"Member {member_id} was claimed with a key, and this came {came}.",
        hint="Only the worker that claimed a member can speak for it; its key is in its data directory.",
    )


def require_claimed(locked: LockedMember) -> None:
    """Raises DrumlineError fenced for a member that nobody has taken to run: it has nothing to tell."""
    if locked.member.state == MemberState.PENDING:
        raise DrumlineError(
            ProblemCode.FENCED, f"Member {locked.member.id} was never claimed, so it can neither report nor have ended."
        )


def acknowledge(locked: LockedMember) -> MemberAck:
    """What is durable of the member's telemetry, and whether its run is to stop."""
    return MemberAck(
        acked_seq=locked.member.acked_seq,
        window=MAX_EVENTS_PER_BATCH,
        cancel=locked.run.state == RunState.CANCELLING,
        fence=locked.run.fence,
    )


_MICROS = 1_000_000
_HOSTS, _INCARNATIONS, _ATTEMPTS, _RUNS = (table_of(model) for model in (Host, Incarnation, Attempt, Run))
_MEMBERS, _DEVICES = table_of(Member), table_of(Device)
_LOCK_HOSTS_AHEAD = (
    select(_HOSTS.c.id).where(_HOSTS.c.last_heartbeat_at > bindparam("now")).order_by(_HOSTS.c.id).with_for_update()
)
_CLAMPS = (
    update(_HOSTS).where(_HOSTS.c.last_heartbeat_at > bindparam("now")).values(last_heartbeat_at=bindparam("now")),
    update(_INCARNATIONS)
    .where(_INCARNATIONS.c.last_heartbeat_at > bindparam("now"))
    .values(last_heartbeat_at=bindparam("now")),
    update(_ATTEMPTS)
    .where(_ATTEMPTS.c.state == AttemptState.FINISHING, _ATTEMPTS.c.finishing_at > bindparam("now"))
    .values(finishing_at=bindparam("now")),
    update(_ATTEMPTS)
    .where(_ATTEMPTS.c.state == AttemptState.DISPATCHED, _ATTEMPTS.c.claim_deadline > bindparam("latest_claim"))
    .values(claim_deadline=bindparam("latest_claim")),
    *(
        update(_ATTEMPTS)
        .where(_ATTEMPTS.c.state.not_in(TERMINAL_ATTEMPT), began > bindparam("now"))
        .values({began: bindparam("now")})
        for began in (_ATTEMPTS.c.claimed_at, _ATTEMPTS.c.started_at)
    ),
    # The wait for the proof that a device is free counts from here; ahead of now it would last until now is there.
    update(_MEMBERS)
    .where(
        _MEMBERS.c.ended_at > bindparam("now"),
        select(_DEVICES.c.id)
        .where(
            _DEVICES.c.attempt_id == _MEMBERS.c.attempt_id,
            _DEVICES.c.host_id == _MEMBERS.c.host_id,
            _DEVICES.c.state == DeviceState.RELEASING,
        )
        .exists(),
    )
    .values(ended_at=bindparam("now")),
    # So does the wait for telemetry of a member that still sends.
    update(_MEMBERS)
    .where(_MEMBERS.c.telemetry_at > bindparam("now"), _MEMBERS.c.acked_seq < _MEMBERS.c.last_seq)
    .values(telemetry_at=bindparam("now")),
    update(_RUNS)
    .where(_RUNS.c.state == RunState.RETRY_WAIT, _RUNS.c.retry_at > bindparam("latest_retry"))
    .values(retry_at=bindparam("latest_retry")),
)


def clamp_timestamps(session: Session, *, claim_s: float, clock: Clock) -> None:
    """Moves heartbeats and starts that lie ahead back to now, and waits to the end of one that begins now."""
    session.execute(_LOCK_HOSTS_AHEAD, {"now": clock.now()}).all()
    now = clock.now()
    times = {
        "now": now,
        "latest_claim": now + int(claim_s * _MICROS),
        "latest_retry": now + BACKOFF_S[-1] * _MICROS,
    }
    for statement in _CLAMPS:
        session.execute(statement, times)


def clamp_host_timestamps(host_id: str, session: Session, *, clock: Clock) -> None:
    """One host's lease was renewed at the latest now, if it is ahead by more than clocks of servers may be apart.

    Until then its heartbeats would be refused.
    """
    host = require_host(session, host_id, lock=True)
    now = clock.now()
    if is_from_the_future(host.last_heartbeat_at, now):
        host.last_heartbeat_at = now
