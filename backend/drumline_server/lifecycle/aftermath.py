"""What follows an end: whether a failed run is tried again, and when; which runs and hosts take others down (P14);
and devices given back: free with proof that their processes are dead, else quarantined.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.orm import Session

from drumline.contracts.reasons import HOST_FAULTS, HOST_LOSSES, REASONS, Category, EndReason
from drumline.contracts.states import (
    DEVICE_TRANSITIONS,
    TERMINAL_MEMBER,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.base.callers import SERVER
from drumline_server.lifecycle.transitions import (
    transition_attempt,
    transition_device,
    transition_member,
    transition_run,
)
from drumline_server.storage import history
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Attempt, Device, Hold, Host, Member, Run
from drumline_server.storage.notifications import QUEUE, announce, host_list, notify
from drumline_server.storage.runs import held_devices, live_attempt, members_of

POISON_HOSTS = 2
"""So many different hosts lost by one run are not chance."""
POISON_ATTEMPTS_ON_ONE_HOST = 3
"""The same for a run that has only one host to run on: so many losses of it."""
QuarantineReason = Literal["lease_ran_out", "death_not_proven"]
"""Why nobody knows whether the holder of a device is dead."""
FREED: dict[str, Any] = {  # Any: columns of a device
    "attempt_id": None,
    "quarantined_at": None,
    "quarantine_reason": None,
    "quarantine_member": None,
    "probed_at": None,
    "probe_message": "",
}
"""What a device no longer has once it is free."""


class _HostLoss(NamedTuple):
    attempt: int
    host_id: str
    host_name: str
    reason: str | None


def poison_message(session: Session, run: Run) -> str | None:
    """What the run has lost so far, if that makes it poison; else None. Of a gang's attempt one host counts."""
    losses = _losses(session, run.id)
    hosts = {loss.host_id for loss in losses}
    if len(hosts) < POISON_HOSTS and not (len(losses) >= POISON_ATTEMPTS_ON_ONE_HOST and _is_only_host(session, run)):
        return None
    told = ", ".join(f"{loss.host_name} (attempt {loss.attempt}, {loss.reason})" for loss in losses)
    return f"Lost {told}."


def _losses(session: Session, run_id: str) -> list[_HostLoss]:
    """The first loss of each attempt, oldest first."""
    query = (
        select(Attempt.number, Member.host_id, Host.name, Member.reason_code)
        .join(Attempt, Attempt.id == Member.attempt_id)
        .join(Host, Host.id == Member.host_id)
        .where(Member.run_id == run_id, Member.reason_code.in_(HOST_LOSSES))
        .order_by(Attempt.number.desc(), Member.ended_at.desc(), Member.rank.desc())
    )
    first = {row.number: _HostLoss(*row) for row in session.execute(query)}
    return [first[number] for number in sorted(first)]


def _is_only_host(session: Session, run: Run) -> bool:
    known = select(Host.id).where(Host.project_id == run.project_id, Host.registered_at.is_not(None)).limit(2)
    return len(session.scalars(known).all()) == 1


BACKOFF_S = (5, 15, 45)
"""Before the first, second, third and every later retry."""
MAX_CONTROL_PLANE_FAILURES = 20
"""Failures of one run by fault of the control plane, before it fails: time enough to repair that."""
_MICROS = 1_000_000
_NO_RATE = {"steps_per_s": None, "examples_per_s": None, "throughput": None, "straggler": None}
"""What no program steps at any more; the step is what the next attempt begins from, or repeats."""
_CONTROL_PLANE_REASONS = [reason for reason, facts in REASONS.items() if facts.category is Category.CONTROL_PLANE]
_UNCOUNTED = frozenset({Category.CAPACITY, Category.POLICY, Category.CONTROL_PLANE})
"""Preemption and a limit are no failure, and what the control plane failed at is not the run's."""


def retry_or_fail(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    """Moves a run whose attempt failed to RETRY_WAIT if its budget allows, else to FAILED. The run is locked.

    An attempt that failed for a cause of the control plane costs nothing of the budget.
    """
    # Before the budget: a run that kills hosts must not get another, however many retries it has left.
    poison = poison_message(session, run) if reason in HOST_LOSSES else None
    if poison is not None:
        message_of = {"reason_message": poison}
        transition_run(session, run, RunState.FAILED, now=now, reason=EndReason.POISON, columns=message_of)
        return
    facts = REASONS[reason]
    by_user = facts.category is Category.USER
    counter = "user_failures" if by_user else "infrastructure_failures"
    failures = int(getattr(run, counter))
    budget = run.retries["user" if by_user else "infrastructure"]
    columns = {"reason_message": message, counter: failures + (facts.category not in _UNCOUNTED)}
    is_spent = failures >= budget and facts.category not in _UNCOUNTED
    if facts.category is Category.CONTROL_PLANE:
        # The count includes this failure, and the backoff begins with none before it.
        failures = max(0, _count_control_plane_failures(session, run) - 1)
        is_spent = failures >= MAX_CONTROL_PLANE_FAILURES
    if not facts.retryable or is_spent:
        transition_run(session, run, RunState.FAILED, now=now, reason=reason, columns=columns)
        return
    backoff_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
    columns |= {"retry_at": now + backoff_s * _MICROS, **_NO_RATE}
    transition_run(session, run, RunState.RETRY_WAIT, now=now, reason=reason, columns=columns)


def requeue(session: Session, run: Run, *, now: int) -> bool:
    """Moves a run back into the queue, from RETRY_WAIT to wait again, or to wait on as its attempt was not claimed.

    A run whose attempt was not claimed keeps its queue deadline.
    """
    queue_s, deadline = run.limits["queue_s"], run.queue_deadline
    if run.state == RunState.RETRY_WAIT and run.attempt_id is not None:
        waited = update(Attempt).where(Attempt.id == run.attempt_id, Attempt.ended_at.is_not(None))
        session.execute(
            waited.values(backoff_us=now - Attempt.ended_at), execution_options={"synchronize_session": False}
        )
    if run.state != RunState.PLACED:
        deadline = None if queue_s is None else now + int(queue_s * _MICROS)
    columns = {"reason_code": None, "reason_message": "", "retry_at": None, "queue_deadline": deadline, **_NO_RATE}
    return transition_run(session, run, RunState.QUEUED, now=now, columns=columns)


def _count_control_plane_failures(session: Session, run: Run) -> int:
    """How many attempts of the run ended so, the present one included."""
    ended = (Attempt.run_id == run.id, Attempt.state != AttemptState.EXPIRED)
    query = select(func.count()).where(*ended, Attempt.reason_code.in_(_CONTROL_PLANE_REASONS))
    return session.scalar(query) or 0


FAULTY_HOST_RUNS = 3
"""So many different runs that failed on a host for reasons that may be its own..."""
FAULT_WINDOW_US = 600 * 1_000_000
"""...within this time are not the runs' fault."""
_MAX_FAILURES_READ = 200
Verdict = Literal["quarantined", "flagged"]
FAULTY_HOSTS = (
    select(Member.host_id)
    .where(Member.reason_code.in_(HOST_FAULTS), Member.ended_at > bindparam("failed_since"))
    .group_by(Member.host_id)
    .having(func.count(Member.run_id.distinct()) >= FAULTY_HOST_RUNS)
)
"""Hosts that `faulty_hosts` looks at more closely; `failed_since` is `fault_window_start`."""


def fault_window_start(now: int) -> int:
    """What failed before that time is forgiven."""
    return now - FAULT_WINDOW_US


def faulty_hosts(session: Session, *, now: int) -> list[str]:
    """Hosts that `quarantine_faulty_host` would quarantine or flag."""
    found = session.scalars(FAULTY_HOSTS.limit(_MAX_FAILURES_READ), {"failed_since": fault_window_start(now)}).all()
    hosts = [session.get_one(Host, host_id) for host_id in found]
    return [host.id for host in hosts if _verdict(session, host, _failures(session, host, now)) is not None]


def quarantine_faulty_host(host_id: str, session: Session, *, now: int) -> None:
    """Quarantines a host on which too many runs failed; the only one with devices of its kind is flagged instead."""
    query = select(Host).where(Host.id == host_id).with_for_update()
    host = session.scalars(query, execution_options={"populate_existing": True}).one()
    failures = _failures(session, host, now)
    verdict = _verdict(session, host, failures)
    if verdict is None:
        return
    host.failures = [_failure_json(member, run) for member, run in failures]
    host.quarantined_at, host.flagged_at = (now, None) if verdict == "quarantined" else (None, now)
    runs = sorted({run.id for _, run in failures})
    for run_id in runs:
        record_event(session, run_id, "host", {"host": host.id, "name": host.name, "state": verdict}, now=now)
    action, project_id = f"host.{verdict}", host.project_id
    history.record_audit(
        session, action, host.id, principal=SERVER, project_id=project_id, now=now, body={"runs": runs}
    )
    announce(session, host_list(host.id), QUEUE)


def _verdict(session: Session, host: Host, failures: Sequence[tuple[Member, Run]]) -> Verdict | None:
    if host.quarantined_at is not None or not _exceeds_fault_limit(failures):
        return None
    if not _is_only_one(session, host):
        return "quarantined"
    return "flagged" if host.flagged_at is None else None


def _failures(session: Session, host: Host, now: int) -> Sequence[tuple[Member, Run]]:
    since = max(fault_window_start(now), host.released_at or 0)
    query = (
        select(Member, Run)
        .join(Run, Run.id == Member.run_id)
        .where(Member.host_id == host.id, Member.ended_at > since, Member.reason_code.in_(HOST_FAULTS))
        .order_by(Member.ended_at.desc(), Member.id)
        .limit(_MAX_FAILURES_READ)
    )
    return [(member, run) for member, run in session.execute(query)]


def _exceeds_fault_limit(failures: Sequence[tuple[Member, Run]]) -> bool:
    """One restart or silence of a host ends all that runs there at one moment, and is one incident."""
    incidents = {(member.ended_at if member.reason_code in HOST_LOSSES else member.id) for member, _ in failures}
    return len({run.id for _, run in failures}) >= FAULTY_HOST_RUNS and len(incidents) >= FAULTY_HOST_RUNS


def _is_only_one(session: Session, host: Host) -> bool:
    """Whether without it some platform has no host left that takes runs."""
    own = select(Device.platform).where(Device.host_id == host.id, Device.present.is_(True)).distinct()
    others = (
        select(Device.platform)
        .join(Host, Host.id == Device.host_id)
        .where(Device.project_id == host.project_id, Device.present.is_(True), Host.id != host.id, *Host.takes_runs())
        .distinct()
    )
    return not set(session.scalars(own)) <= set(session.scalars(others))


def _failure_json(member: Member, run: Run) -> dict[str, Any]:  # Any: JSON of api.HostFailure
    return {"run": run.id, "job": run.job_name, "reason": member.reason_code, "at": member.ended_at}


def free_devices(session: Session, member: Member, *, now: int) -> None:
    """Ends the holds of a member that is dead. Devices that were quarantined for it become free as well."""
    for hold, device in held_devices(session, member.id):
        if _is_held_by(device, hold) and device.state != DeviceState.FREE:
            transition_device(session, device, DeviceState.FREE, columns=FREED)
        _end_holds(hold, now)
    announce(session, QUEUE)


def quarantine_devices(session: Session, member: Member, doubt: QuarantineReason, *, now: int) -> None:
    """Ends the holds of a member that may still be alive: nobody gets its devices before it is proven dead."""
    columns = {"quarantined_at": now, "quarantine_reason": doubt, "quarantine_member": member.id, "probed_at": None}
    for hold, device in held_devices(session, member.id):
        movable = DeviceState.QUARANTINED in DEVICE_TRANSITIONS[DeviceState(device.state)]
        if _is_held_by(device, hold) and movable:
            transition_device(session, device, DeviceState.QUARANTINED, columns=columns)
        _end_holds(hold, now)
    announce(session, QUEUE)


def await_release(session: Session, member: Member) -> None:
    """Marks the member's devices as about to come back: its worker was told to kill it."""
    for hold, device in held_devices(session, member.id):
        if _is_held_by(device, hold) and device.state == DeviceState.HELD:
            transition_device(session, device, DeviceState.RELEASING)


def _end_holds(hold: Hold, now: int) -> None:
    if hold.released_at is None:
        hold.released_at = now


def _is_held_by(device: Device, hold: Hold) -> bool:
    """Whether nobody was given the device after this hold; a quarantined device keeps its last holder."""
    return device.attempt_id == hold.attempt_id and device.fence == hold.fence


def stop_run(session: Session, run: Run, reason: EndReason, *, now: int) -> None:
    """Moves a PLACED or RUNNING run to CANCELLING, and to its end if no member had begun. The run is locked."""
    attempt = live_attempt(session, run.id)
    assert attempt is not None, f"{run.id} is {run.state} without a live attempt"
    transition_run(session, run, RunState.CANCELLING, now=now, columns={"stop_reason": reason})
    # Nobody has claimed it: no process exists whose death would have to be proven first.
    if attempt.state == AttemptState.DISPATCHED and not _has_started(session, attempt):
        end_unstarted_attempt(session, attempt, AttemptState.CANCELLED, reason, now=now)
        message = stopped_by(run) if reason is EndReason.CANCELLED else ""
        columns = {"reason_message": message}
        transition_run(session, run, end_state(reason), now=now, reason=reason, columns=columns)
        return
    for member in members_of(session, attempt.id):
        if member.state == MemberState.PENDING:
            transition_member(session, member, MemberState.FENCED, now=now, reason=reason)
            free_devices(session, member, now=now)
        elif member.state not in TERMINAL_MEMBER:
            notify(session, member.host_id)


def stopped_by(run: Run, told: str = "") -> str:
    """That a run was stopped on request, and by whom; `told` is what its worker says of the same, which knows nobody.

    Without a request, as where a program ends itself as if it were cancelled, `told` as it is.
    """
    if run.cancel_requested_at is None or run.cancel_requested_by is None:
        return told
    sentence = REASONS[EndReason.CANCELLED].sentence
    named = f"{sentence.removesuffix('.')} by {run.cancel_requested_by}."
    return named if told in ("", sentence) else f"{named} {told.removeprefix(sentence).strip()}".rstrip()


def end_state(reason: EndReason) -> RunState:
    """Where a run ends that the server stopped for `reason`."""
    return RunState.CANCELLED if reason is EndReason.CANCELLED else RunState.FAILED


def end_unstarted_attempt(session: Session, attempt: Attempt, to: AttemptState, reason: EndReason, *, now: int) -> None:
    """Ends an attempt that did not come to run. Claimed members are fenced off, and their worker proves their end."""
    for member in members_of(session, attempt.id):
        if member.state in TERMINAL_MEMBER:
            continue
        begun = member.state != MemberState.PENDING
        transition_member(session, member, MemberState.FENCED, now=now)
        if begun:
            await_release(session, member)
        else:
            free_devices(session, member, now=now)
    transition_attempt(session, attempt, to, now=now, reason=reason)


def _has_started(session: Session, attempt: Attempt) -> bool:
    return any(member.state != MemberState.PENDING for member in members_of(session, attempt.id))
