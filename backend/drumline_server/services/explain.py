"""Why a run waits: computed when it is read, from the fleet and the queue as they are."""

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline.slices import MAX_SIMULATED_DEVICES
from drumline.wording import plural
from drumline_server.base.shapes import Shape
from drumline_server.lifecycle import checkpoints
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import (
    HostCapacity,
    PlatformCapacity,
    best_platform,
    capacities,
    describe_need,
    describe_room,
    no_shared_store,
    room,
    store_warning,
)
from drumline_server.services.explain_attempt import why_attempt
from drumline_server.storage.models import Run
from drumline_server.storage.runs import members_of

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


def with_checkpoint(session: Session, run: Run, why: api.Why | None) -> api.Why | None:
    """`why`, and what a run that has checkpoints waits for or loses; as it is for every other run."""
    if why is None or run.state not in (RunState.QUEUED, RunState.RETRY_WAIT):
        return why
    home = capacity.resume_locations(session, run.project_id, [run]).get(run.id)
    if home is None:
        return why
    fleet = capacities(session, run.project_id)
    if run.state == RunState.QUEUED and waits_there(why.rule, run, home, fleet):
        why = _why_tied_to_hosts(run, why, home, fleet)
    return _with_loss(session, run, why, home)


def waits_there(rule: api.WaitRule, run: Run, home: capacity.ResumeLocation, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a queued run waits for the hosts that can read its checkpoint; of one that starts `rule` tells enough."""
    if not capacity.is_tied(run, home, fleet):
        return False
    shape = Shape.parse(run.shape)
    there = [host for host in capacity.readers_of(home, fleet) if host.out_of_service is None]
    return rule != "starting" or room(there, shape, lambda host: host.free) < shape.replicas


def _why_tied_to_hosts(run: Run, why: api.Why, home: capacity.ResumeLocation, fleet: Sequence[HostCapacity]) -> api.Why:
    """Where those hosts are lost, too small or out of service, or their devices are, what would help."""
    names = " or ".join(sorted(home.hosts.values()))
    there, shape = capacity.readers_of(home, fleet), Shape.parse(run.shape)
    possible = best_platform(there, shape).replicas
    blocked = why_out_of_service(there, shape)
    goes_on = f"Resumes from its checkpoint of step {home.step}, which only {names} can read"
    evidence = {**why.evidence, "step": home.step, "hosts": sorted(home.hosts.values())}
    if not home.hosts:
        sentence, remedy = (
            "Waits for a host that can read its checkpoint.",
            f"Bring that host back. {_how_to_start_over(run)}",
        )
    elif possible < shape.replicas:
        sentence = f"{goes_on}, with room for {plural(possible, 'replica')}, not for {shape.replicas}."
        remedy = f"Submit it with as many, or share its --checkpoint-dir with a larger host. {_how_to_start_over(run)}"
        evidence |= {"possible": possible}
    elif blocked is None:
        sentence = f"{goes_on}; waits for {run.replicas} replicas there."
        remedy = f"It starts when {names} is free. Workers that share a --checkpoint-dir can take over."
    else:
        sentence, remedy = f"{goes_on}. {blocked.sentence}", f"{blocked.remedy} {_how_to_start_over(run)}"
        evidence |= {**blocked.evidence, "blocked_by": blocked.rule}
    update = {"rule": "checkpoint_host", "sentence": sentence, "evidence": evidence, "remedy": remedy}
    return why.model_copy(update=update)


def _how_to_start_over(run: Run) -> str:
    """How not to wait for the checkpoint; a re-run resumes from where its run was told to."""
    if run.resume_from is None:
        return f"To start over on another host, cancel it and `drumline rerun {run.id}`."
    return f"To start over on another host, cancel it and `drumline rerun {run.id} --from-start`."


def _with_loss(session: Session, run: Run, why: api.Why, home: capacity.ResumeLocation) -> api.Why:
    if home.lost is None:
        return why
    host = checkpoints.writer_of(session, home.lost)
    loss = f"Its checkpoint of step {home.lost.step} was on {host}, which is lost"
    if home.hosts:
        loss += f": it resumes from step {home.step}"
    elif run.resume_from is None:
        loss += ": it starts over"
    evidence = {**why.evidence, "lost_step": home.lost.step, "lost_host": host}
    return why.model_copy(update={"sentence": f"{why.sentence} {loss}.", "evidence": evidence})


def warnings_of(session: Session, run: Run) -> tuple[api.RunWarning, ...]:
    """What to know of a run that has not ended: that it cannot save where it is, or where it would have room."""
    if run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
        shape = Shape.parse(run.shape)
        return () if shape.is_one_host else store_warning(capacities(session, run.project_id, shape.platform), shape)
    if run.state in TERMINAL_RUN or run.attempt_id is None or len(run.hosts) < 2:
        return ()
    hosts = {member.host_id for member in members_of(session, run.attempt_id)}
    if checkpoints.share_a_store(session, hosts):
        return ()
    named = f"{', '.join(run.hosts[:-1])} and {run.hosts[-1]}"
    return no_shared_store(f"Its hosts {named} share no checkpoint store: run.checkpoint fails there.")


def why_waiting(session: Session, run: Run, *, now: int) -> api.Why | None:
    """The rule that blocks a waiting run; None for a run that does not wait."""
    return with_checkpoint(session, run, _why(session, run, now))


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


def with_scheduler_verdict(why: api.Why, *, starts: bool) -> api.Why:
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


def behind_runs_alike(why: api.Why) -> api.Why:
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
