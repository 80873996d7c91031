"""One round of the scheduler: looks at each project's queue, starts what has room, and stores it.

Attempt, members and holds of a run are stored in one transaction with its change to PLACED; hosts hear of it later.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline.contracts.states import AttemptState, DeviceState, MemberState, RunState
from drumline_server.lifecycle.transitions import transition_device, transition_run
from drumline_server.scheduling.placement import MemberPlacement, Placement, SchedulingResult, place
from drumline_server.scheduling.snapshot import HEAD_MIN, SchedulingTerms, projects_to_serve, take_snapshot
from drumline_server.storage.database import Database
from drumline_server.storage.history import lock_run, record_event
from drumline_server.storage.models import Attempt, Device, Hold, Host, Member, Run
from drumline_server.storage.notifications import notify

_MICROS = 1_000_000


class _ConflictError(Exception):
    """The run or one of the devices is not what it was: another was first, or a host went away."""


def dispatch(session: Session, placement: Placement, *, claim_s: float, now: int) -> bool:
    """Gives a run its devices. False, with nothing changed, where somebody else was first."""
    try:
        # A savepoint: where another was first, what was added goes, and the caller's transaction stays.
        with session.begin_nested():
            run = lock_run(session, placement.run_id)
            if run is None or run.state != RunState.QUEUED:
                raise _ConflictError
            hosts = _hosts(session, placement)
            attempt = _add_attempt(session, run, claim_s=claim_s, now=now)
            names = [host.name for host in hosts]
            columns = {"fence": attempt.fence, "attempt_id": attempt.id, "hosts": names}
            # The fence rises before a device is held: from here on writes of older attempts are refused.
            if not transition_run(session, run, RunState.PLACED, now=now, columns=columns):
                raise _ConflictError
            devices = _lock_devices(session, placement)
            members = [_add_member(session, attempt, host, rank, now=now) for rank, host in enumerate(hosts)]
            for member, placed in zip(members, placement.members, strict=True):
                _hold_devices(session, member, placed, devices, now=now)
                notify(session, member.host_id)
            _record(session, attempt, members, run, now=now)
    except _ConflictError:
        return False
    return True


def _hosts(session: Session, placement: Placement) -> list[Host]:
    """The gang's hosts by rank, as they are now."""
    ids = [member.host_id for member in placement.members]
    query = select(Host).where(Host.id.in_(ids), *Host.takes_runs())
    hosts = {host.id: host for host in session.scalars(query, execution_options={"populate_existing": True})}
    if len(hosts) != len(ids):
        raise _ConflictError
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
    ids = sorted(each.device_id for member in placement.members for each in member.devices)
    query = select(Device).where(Device.id.in_(ids)).order_by(Device.id).with_for_update()
    return {device.id: device for device in session.scalars(query, execution_options={"populate_existing": True})}


def _hold_devices(
    session: Session, member: Member, placed: MemberPlacement, devices: Mapping[str, Device], *, now: int
) -> None:
    for assigned in placed.devices:
        device = devices[assigned.device_id]
        columns = {"attempt_id": member.attempt_id, "fence": member.fence}
        is_free = device.present and device.state == DeviceState.FREE
        if not is_free or not transition_device(session, device, DeviceState.HELD, columns=columns):
            raise _ConflictError
    session.add_all(
        Hold(
            member_id=member.id,
            device_id=assigned.device_id,
            project_id=member.project_id,
            run_id=member.run_id,
            attempt_id=member.attempt_id,
            fence=member.fence,
            replica=assigned.replica,
            logical=assigned.logical,
            held_at=now,
        )
        for assigned in placed.devices
    )


def _record(session: Session, attempt: Attempt, members: Sequence[Member], run: Run, *, now: int) -> None:
    started = {"attempt": attempt.id, "number": attempt.number, "state": attempt.state}
    record_event(session, run.id, "attempt", started, now=now, attempt_id=attempt.id)
    for member in members:
        joined = {"member": member.id, "host": member.host_id, "state": member.state}
        record_event(session, run.id, "member", joined, now=now, attempt_id=attempt.id)
    planned = {"executor": None, "confirmed": False, "replicas": run.replicas}
    record_event(session, run.id, "placement", planned, now=now, attempt_id=attempt.id)


Guard = Callable[[Session], None]
"""Called first in every transaction; raises where the caller must not write any more."""


def schedule(database: Database, terms: SchedulingTerms, *, now: int, guard: Guard | None = None) -> list[str]:
    """Starts every queued run that has room; returns their ids. Blocks: it is called in a thread of its own.

    `guard` is called in the transaction of each start and raises where another scheduler leads now; None asks nobody.
    """
    placed: list[str] = []
    for project_id in database.read_now(partial(projects_to_serve, silent_since=terms.silent_since(now))):
        look_again = True
        while look_again:
            result = database.read_now(partial(_decide, project_id, terms, now))
            started = 0
            for placement in result.placements:
                # a run or device that is not as it was: another scheduler is at work, or what has changed wakes us
                if not database.write_now(partial(_start, placement, terms, now, guard)):
                    break
                placed.append(placement.run_id)
                started += 1
            look_again = started >= HEAD_MIN  # then there may be more of the same behind the head
    return placed


def _decide(project_id: str, terms: SchedulingTerms, now: int, session: Session) -> SchedulingResult:
    return place(take_snapshot(session, project_id, terms, now=now))


def _start(placement: Placement, terms: SchedulingTerms, now: int, guard: Guard | None, session: Session) -> bool:
    if guard is not None:
        guard(session)
    return dispatch(session, placement, claim_s=terms.claim_s, now=now)
