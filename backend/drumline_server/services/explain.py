"""The rule by which a run waits: from the fleet and the queue as they are; and of a run whose devices are given:
claims, the start, its own stopping, the last of its telemetry.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.programs import WAITING_FOR_TELEMETRY
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import (
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    AttemptState,
    MemberState,
    RunState,
)
from drumline.slices import MAX_SIMULATED_DEVICES
from drumline.wording import name_some, plural, size_text
from drumline_server.base.shapes import Shape
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import (
    HostCapacity,
    PlatformCapacity,
    best_platform,
    capacities,
    describe_need,
    describe_room,
    room,
)
from drumline_server.storage import runs
from drumline_server.storage.models import Attempt, Host, Incarnation, Member, Run

_SENTENCES = {
    "quarantined": "{host} has devices for it, but is quarantined: run after run failed there.",
    "draining": "{host} has devices for it, but takes no more runs: it is being drained.",
    "lost": "{host} has devices for it, but has fallen silent.",
}
_REMEDIES = {
    "quarantined": "Look at {host}, then release it: `drumline hosts release {host}`, or on the Devices page.",
    "draining": "`drumline hosts undrain {host}` lets it take runs again, if its worker is to stay.",
    "lost": "Start the worker of {host} again.",
}
_RULES: dict[str, Literal["host_quarantined", "host_draining", "host_lost"]] = {
    "quarantined": "host_quarantined",
    "draining": "host_draining",
    "lost": "host_lost",
}
Row = tuple[Member, str]
"""A member and the name of its host."""
Rule = Literal["finishing", "stopping", "claiming", "starting", "telemetry"]


def why_out_of_service(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    """The rule, if the run would have room but for quarantine, drain or silence; `hosts` have its platform."""
    in_service = [host for host in hosts if host.out_of_service is None]
    if room(in_service, shape, lambda host: host.devices) < shape.replicas:
        return _why_host(hosts, shape)
    if room(in_service, shape, lambda host: host.free) >= shape.replicas:
        return None
    return _why_devices(in_service, shape)


def _why_host(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    out = [host for host in hosts if host.out_of_service is not None]
    large_enough = [host for host in out if host.devices >= shape.devices]
    host = min(large_enough or out, key=lambda host: [*_RULES].index(str(host.out_of_service)), default=None)
    if host is None:
        return None
    state = str(host.out_of_service)
    return api.Why(
        rule=_RULES[state],
        sentence=_SENTENCES[state].format(host=host.host_name),
        evidence={"wanted": shape.devices, "host": host.host_name, "devices": host.devices},
        remedy=_REMEDIES[state].format(host=host.host_name),
    )


def _why_devices(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    if room(hosts, shape, lambda host: host.free + host.quarantined) < shape.replicas:
        return None
    host = max(hosts, key=lambda host: (host.quarantined > 0, host.free + host.quarantined))
    return api.Why(
        rule="devices_quarantined",
        sentence=f"Needs {describe_need(shape)}; {host.host_name} has {host.free} free and {host.quarantined} "
        "quarantined, as their last run is not proven dead.",
        evidence={"wanted": shape.devices, "free": host.free, "quarantined": host.quarantined, "host": host.host_name},
        remedy="Its worker probes them; if you know that the run is dead, release them on the Devices page or with "
        f"`drumline hosts release {host.host_name} --device PLATFORM:INDEX`.",
    )


def why_queued(shape: Shape, fleet: Sequence[HostCapacity]) -> api.Why:
    """What blocks a queued run of that shape without checkpoints, before the scheduler is asked."""
    fitting = [host for host in fleet if shape.platform in ("any", host.platform)]
    if not fitting:
        return _why_no_devices(shape, fleet)
    possible = best_platform(fitting, shape)
    if possible.replicas < shape.replicas:
        return _why_too_few(shape, possible)
    if capacity.too_many_simulated(fitting, shape):
        return _why_simulated(shape)
    return why_out_of_service(fitting, shape) or _why_busy(fitting, shape)


def why_by_state(session: Session, run: Run, now: int) -> api.Why | None:
    """The rule that blocks a run, whatever checkpoints it has; None for one that does not wait."""
    match run.state:
        case RunState.QUEUED:
            return why_queued(Shape.parse(run.shape), capacities(session, run.project_id))
        case RunState.RETRY_WAIT:
            return _why_backoff(run, now)
        case RunState.PLACED | RunState.RUNNING | RunState.CANCELLING:
            return why_attempt(session, run, now=now)
    return None


def _why_too_few(shape: Shape, possible: PlatformCapacity) -> api.Why:
    evidence: dict[str, JsonValue] = {"wanted": shape.devices, "largest": possible.largest}
    most = plural(possible.replicas, "replica")
    nearest = f"Submit it with at most {most}, or start" if possible.replicas else "Start"
    return api.Why(
        rule="too_few_devices",
        sentence=f"Needs {describe_need(shape)}, but {describe_room(shape, possible)}.",
        evidence={**evidence, "host": possible.hosts[0].host_name} if possible.hosts else evidence,
        remedy=f"{nearest} a worker with more devices.",
    )


def _why_simulated(shape: Shape) -> api.Why:
    return api.Why(
        rule="too_few_devices",
        sentence=f"Needs {plural(shape.devices, 'device')}; simulated devices compute for runs of at most "
        f"{MAX_SIMULATED_DEVICES}.",
        evidence={"wanted": shape.devices, "most": MAX_SIMULATED_DEVICES},
        remedy="Submit it with fewer replicas, or start workers on machines that have the devices.",
    )


def _why_busy(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why:
    in_service = [host for host in hosts if host.out_of_service is None]
    freest = max(in_service, key=lambda host: host.free)
    free = freest.free if shape.is_one_host else sum(host.free for host in in_service)
    where = freest.host_name if shape.is_one_host or len(in_service) == 1 else f"the {len(in_service)} hosts"
    evidence: dict[str, JsonValue] = {"wanted": shape.devices, "free": free, "host": freest.host_name}
    if room(in_service, shape, lambda host: host.free) < shape.replicas:
        verb = "has" if where == freest.host_name else "have"
        return api.Why(
            rule="devices_busy",
            sentence=f"Needs {describe_need(shape)}; {where} {verb} {plural(free, 'device')} free.",
            evidence=evidence,
            remedy="It starts when enough devices are free; cancel a running run, or submit it with fewer replicas.",
        )
    if capacity.lacks_box(in_service, shape):
        return api.Why(
            rule="devices_busy",
            sentence=f"Needs {describe_need(shape)} side by side on the slice; {plural(free, 'device')} are free, and "
            "no box of them is large enough.",
            evidence=evidence,
            remedy="It starts when runs beside the free devices have ended; or submit it with fewer replicas.",
        )
    return api.Why(rule="starting", sentence="Devices are free; the scheduler looks at it next.", evidence=evidence)


def _why_no_devices(shape: Shape, fleet: Sequence[HostCapacity]) -> api.Why:
    if not fleet:
        return api.Why(
            rule="no_hosts",
            sentence="No worker with a device has registered.",
            remedy="Start a worker: `drumline worker run` on a machine with devices.",
        )
    platforms = sorted({host.platform for host in fleet})
    return api.Why(
        rule="no_such_platform",
        sentence=f"Wants {shape.platform} devices; the hosts have {', '.join(platforms)}.",
        evidence={"platform": shape.platform, "available": list(platforms)},
        remedy=f"Submit it with platform {platforms[0]}{'' if shape.blocks else ' or any'}, or start a worker with "
        f"{shape.platform} devices.",
    )


def _why_backoff(run: Run, now: int) -> api.Why:
    retry_at = run.retry_at or now
    return api.Why(
        rule="retry_backoff",
        sentence=f"Failed ({run.reason_code}); tries again in {max(0, retry_at - now) / 1e6:.0f} s.",
        evidence={"retry_at": from_micros(retry_at).isoformat(), "attempts": run.attempts},
    )


def why_attempt(session: Session, run: Run, *, now: int) -> api.Why | None:
    """The rule for a run that is placed, stopping, finishing or cut off from its host; None for one that runs."""
    query = select(Attempt).where(Attempt.id == run.attempt_id, Attempt.state.not_in(TERMINAL_ATTEMPT))
    attempt = session.scalar(query)
    if attempt is None:
        return None
    moved = _why_moved(session, attempt, now)
    if moved is not None:
        return moved
    members = _members(session, attempt)
    match rule_of_attempt(run.state, attempt.state):
        case "finishing":
            return _why_finishing(members)
        case "stopping":
            return _why_stopping(run, members)
        case "claiming":
            return _why_unclaimed(attempt, members, now)
        case "starting":
            sentence = "Has its devices; the workers are starting it."
            return api.Why(rule="starting", sentence=sentence, evidence={"hosts": list(run.hosts)})
    return _why_made_to_wait(members)


def rule_of_attempt(run_state: str, attempt_state: str, *, is_made_to_wait: bool = False) -> Rule | None:
    """The rule for a run in that state with a live attempt in that one; None for one that runs.

    `is_made_to_wait` says whether a program of it waits for its telemetry to be taken.
    """
    if attempt_state == AttemptState.FINISHING:
        return "finishing"
    if run_state == RunState.CANCELLING:
        return "stopping"
    if run_state == RunState.RUNNING and is_made_to_wait:
        return "telemetry"
    if run_state != RunState.PLACED:
        return None
    return "claiming" if attempt_state == AttemptState.DISPATCHED else "starting"


def _members(session: Session, attempt: Attempt) -> list[Row]:
    query = (
        select(Member, Host.name)
        .join(Host, Host.id == Member.host_id)
        .where(Member.attempt_id == attempt.id)
        .order_by(Member.rank)
    )
    return [(member, name) for member, name in session.execute(query)]


def _why_moved(session: Session, attempt: Attempt, now: int) -> api.Why | None:
    """For members that may be alive on a machine, or in a data directory, that their host has moved from."""
    query = (
        select(Host.name, Incarnation)
        .join(Member, Member.host_id == Host.id)
        .join(Incarnation, Incarnation.id == Member.incarnation_id)
        .where(Member.attempt_id == attempt.id, *runs.is_left_behind())
        .order_by(Member.rank)
    )
    left = [(name, incarnation.lease_ends_at() or now) for name, incarnation in session.execute(query)]
    if not left:
        return None
    hosts, until = [name for name, _ in left], max(ends_at for _, ends_at in left)
    return api.Why(
        rule="host_moved",
        sentence=f"{name_some(hosts)} has moved to another machine or data directory, and the program may be alive "
        f"where it was: counts as dead in {max(0, until - now) / 1e6:.0f} s.",
        evidence={"hosts": list(hosts), "until": from_micros(until).isoformat()},
        remedy="Nothing has to be done: it resumes then, or as soon as the worker of before proves the program's end.",
    )


def _why_unclaimed(attempt: Attempt, members: Sequence[Row], now: int) -> api.Why:
    absent = [name for member, name in members if member.state == MemberState.PENDING]
    left_s = max(0, attempt.claim_deadline - now) / 1e6
    return api.Why(
        rule="claiming",
        sentence=f"Has its devices; waits for the worker of {name_some(absent)} to take it.",
        evidence={"missing": list(absent), "members": len(members)},
        remedy=f"If that does not happen within {left_s:.0f} s, it goes back into the queue.",
    )


def _by_whom(run: Run) -> str:
    asked = run.stop_reason == EndReason.CANCELLED and run.cancel_requested_by is not None
    return f" by {run.cancel_requested_by}" if asked else ""


def _why_stopping(run: Run, members: Sequence[Row]) -> api.Why:
    alive = [name for member, name in members if member.state not in TERMINAL_MEMBER]
    grace_s = run.limits["grace_s"] if run.cancel_grace_s is None else run.cancel_grace_s
    return api.Why(
        rule="stopping",
        sentence=f"Was asked to stop{_by_whom(run)}; waits for the program on {name_some(alive)} to end.",
        evidence={
            "hosts": list(alive),
            "grace_s": grace_s,
            "since": None if run.cancel_requested_at is None else from_micros(run.cancel_requested_at).isoformat(),
        },
        remedy=f"The program has {grace_s:g} s for it and is killed then.",
    )


def _why_finishing(members: Sequence[Row]) -> api.Why:
    alive = [name for member, name in members if member.state not in TERMINAL_MEMBER]
    if alive:
        return api.Why(
            rule="finishing",
            sentence=f"Is decided; waits for the program on {name_some(alive)} to end.",
            evidence={"hosts": list(alive)},
        )
    late = [(member, name) for member, name in members if (member.last_seq or 0) > member.acked_seq]
    evidence: dict[str, JsonValue] = {
        "missing_records": {name: (member.last_seq or 0) - member.acked_seq for member, name in late}
    }
    unsent = {name: member.unsent_bytes for member, name in late if member.unsent_bytes}
    if unsent:
        evidence["unsent_bytes"] = dict(unsent)
    size = f" {size_text(sum(unsent.values()))} of" if unsent else ""
    return api.Why(
        rule="finishing",
        sentence=f"The program has ended; {name_some([name for _, name in late])} is sending{size} telemetry.",
        evidence=evidence,
        remedy="Nothing has to be done, and its devices are free. What a lost host has not sent is recorded as a gap.",
    )


def _why_made_to_wait(members: Sequence[Row]) -> api.Why | None:
    """For a program that runs, but of which a host can take no more before the server has."""
    live = [(member, name) for member, name in members if member.state not in TERMINAL_MEMBER]
    waiting = [name for member, name in live if member.phase == WAITING_FOR_TELEMETRY]
    if not waiting:
        return None
    return api.Why(
        rule="telemetry",
        sentence=f"The program waits for its telemetry to be taken: what {name_some(waiting)} keeps for it is full.",
        evidence={"hosts": list(waiting)},
        remedy="It resumes as the server takes what there is; no limit of its steps counts meanwhile. A greater "
        "DRUMLINE_WORKER_SPOOL_BYTES of the worker takes more.",
    )
