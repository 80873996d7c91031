"""Why a run waits: computed when it is read, from the fleet and the queue as they are."""

from collections.abc import Sequence

from pydantic import JsonValue
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import RunState
from drumline.wording import counted
from drumline_server.models import Run
from drumline_server.runs.feasibility import describe_need, describe_room
from drumline_server.runs.why_attempt import why_attempt
from drumline_server.runs.why_checkpoint import with_checkpoint
from drumline_server.runs.why_hosts import why_out_of_service
from drumline_server.scheduler.capacity import HostCapacity, Possible, capacities, most_possible, room
from drumline_server.scheduler.shapes import Shape


def why_waiting(session: Session, run: Run, *, now: int) -> api.Why | None:
    """The rule that blocks a waiting run; None for a run that does not wait."""
    return with_checkpoint(session, run, _why(session, run, now))


def why_queued(shape: Shape, fleet: Sequence[HostCapacity]) -> api.Why:
    """What blocks a queued run of that shape without checkpoints, before the scheduler is asked."""
    fitting = [host for host in fleet if shape.platform in ("any", host.platform)]
    if not fitting:
        return _why_no_devices(shape.platform, fleet)
    possible = most_possible(fitting, shape)
    if possible.replicas < shape.replicas:
        return _why_too_few(shape, possible)
    return why_out_of_service(fitting, shape) or _why_busy(fitting, shape)


def looked_at(why: api.Why, *, starts: bool) -> api.Why:
    """`why` of a queued run, once the scheduler's own look tells whether it starts with the devices that are free."""
    if starts:
        update = {"rule": "starting", "sentence": "Is about to be placed.", "remedy": ""}
    elif why.rule == "starting":
        update = {
            "rule": "behind_others",
            "sentence": "Devices are free, but kept for runs ahead of it.",
            "remedy": "It starts when they have started; a higher priority would put it before them.",
        }
    else:
        return why
    return why.model_copy(update=update)


def not_looked_at(why: api.Why) -> api.Why:
    """`why` of a queued run that so many older runs are like that the scheduler looks at those alone."""
    if why.rule != "starting":
        return why
    update = {
        "rule": "behind_others",
        "sentence": "Devices are free, but so many runs like it are ahead of it that these are looked at first.",
        "remedy": "It starts after them; a higher priority would put it before them.",
    }
    return why.model_copy(update=update)


def _why(session: Session, run: Run, now: int) -> api.Why | None:
    match run.state:
        case RunState.QUEUED:
            return why_queued(Shape.parse(run.shape), capacities(session, run.project_id))
        case RunState.RETRY_WAIT:
            return _why_backoff(run, now)
        case RunState.PLACED | RunState.RUNNING | RunState.CANCELLING:
            return why_attempt(session, run, now=now)
    return None


def _why_too_few(shape: Shape, possible: Possible) -> api.Why:
    evidence: dict[str, JsonValue] = {"wanted": shape.devices, "largest": possible.largest}
    most = counted(possible.replicas, "replica")
    nearest = f"Submit it with at most {most}, or start" if possible.replicas else "Start"
    return api.Why(
        rule="too_few_devices",
        sentence=f"Needs {describe_need(shape)}, but {describe_room(shape, possible)}.",
        evidence={**evidence, "host": possible.hosts[0].host_name} if possible.hosts else evidence,
        remedy=f"{nearest} a worker with more devices.",
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
            sentence=f"Needs {describe_need(shape)}; {where} {verb} {counted(free, 'device')} free.",
            evidence=evidence,
            remedy="It starts when enough devices are free; cancel a running run, or submit it with fewer replicas.",
        )
    return api.Why(rule="starting", sentence="Devices are free; the scheduler looks at it next.", evidence=evidence)


def _why_no_devices(platform: str, fleet: Sequence[HostCapacity]) -> api.Why:
    if not fleet:
        return api.Why(
            rule="no_hosts",
            sentence="No worker with a device has registered.",
            remedy="Start a worker: `drumline worker run` on a machine with devices.",
        )
    platforms = sorted({host.platform for host in fleet})
    return api.Why(
        rule="no_such_platform",
        sentence=f"Wants {platform} devices; the hosts have {', '.join(platforms)}.",
        evidence={"platform": platform, "available": list(platforms)},
        remedy=f"Submit it with platform {platforms[0]} or any, or start a worker with {platform} devices.",
    )


def _why_backoff(run: Run, now: int) -> api.Why:
    retry_at = run.retry_at or now
    return api.Why(
        rule="retry_backoff",
        sentence=f"Failed ({run.reason_code}); tries again in {max(0, retry_at - now) / 1e6:.0f} s.",
        evidence={"retry_at": from_micros(retry_at).isoformat(), "attempts": run.attempts},
    )
