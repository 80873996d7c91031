"""A worker introduces itself: a new incarnation of its host, with its devices and what it finds alive."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import SecretStr
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline.contracts.base import from_micros, new_id
from drumline.contracts.heartbeats import queue_name
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_MEMBER, DeviceState, MemberState
from drumline.contracts.worker_api import OLDEST_PROTOCOL, PROTOCOL_VERSION, DeviceReport, Register, Registered
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import VERSION, Settings
from drumline_server.lifecycle import finish
from drumline_server.lifecycle.aftermath import FREED
from drumline_server.lifecycle.guard import (
    LockedMember,
    describe_other_incarnation,
    lock_member,
    require_clock,
    require_host,
)
from drumline_server.lifecycle.transitions import transition_device
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Device, Hold, Host, Incarnation, Member
from drumline_server.storage.notifications import QUEUE, announce, host_list


class RegistrationKind(StrEnum):
    """What lies between an incarnation and a registration after it."""

    RESTART = "restart"
    """The worker started again and has looked: members that it did not find are dead."""
    REBOOT = "reboot"
    """The machine rebooted: no process from before lives."""
    MOVE = "move"
    """Another machine, or another data directory, has the host's identity now: nothing is known of the one before."""


def registration_kind(older: Incarnation | None, body: Register) -> RegistrationKind:
    """A worker that does not say where it is, or succeeds one that did not, may be anywhere."""
    if older is None:
        return RegistrationKind.RESTART
    if not body.place or older.place != body.place:
        return RegistrationKind.MOVE
    return RegistrationKind.RESTART if older.boot_id == body.boot_id else RegistrationKind.REBOOT


Key = tuple[str, int]
_STATES_IN_DOUBT = {
    RegistrationKind.REBOOT: frozenset[DeviceState](),
    RegistrationKind.RESTART: frozenset({DeviceState.QUARANTINED}),
    RegistrationKind.MOVE: frozenset({DeviceState.QUARANTINED, DeviceState.RELEASING}),
}
"""States of devices whose last holder may live: a restarted worker has looked, but a process may hide from it."""


def record_inventory(
    session: Session,
    host: Host,
    reports: Sequence[DeviceReport],
    holders: set[str],
    change: RegistrationKind,
    *,
    now: int,
) -> list[str]:
    """Stores the inventory and returns ids in the order of `reports`.

    Frees held devices whose holder is not among the members `holders`. Quarantined ones need a probe, unless the
    machine has rebooted.
    Raises DrumlineError invalid_request for a device that is listed twice.
    """
    known = {(device.platform, device.position): device for device in _devices(session, host)}
    listed: dict[Key, DeviceReport] = {(report.platform, report.index): report for report in reports}
    if len(listed) != len(reports):
        raise DrumlineError(ProblemCode.INVALID_REQUEST, "devices: one of them is listed twice.")
    for key, device in known.items():
        device.present = key in listed
    session.flush()
    _free_unheld(session, host, known.values(), holders, _STATES_IN_DOUBT[change], now=now)
    return [_upsert(session, host, report, known).id for report in reports]


def _devices(session: Session, host: Host) -> Sequence[Device]:
    query = select(Device).where(Device.host_id == host.id)
    return session.scalars(query, execution_options={"populate_existing": True}).all()


def _free_unheld(
    session: Session,
    host: Host,
    devices: Iterable[Device],
    holders: set[str],
    unseen: frozenset[DeviceState],
    *,
    now: int,
) -> None:
    kept = _devices_in_use(session, host, holders)
    for device in devices:
        if device.state not in (DeviceState.FREE, *unseen) and device.id not in kept:
            transition_device(session, device, DeviceState.FREE, columns=FREED)
            open_hold = (Hold.device_id == device.id, Hold.released_at.is_(None))
            session.execute(update(Hold).where(*open_hold).values(released_at=now))


def _devices_in_use(session: Session, host: Host, holders: set[str]) -> set[str]:
    """Devices whose holder is or may be alive, or has not begun and will."""
    query = (
        select(Device.id)
        .join(Hold, (Hold.device_id == Device.id) & (Hold.attempt_id == Device.attempt_id))
        .join(Member, Member.id == Hold.member_id)
        .where(Device.host_id == host.id, (Member.state == MemberState.PENDING) | Member.id.in_(holders))
    )
    return set(session.scalars(query))


def _upsert(session: Session, host: Host, report: DeviceReport, known: dict[Key, Device]) -> Device:
    device = known.get((report.platform, report.index))
    if device is None:
        device = Device(
            id=new_id("dev"),
            project_id=host.project_id,
            host_id=host.id,
            platform=report.platform,
            position=report.index,
            state=DeviceState.FREE,
            fence=0,
        )
        session.add(device)
    device.present = True
    device.kind = report.kind
    device.memory_bytes = report.memory_bytes
    device.coords = None if report.coords is None else list(report.coords)
    device.core_on_chip = report.core_on_chip
    device.simulated = report.simulated
    session.flush()
    return device


@dataclass(frozen=True, slots=True)
class WorkerTerms:
    """What the server tells every worker."""

    broker_url: str | None
    heartbeat_s: float
    takeover_s: float
    """Both in force, `time_scale` included."""
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class _Lease:
    """The lease that the host had before this registration."""

    last_heartbeat_at: int
    takeover_s: float


def worker_terms(settings: Settings) -> WorkerTerms:
    """The terms as the settings have them."""
    times = settings.times
    return WorkerTerms(settings.broker, times.heartbeat_s, times.takeover_s, times.scale)


def register(session: Session, host_id: str, body: Register, terms: WorkerTerms, *, now: int) -> Registered:
    """Begins an incarnation: every older one is refused from now on.

    Members that the worker found alive continue under it. Others that had begun are lost and their devices free, unless
    the host's identity has moved: then they are lost when the lease of their own incarnation is over.
    Raises NotFoundError; DrumlineError conflict for a protocol that this server does not speak, fenced for one that
    does not know the incarnation that it would replace, and as `require_clock`.
    """
    require_protocol(body.protocol, f"The worker on host {body.name}", body.version)
    host = require_host(session, host_id, lock=True)
    require_clock(host.last_heartbeat_at, now=now)
    _require_order(session, host, body)
    change = registration_kind(session.get(Incarnation, host.incarnation_id) if host.incarnation_id else None, body)
    # Before `_begin_incarnation` overwrites both: what is left behind keeps the lease that it was promised.
    lease = _Lease(host.last_heartbeat_at or now, max(terms.takeover_s, host.takeover_s or 0.0))
    incarnation = _begin_incarnation(session, host, body, now=now)
    alive = _adopt_members(session, host, body, incarnation, now=now)
    left = _lose_unlisted_members(session, host, body, alive, lease, now=now)
    _promise_takeover(host, terms, has_old_shims=bool(alive))
    # Last: which devices are free depends on which members were lost or kept above.
    devices = record_inventory(session, host, body.devices, alive | left, change, now=now)
    announce(session, host_list(host.id), QUEUE)
    return Registered(
        host=host.id,
        incarnation=incarnation,
        devices=tuple(devices),
        queue=queue_name(host.id),
        broker_url=None if terms.broker_url is None else SecretStr(terms.broker_url),
        heartbeat_s=terms.heartbeat_s,
        takeover_s=terms.takeover_s,
        time_scale=terms.time_scale,
        server_version=VERSION,
        protocol=PROTOCOL_VERSION,
    )


def require_protocol(protocol: int, worker: str = "The worker", version: str = "") -> None:
    """Raises DrumlineError conflict, naming both versions and the side that is to be upgraded."""
    if OLDEST_PROTOCOL <= protocol <= PROTOCOL_VERSION:
        return
    if protocol > PROTOCOL_VERSION:
        mend = f"Upgrade the server to drumline {version} first; it also serves workers of the version before."
    else:
        mend = f"Upgrade {worker[:1].lower()}{worker[1:]} to drumline {VERSION}."
    told = f" (drumline {version})" if version else ""
    raise DrumlineError(
        ProblemCode.CONFLICT,
        f"{worker}{told} speaks protocol {protocol}, this server (drumline {VERSION}) {OLDEST_PROTOCOL} to "
        f"{PROTOCOL_VERSION}.",
        hint=mend,
        context={"protocol": PROTOCOL_VERSION},
    )


def _require_order(session: Session, host: Host, body: Register) -> None:
    """A registration that was under way while a newer one was taken would lose what that one's worker has begun."""
    if body.replaces is None or host.incarnation_id is None or body.replaces == host.incarnation_id:
        return
    raise DrumlineError(
        ProblemCode.FENCED,
        f"The newest incarnation of host {host.name} is {host.incarnation_id}, not {body.replaces or 'unknown'}.",
        hint="Register again with replaces set to the newest incarnation.",
        context=describe_other_incarnation(session, host, body.replaces),
    )


def _begin_incarnation(session: Session, host: Host, body: Register, *, now: int) -> str:
    fresh = new_id("inc")
    session.execute(
        update(Incarnation).where(Incarnation.host_id == host.id, Incarnation.ended_at.is_(None)).values(ended_at=now)
    )
    session.add(
        Incarnation(
            id=fresh,
            project_id=host.project_id,
            host_id=host.id,
            boot_id=body.boot_id,
            place=body.place,
            registered_at=now,
        )
    )
    host.incarnation_id = fresh
    host.boot_id = body.boot_id
    host.version = body.version
    host.protocol = body.protocol
    host.jax_version = body.jax_version
    host.cpu_count = body.cpu_count
    host.memory_bytes = body.memory_bytes
    host.checkpoint_store = body.checkpoint_store
    host.slice_name, host.slice_topology = ("", "") if body.slice is None else (body.slice.name, body.slice.topology)
    host.warnings = [warning.model_dump() for warning in body.notices]
    host.registered_at = now
    # Never earlier: another server's clock may have granted a lease that ends later.
    host.last_heartbeat_at = max(now, host.last_heartbeat_at or 0)
    host.draining = False
    host.suspect_since = None
    host.lost_at = None
    session.flush()
    return fresh


def _promise_takeover(host: Host, terms: WorkerTerms, *, has_old_shims: bool) -> None:
    """Shims that live on know the T of their start only: none of them may be taken over before it."""
    host.takeover_s = max(terms.takeover_s, (host.takeover_s or 0.0) if has_old_shims else 0.0)


def _adopt_members(session: Session, host: Host, body: Register, incarnation: str, *, now: int) -> set[str]:
    """Members found alive that are still wanted, bound to the new incarnation. The others its heartbeat will fence.

    None survives a reboot, whatever is said.
    """
    adopted = set()
    for found in body.members:
        owner = session.scalar(select(Member.host_id).where(Member.id == found.member))
        if owner != host.id:
            continue
        locked = lock_member(session, host.id, found.member)
        older = session.get(Incarnation, locked.member.incarnation_id or "")
        if older is not None and older.boot_id != body.boot_id:
            continue
        current = locked.member.fence == found.fence == locked.run.fence and locked.member.state not in TERMINAL_MEMBER
        if current and locked.member.attempt_id == found.attempt:
            locked.member.incarnation_id = incarnation
            locked.member.pid = found.pid
            session.flush()
        # A stale one too: it is alive, so its devices stay taken until the heartbeat has fenced it.
        adopted.add(found.member)
    return adopted


def _lose_unlisted_members(
    session: Session, host: Host, body: Register, alive: set[str], lease: _Lease, *, now: int
) -> set[str]:
    """Marks started members that are dead as lost. Returns those that may live elsewhere, left to their lease."""
    left = set()
    for member_id in _started_members(session, host):
        if member_id in alive:
            continue
        locked = lock_member(session, host.id, member_id)
        older = session.get_one(Incarnation, locked.member.incarnation_id)
        change = registration_kind(older, body)
        if change is RegistrationKind.MOVE:
            _keep_lease_of_moved(session, host, locked, older, lease, now=now)
            left.add(member_id)
        else:
            proven_dead = change is RegistrationKind.REBOOT or member_id not in body.unproven
            reason = _reason_of_loss(locked.member, body)
            finish.mark_member_lost(
                session, locked.run, locked.attempt, locked.member, reason, proven_dead=proven_dead, now=now
            )
    return left


def _reason_of_loss(member: Member, body: Register) -> EndReason:
    """What its worker had not started is not counted as a failure: the worker lives and only had to register again."""
    never_began = member.state == MemberState.CLAIMED and not member.acked_seq
    return EndReason.NOT_STARTED if never_began and member.id in body.unstarted else EndReason.HOST_REBOOTED


def _keep_lease_of_moved(
    session: Session, host: Host, locked: LockedMember, older: Incarnation, lease: _Lease, *, now: int
) -> None:
    """Lets the lease of the older incarnation run out as it was promised; no heartbeat renews it."""
    if older.last_heartbeat_at is None:
        older.last_heartbeat_at, older.takeover_s = lease.last_heartbeat_at, lease.takeover_s
        session.flush()
    until = from_micros(older.lease_ends_at() or now).isoformat()
    body = {"host": host.id, "name": host.name, "state": "moved", "until": until}
    record_event(session, locked.run.id, "host", body, now=now, attempt_id=locked.attempt.id)


def _started_members(session: Session, host: Host) -> list[str]:
    begun = (MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING)
    query = select(Member.id).where(Member.host_id == host.id, Member.state.in_(begun))
    return list(session.scalars(query.order_by(Member.id)))
