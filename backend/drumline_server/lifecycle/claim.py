"""Hands members out: under the lock of the run's row the first claim of a member has it (P4)."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline.contracts.worker_api import AssignedDevice, Claim, Claimed, Rendezvous
from drumline_server.base.callers import digest
from drumline_server.base.errors import FencedError
from drumline_server.lifecycle import checkpoints
from drumline_server.lifecycle.guard import (
    LockedMember,
    lock_member,
    require_fence,
    require_incarnation,
    require_key,
    require_same_incarnation,
)
from drumline_server.lifecycle.transitions import transition_attempt, transition_member
from drumline_server.storage.models import Attempt, Host, JobVersion, Member
from drumline_server.storage.runs import held_devices, members_of


def claim(session: Session, host_id: str, member_id: str, body: Claim, *, now: int) -> Claimed:
    """Gives a member to the incarnation that asks first; the same asker again gets the same answer.

    Raises NotFoundError; FencedError for a member that is not to be run any more; as `require_key` for another key.
    """
    host = require_incarnation(session, host_id, body.incarnation, keep=True)  # a registration looks for claims
    # Host before run, as registrations lock them: in another order two could wait for each other. From here on no other
    # claim, cancel or expiry of the run comes between what is read and what is written.
    locked = lock_member(session, host_id, member_id)
    require_fence(locked, body.fence)
    member = locked.member
    if member.state in TERMINAL_MEMBER:
        raise FencedError(member.id, body.fence, locked.run.fence)
    if member.state == MemberState.PENDING:
        key_hash = None if body.key is None else digest(body.key.get_secret_value())
        columns = {"incarnation_id": body.incarnation, "claimed_at": now, "key_hash": key_hash}
        transition_member(session, member, MemberState.CLAIMED, now=now, columns=columns)
        if host.lost_at is not None:  # it was given up for lost: without a lease it would hold the member for ever
            host.last_heartbeat_at, host.lost_at = max(now, host.last_heartbeat_at or 0), None
            session.flush()
        _claim_attempt(session, locked, now=now)
    else:
        # Claimed before, and the answer was lost: the same worker hears it again, an older one is refused.
        require_same_incarnation(locked, body.incarnation)
        require_key(locked, body.key)
    # Told once: members that heard the first address are on their way to it.
    if body.coordinator is not None and member.rank == 0 and locked.attempt.coordinator is None:
        locked.attempt.coordinator = body.coordinator
        session.flush()
    return _assignment(session, locked)


def _claim_attempt(session: Session, locked: LockedMember, *, now: int) -> None:
    """The attempt is claimed, and counts, in the transaction of its last member."""
    if locked.attempt.state != AttemptState.DISPATCHED:
        return
    if any(member.state == MemberState.PENDING for member in members_of(session, locked.attempt.id)):
        return
    if transition_attempt(session, locked.attempt, AttemptState.CLAIMED, now=now, columns={"claimed_at": now}):
        # Here and not at dispatch: an attempt that nobody claims is not counted.
        locked.run.attempts += 1


def _assignment(session: Session, locked: LockedMember) -> Claimed:
    run, attempt, member = locked.run, locked.attempt, locked.member
    version = session.get_one(JobVersion, run.version_id)
    gang = members_of(session, attempt.id)
    devices = _devices_of(session, member)
    return Claimed.model_validate(
        {
            "member": member.id,
            "attempt": attempt.id,
            "run": run.id,
            "version": version.id,
            "job_name": run.job_name,
            "fence": member.fence,
            "attempt_number": attempt.number,
            "bundle": version.bundle,
            "entrypoint": version.entrypoint,
            "strategy": version.strategy,
            "record": _record_for_all(version.record),
            "profile_every": version.record.get("profile_every"),
            "large_reductions_every": version.record.get("large_reductions_every"),
            "checkpoint": version.checkpoint,
            "parameters": run.parameters,
            "limits": run.limits,
            "replicas": run.replicas,
            "devices": tuple(devices),
            "rendezvous": _rendezvous(session, attempt, member, gang),
            "cancel": run.state == RunState.CANCELLING,
            "resume": checkpoints.resume_points(session, run, [each.host_id for each in gang]),
            "resume_from": run.resume_from,
            "takes_times": True,
            "takes_throughput": True,
            "takes_arrivals": True,
            "takes_strips": True,
        }
    )


def _record_for_all(record: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Without what workers of the release before refuse."""
    return {
        **{name: value for name, value in record.items() if name != "large_reductions_every"},
        "profile_every": None,
    }


def _rendezvous(session: Session, attempt: Attempt, member: Member, gang: Sequence[Member]) -> Rendezvous:
    """The address is told once all members are claimed: nobody starts for a gang that may never be complete."""
    if len(gang) == 1:
        return Rendezvous(rank=0, size=1)
    devices = [device for each in gang for device in _devices_of(session, each)]
    return Rendezvous(
        rank=member.rank,
        size=len(gang),
        coordinator=None if attempt.state == AttemptState.DISPATCHED else attempt.coordinator,
        devices=tuple(sorted(devices, key=lambda device: (device.replica, device.logical))),
        hosts=tuple(_host_names(session, gang)),
        one_store=checkpoints.share_a_store(session, [each.host_id for each in gang]),
    )


def _devices_of(session: Session, member: Member) -> list[AssignedDevice]:
    return [
        AssignedDevice.model_validate(
            {
                "device": device.id,
                "platform": device.platform,
                "index": device.position,
                "replica": hold.replica,
                "logical": hold.logical,
                "rank": member.rank,
                "simulated": device.simulated,
                "coords": device.coords,
                "core_on_chip": device.core_on_chip,
            }
        )
        for hold, device in held_devices(session, member.id)
    ]


def _host_names(session: Session, members: Sequence[Member]) -> list[str]:
    names = dict(
        session.execute(select(Host.id, Host.name).where(Host.id.in_({member.host_id for member in members}))).all()
    )
    return [names[member.host_id] for member in members]
