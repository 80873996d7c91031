"""How a member lives: handed out once, under the lock of the run's row (P4), then moved by the events that it
reports: phases, progress, the result.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline.contracts.base import is_too_deep, make_storable, to_micros
from drumline.contracts.events import MAX_RESULT_BYTES, GapEvent, ProgressEvent, ResultEvent, StateEvent
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
from drumline_server.lifecycle.transitions import transition_attempt, transition_member, transition_run
from drumline_server.storage.fields import put_fields, result_fields
from drumline_server.storage.history import Loss, record_event, record_gap
from drumline_server.storage.models import Attempt, Host, JobVersion, Member, Run
from drumline_server.storage.notifications import announce, run_list
from drumline_server.storage.runs import assigned_devices, members_of


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
        columns = {
            "incarnation_id": body.incarnation,
            "claimed_at": now,
            "key_hash": key_hash,
            "protocol": host.protocol,
        }
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
    pending = select(Member.id).where(Member.attempt_id == locked.attempt.id, Member.state == MemberState.PENDING)
    if session.scalar(pending.limit(1)) is not None:
        return
    if transition_attempt(session, locked.attempt, AttemptState.CLAIMED, now=now, columns={"claimed_at": now}):
        # Here and not at dispatch: an attempt that nobody claims is not counted.
        locked.run.attempts += 1


def _assignment(session: Session, locked: LockedMember) -> Claimed:
    run, attempt, member = locked.run, locked.attempt, locked.member
    version = session.get_one(JobVersion, run.version_id)
    hosts = _hosts_of(session, attempt)
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
            "devices": _devices(session, attempt, member),
            "rendezvous": _rendezvous(session, attempt, member, hosts),
            "cancel": run.state == RunState.CANCELLING,
            "resume": checkpoints.resume_points(session, run, [host for host, _ in hosts]),
            "resume_from": run.resume_from,
            "takes_times": True,
            "takes_throughput": True,
            "takes_arrivals": True,
            "takes_strips": True,
            "takes_usage": True,
            "takes_whole": True,
            "takes_programs": True,
        }
    )


def _record_for_all(record: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Without what workers of the release before refuse."""
    return {
        **{name: value for name, value in record.items() if name != "large_reductions_every"},
        "profile_every": None,
    }


def _rendezvous(session: Session, attempt: Attempt, member: Member, hosts: Sequence[tuple[str, str]]) -> Rendezvous:
    """The address is told once all members are claimed: nobody starts for a gang that may never be complete.

    Until then every member asks again and again: what grows with the gang is left out.
    """
    if len(hosts) == 1:
        return Rendezvous(rank=0, size=1)
    if attempt.state == AttemptState.DISPATCHED or attempt.coordinator is None:
        return Rendezvous(rank=member.rank, size=len(hosts))
    return Rendezvous(
        rank=member.rank,
        size=len(hosts),
        coordinator=attempt.coordinator,
        devices=_devices(session, attempt),
        hosts=tuple(name for _, name in hosts),
        one_store=checkpoints.share_a_store(session, [host for host, _ in hosts]),
    )


def _devices(session: Session, attempt: Attempt, member: Member | None = None) -> tuple[AssignedDevice, ...]:
    """Of one member or of the whole gang, by replica and logical position."""
    rows = assigned_devices(session, attempt.id, member.id if member else None)
    return tuple(AssignedDevice.model_validate(row) for row in rows)


def _hosts_of(session: Session, attempt: Attempt) -> list[tuple[str, str]]:
    """Id and name of each member's host, by rank."""
    found = select(Host.id, Host.name).join(Member, Member.host_id == Host.id)
    rows = session.execute(found.where(Member.attempt_id == attempt.id).order_by(Member.rank))
    return [(host, name) for host, name in rows]


@dataclass(frozen=True, slots=True)
class TelemetryWrite:
    """A transaction that stores telemetry of one member; the run is locked."""

    session: Session
    run: Run
    attempt: Attempt
    member: Member
    now: int
    causes: Sequence[GapEvent] = ()
    """Gaps in the batch, in their order: they may say why output is lost."""

    @property
    def owner(self) -> dict[str, str]:
        """The columns that say whose a row of telemetry is."""
        return {
            "member_id": self.member.id,
            "attempt_id": self.attempt.id,
            "run_id": self.run.id,
            "project_id": self.run.project_id,
        }

    def record(self, kind: str, body: Mapping[str, Any]) -> None:  # Any: compact JSON of the kind
        """Adds the one event that tells the stream about all of this kind that it stores."""
        record_event(self.session, self.run.id, kind, body, now=self.now, attempt_id=self.attempt.id)


_MICROS = 1_000_000
_LEAST_RATE = 1e-6
"""Steps a second: a step of eleven days is as good as none."""
MAX_NUMBERS = 50
MAX_NAME = 100


def numeric_outcomes(result: JsonValue) -> dict[str, int | float]:
    """Finite numbers in the objects of a result, names joined by dots, the first 50; `result` where it is a number."""
    whole = _as_finite_number(result)
    if whole is not None:
        return {"result": whole}
    numbers: dict[str, int | float] = {}
    for name, value in _walk_numbers(result, ""):
        if len(numbers) == MAX_NUMBERS:
            break
        if len(name) <= MAX_NAME:
            numbers[name] = value
    return numbers


def _walk_numbers(value: JsonValue, prefix: str) -> Iterator[tuple[str, int | float]]:
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        number = _as_finite_number(item)
        if number is not None:
            yield f"{prefix}{name}", number
        else:
            yield from _walk_numbers(item, f"{prefix}{name}.")


def _as_finite_number(value: JsonValue) -> int | float | None:
    """Whole numbers stay whole: from 2**53 on float64 would round them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


_LOADING = frozenset({"starting", "loading", "compiling"})


def apply_status_events(write: TelemetryWrite, events: Sequence[StateEvent]) -> None:
    """Moves the member, and with its gang's last member the attempt and the run, to STARTING and RUNNING."""
    for event in events:
        if event.phase in _LOADING:
            _apply_loading(write, event)
        else:
            _apply_running(write, event)


def apply_progress(write: TelemetryWrite, events: Sequence[ProgressEvent]) -> None:
    """Keeps the newest progress on the member, and of the first member on the run."""
    newest = events[-1]
    write.member.step = newest.step
    write.member.last_collective = newest.last_collective
    # Replicas step together, so rank 0 speaks for the run.
    if write.member.rank:
        return
    body = {
        "step": newest.step,
        "total_steps": newest.total_steps,
        "steps_per_s": _finite_values(newest.steps_per_s),
        "examples_per_s": _finite_values(newest.examples_per_s),
        "throughput": None if newest.throughput is None else newest.throughput.model_dump(mode="json"),
    }
    _update_run(write.session, write.run, {**body, **_advance(write, newest), "progress_at": write.now})
    write.record("progress", body)
    announce(write.session, run_list(write.run.id))


def _advance(write: TelemetryWrite, newest: ProgressEvent) -> dict[str, int | None]:
    """What a run that got further has of it: by this a standstill is found."""
    if newest.step == write.run.step:
        return {}
    rate, started_at = _finite_values(newest.steps_per_s), write.run.started_at
    step_us = int(_MICROS / rate) if rate and rate > _LEAST_RATE else write.run.step_us
    if step_us is None and newest.step and started_at is not None:
        # A few quick steps have no rate yet: what they took, with the building before them, is more than usual.
        step_us = max(0, write.now - started_at) // newest.step
    return {"advanced_at": write.now, "step_us": step_us, "stalled_at": None}


def apply_result(write: TelemetryWrite, events: Sequence[ResultEvent]) -> None:
    """Keeps what the first member's `main` returned; one over the cap, or too deep, leaves a gap instead."""
    if write.member.rank:
        return
    value, not_finite = events[-1].value, events[-1].not_finite
    if is_too_deep(value) or len(to_json(value := make_storable(value))) > MAX_RESULT_BYTES:
        record_gap(write.session, write.member, Loss("result", 1, detail="too large or too deep"), now=write.now)
        return
    columns = {"result": {"value": value}, "outcomes": numeric_outcomes(value), "not_finite": not_finite or None}
    _update_run(write.session, write.run, columns)
    put_fields(write.session, write.run.project_id, {write.run.number: result_fields(value, not_finite or {})})
    write.record("result", {"value": value})


def _apply_loading(write: TelemetryWrite, event: StateEvent) -> None:
    member, attempt = write.member, write.attempt
    columns = {"phase": event.phase}
    if member.state == MemberState.CLAIMED:
        transition_member(write.session, member, MemberState.STARTING, now=write.now, columns=columns)
    else:
        _record_phase(write, event)
    if attempt.state == AttemptState.CLAIMED:
        transition_attempt(write.session, attempt, AttemptState.STARTING, now=write.now)


def _apply_running(write: TelemetryWrite, event: StateEvent) -> None:
    member = write.member
    if member.state in (MemberState.CLAIMED, MemberState.STARTING):
        columns = {"phase": event.phase, "started_at": write.now}
        transition_member(write.session, member, MemberState.RUNNING, now=write.now, columns=columns)
    else:
        _record_phase(write, event)
    if all(
        other.state == MemberState.RUNNING or (other.state in TERMINAL_MEMBER and other.phase != "")
        for other in members_of(write.session, write.attempt.id)
    ):
        _start_attempt(write, event)


def _start_attempt(write: TelemetryWrite, event: StateEvent) -> None:
    """The program runs, or ran before its worker could say so: the report of an end overtakes telemetry."""
    attempt, run = write.attempt, write.run
    # By the worker's clock, which may be off: kept between two times of the server's.
    started_at = min(write.now, max(to_micros(event.at), attempt.claimed_at or 0))
    if attempt.state in (AttemptState.CLAIMED, AttemptState.STARTING):
        columns = {"started_at": started_at}
        transition_attempt(write.session, attempt, AttemptState.RUNNING, now=write.now, columns=columns)
    elif attempt.started_at is None:
        attempt.started_at = started_at
    if run.state == RunState.PLACED:
        fresh: dict[str, int | None] = {
            "started_at": started_at,
            "advanced_at": None,
            "step_us": None,
            "stalled_at": None,
        }
        transition_run(write.session, run, RunState.RUNNING, now=write.now, columns={"started_at": started_at, **fresh})


def _record_phase(write: TelemetryWrite, event: StateEvent) -> None:
    """A phase that is no state of its own; after the end it is only kept."""
    if write.member.phase == event.phase:
        return
    write.member.phase = event.phase
    body = {
        "member": write.member.id,
        "host": write.member.host_id,
        "state": write.member.state,
        "phase": event.phase,
    }
    write.record("member", body)


def _update_run(session: Session, run: Run, values: dict[str, object]) -> None:
    session.execute(update(Run).where(Run.id == run.id).values(**values))


def _finite_values(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
