"""What a run's checkpoints add to why it waits: the host that has them, or the work that is lost with one."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import Run
from drumline_server.runs.why_hosts import why_out_of_service
from drumline_server.scheduler.capacity import HostCapacity, capacities, room
from drumline_server.scheduler.shapes import Shape


def with_checkpoint(session: Session, run: Run, why: api.Why | None) -> api.Why | None:
    """`why`, and what a run that has checkpoints waits for or loses; as it is for every other run."""
    if why is None or run.state not in (RunState.QUEUED, RunState.RETRY_WAIT):
        return why
    home = checkpoints.homes_of(session, run.project_id, [run]).get(run.id)
    if home is None:
        return why
    fleet = capacities(session, run.project_id)
    if run.state == RunState.QUEUED and waits_there(why.rule, Shape.parse(run.shape), home, fleet):
        why = _tied(run, why, home, fleet)
    return _with_loss(session, why, home)


def waits_there(rule: api.WaitRule, shape: Shape, home: checkpoints.Home, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a queued run waits for the hosts that can read its checkpoint; of one that starts `rule` tells enough."""
    if not checkpoints.is_tied(shape, home, fleet):
        return False
    there = [host for host in fleet if host.host_id in home.hosts and host.out_of_service is None]
    return rule != "starting" or room(there, shape, lambda host: host.free) < shape.replicas


def _tied(run: Run, why: api.Why, home: checkpoints.Home, fleet: Sequence[HostCapacity]) -> api.Why:
    """Where those hosts, or their devices, are out of service, what would bring them back."""
    names = " or ".join(sorted(home.hosts.values()))
    there = [host for host in fleet if host.host_id in home.hosts]
    blocked = why_out_of_service(there, Shape.parse(run.shape))
    goes_on = f"Goes on from its checkpoint of step {home.step}, which only {names} can read"
    evidence = {**why.evidence, "step": home.step, "hosts": sorted(home.hosts.values())}
    if blocked is None:
        sentence = f"{goes_on}; waits for {run.replicas} replicas there."
        remedy = f"It starts when {names} is free. Workers that share a --checkpoint-dir can take over."
    else:
        sentence, remedy = f"{goes_on}. {blocked.sentence}", f"{blocked.remedy} {_anew(run)}"
        evidence |= {**blocked.evidence, "blocked_by": blocked.rule}
    update = {"rule": "checkpoint_host", "sentence": sentence, "evidence": evidence, "remedy": remedy}
    return why.model_copy(update=update)


def _anew(run: Run) -> str:
    """How not to wait for the checkpoint; a re-run goes on from where its run was told to."""
    if run.resume_from is None:
        return f"To begin anew on another host, cancel it and `drumline rerun {run.id}`."
    return "To begin anew on another host, cancel it and submit it without resume_from."


def _with_loss(session: Session, why: api.Why, home: checkpoints.Home) -> api.Why:
    if home.lost is None:
        return why
    host = checkpoints.writer_of(session, home.lost)
    goes_on = f"it goes on from step {home.step}" if home.hosts else "it begins anew"
    loss = f"Its checkpoint of step {home.lost.step} was on {host}, which is lost: {goes_on}."
    evidence = {**why.evidence, "lost_step": home.lost.step, "lost_host": host}
    return why.model_copy(update={"sentence": f"{why.sentence} {loss}", "evidence": evidence})
