"""What a run's checkpoints add to why it waits: the host that has them, or the work that is lost with one."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline.wording import counted
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import Run
from drumline_server.runs.why_hosts import why_out_of_service
from drumline_server.scheduler.capacity import HostCapacity, capacities, most_possible, room
from drumline_server.scheduler.shapes import Shape


def with_checkpoint(session: Session, run: Run, why: api.Why | None) -> api.Why | None:
    """`why`, and what a run that has checkpoints waits for or loses; as it is for every other run."""
    if why is None or run.state not in (RunState.QUEUED, RunState.RETRY_WAIT):
        return why
    home = checkpoints.homes_of(session, run.project_id, [run]).get(run.id)
    if home is None:
        return why
    fleet = capacities(session, run.project_id)
    if run.state == RunState.QUEUED and waits_there(why.rule, run, home, fleet):
        why = _tied(run, why, home, fleet)
    return _with_loss(session, run, why, home)


def waits_there(rule: api.WaitRule, run: Run, home: checkpoints.Home, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a queued run waits for the hosts that can read its checkpoint; of one that starts `rule` tells enough."""
    if not checkpoints.is_tied(run, home, fleet):
        return False
    shape = Shape.parse(run.shape)
    there = [host for host in checkpoints.readers_of(home, fleet) if host.out_of_service is None]
    return rule != "starting" or room(there, shape, lambda host: host.free) < shape.replicas


def _tied(run: Run, why: api.Why, home: checkpoints.Home, fleet: Sequence[HostCapacity]) -> api.Why:
    """Where those hosts are lost, too small or out of service, or their devices are, what would help."""
    names = " or ".join(sorted(home.hosts.values()))
    there, shape = checkpoints.readers_of(home, fleet), Shape.parse(run.shape)
    possible = most_possible(there, shape).replicas
    blocked = why_out_of_service(there, shape)
    goes_on = f"Goes on from its checkpoint of step {home.step}, which only {names} can read"
    evidence = {**why.evidence, "step": home.step, "hosts": sorted(home.hosts.values())}
    if not home.hosts:
        sentence, remedy = "Waits for a host that can read its checkpoint.", f"Bring that host back. {_anew(run)}"
    elif possible < shape.replicas:
        sentence = f"{goes_on}, with room for {counted(possible, 'replica')}, not for {shape.replicas}."
        remedy = f"Submit it with as many, or share its --checkpoint-dir with a larger host. {_anew(run)}"
        evidence |= {"possible": possible}
    elif blocked is None:
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
    return f"To begin anew on another host, cancel it and `drumline rerun {run.id} --from-start`."


def _with_loss(session: Session, run: Run, why: api.Why, home: checkpoints.Home) -> api.Why:
    if home.lost is None:
        return why
    host = checkpoints.writer_of(session, home.lost)
    loss = f"Its checkpoint of step {home.lost.step} was on {host}, which is lost"
    if home.hosts:
        loss += f": it goes on from step {home.step}"
    elif run.resume_from is None:
        loss += ": it begins anew"
    evidence = {**why.evidence, "lost_step": home.lost.step, "lost_host": host}
    return why.model_copy(update={"sentence": f"{why.sentence} {loss}.", "evidence": evidence})
