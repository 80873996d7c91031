"""Applies placements: attempt, members and holds of a run in one transaction with its move to PLACED.

The hosts are notified once it has committed.

Everything that the placement took for granted is looked at again under locks, so that any number of schedulers may act
on snapshots as old as they like.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline_server.models import Attempt, Device, Hold, Host, Member, Run
from drumline_server.moves import move_device, move_run
from drumline_server.run_events import lock_run, record_event
from drumline_server.scheduler.placement import MemberSeats, Placement
from drumline_server.wakeups import notify

_MICROS = 1_000_000


class _TakenError(Exception):
    """The run or one of the devices is not what it was: another was first, or a host went away."""


def dispatch(session: Session, placement: Placement, *, claim_s: float, now: int) -> bool:
    """Gives a run its devices. False, with nothing changed, where somebody else was first."""
    try:
        with session.begin_nested():
            _dispatch(session, placement, claim_s=claim_s, now=now)
    except _TakenError:
        return False
    return True


def _dispatch(session: Session, placement: Placement, *, claim_s: float, now: int) -> None:
    run = lock_run(session, placement.run_id)
    if run is None or run.state != RunState.QUEUED:
        raise _TakenError
    hosts = _hosts(session, placement)
    attempt = _add_attempt(session, run, claim_s=claim_s, now=now)
    columns = {
        "fence": attempt.fence,
        "attempt_id": attempt.id,
        "hosts": [host.name for host in hosts],
    }
    if not move_run(session, run, RunState.PLACED, now=now, columns=columns):
        raise _TakenError
    devices = _lock_devices(session, placement)
    members = [_add_member(session, attempt, host, rank, now=now) for rank, host in enumerate(hosts)]
    for member, seats in zip(members, placement.members, strict=True):
        _hold_devices(session, member, seats, devices, now=now)
        notify(session, member.host_id)
    _record(session, attempt, members, run, now=now)


def _hosts(session: Session, placement: Placement) -> list[Host]:
    """The gang's hosts by rank, as they are now."""
    ids = [seats.host_id for seats in placement.members]
    query = select(Host).where(Host.id.in_(ids), *Host.takes_runs())
    hosts = {host.id: host for host in session.scalars(query, execution_options={"populate_existing": True})}
    if len(hosts) != len(ids):
        raise _TakenError
    return [hosts[host_id] for host_id in ids]


def _add_attempt(session: Session, run: Run, *, claim_s: float, now: int) -> Attempt:
    attempt = Attempt(
        id=new_id("att"),
        project_id=run.project_id,
        run_id=run.id,
        number=run.fence + 1,
        fence=run.fence + 1,
        state=AttemptState.DISPATCHED,
        reason_message="",
        created_at=now,
        claim_deadline=now + int(claim_s * _MICROS),
    )
    session.add(attempt)
    session.flush()
    return attempt


def _add_member(session: Session, attempt: Attempt, host: Host, rank: int, *, now: int) -> Member:
    member = Member(
        id=new_id("mem"),
        project_id=attempt.project_id,
        run_id=attempt.run_id,
        attempt_id=attempt.id,
        host_id=host.id,
        rank=rank,
        fence=attempt.fence,
        state=MemberState.PENDING,
        created_at=now,
    )
    session.add(member)
    session.flush()
    return member


def _lock_devices(session: Session, placement: Placement) -> dict[str, Device]:
    """All devices of the gang, in one order for everybody, so that two schedulers never wait for each other."""
    ids = sorted(seat.device_id for seats in placement.members for seat in seats.seats)
    query = select(Device).where(Device.id.in_(ids)).order_by(Device.id).with_for_update()
    return {device.id: device for device in session.scalars(query, execution_options={"populate_existing": True})}


def _hold_devices(
    session: Session, member: Member, seats: MemberSeats, devices: Mapping[str, Device], *, now: int
) -> None:
    for seat in seats.seats:
        device = devices[seat.device_id]
        columns = {"attempt_id": member.attempt_id, "fence": member.fence}
        is_free = device.present and device.state == DeviceState.FREE
        if not is_free or not move_device(session, device, DeviceState.HELD, columns=columns):
            raise _TakenError
    session.add_all(
        Hold(
            member_id=member.id,
            device_id=seat.device_id,
            project_id=member.project_id,
            run_id=member.run_id,
            attempt_id=member.attempt_id,
            fence=member.fence,
            replica=seat.replica,
            logical=seat.logical,
            held_at=now,
        )
        for seat in seats.seats
    )


def _record(session: Session, attempt: Attempt, members: Sequence[Member], run: Run, *, now: int) -> None:
    started = {"attempt": attempt.id, "number": attempt.number, "state": attempt.state}
    record_event(session, run.id, "attempt", started, now=now, attempt_id=attempt.id)
    for member in members:
        joined = {"member": member.id, "host": member.host_id, "state": member.state}
        record_event(session, run.id, "member", joined, now=now, attempt_id=attempt.id)
    planned = {"executor": None, "confirmed": False, "replicas": run.replicas}
    record_event(session, run.id, "placement", planned, now=now, attempt_id=attempt.id)
